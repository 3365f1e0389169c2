"""Filling in what a plan leaves to the data: silos, sampling rate, local steps, divisor, dimension.
Public facts only.
"""

from __future__ import annotations

import math
from dataclasses import replace

from sumus.errors import PlanError
from sumus.plan.facts import PublicFacts
from sumus.plan.plan import SiloPlan, TrainingPlan
from sumus.plan.sizes import feature_shape, parameter_count

__all__ = ["DEFAULT_BIN", "DEFAULT_EPSILON", "resolve"]

DEFAULT_EPSILON = 1.0
"""The target of a plan that names neither an ε nor a noise."""
DEFAULT_BIN = 20.0
"""Records in an average bin of a convex pass whose plan names neither bins nor a batch size."""


def resolve(plan: TrainingPlan, facts: PublicFacts) -> TrainingPlan:
    """The plan with every omitted number made explicit from public facts; the result resolves to
    itself.
    """
    silos = plan.federation.silos if plan.federation.silos is not None else facts.silos
    if silos != facts.silos:
        raise PlanError(
            "federation.silos",
            silos,
            f"must match the {facts.silos} silos of the data",
            "Omit the key to take it from the data.",
        )
    records = plan.data.records_per_silo or facts.records_per_silo
    if len(records) != silos:
        raise PlanError(
            "data.records_per_silo",
            len(records),
            f"must list one bound for each of {silos} silos",
            "Add or remove entries.",
        )
    unknown = sorted(set(plan.silo) - set(facts.silo_names))
    if unknown:
        raise PlanError(
            f"silo.{unknown[0]}",
            unknown[0],
            "is not a silo of the data",
            f"Known: {', '.join(facts.silo_names[:12])}.",
        )
    declared = plan.data.records_per_silo is not None or facts.bounded
    # or a count would be read as a bound by whoever reads the plan next
    counts = plan.data.counts or ("bounded" if declared else "public")
    plan = plan.replace("federation", silos=silos).replace(
        "data", records_per_silo=tuple(records), counts=counts
    )
    plan = plan.replace("federation", colluding=plan.colluding)
    if (
        plan.privacy.epsilon is None
        and plan.noise.noise_multiplier is None
        and plan.training.algorithm != "fedavg"
    ):
        plan = plan.replace("privacy", epsilon=DEFAULT_EPSILON)
    if plan.training.dimension is None:
        plan = plan.replace("training", dimension=_dimension(plan, facts))
    plan = (
        _resolve_bins(plan, facts)
        if plan.training.algorithm == "convex-pass"
        else _resolve_sampling(plan, facts)
    )
    if plan.noise.rounding == "auto":
        plan = plan.replace(
            "noise", rounding="sum" if plan.training.algorithm == "convex-pass" else "record"
        )
    return plan


def _dimension(plan: TrainingPlan, facts: PublicFacts) -> int:
    shape = feature_shape(plan.training.features, facts.shape)
    training, outputs = plan.training, plan.task.outputs(facts.labels, plan.training.model)
    return parameter_count(training.model, shape=shape, outputs=outputs, hidden=training.hidden)


def _resolve_sampling(plan: TrainingPlan, facts: PublicFacts) -> TrainingPlan:
    """Poisson sampling: q, S and the public divisor b = q × mean number of records."""
    records = plan.data.records_per_silo or ()
    mean = math.fsum(records) / len(records)
    training, federation, overrides = plan.training, plan.federation, dict(plan.silo)
    rate, batch = training.sampling_rate, training.batch_size
    if rate is None and batch is None:
        raise PlanError(
            "training.sampling_rate",
            None,
            "must be set (or batch_size)",
            "For example sampling_rate = 0.1.",
        )
    if batch is not None:
        if batch > min(records):
            raise PlanError(
                "training.batch_size",
                batch,
                f"must not exceed the smallest silo's {min(records)} records",
                "Lower it.",
            )
        rate = batch / mean
        if max(records) - min(records) > 1:
            for name, count in zip(facts.silo_names, records, strict=True):
                own = overrides.get(name, SiloPlan())
                if own.sampling_rate is None:
                    overrides[name] = SiloPlan(
                        **(own.as_table() | {"sampling_rate": batch / count})
                    )
    assert rate is not None  # noqa: S101 - narrows the type: one of the two was given
    steps = federation.local_steps
    if training.algorithm == "single-step":
        steps = 1
    elif steps is None and training.learning_rates is not None:
        steps = len(training.learning_rates)
    elif steps is None:
        steps = (
            math.ceil((federation.local_epochs or 0.0) / rate - 1e-9)
            if federation.local_epochs
            else 1
        )
    divisor = (
        training.divisor
        if training.divisor is not None
        else (batch if batch is not None else rate * mean)
    )
    plan = plan.replace("federation", local_steps=steps, local_epochs=None)
    plan = plan.replace("training", sampling_rate=rate, batch_size=None, divisor=divisor)
    return _with_silos(plan, overrides)


def _resolve_bins(plan: TrainingPlan, facts: PublicFacts) -> TrainingPlan:
    """Convex pass: S bins of about b records each; with a batch size every silo has its own number
    of bins.
    """
    records = plan.data.records_per_silo or ()
    mean = math.fsum(records) / len(records)
    training, federation, overrides = plan.training, plan.federation, dict(plan.silo)
    if training.sampling_rate is not None and training.sampling_rate < 1.0:
        rule = "has no meaning for convex-pass (every record falls into one bin of every pass)"
        raise PlanError(
            "training.sampling_rate",
            training.sampling_rate,
            rule,
            "Set local_steps (bins) or batch_size.",
        )
    steps, batch = federation.local_steps, training.batch_size
    if steps is None and batch is None:
        batch = min(DEFAULT_BIN, max(mean, 1.0))
    if steps is None and batch is not None:
        steps = max(1, round(mean / batch))
        for name, count in zip(facts.silo_names, records, strict=True):
            own = overrides.get(name, SiloPlan())
            bins = max(1, round(count / batch))
            if own.local_steps is None and bins != steps:
                overrides[name] = SiloPlan(**(own.as_table() | {"local_steps": bins}))
    assert steps is not None  # noqa: S101 - narrows the type
    divisor = (
        training.divisor
        if training.divisor is not None
        else (batch if batch is not None else mean / steps)
    )
    plan = plan.replace("federation", local_steps=steps, local_epochs=None)
    plan = plan.replace("training", sampling_rate=1.0, batch_size=None, divisor=divisor)
    return _with_silos(plan, overrides)


def _with_silos(plan: TrainingPlan, overrides: dict[str, SiloPlan]) -> TrainingPlan:
    return replace(plan, silo=dict(sorted(overrides.items())))
