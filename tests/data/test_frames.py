"""Tables that a Python program holds: the same columns as from a file, or one line."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from sumus.data import FederatedData, columns_of, given_table, load, load_table
from sumus.data.columns import Column, NumberColumn, TextColumn
from sumus.data.csv_table import read_csv
from sumus.data.parquet_table import read_parquet
from sumus.errors import DataError
from sumus.plan import TrainingPlan

arrow = pytest.importorskip("pyarrow")
pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
parquet = pytest.importorskip("pyarrow.parquet")

NAN = float("nan")
ROWS = {
    "age": [31.0, None, 52.5],
    "visits": [3, 1, 2],
    "smoker": [True, False, True],
    "ward": ["east", None, "west"],
    "day": [datetime.date(1970, 1, 11), datetime.date(1970, 1, 2), None],
}


def same(one: dict[str, Column], other: dict[str, Column]) -> None:
    assert list(one) == list(other)
    for name, column in one.items():
        if isinstance(column, NumberColumn):
            assert column.bounds == other[name].bounds
            assert column.values.tobytes() == other[name].values.tobytes() or (
                np.array_equal(column.values, other[name].values, equal_nan=True)
            )
        else:
            assert words(column) == words(other[name])


def words(column: Column) -> list[str | None]:
    assert isinstance(column, TextColumn)
    return [None if code < 0 else column.values[code] for code in column.codes]


def typed(frame: Any) -> dict[str, Column]:
    columns = columns_of(frame, "patients")
    assert columns is not None
    assert not any(isinstance(each, TextColumn) and each.untyped for each in columns.values())
    return columns


# -- one table, many libraries


def test_frames_with_a_schema_have_the_columns_of_the_parquet_file(tmp_path: Path) -> None:
    table = arrow.table(ROWS)
    parquet.write_table(table, tmp_path / "t.parquet")
    expected = read_parquet(tmp_path / "t.parquet")
    frames = {
        "arrow": table,
        "batch": table.to_batches()[0],
        "reader": table.to_reader(),
        "polars": polars.DataFrame(ROWS),
        "pandas with arrow types": table.to_pandas(types_mapper=pandas.ArrowDtype),
        "mapping of arrow arrays": {name: table[name].chunk(0) for name in table.column_names},
        "mapping of series": {name: polars.Series(name, values) for name, values in ROWS.items()},
    }
    for frame in frames.values():
        same(typed(frame), expected)


def test_columns_in_several_chunks_are_read_whole() -> None:
    rows = {"age": [1, 2, 3, 4, 5], "ward": ["east", "west", "east", "north", None]}
    typed_frame = pandas.DataFrame(rows).convert_dtypes(dtype_backend="pyarrow")
    pieces = pandas.concat([typed_frame.iloc[:2], typed_frame.iloc[2:]])
    series = {name: polars.Series(name, values) for name, values in rows.items()}
    chunked = {
        name: polars.concat([each[:2], each[2:]], rechunk=False) for name, each in series.items()
    }
    table = arrow.concat_tables([arrow.table(rows).slice(0, 2), arrow.table(rows).slice(2)])
    kinds = arrow.chunked_array(
        [arrow.array(["u", "v"]).dictionary_encode(), arrow.array(["v", "w"]).dictionary_encode()]
    )
    for given_frame in (pieces, chunked, table, {name: table[name] for name in rows}):
        columns = columns_of(given_frame, "patients")
        assert columns is not None
        assert columns["age"].values.tolist() == [1, 2, 3, 4, 5]
        assert words(columns["ward"]) == ["east", "west", "east", "north", None]
    assert words(columns_of({"kind": kinds}, "t")["kind"]) == ["u", "v", "v", "w"]
    assert len(columns_of({"kind": arrow.chunked_array([], arrow.string())}, "t")["kind"]) == 0


def test_chunks_that_cannot_be_joined_are_one_line() -> None:
    text = arrow.array(["x" * 2**26])
    note = arrow.chunked_array([text] * 33)  # one buffer, 33 times
    for frame in ({"note": note}, arrow.table({"note": note})):
        with pytest.raises(DataError, match="column 'note'") as caught:
            columns_of(frame, "patients")
        assert "\n" not in str(caught.value)


def test_a_column_shorter_than_its_frame_is_refused() -> None:
    class Short:
        """A column that gives away fewer values than it says it has."""

        def __len__(self) -> int:
            return 3

        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            return arrow.chunked_array([[1, 2]]).__arrow_c_stream__(requested_schema)

    with pytest.raises(DataError, match="has 3 values, of which 2"):
        columns_of({"age": Short()}, "patients")


def test_a_column_of_nothing_is_declared_by_nobody() -> None:
    nothing = arrow.table({"age": [1, 2], "ward": arrow.nulls(2)})
    columns = columns_of(nothing, "patients")
    assert columns is not None
    assert isinstance(columns["ward"], TextColumn)
    assert columns["ward"].untyped
    assert words(columns["ward"]) == [None, None]
    other = arrow.table({"age": [3, 4], "ward": ["east", "west"]})
    for silos in ([nothing, other], [other, nothing]):  # it stops none of the others
        joined = given_table(silos, silo=None, label=None)
        assert joined is not None
        ward = joined.table.columns["ward"]
        assert sorted(map(str, words(ward))) == ["None", "None", "east", "west"]
        assert joined.table.declares(ward)


def test_a_pandas_column_has_the_type_of_its_dtype_and_objects_have_none() -> None:
    frame = pandas.DataFrame(
        {
            "age": [31.0, NAN, 52.5],
            "visits": pandas.array([3, None, 2], dtype="Int64"),
            "smoker": [True, False, True],
            "asked": pandas.array([True, None, False], dtype="boolean"),
            "ward": pandas.array(["east", None, " west "], dtype="str"),
            "kind": pandas.Categorical(["u", None, "u"], categories=["v", "u"]),
            "when": pandas.to_datetime(["1970-01-11", None, "1970-01-02"]),
            "utc": pandas.to_datetime(["1970-01-11", None, "1970-01-02"], utc=True),
            "zeros": pandas.arrays.SparseArray([0.0, 0.0, 1.0]),
            "any": np.array([1, "b", None], dtype=object),
            7: [1, 2, 3],
        },
        index=["p", "q", "r"],
    )
    columns = columns_of(frame, "patients")
    assert columns is not None
    numbers = {
        "age": [31, NAN, 52.5],
        "visits": [3, NAN, 2],
        "smoker": [1, 0, 1],
        "asked": [1, NAN, 0],
        "when": [10, NAN, 1],
        "utc": [10, NAN, 1],
        "zeros": [0, 0, 1],
        "7": [1, 2, 3],
    }
    assert [name for name, each in columns.items() if isinstance(each, NumberColumn)] == list(
        numbers
    )
    for name, expected in numbers.items():
        assert np.array_equal(columns[name].values, expected, equal_nan=True), name
    assert [columns[name].bounds for name in ("smoker", "asked", "age")] == [(0, 1), (0, 1), None]
    assert words(columns["ward"]) == ["east", None, "west"]
    assert (columns["kind"].values, columns["kind"].declared) == (("v", "u"), True)
    assert words(columns["any"]) == ["1", "b", None]
    assert [name for name in ("ward", "kind", "any") if columns[name].untyped] == ["any"]


def test_arrays_by_name_have_the_type_of_their_dtype() -> None:
    torch = pytest.importorskip("torch")
    given_arrays = {
        "age": np.array([1.5, NAN], dtype=np.float32),
        "tokens": torch.tensor([3, 4]),
        "flag": np.array([True, False]),
        "ward": np.array(["a ", ""]),
        "when": np.array(["1970-01-03", "NaT"], dtype="datetime64[s]"),
        "hidden": np.ma.MaskedArray([5, 6], mask=[False, True]),
        "list": [1, None],
    }
    columns = columns_of(given_arrays, "patients")
    assert columns is not None
    for name, expected in {
        "age": [1.5, NAN],
        "tokens": [3, 4],
        "flag": [1, 0],
        "when": [2, NAN],
        "hidden": [5, NAN],
    }.items():
        assert np.array_equal(columns[name].values, expected, equal_nan=True), name
    assert words(columns["ward"]) == ["a", None]
    assert words(columns["list"]) == ["1", None]
    structured = np.array([(1.5, "a"), (2.5, "b")], dtype=[("age", "f8"), ("ward", "U3")])
    columns = typed(structured)
    assert columns["age"].values.tolist() == [1.5, 2.5]
    assert words(columns["ward"]) == ["a", "b"]


class Features:
    """A dataset of rows by name, with a schema or without."""

    def __init__(self, rows: list[dict[str, Any]], classes: list[str] | None = None) -> None:
        self.rows = rows
        self.column_names = list(rows[0])
        self.features = {"label": type("ClassLabel", (), {"names": classes})()} if classes else None

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.rows[index]


class FeaturesOfArrow(Features):
    def with_format(self, kind: str) -> Any:
        assert kind == "arrow"
        rows = self.rows

        class Formatted:
            def __getitem__(self, index: slice) -> Any:
                return arrow.Table.from_pylist(rows[index])

        return Formatted()


def test_rows_by_name_are_read_like_a_csv_file_and_a_schema_of_classes_is_used() -> None:
    rows = [{"age": 1.5, "label": 1}, {"age": None, "label": 0}, {"age": 3, "label": 1}]
    for table in (rows, tuple(rows), Features(rows)):
        columns = columns_of(table, "patients")
        assert columns is not None
        assert words(columns["age"]) == ["1.5", None, "3"]
        assert words(columns["label"]) == ["1", "0", "1"]
        assert all(each.untyped for each in columns.values())
    columns = typed(FeaturesOfArrow(rows, ["no", "yes"]))
    assert columns["age"].values.tolist()[::2] == [1.5, 3.0]
    assert words(columns["label"]) == ["yes", "no", "yes"]
    assert columns["label"].declared
    with pytest.raises(DataError, match="beyond its list of 1 classes"):
        columns_of(FeaturesOfArrow(rows, ["no"]), "patients")


@pytest.mark.parametrize(
    "other",
    [
        None,
        3,
        "text",
        np.zeros((2, 2)),
        np.zeros(2),
        (np.zeros((2, 2)), np.zeros(2)),
        [(1, 2), (3, 4)],
        {"a": (np.zeros((2, 2)), np.zeros(2))},
        {"a": np.zeros((2, 2))},
        {"a": arrow.table({"x": [1]})},
        [{"x": np.zeros(2)}, {"x": np.zeros(2)}],
        {},
        [],
        arrow.array([1, 2]),
        polars.Series([1, 2]),
        pandas.Series([1, 2]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_table_is_none(other: Any) -> None:
    assert columns_of(other, "patients") is None


SECRET = "93b1"


@pytest.mark.parametrize(
    ("frame", "words_of_error"),
    [
        (polars.LazyFrame({"x": [1]}), "lazy frame"),
        (pandas.DataFrame([[1, 2]], columns=["x", "x"]), "2 columns of the name 'x'"),
        (pandas.DataFrame([[1, 2]], columns=["1", 1]), "2 columns of the name '1'"),
        (arrow.table([[1], [2]], names=["x", "x"]), "2 columns of the name 'x'"),
        (pandas.DataFrame([[1]], columns=[" "]), "not printable"),
        (
            pandas.DataFrame([[1]], columns=pandas.MultiIndex.from_tuples([("a", "b")])),
            "several levels",
        ),
        (pandas.DataFrame(index=[1, 2]), "has no columns"),
        (arrow.table({}), "has no columns"),
        (pandas.DataFrame({"x": [1, [SECRET]]}), "a value of type list in record 2"),
        (pandas.DataFrame({"x": [{SECRET: 1}]}), "a value of type dict in record 1"),
        (pandas.DataFrame({"x": [(SECRET,)]}), "a value of type tuple in record 1"),
        (pandas.DataFrame({"x": [b"93b1"]}), "a value of type bytes"),
        (pandas.DataFrame({"x": [1 + 2j]}), "column 'x' cannot be read"),
        (pandas.DataFrame({"x": pandas.to_timedelta(["1h"])}), "which is no feature"),
        (pandas.DataFrame({"x": pandas.Categorical([SECRET, 1])}), "column 'x'"),
        (polars.DataFrame({"x": [[1, 2]]}), "which is no feature"),
        (arrow.table({"x": [{"y": 1}]}), "which is no feature"),
        ([{"x": 1, "y": 2}, {"x": 1}], "record 2 has other columns than the first"),
        ([{"x": 1}, {"x": 1, "y": 2}], "record 2 has other columns than the first"),
        ([{"x": 1}, SECRET], "record 2 has other columns than the first"),
        ({"x": [1, 2], "y": [1]}, "2 values in column 'x' and 1 in column 'y'"),
        (np.zeros((2, 2), dtype=[("x", "f8")]), "one-dimensional"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_bad_table_is_one_line_without_a_value(frame: Any, words_of_error: str) -> None:
    with pytest.raises(DataError) as caught:
        columns_of(frame, "patients")
    text = str(caught.value)
    assert words_of_error in text
    assert "\n" not in text
    assert text.startswith("patients")
    assert SECRET not in text


# -- the same table as a file

CELLS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=True),
    st.dates(),
    st.decimals(allow_nan=False),
    st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0", exclude_categories=["Cs"])),
)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(values=st.lists(CELLS, min_size=1, max_size=12))
def test_objects_are_read_as_the_csv_file_that_they_would_make(
    tmp_path: Path, values: list[Any]
) -> None:
    """What Python's own CSV writer writes for an object is what the object is read as."""
    import csv

    path = tmp_path / "t.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["x", "y"])
        writer.writerows([value, "1"] for value in values)
    expected = words(read_csv(path)["x"])
    frames = (
        pandas.DataFrame({"x": pandas.Series(values, dtype=object)}),
        {"x": values},
        [{"x": value} for value in values],
    )
    for frame in frames:
        columns = columns_of(frame, "patients")
        assert columns is not None
        assert words(columns["x"]) == expected
        assert columns["x"].untyped


