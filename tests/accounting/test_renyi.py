"""Rényi bounds against exact divergences in many digits."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest

from oracles import divergences as oracle
from sumus.accounting import noisy_queries
from sumus.accounting.renyi import (
    gaussian_curve,
    subsampled,
)
from sumus.noise import DiscreteGaussian, Skellam

ORDERS = [2, 3, 5, 16, 64]


def _exact_skellam(variance: float, shift: int, order: int) -> float:
    """D_α(X + g ‖ X) = log Σ_k p(k−g)^α p(k)^{1−α} / (α−1), in 40 digits."""
    with mp.workdps(40):
        v, reach = mp.mpf(variance), int(12 * math.sqrt(variance)) + 30 + order * shift
        pmf = {
            k: mp.exp(-v) * mp.besseli(abs(k), v) for k in range(-reach - shift, reach + shift + 1)
        }
        total = sum(
            pmf[k - shift] ** order * pmf[k] ** (1 - order) for k in range(-reach, reach + 1)
        )
        return float(mp.log(total) / (order - 1))


@pytest.mark.deep
@pytest.mark.parametrize(("variance", "shift"), [(1.0, 1), (4.0, 2), (30.0, 1), (30.0, 4)])
def test_skellam_never_exceeds_our_bounds(variance: float, shift: int) -> None:
    law = Skellam(variance)
    step = noisy_queries(law, l2_grid=float(shift), dimension=1)
    published = law.renyi(l2_grid=float(shift), dimension=1)
    dominating = gaussian_curve(step.gaussian_multiplier)
    for order in ORDERS[: 4 if variance < 2 else 5]:
        exact = _exact_skellam(variance, shift, order)
        at = np.array([order])
        assert exact <= published(at)[0]
        assert exact <= dominating(at)[0]
        assert exact <= step.renyi(at)[0] == min(published(at)[0], dominating(at)[0])


def _exact(p: np.ndarray, q: np.ndarray, order: int) -> float:
    kept = (p > 0) & (q > 0)
    log_terms = order * np.log(p[kept]) + (1 - order) * np.log(q[kept])
    return float(np.logaddexp.reduce(log_terms) / (order - 1))


@pytest.mark.parametrize(("scale2", "count", "shift"), [(0.7, 1, 1), (0.7, 4, 2), (3.0, 2, 3)])
def test_discrete_gaussian_never_exceeds_our_bounds(scale2: float, count: int, shift: int) -> None:
    law = oracle.summed(oracle.discrete_gaussian(scale2, 60), count)
    moved = np.roll(law, shift)
    inner = slice(30, 91)  # beyond, the powers underflow
    noise = DiscreteGaussian(scale2, count)
    step = noisy_queries(noise, l2_grid=float(shift), dimension=1)
    published = noise.renyi(l2_grid=float(shift), dimension=1)
    for order in (2, 3, 8):
        exact = _exact(moved[inner], law[inner], order)
        assert exact <= published(np.array([order]))[0] + 1e-12
        assert exact <= step.renyi(np.array([order]))[0] + 1e-12


@pytest.mark.parametrize("rate", [0.02, 0.3, 0.95])
@pytest.mark.parametrize("shift", [1, 3])
def test_subsampling_bounds_both_directions(rate: float, shift: int) -> None:
    """The mixture against the plain law and the plain law against the mixture, by enumeration."""
    variance = 5.0
    law = oracle.skellam(variance, 60)
    mixture = (1 - rate) * law + rate * np.roll(law, shift)
    inner = slice(15, 106)
    curve = noisy_queries(Skellam(variance), l2_grid=float(shift), dimension=1).renyi
    bounds = subsampled(curve, rate, np.array([2, 3, 4, 8]))
    for order, bound in zip((2, 3, 4, 8), bounds, strict=True):
        added = _exact(mixture[inner], law[inner], order)
        removed = _exact(law[inner], mixture[inner], order)
        assert removed <= added + 1e-12  # mirror images: adding a record is the worse direction
        assert added <= bound + 1e-12


def test_subsampling_limits() -> None:
    orders = np.array([2, 8, 64, 512, 600])
    curve = gaussian_curve(2.0)
    assert np.array_equal(subsampled(curve, 1.0, orders), curve(orders))
    almost = subsampled(curve, 1.0 - 1e-13, orders[:3])
    assert np.allclose(almost, curve(orders[:3]), rtol=1e-9)
    assert subsampled(curve, 0.5, orders)[-1] == math.inf
    assert (subsampled(curve, 1e-9, orders[:1]) >= 0.0).all()
