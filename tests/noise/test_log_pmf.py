"""Declared probabilities against 60-digit oracles that share no formula with them."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from oracles import pmf
from sumus.noise import DiscreteGaussian, Law, Skellam
from sumus.noise.discrete_gaussian import (
    discrete_gaussian_scale2,
    discrete_gaussian_variance,
    sum_log_ratio,
)

VARIANCES = [0.25, 0.9, 4.0, 31.0, 63.99, 64.0, 64.01, 300.0, 22_500.0, 1e6, 1e9, 1e12, 2.0**46]
variances = st.floats(math.log(0.25), math.log(2.0**46)).map(
    lambda x: min(max(math.exp(x), 0.25), 2.0**46)
)


def log_pmf_error(law: Law, point: int, oracle: mp.mpf) -> float:
    declared = float(law.log_pmf(np.array([point]))[0])
    return abs(float(mp.mpf(declared) - oracle))


@pytest.mark.deep
@pytest.mark.parametrize("variance", VARIANCES)
def test_skellam_log_pmf_has_thirteen_digits_out_to_the_tail_cut(variance: float) -> None:
    law = Skellam(variance)
    points = {0, 1, 2, 3, 61, 62, 63, 64, 65} | {
        int(c * math.sqrt(variance)) for c in (0.5, 1, 2, 3.3, 5, 8, 11.7)
    }
    for point in points:
        oracle = pmf.skellam_log_pmf(point, variance)
        if oracle > -75:  # everything the sampler can draw
            assert log_pmf_error(law, point, oracle) < 5e-14
        assert log_pmf_error(law, point, oracle) < 2e-14 * (1 + abs(float(oracle)) / 16)


@pytest.mark.deep
@settings(max_examples=150, deadline=None)
@given(variance=variances, deviations=st.floats(0, 30))
def test_skellam_log_pmf_is_accurate_everywhere(variance: float, deviations: float) -> None:
    point = int(deviations * math.sqrt(variance))
    oracle = pmf.skellam_log_pmf(point, variance)
    assert log_pmf_error(Skellam(variance), point, oracle) < 2e-14 * (1 + abs(float(oracle)) / 16)


@pytest.mark.parametrize("scale2", [0.25, 0.5, 1.0, 3.99, 4.0, 17.0, 1e4, 1e9, 2.0**46])
def test_discrete_gaussian_log_pmf_and_variance(scale2: float) -> None:
    law = DiscreteGaussian(scale2)
    for point in {0, 1, 2, 3, 7} | {int(c * math.sqrt(scale2)) for c in (0.5, 3, 8, 11.7)}:
        oracle = pmf.discrete_gaussian_log_pmf(point, scale2)
        if oracle > -75:
            assert log_pmf_error(law, point, oracle) < 5e-14
    if scale2 <= 1e4:
        assert law.variance_grid == pytest.approx(
            float(pmf.discrete_gaussian_variance(scale2)), rel=1e-14
        )


@pytest.mark.deep
@pytest.mark.parametrize(
    ("scale2", "count"),
    [(0.25, 2), (0.3, 7), (0.5, 51), (1.0, 10), (2.5, 3), (3.99, 20), (4.0, 20), (9.0, 5)],
)
def test_sum_of_discrete_gaussians_is_within_its_declared_slack(scale2: float, count: int) -> None:
    law = DiscreteGaussian(scale2, count)
    std = math.sqrt(law.variance_grid)
    points = sorted({0, 1, int(std), int(3 * std), int(6 * std), int(11 * std)})
    for point, oracle in zip(
        points, pmf.discrete_gaussian_sum_log_pmf(points, scale2, count), strict=True
    ):
        assert log_pmf_error(law, point, oracle) < law.log_ratio_slack + 5e-14
    assert law.variance_grid == pytest.approx(
        count * float(pmf.discrete_gaussian_variance(scale2)), rel=1e-14
    )


def test_published_bound_on_sums_of_discrete_gaussians_holds_and_is_not_vacuous() -> None:
    """One discrete Gaussian in place of a sum of two: the true log-ratio is below the bound and
    above its thousandth.
    """
    for scale2 in (0.5, 0.7, 1.0):
        points = [0, 1, 2, 3]
        summed = pmf.discrete_gaussian_sum_log_pmf(points, scale2, 2)
        single = [pmf.discrete_gaussian_log_pmf(point, 2 * scale2) for point in points]
        worst = max(abs(float(a - b)) for a, b in zip(summed, single, strict=True))
        assert worst <= sum_log_ratio(scale2, 2)
        assert worst >= 1e-3 * sum_log_ratio(scale2, 2)


@settings(max_examples=200, deadline=None)
@given(variance=variances)
def test_scale_of_a_discrete_gaussian_never_falls_short_of_the_asked_variance(
    variance: float,
) -> None:
    scale2 = discrete_gaussian_scale2(variance)
    assert variance <= discrete_gaussian_variance(scale2) <= variance * (1 + 4e-15)


@pytest.mark.parametrize(
    "law",
    [Skellam(v) for v in (0.25, 3.0, 63.0, 70.0, 900.0)]
    + [DiscreteGaussian(v) for v in (0.25, 3.0, 900.0)]
    + [DiscreteGaussian(0.3, 9), DiscreteGaussian(5.0, 9)],
    ids=str,
)
def test_probabilities_are_symmetric_log_concave_and_add_up_to_one_with_the_declared_variance(
    law: Law,
) -> None:
    reach = int(20 * math.sqrt(law.variance_grid) + 30)
    points = np.arange(-reach, reach + 1)
    log_pmf = law.log_pmf(points)
    kept = np.abs(points) <= 12 * math.sqrt(law.variance_grid) + 2
    assert np.array_equal(log_pmf, log_pmf[::-1])
    assert (np.diff(log_pmf[kept], n=2) < 1e-12).all()
    assert np.exp(log_pmf).sum() == pytest.approx(1.0, abs=1e-13)
    assert (np.square(points.astype(float)) * np.exp(log_pmf)).sum() == pytest.approx(
        law.variance_grid, rel=1e-12
    )


SMALL_LAWS = [
    Skellam(0.25),
    Skellam(40.0),
    DiscreteGaussian(0.25),
    DiscreteGaussian(40.0),
    DiscreteGaussian(0.5, 8),
]


@pytest.mark.parametrize("law", SMALL_LAWS, ids=str)
def test_moment_bound_is_a_bound_and_exact_for_small_rates(law: Law) -> None:
    points = np.arange(-400, 401)
    probabilities = np.exp(law.log_pmf(points))
    for rate in (-1.5, -0.3, 0.01, 0.3, 1.5):
        exact = math.log((probabilities * np.exp(rate * points)).sum())
        assert exact <= law.log_mgf_bound(rate) * (1 + 1e-12)
    assert law.log_mgf_bound(1e-3) == pytest.approx(0.5e-6 * law.variance_grid, rel=0.2)
    assert law.log_mgf_bound(2e3) > 1e5


@pytest.mark.parametrize("law", SMALL_LAWS, ids=str)
def test_tail_bound_is_a_bound_also_for_sums(law: Law) -> None:
    for draws in (1, 3):
        tails = np.cumsum(np.exp(law.sum_of(draws).log_pmf(np.arange(0, 400)))[::-1])[::-1]
        for threshold in (0, 1, 2, 5, 10, 20, 40):
            if tails[threshold] > 1e-280:
                assert math.log(tails[threshold]) <= law.log_tail_bound(threshold, draws) + 1e-12
        assert law.log_tail_bound(60 * math.sqrt(law.variance_grid), draws) < -60
