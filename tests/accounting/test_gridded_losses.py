"""Privacy losses on a grid: against dp-accounting, against enumeration in exact numbers, and at the
ends of float64.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given, settings, strategies as st

from sumus.accounting.gridded_losses import GriddedLoss, GriddedLosses
from sumus.accounting.sampled_gaussian import sampled_gaussian
from sumus.errors import GuaranteeError

DELTAS = (1e-3, 1e-5, 1e-9)
EPSILONS = np.array([0.0, 0.1, 0.7, 2.0, math.inf])


@pytest.mark.parametrize(
    ("multiplier", "rate", "width", "times"),
    [(0.8, 0.3, 1e-2, 3), (1.2, 0.02, 2e-3, 400), (6.0, 0.1, 1e-3, 20), (9.0, 1.0, 2e-3, 20)],
)
def test_compositions_are_those_of_dp_accounting(
    multiplier: float, rate: float, width: float, times: int
) -> None:
    def peer(noise: float, joins: float) -> privacy_loss_distribution.PrivacyLossDistribution:
        return privacy_loss_distribution.from_gaussian_mechanism(
            noise, sampling_prob=joins, value_discretization_interval=width
        )

    ours, theirs = sampled_gaussian(multiplier, rate, width), peer(multiplier, rate)
    ours, theirs = ours.repeated(times), theirs.self_compose(times)
    pairs = [(ours, theirs)]
    beside, others = sampled_gaussian(2.0 * multiplier, 1.0, width), peer(2.0 * multiplier, 1.0)
    pairs.append((ours.composed(beside.repeated(2)), theirs.compose(others.self_compose(2))))
    pairs.append((ours.mixed(beside, 0.25), theirs.compute_mixture(others, 0.25)))
    for one, other in pairs:
        for delta in DELTAS:
            expected = other.get_epsilon_for_delta(delta)
            assert one.epsilon(delta) == pytest.approx(expected, rel=1e-7, abs=1e-9)
        np.testing.assert_allclose(
            one.deltas(EPSILONS), other.get_delta_for_epsilon(list(EPSILONS)), rtol=0, atol=1e-14
        )


masses = st.lists(st.integers(0, 50), min_size=1, max_size=3).filter(any)


@st.composite
def gridded(draw: st.DrawFn) -> GriddedLoss:
    weights = draw(masses)
    total = sum(weights) + draw(st.integers(0, 2))
    return GriddedLoss(
        0.25,
        draw(st.integers(-6, 6)),
        np.array([weight / total for weight in weights]),
        1.0 - sum(weights) / total,
    )


def exact_delta(losses: list[GriddedLoss], epsilon: float) -> float:
    """δ(ε) of outputs of all of them, by going through every combination."""
    finite = Fraction(1)
    for loss in losses:
        finite *= 1 - Fraction(loss.infinite)
    summed = Fraction(0)
    places = [list(enumerate(map(Fraction, loss.masses), loss.lowest)) for loss in losses]
    for chosen in itertools.product(*places):
        together = math.prod((mass for _, mass in chosen), start=Fraction(1))
        total = sum(place for place, _ in chosen) * 0.25
        if total > epsilon:
            summed += together * Fraction(-math.expm1(epsilon - total))
    return float(1 - finite + summed)


@given(one=gridded(), other=gridded(), times=st.integers(1, 4))
@settings(max_examples=40)
def test_delta_is_that_of_every_combination_enumerated(
    one: GriddedLoss, other: GriddedLoss, times: int
) -> None:
    composed = one.repeated(times).composed(other)
    for epsilon in (0.0, 0.3, 1.0, 2.5):
        (found,) = composed.deltas(np.array([epsilon]))
        exact = exact_delta([one] * times + [other], epsilon)
        assert exact - 2e-16 * (times + 1) <= found <= exact + 4e-15


@given(one=gridded(), other=gridded(), times=st.integers(1, 40), delta=st.floats(1e-9, 0.5))
@settings(max_examples=60)
def test_epsilon_is_where_delta_falls_to_its_target(
    one: GriddedLoss, other: GriddedLoss, times: int, delta: float
) -> None:
    losses = GriddedLosses(one, other).repeated(times)
    epsilon = losses.epsilon(delta)
    if math.isinf(epsilon):
        assert losses.deltas(np.array([1e9]))[0] > delta
        return
    assert losses.deltas(np.array([epsilon]))[0] <= delta * (1.0 + 1e-9) + 1e-14
    if epsilon > 1e-6:
        assert losses.deltas(np.array([epsilon * (1.0 - 1e-6)]))[0] >= delta * (1.0 - 1e-9)


@given(one=gridded(), other=gridded(), weight=st.floats(0.0, 1.0))
def test_a_shared_coin_mixes_the_curves(
    one: GriddedLoss, other: GriddedLoss, weight: float
) -> None:
    expected = weight * one.deltas(EPSILONS) + (1.0 - weight) * other.deltas(EPSILONS)
    np.testing.assert_allclose(one.mixed(other, weight).deltas(EPSILONS), expected, atol=1e-15)


def test_both_directions_count() -> None:
    safe, leaking = (GriddedLoss(0.5, 0, np.array([1.0 - x, 0.0, x]), 0.0) for x in (0.0, 0.5))
    for losses in (GriddedLosses(safe, leaking), GriddedLosses(leaking, safe)):
        assert losses.epsilon(1e-6) == pytest.approx(1.0, abs=1e-5)
        assert losses.deltas(np.zeros(1))[0] == pytest.approx(0.5 * -math.expm1(-1.0))


def test_what_is_cut_off_is_counted_as_infinite() -> None:
    loss = GriddedLoss(1e-3, -1000, np.full(2001, 1.0 / 2001), 0.0)
    repeated = loss.repeated(500)
    assert len(repeated.masses) < 2000 * 500 / 4
    assert repeated.infinite >= 1e-15
    tails = np.array([1e-17, 1.0 - 4e-17, 1e-17, 1e-17, 1e-17])
    composed = GriddedLoss(0.5, 0, tails, 1e-9).composed(GriddedLoss(0.5, 3, np.ones(1), 0.0))
    assert (composed.lowest, len(composed.masses)) == (4, 1)
    assert composed.infinite > 1e-9 + 2.9e-17


def test_losses_beyond_float64_do_not_become_nothing() -> None:
    far = GriddedLoss(1.0, 0, np.append(np.zeros(800), 0.3), 0.0)
    assert far.epsilon(0.2) == 800.0
    assert far.epsilon(0.3) == 800.0
    farther = GriddedLoss(1.0, 0, np.append(np.zeros(730), 0.3), 1e-3)
    expected = [0.301, 0.301, 0.301, 1e-3]
    assert farther.deltas(np.array([0.0, 690.0, 720.0, math.inf])) == pytest.approx(expected)
    assert GriddedLoss(1.0, 0, np.array([0.7]), 0.3).epsilon(0.2) == math.inf


def test_a_rate_that_float64_cannot_tell_from_none_is_refused() -> None:
    with pytest.raises(GuaranteeError, match="sampling rate 1e-17 is too small"):
        sampled_gaussian(0.05, 1e-17, 1e-3)