TYPES = {
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float32": st.floats(width=32),
    "float64": st.floats(),
    "bool": st.booleans(),
    "string": st.text(st.characters(codec="utf-8")),
    "date32": st.dates(),
    "timestamp": st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2200, 1, 1)),
    "decimal": st.decimals("-1e9", "1e9", places=3),
}
ARROW = {
    "int64": arrow.int64(),
    "float32": arrow.float32(),
    "float64": arrow.float64(),
    "bool": arrow.bool_(),
    "string": arrow.string(),
    "date32": arrow.date32(),
    "timestamp": arrow.timestamp("us"),
    "decimal": arrow.decimal128(20, 3),
}


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data(), rows=st.integers(0, 6))
def test_a_frame_has_the_columns_of_the_parquet_file_that_it_would_make(
    tmp_path: Path, data: st.DataObject, rows: int
) -> None:
    table = arrow.table(
        {
            name: arrow.array(
                data.draw(st.lists(st.none() | values, min_size=rows, max_size=rows)), ARROW[name]
            )
            for name, values in TYPES.items()
        }
    )
    parquet.write_table(table, tmp_path / "t.parquet")
    expected = read_parquet(tmp_path / "t.parquet")
    same(typed(table), expected)
    same(typed(polars.from_arrow(table)), expected)
    same(typed(table.to_pandas(types_mapper=pandas.ArrowDtype)), expected)


