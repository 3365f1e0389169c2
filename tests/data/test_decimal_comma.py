"""Numbers with a decimal comma, in columns that the plan names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from sumus.data import (
    NumberColumn,
    TextColumn,
    load,
    parse_numbers,
    readable_numbers,
    with_decimal_points,
)
from sumus.errors import DataError
from sumus.plan import TrainingPlan

PLAN = """
[data]
path = "t.csv"
silo_column = "s"
label_column = "y"
{}
"""


def column(*values: str) -> TextColumn:
    return TextColumn("x", values, np.arange(len(values), dtype=np.int32))


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("48,5", 48.5),
        ("-48,5", -48.5),
        (",5", 0.5),
        ("7,", 7.0),
        ("7", 7.0),
        ("1.234,5", 1234.5),
        ("1.234.567", 1234567.0),
        ("12.345.678,9", 12345678.9),
        ("48.5", 48.5),
        ("1234.5", 1234.5),
    ],
)
def test_what_a_number_means(written: str, meant: float) -> None:
    read = readable_numbers(with_decimal_points(column(written)))
    assert read.values.tolist() == [meant]


@given(st.floats(-1e6, 1e6).map(lambda value: round(value, 3)))
def test_a_written_number_comes_back(value: float) -> None:
    written = f"{value:,.3f}".translate(str.maketrans(",.", ".,"))
    read = readable_numbers(with_decimal_points(column(written)))
    assert read.values[0] == value


@pytest.mark.parametrize("written", ["1.234", "27.310", "-0.500", "+999.000"])
def test_what_could_be_two_numbers_is_none(written: str) -> None:
    given = with_decimal_points(column("48,5", written))
    assert np.isnan(readable_numbers(given).values).tolist() == [False, True]
    with pytest.raises(DataError, match=r"x: the value of record 2 .* could be two numbers"):
        parse_numbers(given, "x")


def test_words_and_missing_values_stay_and_equal_numbers_are_one() -> None:
    given = TextColumn("x", ("1,5", "1.5", "low"), np.array([0, 1, 2, -1], dtype=np.int32))
    kept = with_decimal_points(given)
    assert isinstance(kept, TextColumn)
    assert kept.values == ("1.5", "low")
    assert kept.codes.tolist() == [0, 0, 1, -1]
    numbers = NumberColumn("x", np.array([1.5]))
    assert with_decimal_points(numbers) is numbers


def test_a_plan_declares_them(tmp_path: Path) -> None:
    rows = "".join(f"{'AB'[i % 2]};{i % 7},5;{(i // 2) % 2}\n" for i in range(80))
    (tmp_path / "t.csv").write_text("s;kg;y\n" + rows)
    said = 'decimal_comma = ["kg"]\n[data.bounds]\nkg = [0, 10]\n'
    features = {}
    for name, text in {"plain": "", "declared": said}.items():
        (tmp_path / "p.toml").write_text(PLAN.format(text))
        features[name] = load(TrainingPlan.load(tmp_path / "p.toml"))
    assert features["plain"].shape == (65,)  # hashed as text
    assert features["declared"].shape == (2,)
    values = np.unique(features["declared"].silos[0].train.x[:, 0])
    assert values.tolist() == pytest.approx([(each + 0.5) / 5 - 1 for each in range(7)], abs=1e-6)
    (tmp_path / "p.toml").write_text(PLAN.format('decimal_comma = ["gk"]'))
    with pytest.raises(DataError, match=r"data\.decimal_comma: t\.csv has no column 'gk'"):
        load(TrainingPlan.load(tmp_path / "p.toml"))
