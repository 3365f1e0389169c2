"""What ε means, against error rates of the best test computed from the densities themselves."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings, strategies as st
from scipy.stats import norm

import sumus
from sumus.accounting import Queries, Release
from sumus.guarantee.exactness import Inexactness
from sumus.guarantee.meaning import FALSE_ALARMS, meaning_of, worst_of

EXACT = Inexactness()
Floats = npt.NDArray[np.float64]


def best_test(present: Floats, absent: Floats, alarms: float) -> tuple[float, float]:
    """(power at `alarms`, advantage) of the Neyman–Pearson test between two tables of masses."""
    order = np.argsort(-(present / absent))
    found, false = np.cumsum(present[order]), np.cumsum(absent[order])
    return float(np.interp(alarms, [0.0, *false], [0.0, *found])), float(np.max(found - false))


def sampled_gaussian(multiplier: float, rate: float) -> tuple[Floats, Floats]:
    """Masses of one Poisson-sampled Gaussian query with and without the record, on a fine table."""
    x = np.linspace(-12.0 * multiplier, 12.0 * multiplier + 1.0, 400_001)
    absent = norm.pdf(x, 0.0, multiplier)
    present = (1.0 - rate) * absent + rate * norm.pdf(x, 1.0, multiplier)
    return present / present.sum(), absent / absent.sum()


def test_epsilon_one_in_numbers() -> None:
    plan = sumus.TrainingPlan.load("plans/fashion-mnist.toml")
    meaning = sumus.account(plan).meaning
    assert meaning is not None
    assert meaning.advantage == pytest.approx(0.107, abs=0.001)
    assert meaning.mu == pytest.approx(0.268, abs=0.002)
    assert meaning.true_positive_rates[1] == pytest.approx(
        norm.cdf(norm.ppf(0.01) + 0.268), rel=0.03
    )


@pytest.mark.parametrize("counts", [(1,), (5, 20)])
def test_gaussian_pairs_are_exact(counts: tuple[int, ...]) -> None:
    release = Release(tuple(Queries(8.0, 1.0, count) for count in counts))
    mu = math.sqrt(sum(counts)) / 8.0
    meaning = meaning_of(release, accountant="pld", drawn=EXACT)
    assert meaning.gaussian
    x = np.linspace(-12.0, 12.0 + mu, 400_001)
    present, absent = norm.pdf(x, mu), norm.pdf(x)
    present, absent = present / present.sum(), absent / absent.sum()
    for alarms, power in zip(FALSE_ALARMS, meaning.true_positive_rates, strict=True):
        best, advantage = best_test(present, absent, alarms)
        assert power == pytest.approx(best, rel=2e-3)
        assert meaning.advantage == pytest.approx(advantage, rel=1e-4)


@pytest.mark.long
@settings(max_examples=25, deadline=None)
@given(
    multiplier=st.floats(0.5, 5.0),
    rate=st.floats(0.01, 0.9),
    accountant=st.sampled_from(["pld", "renyi", "renyi-mironov"]),
)
def test_no_test_does_better_than_is_stated(
    multiplier: float, rate: float, accountant: str
) -> None:
    release = Release((Queries(multiplier, rate, 1),))
    meaning = meaning_of(release, accountant=accountant, drawn=EXACT)
    # add and remove: either table may be that of the absent record
    for pair in (sampled_gaussian(multiplier, rate), sampled_gaussian(multiplier, rate)[::-1]):
        for alarms, power in zip(FALSE_ALARMS, meaning.true_positive_rates, strict=True):
            best, advantage = best_test(*pair, alarms)
            assert power >= best * (1.0 - 1e-4)
            assert meaning.advantage >= advantage - 1e-5
    if accountant == "pld":  # and it is nearly reached: by one of the two directions
        reached = max(
            best_test(*pair, 0.01)[0]
            for pair in (
                sampled_gaussian(multiplier, rate),
                sampled_gaussian(multiplier, rate)[::-1],
            )
        )
        assert meaning.true_positive_rates[1] <= 1.05 * reached
        assert meaning.advantage <= 1.02 * advantage + 1e-4


def test_what_samplers_cost_is_paid() -> None:
    release = Release((Queries(4.0, 0.5, 3),))
    plain = Release((Queries(4.0, 1.0, 3),))
    for queries in (release, plain):
        exact = meaning_of(queries, accountant="pld", drawn=EXACT)
        drawn = Inexactness(log_ratio=1e-3, tail_mass=1e-4, breach=1e-3)
        paid = meaning_of(queries, accountant="pld", drawn=drawn)
        assert paid.advantage >= exact.advantage + 1e-3
        assert all(
            after >= before + 1e-3
            for after, before in zip(
                paid.true_positive_rates, exact.true_positive_rates, strict=True
            )
        )


def test_the_worst_silo_counts() -> None:
    weak, strong = (
        meaning_of(Release((Queries(multiplier),)), accountant="pld", drawn=EXACT)
        for multiplier in (2.0, 8.0)
    )
    assert worst_of([strong, weak]) == weak


def test_every_front_end_says_it() -> None:
    account = sumus.account(sumus.TrainingPlan.load("plans/digits.toml"))
    assert account.meaning is not None
    assert f"gains at most {100.0 * account.meaning.advantage:.3g} %" in str(account)
    told = account.as_json()["meaning"]
    assert set(told) >= {"mu", "advantage", "false_positive_rates", "true_positive_rates"}
