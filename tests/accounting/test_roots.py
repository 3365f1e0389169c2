"""Roots in a bracket, against SciPy's."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given, strategies as st
from scipy.optimize import brentq

from sumus.accounting.roots import root_between

numbers = st.floats(-4.0, 4.0)


@given(
    coefficients=st.tuples(numbers, numbers, numbers),
    low=st.floats(-5.0, 0.0),
    high=st.floats(0.0, 5.0),
    tolerance=st.floats(1e-14, 1e-6),
    relative=st.floats(1e-14, 1e-8),
)
def test_every_step_is_that_of_scipy(
    coefficients: tuple[float, float, float],
    low: float,
    high: float,
    tolerance: float,
    relative: float,
) -> None:
    a, b, c = coefficients
    ours, theirs = list[float](), list[float]()

    def function(x: float, asked: list[float]) -> float:
        asked.append(x)
        return math.exp(a * x) - 1.5 + b * x + c * x**3

    assume(function(low, []) * function(high, []) < 0.0)
    root = root_between(
        lambda x: function(x, ours), low, high, tolerance=tolerance, relative=relative
    )
    expected = brentq(function, low, high, args=(theirs,), xtol=tolerance, rtol=relative)
    assert root == expected
    assert ours == theirs


def test_an_end_may_be_the_root() -> None:
    assert root_between(lambda x: x, 0.0, 1.0, tolerance=1e-9) == 0.0
    assert root_between(lambda x: x - 1.0, 0.0, 1.0, tolerance=1e-9) == 1.0


@pytest.mark.parametrize("value", [1.0, -1.0, math.nan])
def test_no_change_of_sign_is_no_root(value: float) -> None:
    with pytest.raises(ValueError, match="no change of sign"):
        root_between(lambda x: value, 0.0, 1.0, tolerance=1e-9)


def test_what_is_not_a_number_is_no_root() -> None:
    with pytest.raises(ArithmeticError, match="not a number"):
        root_between(lambda x: x - 0.5 if x in (0.0, 1.0) else math.nan, 0.0, 1.0, tolerance=1e-9)


def test_a_search_that_does_not_end_is_no_root() -> None:
    with pytest.raises(ArithmeticError, match="no root found"):
        root_between(lambda x: 1.0 if x > 0.1 else -1.0, 0.0, 1e300, tolerance=0.0, relative=0.0)
