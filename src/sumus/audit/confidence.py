"""From counted guesses to lower bounds on ε that hold with a stated confidence.

A mechanism that is (ε, δ)-DP obeys TPR ≤ e^ε·FPR + δ for every test that tells "the record is in"
from "it is not". Counted hits give confidence limits of the two rates, the limits give a lower
bound on ε. The test must be fixed before the trials are drawn.

References: Clopper, Pearson 1934; Jagielski, Ullman, Oprea 2020 (arXiv:2006.07709); Steinke, Nasr,
    Jagielski 2023 (arXiv:2305.08846,
theorem 5.2) for many canaries in one run; Nasr et al. 2023 (arXiv:2302.07956) for bounds through
the whole trade-off curve.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt
from scipy.stats import beta, binom, norm

from sumus.accounting import epsilon_gaussian
from sumus.errors import PlanError

__all__ = [
    "Counts",
    "PlannedTest",
    "best_test",
    "bound_by_extremes",
    "epsilon_lower_bound",
    "gaussian_epsilon",
    "gdp_lower_bound",
    "one_run_lower_bound",
    "one_run_p_value",
    "refuted",
]


@final
@dataclass(frozen=True, kw_only=True)
class Counts:
    """How often a test said "in": over trials with the record, and over trials without it."""

    true_hits: int
    with_record: int
    false_hits: int
    without_record: int

    def __post_init__(self) -> None:
        if not (
            0 <= self.true_hits <= self.with_record and 0 <= self.false_hits <= self.without_record
        ):
            raise PlanError(
                "hits",
                (self.true_hits, self.false_hits),
                "must lie between 0 and the trials",
                "Count again.",
            )

    def limits(self, confidence: float) -> tuple[float, float]:
        """(lower limit of TPR, upper limit of FPR), both at once with the given confidence
        (Clopper–Pearson, half the risk each).
        """
        risk = (1.0 - confidence) / 2.0
        true_rate = (
            float(beta.ppf(risk, self.true_hits, self.with_record - self.true_hits + 1))
            if self.true_hits
            else 0.0
        )
        if self.false_hits < self.without_record:
            false_rate = float(
                beta.ppf(1.0 - risk, self.false_hits + 1, self.without_record - self.false_hits)
            )
        else:
            false_rate = 1.0
        return true_rate, false_rate


def epsilon_lower_bound(counts: Counts, *, delta: float, confidence: float) -> float:
    """log((TPR − δ)/FPR) at the confidence limits, at least 0.

    Guarantee: if the tested mechanism is (ε, δ)-DP and trials are independent, the returned value
        exceeds ε with probability at most 1 − confidence.
    """
    true_rate, false_rate = counts.limits(confidence)
    return (
        max(0.0, math.log((true_rate - delta) / false_rate))
        if true_rate > delta and false_rate > 0.0
        else 0.0
    )


def gdp_lower_bound(counts: Counts, *, confidence: float) -> float:
    """μ ≥ Φ⁻¹(TPR) − Φ⁻¹(FPR) at the confidence limits: what a mechanism with a Gaussian trade-off
    curve must have at least.

    Guarantee: if the tested mechanism is μ-GDP and trials are independent, exceeds μ with
        probability at most 1 − confidence.
    """
    true_rate, false_rate = counts.limits(confidence)
    if not (0.0 < true_rate < 1.0 and 0.0 < false_rate < 1.0):
        return 0.0
    return max(0.0, float(norm.ppf(true_rate) - norm.ppf(false_rate)))


def refuted(counts: Counts, curve: Iterable[tuple[float, float]], *, confidence: float) -> bool:
    """Whether the counts contradict any point (ε, δ) of a claimed privacy curve.

    Guarantee: True has probability at most 1 − confidence if the mechanism satisfies the whole
        curve: one pair of confidence limits serves every point.
    """
    true_rate, false_rate = counts.limits(confidence)
    return any(
        true_rate > math.exp(min(epsilon, 700.0)) * false_rate + delta for epsilon, delta in curve
    )


# -- choosing the test beforehand


@final
@dataclass(frozen=True, kw_only=True)
class PlannedTest:
    """A threshold on a unit normal score (mean 0 without the record, μ with it) and how many trials
    go to either side.
    """

    threshold: float
    with_record: int
    without_record: int
    expected_bound: float


def best_test(separation: float, *, trials: int, delta: float, confidence: float) -> PlannedTest:
    """The threshold and the allocation of trials with the largest lower bound on ε, were the counts
    equal to their expectation.

    Args:
        separation: μ, what the attack is expected to reach; a guess costs power, never validity.
        trials: in all.
    """
    risk = (1.0 - confidence) / 2.0
    thresholds = np.linspace(-1.0, 6.0, 141)[:, None]
    without = np.maximum(1, np.rint(trials * np.linspace(0.2, 0.8, 13)))[None, :]
    inside = np.maximum(1, trials - without)
    true_hits, false_hits = (
        np.floor(inside * norm.sf(thresholds - separation)),
        np.ceil(without * norm.sf(thresholds)),
    )
    true_rates = beta.ppf(risk, np.maximum(true_hits, 1e-9), inside - true_hits + 1.0)
    false_rates = beta.ppf(1.0 - risk, false_hits + 1.0, np.maximum(without - false_hits, 1e-9))
    with np.errstate(divide="ignore", invalid="ignore"):
        bounds = np.nan_to_num(np.log((true_rates - delta) / false_rates), nan=0.0, neginf=0.0)
    row, column = np.unravel_index(int(np.argmax(bounds)), bounds.shape)
    # too few trials to say anything: the most powerful test of equal errors
    if bounds[row, column] <= 0.0:
        return PlannedTest(
            threshold=separation / 2.0,
            with_record=trials - trials // 2,
            without_record=trials // 2,
            expected_bound=0.0,
        )
    return PlannedTest(
        threshold=float(thresholds[row, 0]),
        with_record=int(inside[0, column]),
        without_record=int(without[0, column]),
        expected_bound=float(bounds[row, column]),
    )


# -- many canaries in one run


def one_run_p_value(
    *, canaries: int, guesses: int, correct: int, epsilon: float, delta: float
) -> float:
    """Probability bound for at least `correct` right guesses about m canaries, each in or out by a
    fair coin, under (ε, δ)-DP.

        P[W ≥ v] ≤ P[B ≥ v] + 2mδ·max_{1≤i≤v} P[v > B ≥ v − i]/i,   B ~ Binomial(guesses, e^ε/(1 + e^ε))

    Guarantee: holds for one run of any (ε, δ)-DP mechanism, whatever the canaries do to each other
        (Steinke et al. 2023, thm 5.2).
    """
    if not 0 <= correct <= guesses <= canaries:
        raise PlanError(
            "guesses",
            (correct, guesses, canaries),
            "must satisfy correct ≤ guesses ≤ canaries",
            "Count again.",
        )
    rate = 1.0 / (1.0 + math.exp(-epsilon))
    tail = float(binom.sf(correct - 1, guesses, rate))
    if correct == 0:
        return 1.0
    # P[v > B ≥ v − i] for i = 1 … v
    below = np.cumsum(binom.pmf(np.arange(correct - 1, -1, -1), guesses, rate))
    slope = float((below / np.arange(1, correct + 1)).max())
    return min(1.0, tail + 2.0 * canaries * delta * slope)


def one_run_lower_bound(
    *, canaries: int, guesses: int, correct: int, delta: float, confidence: float
) -> float:
    """The largest ε that this many right guesses contradict with the given confidence (0 if
    none).
    """

    def contradicted(epsilon: float) -> bool:
        p_value = one_run_p_value(
            canaries=canaries, guesses=guesses, correct=correct, epsilon=epsilon, delta=delta
        )
        return p_value < 1.0 - confidence

    if not contradicted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while contradicted(high) and high < 64.0:
        low, high = high, 2.0 * high
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if contradicted(middle) else (low, middle)
    return low


def bound_by_extremes(
    scores: npt.NDArray[np.float64],
    included: npt.NDArray[np.bool_],
    guesses: int,
    *,
    delta: float,
    confidence: float,
) -> tuple[int, float]:
    """Right guesses if the highest scores of one run are called in and the lowest out, and the
    bound that follows.
    """
    order = np.argsort(scores, kind="stable")
    half = guesses // 2
    correct = (
        int(included[order[len(order) - half :]].sum() + (~included[order[:half]]).sum())
        if half
        else 0
    )
    bound = one_run_lower_bound(
        canaries=len(scores), guesses=2 * half, correct=correct, delta=delta, confidence=confidence
    )
    return correct, bound


def gaussian_epsilon(separation: float, delta: float) -> float:
    """ε at δ of telling two unit normals apart that are `separation` from each other; 0 for
    none.
    """
    return epsilon_gaussian(separation, delta) if separation > 1e-9 else 0.0
