"""Every registered law is tested by being in `sumus.noise.LAWS`: what it says of itself is compared
with sums over its probabilities and with draws.

False alarms: draws are compared by one χ² statistic each, with a threshold that a correct sampler
    exceeds with probability 1e-9 for a fresh seed; seeds are fixed, so a correct sampler never
    fails. `test_a_law_of_other_variance_is_caught` is the control.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from sumus.errors import GuaranteeError, PlanError
from sumus.noise import LAWS, Law, noise_law
from sumus.plan import TrainingPlan
from sumus.randomness import RandomSource

FALSE_ALARM = 1e-9
DRAWS = 1 << 19
VARIANCES = (0.6, 3.0, 50.0, 900.0)
NAMES = tuple(LAWS)
DISCRETE = tuple(name for name, law in LAWS.items() if law.discrete)
DIVISIBLE = tuple(name for name, law in LAWS.items() if law.divisible)

every_law = pytest.mark.parametrize("name", NAMES)
every_discrete_law = pytest.mark.parametrize("name", DISCRETE)
every_variance = pytest.mark.parametrize("variance", VARIANCES)


def points_of(law: Law) -> npt.NDArray[np.int64]:
    """All points but a mass below 1e-30."""
    reach = math.ceil(14.0 * law.std_grid) + 40
    return np.arange(-reach, reach + 1)


def pmf_of(law: Law) -> npt.NDArray[np.float64]:
    return np.exp(law.log_pmf(points_of(law)))


def cdf_of(law: Law, edges: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """P[X < edge] at edges half-way between two integers."""
    if not law.discrete:
        return np.asarray(stats.norm.cdf(edges, scale=law.std_grid))
    below = np.concatenate([[0.0], np.cumsum(pmf_of(law))])
    first = points_of(law)[0]
    return below[np.clip(np.ceil(edges).astype(np.int64) - first, 0, len(below) - 1)]


def p_value(draws: npt.NDArray[np.float64], law: Law) -> float:
    """Pearson's χ² of the draws on cells that expect at least 100 of them each."""
    quantiles = np.linspace(0.0, 1.0, 201)[1:-1]
    cuts = np.unique(np.round(stats.norm.ppf(quantiles, scale=law.std_grid)) + 0.5)
    probabilities = np.diff(np.concatenate([[0.0], cdf_of(law, cuts), [1.0]]))
    observed = np.bincount(np.searchsorted(cuts, draws), minlength=len(probabilities))
    expected = probabilities * draws.size
    assert expected.min() >= 100.0
    statistic = float((np.square(observed - expected) / expected).sum())
    return float(stats.chi2.sf(statistic, len(expected) - 1))


@every_law
def test_a_law_is_a_frozen_value_that_knows_its_name(name: str) -> None:
    law = noise_law(name, 9.0)
    assert type(law) is LAWS[name]
    assert (law.name, law) == (name, noise_law(name, 9.0))
    assert hash(law) == hash(noise_law(name, 9.0))
    assert dataclasses.is_dataclass(law)
    assert type(law).__dataclass_params__.frozen  # type: ignore[attr-defined]


def test_nobody_adds_a_law_from_outside() -> None:
    assert isinstance(LAWS, Mapping)
    with pytest.raises(TypeError):
        LAWS["none"] = LAWS["skellam"]  # type: ignore[index]


@every_law
def test_a_plan_can_name_it(name: str) -> None:
    plan = TrainingPlan.from_toml(f'[noise]\nmechanism = "{name}"\n[aggregation]\n')
    assert plan.noise.mechanism == name


@every_law
@every_variance
def test_variance_is_the_one_asked_for_and_never_less(name: str, variance: float) -> None:
    law = noise_law(name, variance)
    assert variance * (1.0 - 4e-16) <= law.variance_grid <= variance * (1.0 + 1e-14)
    assert law.std_grid == pytest.approx(math.sqrt(law.variance_grid), rel=1e-15)
    if law.discrete:
        squares = np.square(points_of(law).astype(np.float64))
        assert float((pmf_of(law) * squares).sum()) == pytest.approx(law.variance_grid, rel=1e-12)


@every_discrete_law
@every_variance
def test_probabilities_add_up_and_are_symmetric_and_log_concave(name: str, variance: float) -> None:
    law = noise_law(name, variance)
    log_pmf = law.log_pmf(points_of(law))
    assert math.fsum(np.exp(log_pmf)) == pytest.approx(1.0, abs=1e-12)
    assert (log_pmf == log_pmf[::-1]).all()
    assert (np.diff(log_pmf, 2) < 1e-9).all()


