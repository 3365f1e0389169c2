"""Choices follow from the order of magnitude of a table, and each has its reason."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st
from scipy.stats import norm

from sumus.drafting import Choice, Size, choices_for, gaussian_distance, rounded_down


def chosen(task: str, size: Size, epsilon: float = 1.0) -> dict[str, Choice]:
    given = choices_for(task, size, epsilon=epsilon, delta=None, unit="record")
    return {choice.key: choice for choice in given}


def size(units: int, features: int, classes: int = 2) -> Size:
    return Size(units=units, smallest=units // 10, silos=5, features=features, classes=classes)


@pytest.mark.parametrize(
    ("task", "units", "features", "classes", "algorithm", "model"),
    [
        ("classification", 1_600, 345, 2, "convex-pass", "logistic"),
        ("classification", 1_600, 345, 4, "convex-pass", "softmax"),
        ("classification", 4_800, 21, 2, "normal-equations", "linear"),
        ("classification", 4_800, 21, 3, "normal-equations", "softmax"),
        ("classification", 1_161_036, 233, 2, "normal-equations", "logistic"),
        ("regression", 4_730, 38, 0, "normal-equations", "linear"),
        ("regression", 500, 38, 0, "convex-pass", "linear"),
        ("regression", 10_000_000, 5_000, 0, "convex-pass", "linear"),
        ("survival", 5_444, 12, 0, "convex-pass", "linear"),
        ("counts", 100_000, 12, 0, "convex-pass", "linear"),
    ],
)
def test_the_algorithm_for_a_size(
    task: str, units: int, features: int, classes: int, algorithm: str, model: str
) -> None:
    given = chosen(task, size(units, features, classes))
    assert given["training.algorithm"].value == algorithm
    assert given["training.model"].value == model
    assert all(choice.reason for choice in given.values())


def test_a_stricter_target_asks_for_more_records() -> None:
    loose, strict = (
        chosen("regression", size(5_000, 30), epsilon)["training.algorithm"].value
        for epsilon in (1.0, 0.1)
    )
    assert (loose, strict) == ("normal-equations", "convex-pass")


@given(st.integers(1, 10**9))
def test_delta_is_a_power_of_ten_and_at_most_a_tenth_of_one_over_the_records(units: int) -> None:
    delta = chosen("regression", size(units, 3))["privacy.delta"].value
    assert 0.0 < delta <= min(1e-5, 0.1 / units) * (1.0 + 1e-12)
    assert math.log10(delta) == pytest.approx(round(math.log10(delta)), abs=1e-12)


@given(st.integers(1, 10**9))
def test_sizes_are_rounded_down_to_a_coarse_grid(count: int) -> None:
    rounded = rounded_down(count)
    assert rounded <= count < 2.5 * rounded
    assert str(rounded).rstrip("0") in ("1", "2", "5")


@given(st.integers(20, 10**6), st.integers(1, 200))
def test_one_record_more_changes_no_choice_unless_it_is_a_round_number(
    units: int, features: int
) -> None:
    more = units + 1
    steps = {step * 10**power for step in (1, 2, 5) for power in range(1, 8)}
    crosses = more in steps or units in steps  # δ steps just behind a power of ten
    before, after = (chosen("classification", size(n, features)) for n in (units, more))
    assert crosses or {k: c.value for k, c in before.items()} == {
        k: c.value for k, c in after.items()
    }


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5])
def test_mu_is_that_of_the_gaussian_with_this_epsilon_and_delta(
    epsilon: float, delta: float
) -> None:
    mu = gaussian_distance(epsilon, delta)
    curve = norm.cdf(-epsilon / mu + mu / 2) - math.exp(epsilon) * norm.cdf(-epsilon / mu - mu / 2)
    assert curve == pytest.approx(delta, rel=1e-4)


def test_mu_of_the_usual_target() -> None:
    assert gaussian_distance(1.0, 1e-5) == pytest.approx(0.268, abs=5e-4)
