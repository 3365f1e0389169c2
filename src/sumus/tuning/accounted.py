"""Tuning whose privacy is accounted: the best of a random number of private runs (Papernot, Steinke
2022, arXiv 2110.03620, theorem 2).

1. A public list of candidate plans is drawn from the search space with a public seed; each is
calibrated to the plan's ε. 2. The number of runs K is drawn from the truncated geometric law with
the asked mean, from secret randomness, and is not released. 3. Each run draws a candidate uniformly
from secret randomness, trains it with secret noise, and scores it by noisy counts of its
   validation records, which are part of what the run releases.
4. The candidate, model and score of the best run are released; nothing else is.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import numpy.typing as npt

from sumus.books import Budget, Ledger, LedgerEntry, NoLedger, run_name
from sumus.data import load
from sumus.errors import GuaranteeError, PlanError
from sumus.files import number
from sumus.guarantee import (
    Account,
    NoiseDesign,
    account_of,
    calibrated,
    metrics_epsilon,
    search_epsilon,
)
from sumus.parties import RunSecret, federation_in_process
from sumus.plan import TrainingPlan
from sumus.randomness import RandomSource
from sumus.tasks import Metrics
from sumus.training import prepare
from sumus.tuning.search import tuning_plan, without_test_records
from sumus.tuning.space import SearchSpace

__all__ = ["AccountedTuning", "accounted_tuning", "draw_run_count"]


@final
@dataclass(frozen=True, kw_only=True)
class AccountedTuning:
    """What an accounted search releases, and its ε.

    Args:
        plan: the best candidate.
        parameters: its trained model.
        score: the noisy headline measure on validation records of that model; `score_plus_minus`: half-width of its 95
            % interval.
        account: of one run of the candidate with the largest ε; `account.tuning_epsilon` covers the
            whole search for training records.
        validation_epsilon: the same for a validation record.
        epsilon: for every record: a record is either a training or a validation record.
    """

    plan: TrainingPlan
    values: dict[str, Any]
    parameters: npt.NDArray[np.float64]
    score: float
    score_plus_minus: float
    account: Account
    validation_epsilon: float
    epsilon: float
    candidates: int


def draw_run_count(expected_runs: float, source: RandomSource) -> int:
    """K ~ geometric on {1, 2, …}, the truncated negative binomial law of shape 1: P[K = k] = γ(1 −
    γ)^(k−1), γ = 1/E[K].

    Args:
        expected_runs: E[K], at least 1.
        source: secret random bits.
    """
    number(low=1.0).check("privacy.tuning_runs", expected_runs)
    if not source.secure:
        raise GuaranteeError(
            "the number of tuning runs must come from secret randomness. Do not pass a simulation "
            "source."
        )
    if expected_runs == 1.0:
        return 1
    uniform = 1.0 - float(source.uniforms(1)[0])  # in (0, 1]
    return 1 + math.floor(math.log(uniform) / math.log1p(-1.0 / expected_runs))


def accounted_tuning(
    plan: TrainingPlan,
    space: SearchSpace,
    *,
    expected_runs: float,
    candidates: int = 16,
    seed: int = 0,
    ledger: Ledger | None = None,
    max_epsilon: float | None = None,
) -> AccountedTuning:
    """Search with a guarantee for everything that it releases.

    Guarantee: releasing plan, parameters and score of the best run is (ε, δ)-DP with `epsilon` and
        the plan's δ, add/remove one record, provided that nothing else of the search is shown to
        anybody: the number of runs is neither returned nor reported, and how long the call takes,
        which tells it, is for the eyes of the silos only.

    Args:
        plan: what does not vary; its ε is that of every single run.
        space: what varies.
        expected_runs: E[K].
        candidates: plans that are drawn from the space beforehand, in public.
        seed: public seed of that list.
        ledger: of the data set; the search is entered before it begins, with the ε of all of it.
        max_epsilon: the most that the data set may have spent after it (`Budget`).
    """
    base = (
        tuning_plan(plan)
        .replace("evaluation", metrics="secure", every=None)
        .replace("privacy", tuning_runs=expected_runs)
    )
    base = base.replace("aggregation", protocol=plan.aggregation.protocol)
    data = without_test_records(load(base))
    facts = data.facts()
    public = RandomSource.simulation(seed, "tuning candidates")
    drawn = [space.draw(public) for _ in range(candidates)]
    designs = [calibrated(base.with_overrides(values), facts) for values in drawn]
    _require_alike(designs)
    training = search_epsilon(designs)
    validation = max(metrics_epsilon(each.plan, search=True) for each in designs)
    if not math.isfinite(max(training, validation)):
        raise GuaranteeError(
            "the tuning has no finite ε. Lower --account or privacy.epsilon, or raise "
            "evaluation.noise_multiplier."
        )
    account = replace(
        max(map(account_of, designs), key=lambda each: each.epsilon), tuning_epsilon=training
    )
    secret = RandomSource()
    if ledger is not None:
        run = run_name(plan, name="tuning", nonce=secret.bytes(16))
        budget = Budget.of(plan, ledger, asked=max_epsilon)
        ledger.enter(
            LedgerEntry.of(
                account, run=run, round=1, round_id=run, epsilon=max(training, validation)
            ),
            allow=None if budget is None else budget.check_total,
        )
    headline = plan.task.headline
    best: tuple[Metrics, int, npt.NDArray[np.float64]] | None = None
    for _ in range(draw_run_count(expected_runs, secret)):
        chosen = int(secret.below(candidates, 1)[0])
        design = designs[chosen]
        federation = federation_in_process(
            design,
            prepare(design.plan, data),
            RunSecret(os.urandom(32), design.plan.hash),
            releases=NoLedger("entered as one release of the whole search"),
        )
        *_, last = federation.rounds()
        measured = last.metrics
        if measured is not None and (
            best is None or headline.is_worse(best[0][headline.name], measured[headline.name])
        ):
            best = (measured, chosen, federation.server.released)
    if best is None:
        raise GuaranteeError("no tuning run took place.")
    return AccountedTuning(
        plan=plan.with_overrides(drawn[best[1]]),
        values=drawn[best[1]],
        parameters=best[2],
        score=best[0][headline.name],
        score_plus_minus=best[0].plus_minus.get(headline.name, 0.0),
        account=account,
        validation_epsilon=validation,
        epsilon=max(training, validation),
        candidates=candidates,
    )


def _require_alike(designs: Sequence[NoiseDesign]) -> None:
    """One δ, one unit and one trust assumption for all candidates, and as many sums of the same
    size: else the search has no one ε.
    """
    shapes = {
        (
            each.plan.privacy,
            each.plan.federation.rounds,
            each.plan.federation.dropouts,
            each.plan.colluding,
            each.plan.training.dimension,
            each.queries_per_round,
            each.plan.evaluation,
        )
        for each in designs
    }
    if len(shapes) > 1:
        rule = (
            "must leave privacy, rounds, local steps, trust and the size of the model alone when "
            "tuning is accounted"
        )
        raise PlanError(
            "--space", sorted(map(str, shapes))[0], rule, "Remove that key from the space."
        )
