"""A schema file says bounds or categories of columns, or is refused by the name of an entry."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from sumus.drafting import Known, typed_bounds, typed_names, typed_numbers
from sumus.errors import PlanError, SumusError

TOML = """
age = [0, 110]
ward = ["north", "south"]
kg = {bounds = [2.5, 300]}
smoker = {categories = ["no", "yes"]}
"""
AS_PLAN = """
[privacy]
epsilon = 1.0
[data]
path = "t.csv"
[data.bounds]
age = [0, 110]
kg = [2.5, 300]
[data.categories]
ward = ["north", "south"]
smoker = ["no", "yes"]
"""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("s.toml", TOML),
        ("p.toml", AS_PLAN),
        (
            "s.json",
            json.dumps(
                {
                    "age": [0, 110],
                    "ward": ["north", "south"],
                    "kg": {"bounds": [2.5, 300]},
                    "smoker": ["no", "yes"],
                }
            ),
        ),
    ],
)
def test_three_ways_to_write_the_same(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    known = Known.load(tmp_path / name)
    assert known.bounds == {"age": (0.0, 110.0), "kg": (2.5, 300.0)}
    assert known.categories == {"ward": ("north", "south"), "smoker": ("no", "yes")}
    assert [name in known for name in ("age", "ward", "x")] == [True, True, False]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("age = 3", "schema.age must be bounds or categories"),
        ("age = []", "schema.age must be bounds or categories"),
        ("age = [1, 2, 3]", "schema.age must be bounds or categories"),
        ('age = [1, "x"]', "schema.age must be bounds or categories"),
        ("age = {high = 3}", "schema.age must be bounds or categories"),
        ("age = [5, 1]", "data.bounds.age must be .low, high. with low < high"),
        ("age = [0, inf]", "data.bounds.age"),
        ('ward = ["a", "a"]', "must not repeat a category"),
        ("age = [0", "must be valid TOML"),
        ("[data.bounds]\nx = [0, 1]\n[data.categories]\nx = ['a']", "cannot have both"),
    ],
)
def test_what_is_no_schema_is_refused_by_name(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(text)
    with pytest.raises(PlanError, match=words):
        Known.load(tmp_path / "s.toml")


@pytest.mark.parametrize("text", ["[1]", "{", "null", '{"a": NaN}'])
def test_what_is_no_json_object_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(text)
    with pytest.raises(PlanError):
        Known.load(tmp_path / "s.json")


def test_a_misspelt_column_is_refused_with_the_closest_one() -> None:
    with pytest.raises(PlanError, match="Did you mean age"):
        Known({"aeg": (0.0, 1.0)}).check_columns(["age", "ward"])


def test_what_is_said_last_counts() -> None:
    first = Known({"a": (0.0, 1.0), "b": (0.0, 1.0)}, {"c": ("x",)})
    joined = first.joined(Known({"c": (2.0, 3.0)}, {"a": ("y",)}))
    assert joined.bounds == {"b": (0.0, 1.0), "c": (2.0, 3.0)}
    assert joined.categories == {"a": ("y",)}


@pytest.mark.parametrize("text", ["0,110", "0 110", "[0, 110]", "0 … 110", "0..110"])
def test_bounds_as_people_type_them(text: str) -> None:
    assert typed_bounds(text, "age") == (0.0, 110.0)


@given(st.text(max_size=30))
def test_whatever_is_typed_is_understood_or_refused_in_one_line(text: str) -> None:
    for read in (typed_bounds, typed_names, typed_numbers):
        with contextlib.suppress(SumusError):
            assert len(read(text, "x")) >= 1
