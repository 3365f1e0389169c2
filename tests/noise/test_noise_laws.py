"""Shares, sums, ranges: what the accountant and the trainer both rely on."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from sumus.errors import GuaranteeError, PlanError
from sumus.noise import (
    DiscreteGaussian,
    Gaussian,
    Law,
    Skellam,
    noise_law,
)
from sumus.randomness import RandomSource


def convolved(law: Law, count: int, reach: int) -> np.ndarray:
    """Probabilities of the sum of `count` copies on −reach … reach, one factor at a time."""
    single = np.exp(law.log_pmf(np.arange(-reach, reach + 1)))
    total = single
    for _ in range(count - 1):
        total = np.convolve(total, single)[reach : 3 * reach + 1]
    return total


@settings(max_examples=60, deadline=None)
@given(variance=st.floats(1.5, 300), contributors=st.integers(1, 6))
def test_sum_of_all_skellam_shares_has_exactly_the_law_of_the_total(
    variance: float, contributors: int
) -> None:
    total = Skellam(variance)
    share = total.share(contributors)
    reach = int(9 * math.sqrt(variance) + 20)
    declared = np.exp(total.log_pmf(np.arange(-reach, reach + 1)))
    assert np.allclose(
        convolved(share, contributors, 2 * reach)[reach : 3 * reach + 1],
        declared,
        rtol=1e-11,
        atol=1e-300,
    )
    assert share.sum_of(contributors).variance_grid == pytest.approx(variance, rel=1e-15)


@settings(max_examples=60, deadline=None)
@given(variance=st.floats(1.5, 300), contributors=st.integers(1, 6))
def test_sum_of_all_discrete_gaussian_shares_has_the_law_it_declares_and_no_less_variance(
    variance: float, contributors: int
) -> None:
    total = noise_law("discrete-gaussian", variance)
    assert isinstance(total, DiscreteGaussian)
    share = total.share(contributors)
    summed = share.sum_of(contributors)
    assert summed.variance_grid >= variance * (1 - 1e-15)
    reach = int(9 * math.sqrt(variance) + 20)
    declared = np.exp(summed.log_pmf(np.arange(-reach, reach + 1)))
    actual = convolved(share, contributors, 2 * reach)[reach : 3 * reach + 1]
    assert np.allclose(actual, declared, rtol=1e-11 + 2 * summed.log_ratio_slack, atol=1e-300)


def test_two_halves_of_a_sum_of_discrete_gaussians_are_the_sum() -> None:
    whole = DiscreteGaussian(2.0, 6)
    assert whole.share(2) == DiscreteGaussian(2.0, 3)
    assert whole.share(6) == DiscreteGaussian(2.0)
    assert whole.share(2).sum_of(2) == whole
    with pytest.raises(PlanError, match="contributors must divide the 6 summands"):
        whole.share(4)


def test_gaussian_share_and_sum_invert_each_other() -> None:
    assert Gaussian(3.0).share(9) == Gaussian(1.0)
    assert Gaussian(1.0).sum_of(9) == Gaussian(3.0)
    draws = Gaussian(3.0).sample(400_000, RandomSource.simulation(5))
    assert abs(draws.mean()) < 5.5 * 3.0 / math.sqrt(draws.size)  # false alarm 4e-8
    assert abs(draws.var() / 9.0 - 1.0) < 5.5 * math.sqrt(2.0 / draws.size)


def test_a_continuous_law_has_no_probabilities_on_the_grid_and_no_proved_sampler() -> None:
    with pytest.raises(GuaranteeError, match="no probabilities"):
        Gaussian(2.0).log_pmf(np.array([1]))
    assert Gaussian(2.0).log_ratio_slack == math.inf


@pytest.mark.parametrize(
    "bad", [math.nan, math.inf, -math.inf, -1.0, 0.0, 0.2499, 2.0**46 * 1.0001, 1e300]
)
@pytest.mark.parametrize("law", ["skellam", "discrete-gaussian"])
def test_variance_outside_the_proved_range_is_refused_in_one_line(law: str, bad: float) -> None:
    with pytest.raises(PlanError, match=r"must lie in \[0.25, 2\^46\]") as caught:
        noise_law(law, bad)
    assert "\n" not in str(caught.value)
    assert repr(bad) in str(caught.value)


def test_share_below_the_proved_range_is_refused() -> None:
    with pytest.raises(PlanError, match="resolution_bits"):
        Skellam(2.0).share(9)
    with pytest.raises(PlanError, match="resolution_bits"):
        DiscreteGaussian(2.0).share(20)


@pytest.mark.parametrize("bad", [0, -1, True, 1.5, "3"])
@pytest.mark.parametrize(
    "law",
    [Skellam(9.0), DiscreteGaussian(9.0), DiscreteGaussian(9.0, 6), Gaussian(3.0)],
    ids=str,
)
def test_counts_that_are_no_counts_are_refused(law: Law, bad: object) -> None:
    with pytest.raises(PlanError, match="whole number"):
        law.share(bad)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="whole number"):
        law.sum_of(bad)  # type: ignore[arg-type]


def test_unknown_mechanism_and_bad_gaussian_are_refused() -> None:
    with pytest.raises(PlanError, match=r"noise.mechanism must name .* got 'laplace'.* Known: "):
        noise_law("laplace", 9.0)
    with pytest.raises(PlanError, match="Did you mean skellam"):
        noise_law("skelam", 9.0)
    for bad in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(PlanError):
            noise_law("gaussian", bad)
        with pytest.raises(PlanError):
            Gaussian(bad)


def test_too_many_rough_discrete_gaussians_are_refused_instead_of_approximated() -> None:
    with pytest.raises(PlanError, match="count of summed discrete Gaussians"):
        DiscreteGaussian(1.0, 8193)


def test_smooth_sums_carry_the_published_distance_in_their_slack() -> None:
    assert DiscreteGaussian(4.0, 51).log_ratio_slack > DiscreteGaussian(4.0).log_ratio_slack
    assert DiscreteGaussian(4.0, 51).log_ratio_slack < 1e-12


def test_draws_take_the_shape_asked_for_and_nothing_is_an_ordinary_amount() -> None:
    source = RandomSource.simulation(1)
    assert Skellam(5.0).sample((3, 4), source).shape == (3, 4)
    assert Skellam(5.0).sample(0, source).shape == (0,)
    assert Skellam(5.0).sample((2, 0), source).shape == (2, 0)
    assert Skellam(1e9).sample(1, source).dtype == np.int64
    assert Gaussian(1.0).sample((2, 3), source).shape == (2, 3)