def test_decimals_and_special_numbers_are_missing_or_numbers() -> None:
    values = [decimal.Decimal("1.50"), decimal.Decimal("NaN"), decimal.Decimal("sNaN")]
    values += [np.float32(0.1), np.int8(3), np.bool_(True), pandas.NA, pandas.NaT, NAN]
    columns = columns_of({"x": values}, "patients")
    assert columns is not None
    assert words(columns["x"]) == [
        "1.50",
        None,
        None,
        repr(float(np.float32(0.1))),
        "3",
        "True",
        None,
        None,
        None,
    ]


# -- the same records as from a file

PLAN = TrainingPlan().replace(
    "data",
    silo_column="silo",
    label_column="label",
    categories={"silo": ("a", "b"), "label": ("no", "yes"), "listed": ("u", "v")},
    bounds={"bounded": (-5.0, 5.0)},
)
SMALL = st.floats(-1e6, 1e6, width=32)
ROW = st.fixed_dictionaries(
    {
        "silo": st.sampled_from(["a", "b"]),
        "label": st.sampled_from(["no", "yes"]),
        "bounded": st.none() | SMALL,
        "free": st.none() | SMALL,
        "listed": st.none() | st.sampled_from(["u", "v", "w"]),
        "words": st.none() | st.text("abc xyz", min_size=1),
        "flag": st.booleans(),
    }
)


