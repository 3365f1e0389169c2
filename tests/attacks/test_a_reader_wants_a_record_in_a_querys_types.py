"""Somebody who reads plan and report of a run on a query wants to see that one record is among the
rows: DuckDB guesses the types of text files from their records, so that one odd value turns numbers
into text, `7.50` into `7.5` and `yes` into a flag, and one more key of a JSON record adds a column.

If types or columns hung on one record, neighbours would be told apart with certainty, before any
noise. What a query reads must declare them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from sumus.data import FederatedData, load
from sumus.errors import DataError
from sumus.plan import TrainingPlan

duckdb = pytest.importorskip("duckdb")
pytest.importorskip("pyarrow")

ROWS = [f"{'AB'[place % 2]},{place}.50,{('no', 'yes')[place // 2 % 2]}" for place in range(40)]
VICTIM = "A,unknown,yes"


def _text(folder: Path, *more: str) -> Path:
    path = folder / "visits.csv"
    path.write_text("\n".join(["silo,age,label", *ROWS, *more, ""]))
    return path


def _loaded(folder: Path, query: str, database: str | None = None) -> FederatedData:
    lines = [] if database is None else [f'database = "{database}"']
    path = folder / "source.toml"
    path.write_text("\n".join([*lines, f"query = '''{query}'''", ""]))
    data = {"path": str(path), "silo_column": "silo", "label_column": "label"}
    data["categories"] = {"label": ["no", "yes"]}
    return load(TrainingPlan.from_table({"data": data}))


def test_control_duckdb_guesses_types_from_records(tmp_path: Path) -> None:
    found = []
    for more in ((), (VICTIM,)):
        read = duckdb.sql(f"FROM '{_text(tmp_path, *more)}'")
        found.append((read.types, read.fetchall()[7]))
    assert found[0] != found[1]
    assert (found[0][1][1], found[1][1][1]) == (7.5, "7.50")  # another record's value, too
    kinds = [
        len(duckdb.sql(f"FROM read_json('{_json(tmp_path, more)}')").columns)
        for more in ("", '{"silo": "A", "age": 1, "label": "no", "note": "x"}\n')
    ]
    assert kinds == [3, 4]


def _json(folder: Path, more: str) -> Path:
    path = folder / "visits.json"
    path.write_text('{"silo": "A", "age": 1, "label": "no"}\n' * 9 + more)
    return path


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM '{folder}/visits.csv'",
        "SELECT * FROM read_csv('{folder}/visits.csv')",
        "SELECT * FROM '{folder}/visits.json'",
        "SELECT * FROM read_json_auto('{folder}/visits.json')",
        "SELECT * FROM '{folder}/visits.csv' WHERE false",
        "SELECT *, (SELECT max(age) FROM '{folder}/visits.csv') AS oldest FROM visits",
        "SELECT * FROM guessed",
        "WITH own AS (FROM '{folder}/visits.csv') SELECT * FROM own, own AS other",
        "SELECT * FROM query('FROM guessed')",
    ],
)
def test_by_a_value_of_another_type_in_a_text_file(tmp_path: Path, query: str) -> None:
    for more in ((), (VICTIM,)):
        path, name = _text(tmp_path, *more), tmp_path / f"{len(more)}.duckdb"
        _json(tmp_path, "")
        with duckdb.connect(str(name)) as link:
            link.execute("CREATE TABLE visits (silo TEXT, age TEXT, label TEXT)")
            link.execute(f"CREATE VIEW guessed AS FROM '{path}'")
        with pytest.raises(DataError, match="must read tables of a database or Parquet") as caught:
            _loaded(tmp_path, query, name.name)
        assert "\n" not in str(caught.value)


def test_by_a_value_in_a_table_whose_types_are_declared(tmp_path: Path) -> None:
    found = []
    for more in ((), (VICTIM,)):
        name = tmp_path / f"{len(more)}.duckdb"
        with duckdb.connect(str(name)) as link:
            link.execute("CREATE TABLE visits (silo TEXT, age TEXT, label TEXT)")
            link.execute(f"INSERT INTO visits FROM read_csv('{_text(tmp_path, *more)}')")
            link.execute(f"COPY visits TO '{tmp_path}/visits.parquet'")
        for query in ("FROM visits", "FROM '{folder}/visits.parquet'"):
            data = _loaded(tmp_path, query, name.name)
            found.append((data.shape, data.encoding, data.labels, data.assumptions))
    assert all(each == found[0] for each in found)


def test_by_a_folder_of_its_own(tmp_path: Path) -> None:
    """A partition's folder is named by a value of its records, and DuckDB guesses types of those."""
    for value in ("7", "8"):
        (tmp_path / f"ward={value}").mkdir()
        place = tmp_path / f"ward={value}" / "0.parquet"
        row = "SELECT 'A' AS silo, 'no' AS label, range AS age FROM range(10)"
        duckdb.sql(f"COPY ({row}) TO '{place}'")
    read = "FROM read_parquet('{folder}/*/*.parquet')"
    guessed = duckdb.sql(read.replace("{folder}", str(tmp_path))).fetchall()
    assert {row[3] for row in guessed} == {7, 8}  # numbers
    with pytest.raises(DataError, match="whose types would be guessed"):
        _loaded(tmp_path, read)
    data = _loaded(tmp_path, read.replace(")", ", hive_types_autocast = false)"))
    assert data.shape == (30 + 65,)  # a number, text
