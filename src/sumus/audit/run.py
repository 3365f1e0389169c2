"""`sumus audit run`: a plan's real pipeline against its proved ε, from below.

Worst-case gradient canaries (canaries.py), in one training run or many, scored by the sum over all
rounds: what the released sums and, for a server that adds them up, the final model show of them.
Mislabelled real records (real_records.py) in one training run on the plan's data, in both views.
Bounds: Steinke et al. 2023 for the canaries of one run, whatever they do to each other;
Clopper–Pearson over all gradient canaries of all runs, which sit in different coordinates with
noise drawn independently. A plan is contradicted when a bound exceeds the proved ε, when the counts
contradict any other point of the proved privacy curve, or when the noise of silent directions is
not the accounted one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, final

import numpy as np
from scipy.stats import norm

from sumus.accounting import epsilon_of
from sumus.audit.canaries import CanaryRounds, CanaryScores
from sumus.audit.confidence import (
    Counts,
    best_test,
    bound_by_extremes,
    epsilon_lower_bound,
    gaussian_epsilon,
    gdp_lower_bound,
    one_run_lower_bound,
    refuted,
)
from sumus.audit.real_records import RealRecordView, audit_real_records
from sumus.data import FederatedData
from sumus.gradients import one_torch_thread
from sumus.guarantee import Account, NoiseDesign, account_of, release_of
from sumus.randomness import RandomSource

__all__ = ["ReleasedSumView", "RunAudit", "audit_released_sum", "audit_run"]

_FALSE_ALARM = 1e-9  # of the check of silent directions, each
_GUESSES = 4096
_CURVE_DELTAS = (0.3, 0.1, 0.03, 1e-2, 1e-3, 1e-4)


@final
@dataclass(frozen=True, kw_only=True)
class ReleasedSumView:
    """What gradient canaries show.

    Args:
        one_run_lower_bound: from the first run alone (Steinke et al.).
        lower_bound: from all canaries of all runs at the plan's δ (Clopper–Pearson).
        gaussian_lower_bound: ε at the plan's δ of the least Gaussian trade-off curve that fits the
            counts.
        contradicts_curve: whether the counts contradict any point of the proved privacy curve.
        noise_ratio: variance of silent directions over the accounted one.
        noise_as_accounted: whether that ratio is 1 within its error (false alarm below 1e-9).
        rounds_independent: whether silent directions of successive rounds are uncorrelated
            (likewise).
    """

    canaries: int
    runs: int
    one_run_lower_bound: float
    lower_bound: float
    gaussian_lower_bound: float
    contradicts_curve: bool
    noise_ratio: float
    noise_as_accounted: bool
    rounds_independent: bool


@final
@dataclass(frozen=True, kw_only=True)
class RunAudit:
    """Measured lower bounds against the proved upper bound.

    Args:
        released_sum: gradient canaries.
        real_records_sum: mislabelled real records, seen through all released sums; None without
            data.
        final_model: the same records, seen through the final model only.
    """

    epsilon: float
    delta: float
    analysis: str
    proved: bool
    confidence: float
    released_sum: ReleasedSumView
    real_records_sum: RealRecordView | None
    final_model: RealRecordView | None

    @property
    def lower_bound(self) -> float:
        """The largest bound that needs no assumption on the shape of the privacy curve."""
        real = [
            view.lower_bound
            for view in (self.real_records_sum, self.final_model)
            if view is not None
        ]
        return max(self.released_sum.lower_bound, self.released_sum.one_run_lower_bound, *real)

    @property
    def findings(self) -> list[str]:
        """What contradicts the account, in words; empty if nothing does."""
        view = self.released_sum
        contradictions = []
        if self.lower_bound > self.epsilon:
            contradictions.append(
                f"measured ε ≥ {self.lower_bound:.3g} exceeds the proved ε ≤ {self.epsilon:.3g}"
            )
        if view.contradicts_curve:
            contradictions.append(
                "the canaries were told apart more often than the proved privacy curve allows"
            )
        if not view.noise_as_accounted:
            contradictions.append(
                f"the noise of the sum has {view.noise_ratio:.3g} of the accounted variance"
            )
        if not view.rounds_independent:
            contradictions.append("the noise of different rounds is correlated")
        return contradictions

    @property
    def passed(self) -> bool:
        """Whether nothing contradicts the account."""
        return not self.findings

    def as_json(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        return asdict(self) | {
            "lower_bound": self.lower_bound,
            "findings": self.findings,
            "passed": self.passed,
        }


def audit_run(
    design: NoiseDesign,
    data: FederatedData | None,
    *,
    canaries: int = 256,
    runs: int | None = None,
    confidence: float = 0.99,
    new_source: Callable[[], RandomSource] = RandomSource,
    progress: Callable[[str], None] = lambda _: None,
) -> RunAudit:
    """Audit a calibrated design; with data also with real records, unless the plan describes.

    Args:
        canaries: m, in each run and view; fewer where the model or the silo's record bound has no
            room.
        runs: training runs of the released-sum view (their silos are empty but for canaries, so
            they are cheap); omitted: as many as give 4,096 guesses, at most 64.
    """
    account = account_of(design)
    # three bounds of gradient canaries and two of real records share the risk
    per_bound = 1.0 - (1.0 - confidence) / 5.0
    progress("gradient canaries through the real pipeline")
    released = audit_released_sum(
        design,
        account,
        canaries=canaries,
        runs=runs,
        confidence=per_bound,
        new_source=new_source,
        progress=progress,
    )
    views: tuple[RealRecordView | None, RealRecordView | None] = (None, None)
    if data is not None and not design.plan.describes:  # counts have no labels to get wrong
        progress("mislabelled records through a training run on the plan's data")
        views = audit_real_records(design, data, canaries=canaries, confidence=per_bound)
    return RunAudit(
        epsilon=account.epsilon,
        delta=account.delta,
        analysis=account.analysis,
        proved=account.proved,
        confidence=confidence,
        released_sum=released,
        real_records_sum=views[0],
        final_model=views[1],
    )


# -- released sum


def audit_released_sum(
    design: NoiseDesign,
    account: Account,
    *,
    canaries: int,
    runs: int | None,
    confidence: float,
    new_source: Callable[[], RandomSource] = RandomSource,
    progress: Callable[[str], None] = lambda _: None,
) -> ReleasedSumView:
    """Gradient canaries, in the view that the headline analysis grants the adversary."""
    rounds = CanaryRounds(
        design,
        canaries,
        view="silo" if account.analysis == "local" else "sum",
        new_source=new_source,
    )
    runs = runs or min(64, -(-_GUESSES // rounds.canaries))
    scores_of_runs = []
    with one_torch_thread():
        for number in range(runs):
            scores_of_runs.append(rounds.run())
            if (number + 1) % -(-runs // 8) == 0:
                progress(f"run {number + 1} of {runs}")
    separation = rounds.separation
    trials = runs * rounds.canaries
    far = best_test(separation, trials=trials, delta=account.delta, confidence=confidence).threshold
    middle = _counts(scores_of_runs, separation / 2.0)
    ratio, as_accounted = _noise_check(scores_of_runs)
    return ReleasedSumView(
        canaries=rounds.canaries,
        runs=runs,
        one_run_lower_bound=_one_run(
            scores_of_runs[0], separation, delta=account.delta, confidence=confidence
        ),
        lower_bound=epsilon_lower_bound(
            _counts(scores_of_runs, far), delta=account.delta, confidence=confidence
        ),
        gaussian_lower_bound=gaussian_epsilon(
            gdp_lower_bound(middle, confidence=confidence), account.delta
        ),
        contradicts_curve=refuted(middle, _curve(design, account), confidence=confidence),
        noise_ratio=ratio,
        noise_as_accounted=as_accounted,
        rounds_independent=_rounds_independent(scores_of_runs),
    )


def _counts(scores_of_runs: list[CanaryScores], threshold: float) -> Counts:
    scores, included = (
        np.concatenate([run.scores for run in scores_of_runs]),
        np.concatenate([run.included for run in scores_of_runs]),
    )
    said = scores > threshold
    return Counts(
        true_hits=int((said & included).sum()),
        with_record=int(included.sum()),
        false_hits=int((said & ~included).sum()),
        without_record=int((~included).sum()),
    )


def _one_run(scored: CanaryScores, separation: float, *, delta: float, confidence: float) -> float:
    """Guess the extreme scores, as many as the planned separation makes worth while."""
    guesses = _planned_guesses(len(scored.scores), separation, delta=delta, confidence=confidence)
    return bound_by_extremes(
        scored.scores, scored.included, guesses, delta=delta, confidence=confidence
    )[1]


def _planned_guesses(canaries: int, separation: float, *, delta: float, confidence: float) -> int:
    """The number of guesses with the largest expected bound for unit normal scores of this
    separation.
    """
    largest, best_guesses = -1.0, 2
    for guesses in sorted(
        {
            max(2, 2 * round(canaries * share / 2))
            for share in (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0)
        }
    ):
        if guesses > canaries:
            continue
        # roughly where the outer scores begin
        cut = separation / 2.0 + float(norm.isf(guesses / (2.0 * canaries)))
        high, low = float(norm.sf(cut - separation)), float(norm.sf(cut))
        correct = math.floor(guesses * high / (high + low))
        bound = one_run_lower_bound(
            canaries=canaries, guesses=guesses, correct=correct, delta=delta, confidence=confidence
        )
        if bound > largest:
            largest, best_guesses = bound, guesses
    return best_guesses


def _noise_check(scores_of_runs: list[CanaryScores]) -> tuple[float, bool]:
    """Variance of silent directions over the accounted one, and whether it is 1 (a sum of many
    draws is nearly normal).
    """
    values = np.concatenate([run.silent.reshape(-1) for run in scores_of_runs])
    if values.size < 100:
        return 1.0, True
    ratio = float(np.square(values).mean())
    fourth = max(float((values**4).mean()), 3.0)
    z = (ratio - 1.0) / math.sqrt((fourth - 1.0) / values.size)
    return ratio, bool(2.0 * norm.sf(abs(z)) >= _FALSE_ALARM)


def _rounds_independent(scores_of_runs: list[CanaryScores]) -> bool:
    """Products of the same direction in successive rounds average to zero."""
    products = np.concatenate(
        [(run.silent[:-1] * run.silent[1:]).reshape(-1) for run in scores_of_runs]
    )
    if products.size < 100:
        return True
    scale = float(np.concatenate([run.silent.reshape(-1) for run in scores_of_runs]).var()) or 1.0
    z = float(products.mean()) / scale * math.sqrt(products.size)
    return bool(2.0 * norm.sf(abs(z)) >= _FALSE_ALARM)


def _curve(design: NoiseDesign, account: Account) -> list[tuple[float, float]]:
    """Points (ε, δ) of the proved analysis."""
    release = release_of(account.analysis, design.setting(design.silos[0]))
    deltas = sorted({*_CURVE_DELTAS, account.delta})
    return [
        (epsilon_of(release, delta=delta, accountant=account.accountant), delta) for delta in deltas
    ]
