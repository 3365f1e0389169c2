"""A coordinator writes the plan, a silo has a database. Which query runs there is the silo's own
decision: it stands in a file of the silo, and even that query can only read what lies there.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from sumus.data import load
from sumus.errors import DataError, PlanError
from sumus.parties import Site
from sumus.plan import TrainingPlan

duckdb = pytest.importorskip("duckdb")
pytest.importorskip("pyarrow")


def _query_file(folder: Path, query: str, database: str | None = None) -> Path:
    lines = [] if database is None else [f'database = "{database}"']
    path = folder / "query.toml"
    path.write_text("\n".join([*lines, f"query = '''{query}'''", ""]))
    return path


def _asked(path: Path) -> int:
    """Rows that come out of a query file as a table of records."""
    plan = {"data": {"path": str(path), "silo_column": "silo", "label_column": "label"}}
    return sum(map(len, load(TrainingPlan.from_table(plan)).silos))


def test_a_plan_that_names_a_query_is_not_asked_at_a_silo(tmp_path):
    lines = [f"{'AB'[place % 2]},{place // 2 % 2},{place}" for place in range(60)]
    (tmp_path / "all.csv").write_text("\n".join(["silo,label,x", *lines, ""]))
    own = tmp_path / "own.csv"
    own.write_text("\n".join(["silo,label,x", *(line for line in lines if line[0] == "A"), ""]))
    duckdb.sql(f"COPY (FROM '{tmp_path}/all.csv') TO '{tmp_path}/all.parquet'")
    query = _query_file(tmp_path, "SELECT * FROM '{folder}/all.parquet'")
    assert _asked(query) == 60  # the query works where somebody opens it
    data = {
        "path": str(query),
        "silo_column": "silo",
        "label_column": "label",
        "columns": ["x"],
        "bounds": {"x": [0, 60]},
        "categories": {"silo": ["A", "B"], "label": ["0", "1"]},
        "records_per_silo": [30, 30],
    }
    found = Site(data=str(own)).load(TrainingPlan.from_table({"data": data}), "A")
    assert [len(silo) for silo in found.silos] == [30]


@pytest.mark.parametrize("key", ["query", "database", "driver", "connect"])
def test_a_plan_has_no_key_for_a_query(key):
    with pytest.raises(PlanError, match=f"data.{key}"):
        TrainingPlan.from_table({"data": {"path": "own.csv", key: "SELECT 1"}})


def test_a_query_does_not_read_beyond_its_folder(tmp_path):
    secret = "COPY (SELECT * FROM (VALUES ('A', 0, 1), ('B', 1, 2)) AS t(silo, label, x)) TO '{}'"
    duckdb.sql(secret.format(tmp_path / "secret.parquet"))
    (tmp_path / "vault").mkdir()
    reads = "FROM read_parquet('{}')"
    outside = reads.format(tmp_path / "secret.parquet")
    assert len(duckdb.sql(outside).fetchall()) == 2  # DuckDB by itself reads it
    for path in (f"{tmp_path}/secret.parquet", "{folder}/../secret.parquet"):
        query = _query_file(tmp_path / "vault", reads.format(path))
        with pytest.raises(DataError, match="Permission Error"):
            _asked(query)
    duckdb.sql(secret.format(tmp_path / "vault" / "own.parquet"))
    assert _asked(_query_file(tmp_path / "vault", "SELECT * FROM '{folder}/own.parquet'")) == 2


def test_a_query_writes_no_file(tmp_path):
    target = tmp_path / "out.csv"
    writes = f"COPY (SELECT 1) TO '{target}'"
    duckdb.sql(writes)
    assert target.exists()  # DuckDB by itself writes it
    target.unlink()
    for query in (writes, f"SELECT 1; {writes}"):
        with pytest.raises(DataError, match="one SELECT statement"):
            _asked(_query_file(tmp_path, query))
    assert not target.exists()


def test_a_query_changes_no_setting_and_loads_no_extension(tmp_path):
    for query in ("SET enable_external_access = true", "LOAD httpfs", "INSTALL httpfs"):
        with pytest.raises(DataError, match="one SELECT statement"):
            _asked(_query_file(tmp_path, query))


def test_a_query_leaves_a_database_as_it_is(tmp_path):
    path = tmp_path / "own.sqlite"
    with sqlite3.connect(path) as link:
        link.execute("CREATE TABLE visits (silo, label, x)")
        link.execute("INSERT INTO visits VALUES ('A', 0, 1), ('B', 1, 2)")
    link.close()
    before = path.read_bytes()
    other = tmp_path / "other.sqlite"
    for query in (
        "DELETE FROM visits RETURNING *",
        f"ATTACH DATABASE '{other}' AS other",
        "PRAGMA writable_schema = 1",
        "SELECT load_extension('x')",
    ):
        with pytest.raises(DataError, match="cannot be run"):
            _asked(_query_file(tmp_path, query, "own.sqlite"))
    assert path.read_bytes() == before
    assert not other.exists()
    link = sqlite3.connect(path)
    link.execute(f"ATTACH DATABASE '{other}' AS other")  # SQLite by itself makes the file
    link.execute("CREATE TABLE other.x (y)")
    assert other.exists()
    link.close()
    assert _asked(_query_file(tmp_path, "SELECT * FROM visits", "own.sqlite")) == 2


def test_a_fault_in_a_query_shows_no_value(tmp_path):
    with duckdb.connect(str(tmp_path / "own.duckdb")) as link:
        link.execute("CREATE TABLE visits (silo TEXT, label INT, x TEXT)")
        link.execute("INSERT INTO visits VALUES ('A', 0, 'hidden'), ('B', 1, '2')")
        query = "SELECT silo, label, CAST(x AS INTEGER) AS x FROM visits"
        with pytest.raises(duckdb.Error, match="hidden"):
            link.sql(query).fetchall()
    with pytest.raises(DataError, match="Conversion Error") as caught:
        _asked(_query_file(tmp_path, query, "own.duckdb"))
    assert "hidden" not in str(caught.value)
