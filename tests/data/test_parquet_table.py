"""Parquet files: the schema of the file says what a column is."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from sumus.data import load, load_silo
from sumus.data.parquet_table import read_parquet
from sumus.errors import DataError
from sumus.plan import TrainingPlan

arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


def _plan(path: Path, **data: object) -> TrainingPlan:
    entries = {
        "path": str(path),
        "silo_column": "silo",
        "label_column": "label",
        "test_fraction": 0.0,
        **data,
    }
    return TrainingPlan.from_table({"data": entries})


def _write(folder: Path, **columns: object) -> Path:
    path = folder / "own.parquet"
    parquet.write_table(arrow.table(columns), path)
    return path


def test_types_of_the_schema_decide(tmp_path):
    path = _write(
        tmp_path,
        flag=[True, None, False],
        number=arrow.array([1, None, 2**40], arrow.int64()),
        amount=[Decimal("1.50"), None, Decimal("-2")],
        day=[datetime.date(1970, 1, 11), None, datetime.date(1969, 12, 31)],
        moment=arrow.array([86_400 * 2, None, 0], arrow.timestamp("s")),
        word=["1", None, " b "],
        kind=arrow.array(["u", None, "v"]).dictionary_encode(),
        nothing=arrow.nulls(3),
    )
    columns = read_parquet(path)
    assert columns["flag"].bounds == (0.0, 1.0)
    nan = float("nan")
    for name, expected in {
        "flag": [1, nan, 0],
        "number": [1, nan, 2**40],
        "amount": [1.5, nan, -2],
        "day": [10, nan, -1],
        "moment": [2, nan, 0],
    }.items():
        assert np.array_equal(columns[name].values, expected, equal_nan=True), name
    assert (columns["nothing"].codes.tolist(), columns["nothing"].untyped) == ([-1] * 3, True)
    assert (columns["word"].values, columns["word"].codes.tolist(), columns["word"].declared) == (
        ("1", "b"),
        [0, -1, 1],
        False,
    )
    assert (columns["kind"].values, columns["kind"].codes.tolist(), columns["kind"].declared) == (
        ("u", "v"),
        [0, -1, 1],
        True,
    )


def test_a_dictionary_type_brings_its_public_categories_along(tmp_path):
    kind = arrow.DictionaryArray.from_arrays(
        arrow.array([0, 2, None, 0], arrow.uint8()), ["low", "middle", "high"]
    )
    path = _write(tmp_path, silo=["A"] * 4, label=[0, 1, 1, 0], kind=kind)
    data = load(_plan(path))
    # "middle" never occurs and still has its feature; the last one is for other and missing
    assert data.shape == (4,)
    assert sorted(map(tuple, data.silos[0].train.x.tolist())) == [
        (0, 0, 0, 1),
        (0, 0, 1, 0),
        (1, 0, 0, 0),
        (1, 0, 0, 0),
    ]
    assert any("categories of kind" in line for line in data.assumptions)
    assert not any("number or text" in line for line in data.assumptions)
    assert any(
        "is what the schema of the file declares" in line and "whether" in line
        for line in data.assumptions
    )


def test_a_column_without_any_value_is_no_declaration(tmp_path):
    """One record with a value gives the column a type; without it nothing is declared."""
    rows = {"silo": ["A", "B"] * 4, "label": [0, 1] * 4, "age": range(8), "ward": arrow.nulls(8)}
    path = _write(tmp_path, **rows)
    declared, read_off = (
        [line for line in load(_plan(path)).assumptions if words in line]
        for words in ("schema of the file declares", "was read off the file")
    )
    assert ["ward" in line for line in declared] == [False]
    assert ["ward" in line for line in read_off] == [True]
    alone = _write(tmp_path, **{**rows, "silo": ["A"] * 8})
    lists = {"silo": ["A", "B"], "label": ["0", "1"]}
    plan = {"columns": ["age", "ward"], "bounds": {"age": [0, 9]}}
    with pytest.raises(DataError, match="must declare column 'ward'"):
        load_silo(_plan(alone, categories=lists, **plan), "A")
    data = load_silo(_plan(alone, categories={**lists, "ward": ["east"]}, **plan), "A")
    assert data.shape == (4,)


def test_a_file_of_a_folder_without_any_value_of_a_column_stops_no_other(tmp_path):
    for part, ward, age in (("1", None, [1.0, 2.0]), ("2", ["x", "y"], None), ("3", None, None)):
        (tmp_path / part).mkdir()
        nothing = arrow.nulls(2)
        _write(
            tmp_path / part,
            silo=["A", "B"],
            label=[0, 1],
            ward=nothing if ward is None else ward,
            age=nothing if age is None else age,
        )
    data = load(_plan(tmp_path))
    assert sum(map(len, data.silos)) == 6
    assert data.shape == (65 + 30,)  # text, a number
    assert not any("read off the file" in line and "ward" in line for line in data.assumptions)


def test_numeric_labels_and_silos_match_the_declared_lists(tmp_path):
    path = _write(tmp_path, silo=[3, 1, 3], label=[1.0, 0.0, 0.0], x=[0.1, 0.2, 0.3])
    data = load(
        _plan(path, categories={"label": ["0", "1"], "silo": ["1", "3"]}, bounds={"x": [0, 1]})
    )
    assert [silo.name for silo in data.silos] == ["1", "3"]
    assert sorted(data.silos[1].train.y.tolist()) == [0, 1]


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"silo": ["A", "A"], "label": [0, 1], "x": [[1], [2]]}, "has type list"),
        ({"silo": ["A", None], "label": [0, 1], "x": [1, 2]}, "has no value in 1 records"),
    ],
)
def test_faults_are_one_line(tmp_path, columns, complaint):
    with pytest.raises(DataError) as caught:
        load(_plan(_write(tmp_path, **columns)))
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_two_columns_of_one_name(tmp_path):
    path = tmp_path / "own.parquet"
    parquet.write_table(
        arrow.Table.from_arrays([arrow.array([1]), arrow.array([2])], names=["x", "x"]), path
    )
    with pytest.raises(DataError, match="two columns of one name"):
        read_parquet(path)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(junk=st.binary(max_size=60), magic=st.booleans())
def test_junk_that_is_called_parquet_is_a_data_error(tmp_path, junk, magic):
    path = tmp_path / "own.parquet"
    path.write_bytes((b"PAR1" if magic else b"") + junk + (b"PAR1" if magic else b""))
    with pytest.raises(DataError) as caught:
        load(_plan(path))
    assert "\n" not in str(caught.value)


def test_a_damaged_real_file_is_a_data_error(tmp_path):
    path = _write(tmp_path, silo=["A", "B"], label=[0, 1], x=[1.0, 2.0])
    raw = bytearray(path.read_bytes())
    for position in range(4, len(raw) - 8, 7):
        damaged = bytearray(raw)
        damaged[position] ^= 0xFF
        path.write_bytes(damaged)
        try:
            load(_plan(path))
        except DataError as error:
            complaint = str(error)
        else:
            continue
        assert "\n" not in complaint


@pytest.mark.parametrize(("no", "yes"), [("False", "True"), ("false", "true"), ("FALSE", "TRUE")])
def test_booleans_are_the_same_classes_and_categories_from_csv_and_parquet(tmp_path, no, yes):
    flags = [index % 3 == 0 for index in range(30)]
    silos, sizes = ["AB"[index % 2] for index in range(30)], [float(index) for index in range(30)]
    packed = _write(tmp_path, silo=silos, size=sizes, smokes=flags[::-1], label=flags)
    text = tmp_path / "own.csv"
    rows = zip(silos, sizes, flags[::-1], flags, strict=True)
    lines = [
        f"{silo},{size},{yes if smokes else no},{yes if label else no}"
        for silo, size, smokes, label in rows
    ]
    text.write_text("\n".join(["silo,size,smokes,label", *lines, ""]))
    for listed in ({}, {"label": ["True", "False"]}, {"label": ["false", "true"]}):
        options = {
            "bounds": {"size": [0, 30]},
            "categories": {"smokes": ["false", "true"], **listed},
        }
        first, second = load(_plan(text, **options)), load(_plan(packed, **options))
        assert (
            first.labels.names
            == second.labels.names
            == tuple(listed.get("label", ("False", "True")))
        )
        for one, other in zip(first.silos, second.silos, strict=True):
            assert np.array_equal(one.train.x, other.train.x)
            assert np.array_equal(one.train.y, other.train.y)
