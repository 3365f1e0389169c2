"""Kinds of columns: one of a fixed list, by names and by all values together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from sumus.data import Column, NumberColumn, TextColumn
from sumus.drafting import finding_of


def text(name: str, values: list[str | None]) -> TextColumn:
    numbers: dict[str, int] = {}
    codes = [-1 if value is None else numbers.setdefault(value, len(numbers)) for value in values]
    return TextColumn(name, tuple(numbers), np.array(codes, dtype=np.int32))


def number(name: str, values: list[float]) -> NumberColumn:
    return NumberColumn(name, np.array(values, dtype=np.float64))


FIFTY = range(50)


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (number("age", [row % 40 for row in FIFTY]), "number"),
        (text("age", [str(row % 40) for row in FIFTY]), "number"),
        (text("age", [f"{row % 7}" if row % 3 else None for row in FIFTY]), "number"),
        (text("age", [f"{row % 7}" if row % 3 else "-" for row in FIFTY]), "number"),
        (text("lab", [*("3" for _ in range(46)), "4", "5", "low", "low"]), "mixed"),
        (text("kg", [f"{row},5" for row in FIFTY]), "decimal comma"),
        (text("cost", [f"1.{row:03d},50" for row in FIFTY]), "decimal comma"),
        (text("day", [f"2024-01-{1 + row % 28:02d}" for row in FIFTY]), "date"),
        (text("day", [f"{1 + row % 28}.3.2024 12:30" for row in FIFTY]), "date"),
        (text("ward", ["north" if row % 2 else "south" for row in FIFTY]), "category"),
        (text("ward", ["north" if row % 2 else None for row in FIFTY]), "constant"),
        (number("x", [1.0] * 50), "constant"),
        (number("x", [float("nan")] * 50), "constant"),
        (text("x", [None] * 50), "constant"),
        (text("name", [f"n{row}" for row in FIFTY]), "identifier"),
        (number("row", list(map(float, FIFTY))), "identifier"),
        (number("number", [float(123_456 + 777 * row) for row in FIFTY]), "identifier"),
        (number("income", [100.0 * row * row for row in FIFTY]), "number"),
        (number("patient_id", [float(row % 9) for row in FIFTY]), "identifier"),
        (text("note", [f"came in {row} days after the first visit" for row in FIFTY]), "free text"),
        (text("few", ["a", "b", "c"]), "category"),
        (NumberColumn("flag", np.ones(50), bounds=(0.0, 1.0)), "flag"),
        (TextColumn("ward", ("a", "b"), np.zeros(50, dtype=np.int32), declared=True), "category"),
    ],
)
def test_the_kind_of_a_column(column: Column, kind: str) -> None:
    finding = finding_of(column)
    assert finding.kind == kind
    used = kind in ("number", "decimal comma", "category", "flag")
    assert (finding.left_out is None) == used


def test_the_type_of_a_file_says_that_a_number_is_a_date() -> None:
    assert finding_of(number("day", [row % 9 for row in FIFTY]), dated=True).kind == "date"


@given(st.lists(st.one_of(st.none(), st.text(max_size=8)), max_size=40), st.text(max_size=10))
def test_any_values_under_any_name_have_one_kind(values: list[str | None], name: str) -> None:
    kept = [None if value is None or not value.strip() else value.strip() for value in values]
    assert finding_of(text(name, kept)).kind in {
        "number",
        "decimal comma",
        "category",
        "identifier",
        "date",
        "free text",
        "constant",
        "mixed",
    }