def records(data: FederatedData) -> list[tuple[str, bytes, bytes]]:
    return [
        (silo.name, part.x.tobytes(), part.y.tobytes())
        for silo in data.silos
        for part in (silo.train, silo.validation, silo.test)
    ]


def of_table(table: Any) -> list[tuple[str, bytes, bytes]]:
    given_one = given_table(table, silo="silo", label=None)
    assert given_one is not None
    return records(load_table(PLAN.replace("data", objects="rows"), given_one.table))


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(rows=st.lists(ROW, min_size=1, max_size=8))
def test_a_table_gives_the_records_of_its_file_bit_for_bit(
    tmp_path: Path, rows: list[dict[str, Any]]
) -> None:
    schema = arrow.schema(
        [
            *((name, arrow.string()) for name in ("silo", "label")),
            *((name, arrow.float64()) for name in ("bounded", "free")),
            *((name, arrow.string()) for name in ("listed", "words")),
            ("flag", arrow.bool_()),
        ]
    )
    rows = [{name: row[name] for name in schema.names} for row in rows]
    table = arrow.Table.from_pylist(rows, schema=schema)
    parquet.write_table(table, tmp_path / "t.parquet")
    table.to_pandas().to_csv(tmp_path / "t.csv", index=False)
    files = [
        records(load(PLAN.replace("data", path=str(tmp_path / name))))
        for name in ("t.parquet", "t.csv")
    ]
    for frame in (table, polars.from_arrow(table), table.to_pandas()):
        assert of_table(frame) == files[0]
    for objects in (rows, {name: [row[name] for row in rows] for name in rows[0]}):
        assert of_table(objects) == files[1]
