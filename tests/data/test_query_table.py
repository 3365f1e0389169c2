"""A silo's source file: the order of a database's rows does not matter, and what it says is checked."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest

from sumus.data import ReadingRules, load, read_table
from sumus.errors import DataError
from sumus.plan import TrainingPlan

ROWS = [("AB"[place % 2], place % 7, "xyz"[place % 3], place % 2) for place in range(40)]


def _plan(path: Path) -> TrainingPlan:
    data = {"path": str(path), "silo_column": "silo", "label_column": "label"}
    return TrainingPlan.from_table({"data": data})


def _database(folder: Path) -> Path:
    with sqlite3.connect(folder / "own.sqlite") as link:
        link.execute("CREATE TABLE visits (silo, age, ward, label)")
        link.executemany("INSERT INTO visits VALUES (?, ?, ?, ?)", ROWS)
    link.close()
    return folder / "own.sqlite"


def _source(folder: Path, text: str) -> Path:
    path = folder / "source.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("engine", ["sqlite", "duckdb"])
def test_the_order_of_rows_does_not_matter(tmp_path, engine):
    found = []
    if engine == "sqlite":
        database = _database(tmp_path)
    else:
        duckdb = pytest.importorskip("duckdb")
        database = tmp_path / "own.duckdb"
        with duckdb.connect(str(database)) as link:
            link.execute("CREATE TABLE visits (silo TEXT, age INT, ward TEXT, label INT)")
            link.executemany("INSERT INTO visits VALUES (?, ?, ?, ?)", ROWS)
    for order in ("age, ward, silo, label", "label DESC, ward DESC, age DESC, silo"):
        query = f'database = "{database.name}"\nquery = "FROM_ ORDER BY {order}"\n'
        data = load(_plan(_source(tmp_path, query.replace("FROM_", "SELECT * FROM visits"))))
        found.append([(silo.train.x, silo.train.y) for silo in data.silos])
    for (x, y), (other_x, other_y) in zip(*found, strict=True):
        assert np.array_equal(x, other_x)
        assert np.array_equal(y, other_y)


def test_rows_to_be_predicted_keep_the_order_of_the_query(tmp_path):
    _database(tmp_path)
    lines = ['database = "own.sqlite"', 'query = "SELECT * FROM visits ORDER BY age DESC, ward"']
    source = _source(tmp_path, "\n".join(lines))
    expected = sorted(ROWS, key=lambda row: (-row[1], row[2]))
    for as_asked in (True, False):
        columns, typed = read_table(source, ReadingRules(), as_asked=as_asked)
        found = [
            (int(columns["age"].values[age]), columns["ward"].values[ward])
            for age, ward in zip(columns["age"].codes, columns["ward"].codes, strict=True)
        ]
        assert (found == [(row[1], row[2]) for row in expected]) is as_asked
        assert not typed


def test_a_driver_of_another_database(tmp_path):
    database = _database(tmp_path)
    lines = ('driver = "sqlite3"', f'connect = "{database}"', 'query = "SELECT * FROM visits"')
    text = "\n".join(lines)
    assert sum(map(len, load(_plan(_source(tmp_path, text))).silos)) == len(ROWS)


def test_a_source_file_names_a_file_and_how_it_is_written(tmp_path):
    text = "silo,age,ward,label\n" + "".join(",".join(map(str, row)) + "\n" for row in ROWS)
    (tmp_path / "own.csv").write_bytes(text.replace("x", "ö").encode("latin-1"))
    source = _source(tmp_path, 'file = "own.csv"\nencoding = "latin-1"\n')
    assert sum(map(len, load(_plan(source)).silos)) == len(ROWS)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "one of them"),
        ('query = "SELECT 1"\nfile = "x"\n', "one of them"),
        ("query = 1\n", "must be text"),
        ('query = "SELECT 1"\nquerry = "x"\n', "is no key of a source file"),
        ('query = "SELECT 1"\ndatabase = "x"\ndriver = "y"\n', "not both"),
        ('query = "SELECT 1"\ndatabase = "nowhere.db"\n', "cannot be read"),
        ('query = "SELECT 1"\ndriver = "no_such_driver"\n', "is not installed"),
        ('query = "SELECT 1"\ndriver = ".x"\n', "no name of a module"),
        ('query = "SELECT 1"\ndriver = "a..b"\n', "no name of a module"),
        ('query = "SELECT 1"\ndriver = "json"\n', "no database driver"),
        ('file = "nowhere.csv"\n', "must be a table"),
        ('file = "source.toml"\n', "must be a table"),
        ('file = "x"\nencoding = "zip"\n', "encoding must be one of"),
    ],
)
def test_faults_are_one_line(tmp_path, text, complaint):
    with pytest.raises(DataError) as caught:
        load(_plan(_source(tmp_path, text)))
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)
