"""Hyper-parameter search on the validation split: Optuna proposes, a federation with real noise
answers, test records stay unseen.

    found = tune(plan, SearchSpace.load("space.toml"), TuneOptions(runs=50, out=Path("tuning")))
    found.plan.to_toml()                            # the best plan, ready for `sumus train`

Every run trains on 70 % of the training records and is scored on the other 30 % (the split of
Heikkilä 2025). The search itself looks at the validation records without noise and is NOT accounted:
`accounted_tuning` is for that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

from sumus.books import NoLedger
from sumus.data import FederatedData, SiloRecords, load
from sumus.errors import GuaranteeError, PlanError, StorageError
from sumus.guarantee import calibrated
from sumus.parties import Simulation, federation_in_process
from sumus.plan import TrainingPlan
from sumus.training import Prepared, prepare
from sumus.tuning.space import SearchSpace

__all__ = [
    "VALIDATION_FRACTION",
    "TuneOptions",
    "Tuned",
    "tune",
    "tuning_plan",
    "without_test_records",
]

VALIDATION_FRACTION = 0.3
"""Share of the training records that scores a run; the paper's."""
_SAMPLERS = ("tpe", "gp", "random")


@final
@dataclass(frozen=True, kw_only=True)
class TuneOptions:
    """How to search.

    Args:
        runs: finished or pruned runs in all, those of earlier calls with the same storage included.
        sampler: tpe, gp or random.
        objective: one of the task's measures, to be raised or lowered, on the validation records after
            the last round.
        prune: stop a run early whose rounds are below the median of earlier runs at the same round.
        jobs: runs at the same time, as threads of this process; further processes may share the
            storage.
        seed: public seed of the noise in the simulation and of the sampler.
        out: storage, plots and the best plan go here.
    """

    out: Path
    runs: int = 50
    sampler: str = "tpe"
    objective: str = "accuracy"
    prune: bool = True
    jobs: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if self.sampler not in _SAMPLERS:
            raise PlanError(
                "--sampler", self.sampler, f"must be one of {', '.join(_SAMPLERS)}", "Use tpe."
            )


@final
@dataclass(frozen=True, kw_only=True)
class Tuned:
    """The result of a search: the best plan (for all training records, noise to be calibrated anew)
    and the study behind it.
    """

    plan: TrainingPlan
    values: dict[str, Any]
    score: float
    finished: int
    pruned: int
    failed: int
    study: Any


def tuning_plan(plan: TrainingPlan) -> TrainingPlan:
    """The plan as it runs during the search: a validation split, record counts taken anew, accuracy
    of every round.
    """
    if (
        plan.noise.noise_multiplier is not None
        and plan.privacy.epsilon is None
        and plan.rules.private
    ):
        rule = "must be set to tune, so that every run has the same guarantee"
        raise PlanError("privacy.epsilon", None, rule, "Set it and remove noise.noise_multiplier.")
    # bounds stay; counts change with the validation split
    bounded = plan.data.path is not None and plan.data.counts != "public"
    stated = plan.data.records_per_silo if bounded else None
    counts = plan.data.counts if stated is not None else None
    plan = plan.replace(
        "data", validation_fraction=VALIDATION_FRACTION, records_per_silo=stated, counts=counts
    )
    if plan.rules.private:
        plan = plan.replace("noise", noise_multiplier=None)
    return plan.replace("evaluation", metrics="simulation", every=1).replace(
        "aggregation", protocol="trusted"
    )


def without_test_records(data: FederatedData) -> FederatedData:
    """The same silos with no test record left: their validation records stand in the place of test
    records.

    Guarantee: nothing computed from the result depends on a test record.
    """
    silos = tuple(
        SiloRecords(silo.name, silo.train, silo.validation, silo.validation) for silo in data.silos
    )
    return replace(data, silos=silos)