@every_law
@every_variance
@pytest.mark.parametrize("draws", [1, 5])
def test_tails_and_exponential_moments_are_below_their_bounds(
    name: str, variance: float, draws: int
) -> None:
    law = noise_law(name, variance)
    summed = law.sum_of(draws)
    for deviations in (0.0, 0.5, 1.0, 3.0, 8.0):
        threshold = math.ceil(deviations * summed.std_grid)
        log_tail = (
            math.log(float(pmf_of(summed)[points_of(summed) >= threshold].sum()))
            if law.discrete
            else float(stats.norm.logsf(threshold, scale=summed.std_grid))
        )
        assert log_tail <= law.log_tail_bound(threshold, draws) + 1e-9
    for rate in (0.01, 0.3, 1.0):
        rate /= law.std_grid
        log_mgf = (
            float(np.logaddexp.reduce(law.log_pmf(points_of(law)) + rate * points_of(law)))
            if law.discrete
            else 0.5 * (rate * law.std_grid) ** 2
        )
        assert log_mgf <= law.log_mgf_bound(rate) + 1e-9
        assert law.log_mgf_bound(rate) <= 1.2 * log_mgf + 1e-9  # a bound of some use


@every_law
@pytest.mark.parametrize("variance", [3.0, 50.0, 900.0])
@pytest.mark.parametrize("contributors", [1, 2, 7])
def test_shares_add_up_to_no_less_than_the_total(
    name: str, variance: float, contributors: int
) -> None:
    total = noise_law(name, variance)
    share = total.share(contributors)
    summed = share.sum_of(contributors)
    assert type(share) is type(summed) is type(total)
    assert summed.variance_grid >= total.variance_grid * (1.0 - 1e-15)
    assert summed.variance_grid == pytest.approx(contributors * share.variance_grid, rel=1e-14)
    if total.discrete:
        single = np.exp(share.log_pmf(points_of(summed)))
        convolved = single
        for _ in range(contributors - 1):
            convolved = np.convolve(convolved, single, mode="same")
        assert np.allclose(
            convolved, pmf_of(summed), rtol=1e-10 + summed.log_ratio_slack, atol=1e-25
        )


@pytest.mark.parametrize("name", DIVISIBLE)
def test_unequal_draws_of_a_divisible_law_add_up_within_the_law(name: str) -> None:
    small, large = noise_law(name, 2.0), noise_law(name, 7.5)
    both = noise_law(name, 9.5)
    for rate in (0.01, 0.3, 1.0):
        assert small.log_mgf_bound(rate) + large.log_mgf_bound(rate) == pytest.approx(
            both.log_mgf_bound(rate), rel=1e-12
        )
    if both.discrete:
        points = points_of(both)
        convolved = np.convolve(
            np.exp(small.log_pmf(points)), np.exp(large.log_pmf(points)), mode="same"
        )
        assert np.allclose(convolved, pmf_of(both), rtol=1e-10, atol=1e-25)


@every_law
@every_variance
def test_draws_have_the_declared_law(name: str, variance: float) -> None:
    law = noise_law(name, variance)
    draws = law.sample(DRAWS, RandomSource.simulation(1, f"{name} {variance}"))
    assert draws.dtype == (np.int64 if law.discrete else np.float64)
    assert p_value(draws.astype(np.float64), law) >= FALSE_ALARM


@every_law
def test_a_law_of_other_variance_is_caught(name: str) -> None:
    draws = noise_law(name, 52.0).sample(DRAWS, RandomSource.simulation(1, name))
    assert p_value(draws.astype(np.float64), noise_law(name, 50.0)) < FALSE_ALARM


@every_law
def test_draws_follow_the_words_of_their_source_and_take_the_shape_asked_for(name: str) -> None:
    law = noise_law(name, 50.0)
    first, again, other = (
        law.sample((3, 40), RandomSource.simulation(seed, "x")) for seed in (1, 1, 2)
    )
    assert first.shape == (3, 40)
    assert (first == again).all()
    assert (first != other).any()
    assert law.sample((2, 0), RandomSource.simulation(1)).shape == (2, 0)


@every_law
@every_variance
def test_what_draws_may_miss_is_stated_and_tiny_where_anything_is_proved(
    name: str, variance: float
) -> None:
    for law in (noise_law(name, variance), noise_law(name, variance).sum_of(9)):
        assert law.log_ratio_slack >= 0.0
        if law.discrete:
            assert law.log_ratio_slack < 1e-9
            assert 0.0 <= law.tail_mass < 1e-28
        else:
            assert law.log_ratio_slack == math.inf
            with pytest.raises(GuaranteeError):
                law.log_pmf(np.zeros(1, dtype=np.int64))


@every_discrete_law
@every_variance
@pytest.mark.parametrize("shift", [1, 3])
def test_a_published_curve_bounds_the_divergence_of_shifted_draws(
    name: str, variance: float, shift: int
) -> None:
    for law in (noise_law(name, variance), noise_law(name, variance).sum_of(2)):
        curve = law.renyi(float(shift), 1)
        points = points_of(law)
        here, there = law.log_pmf(points), law.log_pmf(points - shift)
        kept = np.isfinite(here) & np.isfinite(there)
        for order in (2, 3, 8):
            exact = np.logaddexp.reduce(order * there[kept] + (1 - order) * here[kept])
            if curve is not None:
                assert exact / (order - 1) <= curve(np.array([order]))[0] + 1e-12


@every_law
@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0, 0.0])
def test_a_variance_that_is_none_is_refused_in_one_line(name: str, bad: float) -> None:
    with pytest.raises(PlanError) as caught:
        noise_law(name, bad)
    assert "\n" not in str(caught.value)
