"""Lower bounds: right where a closed form or a simulation of the extreme mechanism knows the
answer, and never above it too often.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.stats import binom, norm

from sumus.audit import Counts, best_test, epsilon_lower_bound
from sumus.audit.confidence import gdp_lower_bound, one_run_lower_bound, one_run_p_value, refuted
from sumus.errors import PlanError


def test_clopper_pearson_limits_solve_their_binomial_equations() -> None:
    counts = Counts(true_hits=37, with_record=1000, false_hits=12, without_record=900)
    low, high = counts.limits(0.99)
    assert binom.sf(36, 1000, low) == pytest.approx(0.005, rel=1e-6)
    assert binom.cdf(12, 900, high) == pytest.approx(0.005, rel=1e-6)


def test_no_hits_and_only_hits_are_ordinary() -> None:
    nothing = Counts(true_hits=0, with_record=50, false_hits=0, without_record=50)
    assert nothing.limits(0.99)[0] == 0.0
    assert epsilon_lower_bound(nothing, delta=1e-5, confidence=0.99) == 0.0
    everything = Counts(true_hits=50, with_record=50, false_hits=50, without_record=50)
    assert everything.limits(0.99)[1] == 1.0
    assert gdp_lower_bound(everything, confidence=0.99) == 0.0


def test_counts_that_cannot_be_are_refused() -> None:
    with pytest.raises(PlanError):
        Counts(true_hits=3, with_record=2, false_hits=0, without_record=1)


def test_randomised_response_at_its_own_epsilon_is_rarely_exceeded_and_nearly_reached() -> None:
    epsilon, trials = 1.0, 100_000
    rate = math.exp(epsilon) / (1.0 + math.exp(epsilon))
    generator = np.random.default_rng(7)
    bounds = []
    for _ in range(200):
        counts = Counts(
            true_hits=int(generator.binomial(trials, rate)),
            with_record=trials,
            false_hits=int(generator.binomial(trials, 1.0 - rate)),
            without_record=trials,
        )
        bounds.append(epsilon_lower_bound(counts, delta=0.0, confidence=0.95))
    assert sum(bound > epsilon for bound in bounds) <= 200 * 0.05 + 5 * math.sqrt(200 * 0.05)
    assert np.median(bounds) > 0.96 * epsilon


def test_gaussian_bound_finds_the_separation_of_two_normals() -> None:
    generator = np.random.default_rng(3)
    scores = generator.normal(size=400_000)
    counts = Counts(
        true_hits=int((scores[:200_000] + 0.5 > 0.25).sum()),
        with_record=200_000,
        false_hits=int((scores[200_000:] > 0.25).sum()),
        without_record=200_000,
    )
    assert 0.47 < gdp_lower_bound(counts, confidence=0.999) < 0.5


def test_a_curve_is_refuted_only_beyond_it() -> None:
    counts = Counts(true_hits=3000, with_record=10_000, false_hits=1000, without_record=10_000)
    assert refuted(counts, [(0.5, 1e-5)], confidence=0.999)
    assert not refuted(counts, [(1.2, 1e-5), (0.5, 0.2)], confidence=0.999)


def test_the_planned_test_beats_its_neighbours() -> None:
    chosen = best_test(0.6, trials=1_000_000, delta=1e-5, confidence=0.999)
    assert chosen.with_record + chosen.without_record == 1_000_000

    def expected(threshold: float) -> float:
        counts = Counts(
            true_hits=int(chosen.with_record * norm.sf(threshold - 0.6)),
            with_record=chosen.with_record,
            false_hits=math.ceil(chosen.without_record * norm.sf(threshold)),
            without_record=chosen.without_record,
        )
        return epsilon_lower_bound(counts, delta=1e-5, confidence=0.999)

    assert expected(chosen.threshold) >= max(
        expected(chosen.threshold - 0.5), expected(chosen.threshold + 0.5)
    )


def test_one_run_p_value_without_delta_is_a_binomial_tail() -> None:
    p_value = one_run_p_value(canaries=100, guesses=60, correct=45, epsilon=0.5, delta=0.0)
    rate = 1.0 / (1.0 + math.exp(-0.5))
    assert p_value == pytest.approx(
        sum(math.comb(60, k) * rate**k * (1 - rate) ** (60 - k) for k in range(45, 61)), rel=1e-9
    )


def test_one_run_p_value_pays_for_delta_as_the_theorem_says() -> None:
    canaries, guesses, correct, epsilon, delta = 40, 20, 15, 0.3, 1e-3
    rate = 1.0 / (1.0 + math.exp(-epsilon))
    pmf = [
        math.comb(guesses, k) * rate**k * (1 - rate) ** (guesses - k) for k in range(guesses + 1)
    ]
    slope = max(sum(pmf[correct - i : correct]) / i for i in range(1, correct + 1))
    wanted = sum(pmf[correct:]) + 2 * canaries * delta * slope
    found = one_run_p_value(
        canaries=canaries, guesses=guesses, correct=correct, epsilon=epsilon, delta=delta
    )
    assert found == pytest.approx(wanted, rel=1e-9)


@given(st.integers(2, 300), st.data())
@settings(deadline=None)  # a busy machine is no failure
def test_one_run_bound_is_contradicted_just_below_and_not_above(
    canaries: int, data: st.DataObject
) -> None:
    guesses = data.draw(st.integers(1, canaries))
    correct = data.draw(st.integers(0, guesses))
    bound = one_run_lower_bound(
        canaries=canaries, guesses=guesses, correct=correct, delta=1e-6, confidence=0.95
    )

    def p_value(epsilon: float) -> float:
        return one_run_p_value(
            canaries=canaries, guesses=guesses, correct=correct, epsilon=epsilon, delta=1e-6
        )

    assert p_value(bound + 1e-6) >= 0.05 - 1e-9
    if bound > 0.0:
        assert p_value(bound - 1e-9) <= 0.05 + 1e-6


def test_one_run_bound_of_randomised_response_is_rarely_exceeded() -> None:
    epsilon, canaries = 1.0, 400  # binomial draws stand for runs of the extreme mechanism
    rate = math.exp(epsilon) / (1.0 + math.exp(epsilon))
    correct = np.random.default_rng(5).binomial(canaries, rate, size=100)
    bounds = [
        one_run_lower_bound(
            canaries=canaries, guesses=canaries, correct=int(c), delta=0.0, confidence=0.95
        )
        for c in correct
    ]
    assert sum(bound > epsilon for bound in bounds) <= 100 * 0.05 + 5 * math.sqrt(100 * 0.05)
    assert np.median(bounds) > 0.7
