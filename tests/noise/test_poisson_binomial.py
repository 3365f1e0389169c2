"""Coins that carry an update: their law, their bounds, and what the sum decodes to."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from sumus.errors import PlanError
from sumus.noise import PoissonBinomial
from sumus.randomness import RandomSource


@pytest.mark.parametrize("value", [-1.0, -0.3, 0.0, 0.7, 1.0])
def test_encoded_values_are_binomial_with_the_declared_lean(value: float) -> None:
    """Chi-square over the 13 outcomes of 200,000 draws; false alarm 1e-7."""
    mechanism = PoissonBinomial(coordinate_clip=2.0, trials=12, theta=0.25)
    drawn = mechanism.encode(np.full(200_000, 2.0 * value), RandomSource.simulation(1, str(value)))
    expected = stats.binom.pmf(np.arange(13), 12, 0.5 + 0.25 * value) * drawn.size
    observed = np.bincount(drawn, minlength=13).astype(float)
    rare = expected < 20
    if rare.any():
        expected = np.append(expected[~rare], expected[rare].sum())
        observed = np.append(observed[~rare], observed[rare].sum())
    assert stats.chisquare(observed, expected).pvalue > 1e-7


def test_decoded_sum_is_unbiased_with_at_most_the_declared_deviation() -> None:
    mechanism = PoissonBinomial(coordinate_clip=0.5, trials=16, theta=0.2)
    updates = np.linspace(-0.5, 0.5, 7 * 3).reshape(7, 3)
    repeats = 20_000
    source = RandomSource.simulation(2)
    total = sum(mechanism.encode(np.tile(update, (repeats, 1)), source) for update in updates)
    decoded = mechanism.decode(np.asarray(total), silos=7)
    deviation = mechanism.std_of_sum(7)
    # false alarm 1e-7
    assert np.abs(decoded.mean(axis=0) - updates.sum(axis=0)).max() < 5.5 * deviation / math.sqrt(
        repeats
    )
    assert decoded.std(axis=0).max() < deviation
    assert decoded.std(axis=0).min() > 0.9 * deviation


@settings(max_examples=100, deadline=None)
@given(update=hnp.arrays(np.float64, st.integers(1, 30), elements=st.floats()))
def test_no_input_leaves_the_range_of_the_coins(update: np.ndarray) -> None:
    mechanism = PoissonBinomial(coordinate_clip=1e-3, trials=5, theta=0.49)
    encoded = mechanism.encode(update, RandomSource.simulation(3))
    assert encoded.min() >= 0
    assert encoded.max() <= 5
    assert 1 << mechanism.modulus_bits(9) > (9 * 5)


def test_an_attacker_who_sends_infinities_leans_the_coins_no_more_than_the_clip() -> None:
    """False alarm 1e-7 for each: 50,000 coordinates of 4 coins."""
    mechanism = PoissonBinomial(coordinate_clip=1.0, trials=4, theta=0.1)
    for value, lean in ((math.inf, 0.1), (-math.inf, -0.1), (math.nan, 0.0), (1e308, 0.1)):
        drawn = mechanism.encode(np.full(50_000, value), RandomSource.simulation(4))
        mean = drawn.mean() / 4
        assert abs(mean - 0.5 - lean) < 5.4 * 0.5 / math.sqrt(4 * drawn.size)


def test_the_zero_update_still_tosses_fair_coins() -> None:
    drawn = PoissonBinomial(coordinate_clip=1.0, trials=8, theta=0.25).encode(
        np.zeros((100, 1000)), RandomSource.simulation(5)
    )
    assert drawn.shape == (100, 1000)
    assert abs(drawn.mean() - 4.0) < 5.4 * math.sqrt(2.0 / drawn.size)  # false alarm 7e-8
    assert abs(drawn.var() - 2.0) < 5.4 * 2.0 * math.sqrt(2.0 / drawn.size)


def test_bad_numbers_are_refused() -> None:
    for clip in (0.0, math.nan, -1.0, math.inf):
        with pytest.raises(PlanError, match="coordinate_clip"):
            PoissonBinomial(clip, 4, 0.2)
    for trials in (0, 1.5, True, 1 << 13):
        with pytest.raises(PlanError, match="trials"):
            PoissonBinomial(1.0, trials, 0.2)  # type: ignore[arg-type]
    for theta in (0.0, 0.5, -0.1, math.nan):
        with pytest.raises(PlanError, match="theta"):
            PoissonBinomial(1.0, 4, theta)
