"""Integer noise is dominated by the Gaussian we account for: by enumeration in one to three
dimensions, and in many digits.
"""

from __future__ import annotations

import itertools
import math

import mpmath as mp
import numpy as np
import pytest

from oracles import divergences as oracle
from sumus.accounting import TAIL_LOG_MASS, unit_shift
from sumus.accounting.dominating import (
    _supremum_by_blocks,
    _supremum_by_points,
    gaussian_multiplier,
)
from sumus.errors import PlanError
from sumus.noise import DiscreteGaussian, Skellam

ROUNDING = 1e-12  # of the enumeration
ALPHAS = [0.05, 0.3, 0.8, 1.0, 1.2, math.e, 8.0, 40.0, 1000.0]

LAWS = [
    (Skellam(0.25), lambda reach: oracle.skellam(0.25, reach)),
    (Skellam(1.0), lambda reach: oracle.skellam(1.0, reach)),
    (Skellam(6.5), lambda reach: oracle.skellam(6.5, reach)),
    (DiscreteGaussian(0.6), lambda reach: oracle.discrete_gaussian(0.6, reach)),
    (DiscreteGaussian(5.0), lambda reach: oracle.discrete_gaussian(5.0, reach)),
    (
        DiscreteGaussian(0.5, 3),
        lambda reach: oracle.summed(oracle.discrete_gaussian(0.5, reach), 3),
    ),
    (
        DiscreteGaussian(5.0, 2),
        lambda reach: oracle.summed(oracle.discrete_gaussian(5.0, reach), 2),
    ),
]
NAMES = [repr(law) for law, _ in LAWS]


@pytest.mark.parametrize(("law", "enumerate_law"), LAWS, ids=NAMES)
@pytest.mark.parametrize("shift", [(1,), (2,), (5,), (1, 1), (3, 0), (1, 2), (1, 1, 1), (2, 0, 1)])
def test_every_shift_is_dominated(
    law: Skellam, enumerate_law: object, shift: tuple[int, ...]
) -> None:
    reach = 50 if len(shift) < 3 else 32
    noise = oracle.product([enumerate_law(reach)] * len(shift))  # type: ignore[operator]
    moved = oracle.shifted(noise, shift)
    mu = 1.0 / gaussian_multiplier(law, math.hypot(*shift))
    for alpha in ALPHAS:
        bound = oracle.gaussian_hockey_stick(mu, alpha)
        assert oracle.hockey_stick(moved, noise, alpha) <= bound + ROUNDING
        assert oracle.hockey_stick(noise, moved, alpha) <= bound + ROUNDING


@pytest.mark.parametrize(("law", "enumerate_law"), LAWS, ids=NAMES)
@pytest.mark.parametrize(("rate", "shift"), [(0.05, 1), (0.3, 2), (0.9, 3)])
def test_every_subsampled_shift_is_dominated_once_and_twice(
    law: Skellam, enumerate_law: object, rate: float, shift: int
) -> None:
    noise = enumerate_law(45)  # type: ignore[operator]
    mixture = (1.0 - rate) * noise + rate * oracle.shifted(noise, (shift,))
    twice_noise, twice_mixture = oracle.product([noise, noise]), oracle.product([mixture, mixture])
    mu = 1.0 / gaussian_multiplier(law, float(shift))
    for alpha in ALPHAS:
        for removed in (False, True):
            once = oracle.sampled_gaussian_hockey_stick(mu, rate, alpha, removed=removed)
            pair = (noise, mixture) if removed else (mixture, noise)
            assert oracle.hockey_stick(*pair, alpha) <= once + ROUNDING
        for removed in (False, True):
            twice = oracle.twice_sampled_gaussian_hockey_stick(mu, rate, alpha, removed=removed)
            pair = (twice_noise, twice_mixture) if removed else (twice_mixture, twice_noise)
            assert oracle.hockey_stick(*pair, alpha) <= twice + 1e-9


@pytest.mark.parametrize("variance", [0.25, 1.0, 10.0, 400.0])
def test_the_unit_shift_is_tight(variance: float) -> None:
    """A Gaussian that is 1 % less noisy than claimed would be beaten by the real law: the bound is
    not merely loose.
    """
    law = oracle.skellam(variance, 40 if variance < 20 else 200)
    moved = oracle.shifted(law, (1,))
    mu = unit_shift(Skellam(variance)) * 0.99
    excess = [
        oracle.hockey_stick(moved, law, alpha) - oracle.gaussian_hockey_stick(mu, alpha)
        for alpha in np.geomspace(0.5, 2.0, 41)
    ]
    assert max(excess) > 1e-6


@pytest.mark.deep
@pytest.mark.parametrize("variance", [0.25, 3.0, 500.0])
def test_points_agree_with_fifty_digits(variance: float) -> None:
    """sup_j Φ⁻¹(F(j)) − Φ⁻¹(F(j−1)) in many digits, up to the first point whose tail is below
    e^-70.
    """
    with mp.workdps(60):
        v = mp.mpf(variance)
        reach = int(20 * math.sqrt(variance)) + 90
        pmf = [mp.exp(-v) * mp.besseli(k, v) for k in range(reach)]
        tail = [mp.mpf(0)] * (reach + 1)
        for k in range(reach - 1, -1, -1):
            tail[k] = tail[k + 1] + pmf[k]
        quantiles = []
        for j in range(reach - 1):
            quantiles.append(_upper_quantile(tail[j + 1]))
            if mp.log(tail[j + 1]) <= TAIL_LOG_MASS:
                break
        exact = max(2 * quantiles[0], *(b - a for a, b in itertools.pairwise(quantiles)))
        found = unit_shift(Skellam(variance))
        assert exact <= found <= exact * (1 + 3e-8)


def _upper_quantile(mass: mp.mpf) -> mp.mpf:
    """z with P[N > z] = mass, by Newton's method."""
    z = mp.sqrt(max(mp.mpf("0.01"), -2 * mp.log(mass)))
    for _ in range(200):
        value = mp.erfc(z / mp.sqrt(2)) / 2
        step = (value - mass) / (mp.exp(-z * z / 2) / mp.sqrt(2 * mp.pi))
        z += step
        if abs(step) < mp.mpf(10) ** -40:
            return z
    raise AssertionError("Newton did not settle")


@pytest.mark.parametrize("law", [Skellam(2e8), DiscreteGaussian(4e8), DiscreteGaussian(6e7, 7)])
def test_blocks_lie_just_above_points(law: Skellam) -> None:
    reach = int(25 * math.sqrt(law.variance_grid))
    exact = _supremum_by_points(law, reach)
    assert exact <= _supremum_by_blocks(law, reach) * (1 + 1e-12) <= exact * (1 + 2e-6)


@pytest.mark.parametrize("exponent", [20.0, 30.0, 40.0, 46.0])
def test_large_variances_follow_the_expansion(exponent: float) -> None:
    """1/m² ≈ v − 1/3 for Skellam; never more private than that by more than the next term."""
    variance = 2.0**exponent
    found = 1.0 / unit_shift(Skellam(variance)) ** 2
    assert variance * (1 - 4e-6) - 1.0 <= found <= variance - 1.0 / 3.0 + 1.0 / variance


def test_the_discrete_gaussian_follows_its_expansion() -> None:
    assert 1.0 / unit_shift(DiscreteGaussian(50.0)) ** 2 == pytest.approx(
        50.0 - 1.0 / 12.0, abs=2e-3
    )


def test_a_query_without_sensitivity_is_refused() -> None:
    with pytest.raises(PlanError, match="l2_grid must be positive"):
        gaussian_multiplier(Skellam(4.0), 0.0)
