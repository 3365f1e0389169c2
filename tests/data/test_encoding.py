"""Rules travel: whoever has them encodes new rows as a run's own were, bit for bit."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, strategies as st

from sumus.data.columns import (
    HashedText,
    KnottedNumber,
    NumberColumn,
    OneHot,
    ScaledNumber,
    TextColumn,
)
from sumus.data.encoding import ColumnRule, Encoding, undeclared_feature
from sumus.data.labels import as_text, canonical
from sumus.data.table import OwnTable, table_pool
from sumus.errors import DataError, StorageError
from sumus.plan import TrainingPlan
from sumus.plan.sections import DataPlan
from sumus.tasks import TASKS

WORDS = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=6
)
NUMBERS = st.floats(allow_nan=True, allow_infinity=True)
BOUNDS = st.tuples(
    st.floats(-1e300, 1e300, allow_nan=False), st.floats(-1e300, 1e300, allow_nan=False)
).filter(lambda pair: pair[0] < pair[1])
SPELT = st.one_of(WORDS, st.sampled_from(["1", "1.0", "01.", "true", "TRUE", "False", "-0.0"]))


@st.composite
def numbers(draw, name):
    values = draw(st.lists(NUMBERS, min_size=3, max_size=3))
    return NumberColumn(name, np.array(values, dtype=np.float64))


@st.composite
def words(draw, name):
    values = tuple(draw(st.lists(SPELT, min_size=1, max_size=5, unique=True)))
    codes = draw(st.lists(st.integers(-1, len(values) - 1), min_size=3, max_size=3))
    return TextColumn(name, values, np.array(codes, dtype=np.int32))


@st.composite
def cases(draw):
    """Columns, their rules, and the encoders that the rules must be."""
    columns, rules, oracles = {}, [], []
    for place in range(draw(st.integers(1, 4))):
        name, kind = (
            f"{draw(WORDS)}{place}",
            draw(st.sampled_from(["scaled", "knotted", "one-hot", "hashed"])),
        )
        column = draw(numbers(name) if kind in ("scaled", "knotted") else words(name))
        low = high = None
        categories = ()
        if kind == "scaled":
            low, high = draw(BOUNDS)
            oracles.append(ScaledNumber(column, low, high))
        elif kind == "knotted":
            oracles.append(KnottedNumber(column))
        elif kind == "hashed":
            oracles.append(HashedText(column))
        else:
            listed = draw(st.lists(SPELT, min_size=1, max_size=4, unique=True))
            try:
                categories = canonical(tuple(listed), name)
            except DataError:
                categories = ("a", "b")
            oracles.append(OneHot(as_text(column), categories))
        rules.append(ColumnRule(name, kind, low, high, categories))
        columns[name] = column
    return columns, Encoding(tuple(rules)), oracles


@given(cases())
def test_what_was_written_and_read_encodes_bit_for_bit(case):
    columns, encoding, oracles = case
    read = Encoding.from_json(json.loads(json.dumps(encoding.to_json())), where="model.json")
    assert read == encoding
    rows = np.array([2, 0, 1, 1])
    expected = np.zeros((4, sum(oracle.width for oracle in oracles)), dtype=np.float32)
    start = 0
    for oracle in oracles:
        oracle.write(rows, expected[:, start : start + oracle.width])
        start += oracle.width
    assert read.encode(columns, rows).tobytes() == expected.tobytes()
    assert read.width == expected.shape[1]


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["columns", "name", "kind", "low", "high", "categories"]),
                inner,
                max_size=5,
            )
        ),
    )
)
def test_anything_else_is_refused_in_one_line(entries):
    with pytest.raises(StorageError) as refusal:
        Encoding.from_json(entries, where="model.json")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "rule",
    [
        {"kind": "scaled"},
        {"kind": "scaled", "low": 1.0, "high": 1.0},
        {"kind": "scaled", "low": 0.0, "high": "inf"},
        {"kind": "scaled", "low": 0.0, "high": "nan"},
        {"kind": "one-hot"},
        {"kind": "one-hot", "categories": ["a", "a"]},
        {"kind": "hashed", "categories": ["a"]},
        {"kind": "knotted", "low": 0.0, "high": 1.0},
        {"kind": "embedded"},
    ],
)
def test_rules_that_no_version_writes_are_refused(rule):
    with pytest.raises(StorageError):
        Encoding.from_json({"columns": [{"name": "age", **rule}]}, where="model.json")


def test_a_table_says_its_rules(tmp_path):
    columns = {
        "silo": TextColumn("silo", ("a", "b"), np.array([0, 1, 0, 1], dtype=np.int32)),
        "ill": TextColumn("ill", ("no", "yes"), np.array([0, 1, 1, 0], dtype=np.int32)),
        "age": NumberColumn("age", np.array([3.0, 200.0, np.nan, 40.0])),
        "dose": NumberColumn("dose", np.array([3.0, 1e9, np.nan, -4.0])),
        "flag": NumberColumn("flag", np.array([0.0, 1.0, np.nan, 1.0]), bounds=(0.0, 1.0)),
        "sex": TextColumn("sex", ("f", "m", "x"), np.array([0, 1, 2, -1], dtype=np.int32)),
        "code": TextColumn("code", ("u", "1.0"), np.array([0, 1, 1, -1], dtype=np.int32)),
        "kind": TextColumn("kind", ("1.0", "1"), np.array([0, 1, 1, -1], np.int32), declared=True),
    }
    data = DataPlan(
        path="t.csv", silo_column="silo", label_column="ill",
        bounds={"age": (0.0, 120.0)}, categories={"sex": ("m", "f"), "ill": ("no", "yes")},
    )  # fmt: skip
    pool = table_pool(OwnTable(tmp_path / "t.csv", columns, True), data, TASKS["classification"])
    assert pool.encoding == Encoding(
        (
            ColumnRule("age", "scaled", 0.0, 120.0),
            ColumnRule("dose", "knotted"),
            ColumnRule("flag", "scaled", 0.0, 1.0),
            ColumnRule("sex", "one-hot", categories=("m", "f")),
            ColumnRule("code", "hashed"),
            ColumnRule("kind", "one-hot", categories=("1.0", "1")),
        )
    )
    rows = np.array([3, 1, 2, 0])
    again = pool.encoding.encode(columns, rows)
    assert again.tobytes() == pool.encode(rows).tobytes()
    assert pool.shape == (pool.encoding.width,)
    # the schema's two spellings stay two categories
    assert again[:, -3:].tolist() == [[0, 0, 1], [0, 1, 0], [0, 1, 0], [1, 0, 0]]


def test_values_of_another_kind_of_file_are_the_same_values():
    rules = Encoding(
        (
            ColumnRule("age", "scaled", 0.0, 120.0),
            ColumnRule("flag", "scaled", 0.0, 1.0),
            ColumnRule("ward", "one-hot", categories=("1", "2")),
        )
    )
    one = rules.encode(
        {
            "age": NumberColumn("age", np.array([60.0, np.nan])),
            "flag": NumberColumn("flag", np.array([1.0, 0.0]), bounds=(0.0, 1.0)),
            "ward": NumberColumn("ward", np.array([2.0, 7.0])),
        }
    )
    other = rules.encode(
        {
            "age": TextColumn("age", ("60.0",), np.array([0, -1], dtype=np.int32)),
            "flag": TextColumn("flag", ("TRUE", "false"), np.array([0, 1], dtype=np.int32)),
            "ward": TextColumn("ward", ("2.0", "7"), np.array([0, 1], dtype=np.int32)),
        }
    )
    assert one.tobytes() == other.tobytes()
    assert one.tolist() == [[0, 0, 1, 0, 0, 1, 0], [0, 1, -1, 0, 0, 0, 1]]


def test_what_is_odd_about_a_column_is_counted_row_by_row():
    age = ColumnRule("age", "scaled", 0.0, 120.0)
    ages = age.read(NumberColumn("age", np.array([-1.0, 0.0, 120.0, 121.0, np.nan, np.inf])))
    assert age.outside(ages).tolist() == [True, False, False, True, False, True]
    assert age.missing(ages).tolist() == [False, False, False, False, True, False]
    dose = ColumnRule("dose", "knotted")
    doses = dose.read(NumberColumn("dose", np.array([1e6, 2e6, -2e6])))
    assert dose.outside(doses).tolist() == [False, True, True]
    sex = ColumnRule("sex", "one-hot", categories=("f", "1"))
    sexes = sex.read(TextColumn("sex", ("f", "x", "1.0"), np.array([0, 1, 2, -1], np.int32)))
    assert sex.unlisted(sexes).tolist() == [False, True, False, False]
    assert sex.missing(sexes).tolist() == [False, False, False, True]
    assert not sex.outside(sexes).any()
    assert not age.unlisted(ages).any()


def test_a_plan_that_declares_every_column_says_the_encoding_alone():
    plan = TrainingPlan.from_toml(
        """
        [data]
        path = "t.csv"
        silo_column = "silo"
        label_column = "ill"
        columns = ["age", "sex"]
        bounds = {age = [0, 120]}
        categories = {sex = ["f", "m"], ill = ["no", "yes"]}
        """
    )
    assert Encoding.of_plan(plan.data) == Encoding(
        (
            ColumnRule("age", "scaled", 0.0, 120.0),
            ColumnRule("sex", "one-hot", categories=("f", "m")),
        )
    )
    open_columns = plan.replace("data", columns=None).data
    assert Encoding.of_plan(open_columns) is None
    assert undeclared_feature(open_columns) == "data.columns"
    open_age = plan.replace("data", bounds=None).data
    assert Encoding.of_plan(open_age) is None
    assert undeclared_feature(open_age) == "data.bounds.age or data.categories.age"


def test_a_column_that_is_not_there_is_named():
    encoding = Encoding((ColumnRule("age", "knotted"),))
    with pytest.raises(DataError, match="no column 'age'"):
        encoding.encode({"dose": NumberColumn("dose", np.zeros(2))})
