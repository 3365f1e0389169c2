"""Tuning whose privacy is accounted: the best of a random number of private runs (Papernot, Steinke 2022, arXiv 2110.03620, theorem 2).

1. A public list of candidate plans is drawn from the search space with a public seed; each is calibrated to the plan's ε.
2. The number of runs K is drawn from the truncated geometric law with the asked mean, from secret randomness, and is not released.
3. Each run draws a candidate uniformly from secret randomness, trains it with secret noise, and scores it by noisy counts of its
   validation records, which are part of what the run releases.
4. The candidate, model and score of the best run are released; nothing else is.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from sumus.accounting.accountant import renyi_values
from sumus.accounting.analyses import release_of
from sumus.accounting.release import Release, noisy_step
from sumus.accounting.renyi import ORDERS
from sumus.accounting.tuning import epsilon_with_tuning
from sumus.data import load
from sumus.design import NoiseDesign
from sumus.errors import GuaranteeError, PlanError
from sumus.experiments.space import SearchSpace
from sumus.experiments.tuning import tuning_plan, without_test_records
from sumus.guarantee import Account, account_of, calibrate_design
from sumus.plan import TrainingPlan
from sumus.plan_rules import number
from sumus.randomness import RandomSource
from sumus.resolve import resolve
from sumus.training.evaluation import METRIC_COORDINATES, SecureMetrics
from sumus.training.federation import Federation
from sumus.training.workbench import prepare

__all__ = ["AccountedTuning", "accounted_tuning", "draw_run_count"]


@final
@dataclass(frozen=True, kw_only=True)
class AccountedTuning:
    """What an accounted search releases, and its ε.

    Args:
        plan: the best candidate.
        parameters: its trained model.
        score: its noisy validation accuracy.
        account: of one run of the candidate that leaks most; `account.tuning_epsilon` covers the whole search for training records.
        validation_epsilon: the same for a validation record.
        epsilon: for every record: a record is either a training or a validation record.
    """

    plan: TrainingPlan
    values: dict[str, Any]
    parameters: npt.NDArray[np.float64]
    score: float
    account: Account
    validation_epsilon: float
    epsilon: float
    candidates: int


def draw_run_count(expected_runs: float, source: RandomSource) -> int:
    """K ~ geometric on {1, 2, …}, the truncated negative binomial law of shape 1: P[K = k] = γ(1 − γ)^(k−1), γ = 1/E[K].

    Args:
        expected_runs: E[K], at least 1.
        source: secret random bits.
    """
    number(low=1.0).check("privacy.tuning_runs", expected_runs)
    if not source.secure:
        raise GuaranteeError("the number of tuning runs must come from secret randomness. Do not pass a simulation source.")
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
) -> AccountedTuning:
    """Search with a guarantee for everything that it releases.

    Guarantee: releasing plan, parameters and score of the best run is (ε, δ)-DP with `epsilon` and the plan's δ, add/remove one record,
        provided that nothing else of the search is shown to anybody: the number of runs is neither returned nor reported, and how long
        the call takes, which tells it, is for the eyes of the silos only.

    Args:
        plan: what does not vary; its ε is that of every single run.
        space: what varies.
        expected_runs: E[K].
        candidates: plans that are drawn from the space beforehand, in public.
        seed: public seed of that list.
    """
    base = tuning_plan(plan).replace("evaluation", metrics="secure").replace("privacy", tuning_runs=expected_runs)
    data = without_test_records(load(base))
    facts = data.facts()
    public = RandomSource.simulation(seed, "tuning candidates")
    drawn = [space.draw(public) for _ in range(candidates)]
    built = [calibrate_design(resolve(base.with_overrides(values), facts), facts.silo_names) for values in drawn]
    account = account_of(_dominating(built))
    if account.tuning_epsilon is None or not math.isfinite(account.tuning_epsilon):
        raise GuaranteeError("the tuning has no finite ε. Lower --account or privacy.epsilon.")
    validation = _validation_epsilon(built[0], expected_runs)
    secret = RandomSource()
    best: tuple[float, int, npt.NDArray[np.float64]] | None = None
    for _ in range(draw_run_count(expected_runs, secret)):
        chosen = int(secret.below(candidates, 1)[0])
        federation = Federation(built[chosen], prepare(built[chosen].plan, data), os.urandom(32))
        score = math.nan
        for outcome in federation.rounds():
            score = outcome.metrics.accuracy if outcome.metrics is not None else score
        if best is None or score > best[0]:
            best = (score, chosen, federation.server.released)
    if best is None:
        raise GuaranteeError("no tuning run took place.")
    return AccountedTuning(
        plan=plan.with_overrides(drawn[best[1]]),
        values=drawn[best[1]],
        parameters=best[2],
        score=best[0],
        account=account,
        validation_epsilon=validation,
        epsilon=max(account.tuning_epsilon, validation),
        candidates=candidates,
    )


def _dominating(built: Sequence[NoiseDesign]) -> NoiseDesign:
    """The candidate whose Rényi curve lies above all others': what holds for it holds for a run with a random candidate."""
    shapes = {(each.plan.federation.rounds, each.plan.training.dimension, each.queries_per_round) for each in built}
    if len(shapes) > 1:
        rule = "must leave rounds, local steps and the size of the model alone when tuning is accounted"
        raise PlanError("--space", sorted(map(str, shapes))[0], rule, "Remove that key from the space.")
    curves = np.array([np.max([_curve(each, silo.name) for silo in _kinds(each)], axis=0) for each in built])
    top = curves.max(axis=0)
    for each, curve in zip(built, curves, strict=True):
        if np.all(curve >= top * (1.0 - 1e-9)):
            return each
    raise PlanError("--space", len(built), "must have one candidate that leaks most at every Rényi order", "Narrow the space.")


def _kinds(built: NoiseDesign) -> list[Any]:
    kinds = {(silo.l2_grid, silo.sampling_rate, silo.local_steps, silo.noise_share, silo.surge_rate): silo for silo in built.silos}
    return list(kinds.values())


def _curve(built: NoiseDesign, name: str) -> npt.NDArray[np.float64]:
    """The Rényi curve of everything one run releases, for the records of one silo."""
    silo = next(each for each in built.silos if each.name == name)
    analysis = {"dp-sgd": "local" if silo.local_steps > 1 else "single-step"}.get(
        built.plan.training.algorithm, built.plan.training.algorithm
    )
    return np.asarray(renyi_values(release_of(analysis, built.setting(silo)), ORDERS))


def _validation_epsilon(built: NoiseDesign, expected_runs: float) -> float:
    """ε of the search for a validation record: the noisy counts of every round of every run."""
    plan, metrics = built.plan, SecureMetrics(built)
    total = metrics.share.sum_of(plan.noise_contributors)
    unit_grid = math.sqrt(total.variance_grid) / plan.evaluation.noise_multiplier  # grid steps that stand for one record
    l2_grid = math.sqrt(METRIC_COORDINATES) * unit_grid * (1.0 + 1e-9)
    step = noisy_step(total, l2_grid=l2_grid, dimension=METRIC_COORDINATES, count=plan.federation.rounds)
    return epsilon_with_tuning(Release((step,)), delta=plan.privacy.delta, expected_runs=expected_runs)