def tune(
    plan: TrainingPlan,
    space: SearchSpace,
    options: TuneOptions,
    *,
    progress: Callable[[int, float | None], None] | None = None,
) -> Tuned:
    """Search the space for the plan with the best score on the validation records; continues an
    earlier search of the same plan.

    Guarantee: no test record is looked at. The privacy of the search is NOT accounted: a plan that
        was tuned on private records tells something about them.

    Args:
        plan: everything that does not vary.
        space: what varies.
        options: how to search.
        progress: called after every run with its number and score (None if pruned or failed).
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    base = tuning_plan(plan)
    data = without_test_records(load(base))
    benches: dict[str, Prepared] = {}
    better = plan.task.measure(options.objective, field="--objective").larger_is_better
    direction = "maximize" if better else "minimize"

    def objective(trial: Any) -> float:
        values = space.suggest(trial)
        try:
            return _score(base.with_overrides(values), data, benches, options, trial)
        except (
            PlanError,
            GuaranteeError,
        ) as error:  # a corner of the space that cannot run is a bad run, not the end of the search
            trial.set_user_attr("refused", str(error))
            raise optuna.TrialPruned from None

    study = optuna.create_study(
        study_name=_study_name(base, space, options),
        storage=_storage(options.out),
        direction=direction,
        sampler=_sampler(options),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=1)
        if options.prune
        else optuna.pruners.NopPruner(),
        load_if_exists=True,
    )
    done = len([each for each in study.trials if each.state.is_finished()])

    def after(_: Any, trial: Any) -> None:
        if progress is not None:
            progress(
                trial.number + 1,
                trial.value if trial.state == optuna.trial.TrialState.COMPLETE else None,
            )

    study.optimize(
        objective, n_trials=max(0, options.runs - done), n_jobs=options.jobs, callbacks=[after]
    )
    return _tuned(plan, study)


def _score(
    plan: TrainingPlan,
    data: FederatedData,
    benches: dict[str, Prepared],
    options: TuneOptions,
    trial: Any,
) -> float:
    """Train once with noise really drawn; reports every round to the pruner."""
    import optuna

    facts = data.facts()
    design = calibrated(plan, facts)
    bench = _bench(design.plan, data, benches)
    federation = federation_in_process(
        design,
        bench,
        Simulation(options.seed + 1_000 * (trial.number + 1)),
        releases=NoLedger("search with public seeds"),
    )
    value = math.nan
    for outcome in federation.rounds():
        assert outcome.metrics is not None  # noqa: S101 - every round is evaluated in the simulation
        value = outcome.metrics[options.objective]
        trial.report(value, outcome.number)
        if trial.should_prune():
            raise optuna.TrialPruned
    return float(value)


def _bench(plan: TrainingPlan, data: FederatedData, benches: dict[str, Prepared]) -> Prepared:
    """Records behind the plan's features; one workbench per kind of features and model is kept."""
    training = plan.training
    key = repr(
        (
            training.features,
            training.components,
            training.whitening,
            training.model,
            training.hidden,
            training.init_seed,
            training.feature_bound,
        )
    )
    key += str(plan.rules.bounded_records)
    if key not in benches:
        benches[key] = prepare(plan, data)
    return benches[key]


def _tuned(plan: TrainingPlan, study: Any) -> Tuned:
    import optuna

    states = [each.state for each in study.trials]
    complete = states.count(optuna.trial.TrialState.COMPLETE)
    if not complete:
        refused = next(
            (each.user_attrs["refused"] for each in study.trials if "refused" in each.user_attrs),
            "every run was pruned",
        )
        raise PlanError(
            "--space", len(states), "must hold at least one plan that can run to its end", refused
        )
    values = dict(study.best_params)
    return Tuned(
        plan=plan.with_overrides(values),
        values=values,
        score=float(study.best_value),
        finished=complete,
        pruned=states.count(optuna.trial.TrialState.PRUNED),
        failed=states.count(optuna.trial.TrialState.FAIL),
        study=study,
    )


def _storage(out: Path) -> str:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"{out} cannot be made: {error.strerror}. Choose another folder for --out."
        ) from None
    return f"sqlite:///{out / 'tuning.sqlite3'}"


def _study_name(base: TrainingPlan, space: SearchSpace, options: TuneOptions) -> str:
    """Another plan, space or objective is another search."""
    import hashlib

    digest = hashlib.sha256(f"{base.hash}|{space!r}|{options.objective}".encode()).hexdigest()
    return f"{base.data.name or 'data'}-{base.training.algorithm}-{digest[:12]}"


def _sampler(options: TuneOptions) -> Any:
    import optuna

    if options.sampler == "tpe":
        return optuna.samplers.TPESampler(seed=options.seed, constant_liar=options.jobs > 1)
    return (
        optuna.samplers.GPSampler(seed=options.seed)
        if options.sampler == "gp"
        else optuna.samplers.RandomSampler(seed=options.seed)
    )
