"""From a training plan to the plan that describes its records: same silos, same records, one sum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from sumus.data import public_facts
from sumus.errors import PlanError
from sumus.plan import DataPlan, TrainingPlan, described_labels, with_columns

__all__ = ["SHARE_OF_TARGET", "describing_plan", "written"]

SHARE_OF_TARGET = 0.25
"""Of the training plan's ε that a description takes where nobody says how much."""
_DEFAULT_EPSILON = 0.25
_RING_BITS = 56  # counts of 10¹¹ records, on the finest grid
_SPREAD = 6.0  # standard deviations of how many records a split leaves for training


def describing_plan(
    plan: TrainingPlan,
    *,
    epsilon: float | None = None,
    bins: int | None = None,
    columns: Sequence[str] | None = None,
    numbers: Sequence[str] | None = None,
) -> TrainingPlan:
    """The plan that describes the records of another one; a plan that describes already stays as
    it is, but for what is given.

    Args:
        epsilon: of the description; omitted: a quarter of the plan's, so that training keeps most.
        bins: `describe.bins`; `columns`, `numbers`: likewise.
    """
    if plan.protects_silos:
        rule = 'must be "record" or "person" for a description (a whole silo would need all noise)'
        fix = "Give --set privacy.unit=record --set training.algorithm=convex-pass."
        raise PlanError("privacy.unit", "silo", rule, fix)
    target = epsilon
    if not plan.describes:
        plan = _as_description(plan)
        given = plan.privacy.epsilon
        if target is None:
            target = _DEFAULT_EPSILON if given is None else SHARE_OF_TARGET * given
    if target is not None:
        plan = plan.replace("privacy", epsilon=target).replace("noise", noise_multiplier=None)
    changes = {
        "bins": bins,
        "columns": None if columns is None else tuple(columns),
        "numbers": None if numbers is None else tuple(numbers),
    }
    told = {name: value for name, value in changes.items() if value is not None}
    if told:
        plan = plan.replace("training", dimension=None).replace("describe", **told)
    return plan


def written(plan: TrainingPlan) -> tuple[TrainingPlan, tuple[str, ...]]:
    """A describing plan that says of every column how it is counted, so that every silo counts
    alike; what it leaves open is read off the file, and what that takes as public is told.
    """
    data, described = plan.data, plan.describe
    labels = described_labels(plan)
    columns = described.columns
    if columns is None and data.columns is not None:
        columns = tuple(dict.fromkeys((*data.columns, *labels, *(described.numbers or ()))))
    declared = {*(data.bounds or {}), *(data.categories or {}), *(described.numbers or ())}
    declared |= set(labels) if data.intervals else set()
    if columns is not None and (described.numbers is not None or set(columns) <= declared):
        return plan.replace("describe", columns=columns, numbers=described.numbers or ()), ()
    facts = public_facts(plan)
    filled = with_columns(plan, facts.columns, facts.numbers, facts.labels)
    return filled, facts.assumptions


def _as_description(plan: TrainingPlan) -> TrainingPlan:
    """Sections of a training plan that say who takes part and whose records they are; the rest is
    what a description needs.
    """
    blank = TrainingPlan()
    task = plan.training.task
    mechanism = "skellam" if plan.noise.mechanism == "poisson-binomial" else plan.noise.mechanism
    return replace(
        plan,
        federation=replace(
            plan.federation,
            rounds=1,
            local_steps=None,
            local_epochs=None,
            selection="all",
            selected=None,
            selection_rate=None,
        ),
        training=replace(blank.training, task=task, algorithm="describe"),
        noise=replace(blank.noise, mechanism=mechanism),
        privacy=replace(plan.privacy, calibrate_to="proved", tuning_runs=None),
        aggregation=replace(plan.aggregation, modulus_bits=_RING_BITS),
        data=_all_records(plan.data),
        evaluation=replace(blank.evaluation, metrics="none"),
        report=blank.report,
        silo={},
    )


def _all_records(data: DataPlan) -> DataPlan:
    """Every record is described, not only those for training: bounds grow by what was left for
    testing and tuning.
    """
    share = (1.0 - data.test_fraction) * (1.0 - data.validation_fraction)
    stated, counts = data.records_per_silo, data.counts
    if stated is not None and counts == "public":  # counted when the plan was resolved
        stated, counts = None, None
    if stated is not None and share < 1.0:
        stated = tuple(math.ceil((bound + _SPREAD * math.sqrt(bound)) / share) for bound in stated)
    return replace(
        data,
        test_fraction=0.0,
        validation_fraction=0.0,
        records_per_silo=stated,
        counts=counts,
    )
