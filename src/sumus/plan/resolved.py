"""A plan with every number made explicit: what `guarantee`, `training` and `parties` compute with.

`resolve` fills in silos, sampling rate, local steps, divisor and dimension from public facts, and
refuses what it cannot fill in. Whoever holds a `ResolvedPlan` needs no default for any number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar, final

from sumus.errors import PlanError
from sumus.noise import Rounding
from sumus.plan.algorithms import AlgorithmRules
from sumus.plan.cells import cells_of, with_columns
from sumus.plan.facts import PublicFacts
from sumus.plan.moments import MomentShape
from sumus.plan.plan import SiloPlan, TrainingPlan
from sumus.plan.sizes import LINEAR_MODELS, MODELS, feature_shape, parameter_count, parameter_sizes

__all__ = [
    "DEFAULT_BIN",
    "DEFAULT_EPSILON",
    "ResolvedPlan",
    "ResolvedSilo",
    "feature_norm_of",
    "resolve",
]

DEFAULT_EPSILON = 1.0
"""The target of a plan that names neither an ε nor a noise."""
DEFAULT_BIN = 20.0
"""Records in an average bin of a convex pass whose plan names neither bins nor a batch size."""

_ROUNDINGS = {
    "record": Rounding.TRUNCATED,
    "stochastic": Rounding.STOCHASTIC,
    "sum": Rounding.SUMMED,
}
Number = TypeVar("Number")


@final
@dataclass(frozen=True, kw_only=True)
class ResolvedSilo:
    """The public numbers of one silo, its own ones in place of the plan's.

    Args:
        name: the silo.
        records: public upper bound on its training records; on persons where they are the unit.
        local_steps: S_i; bins of a convex pass.
        sampling_rate: q_i, per local step.
        learning_rate: γ_i.
        clip_norm: C_i.
        std_factor: of its noise, over the standard deviation of an equal share.
    """

    name: str
    records: int
    local_steps: int
    sampling_rate: float
    learning_rate: float
    clip_norm: float
    std_factor: float


@final
@dataclass(frozen=True, kw_only=True)
class ResolvedPlan:
    """A plan none of whose numbers is left to the data; made by `resolve`, or by `of` from a plan
    that was resolved when it was stored.

    Args:
        plan: with everything filled in; it is what is hashed, approved and written.
        rules: of its algorithm.
        rounding: how vectors get onto the grid.
        dimension: parameters of the model.
        local_dimension: parameters that stay with each silo, beyond `dimension`.
        coordinates: d, numbers of a round's sum: those of the model, or of moments.
        divisor: b, public divisor of a step's sum.
        local_steps: S of a silo that has no number of its own.
        sampling_rate: q of a silo that has none of its own.
        invited: the most silos that a round invites.
        contributors: k, silos whose noise the guarantee counts.
        selection_rate: probability that a round invites a silo; 1 unless silos are drawn one by
            one.
        silos: in the order of the federation.
    """

    plan: TrainingPlan
    rules: AlgorithmRules
    rounding: Rounding
    dimension: int
    local_dimension: int
    coordinates: int
    divisor: float
    local_steps: int
    sampling_rate: float
    invited: int
    contributors: int
    selection_rate: float
    silos: tuple[ResolvedSilo, ...]

    @classmethod
    def of(cls, plan: TrainingPlan, silo_names: Sequence[str]) -> Self:
        """Read a plan in which every number is written down; refuses one that leaves a number out.

        Args:
            silo_names: in the order of `data.records_per_silo`.
        """
        training, federation = plan.training, plan.federation
        records = _known("data.records_per_silo", plan.data.records_per_silo)
        if len(records) != len(silo_names):
            rule = f"must list one bound for each of {len(silo_names)} silos"
            raise PlanError("data.records_per_silo", len(records), rule, "Add or remove entries.")
        steps = _known("federation.local_steps", federation.local_steps)
        rate = _known("training.sampling_rate", training.sampling_rate)
        chance = federation.selection_rate if federation.selection == "poisson" else 1.0
        return cls(
            plan=plan,
            rules=plan.rules,
            rounding=_known("noise.rounding", _ROUNDINGS.get(plan.noise.rounding)),
            dimension=_known("training.dimension", training.dimension),
            local_dimension=0
            if training.local_parameters is None
            else _known("training.local_dimension", training.local_dimension),
            coordinates=_known(
                "training.coordinates",
                training.coordinates
                if plan.rules.sums in ("moments", "curvature")
                else training.dimension,
            ),
            divisor=_known("training.divisor", training.divisor),
            local_steps=steps,
            sampling_rate=rate,
            invited=plan.invited,
            contributors=plan.noise_contributors,
            selection_rate=_known("federation.selection_rate", chance),
            silos=tuple(
                _silo(plan, name, records=count, local_steps=steps, sampling_rate=rate)
                for name, count in zip(silo_names, records, strict=True)
            ),
        )

    @property
    def silo_names(self) -> tuple[str, ...]:
        """In the order of the federation."""
        return tuple(silo.name for silo in self.silos)

    @property
    def moments(self) -> MomentShape:
        """How moments lie in the sum: those of `normal-equations`, or those of `newton`, behind
        which its gradient lies as the rows of targets do.
        """
        solved = self.rules.sums == "moments"
        matrices = self.plan.task.moment_matrices(self.plan.training.model) if solved else 1
        return MomentShape.of(self.coordinates, self.dimension, matrices)

    @property
    def rows_per_record(self) -> int:
        """The most rows that one unit of privacy may have in a sum of floats, public."""
        return self.plan.task.rows_per_record * self.plan.rows_per_person

    def replace(self, section: str, **changes: Any) -> Self:
        """The same with keys of one section of the plan replaced by Python values."""
        return self.of(self.plan.replace(section, **changes), self.silo_names)


def _known(field: str, value: Number | None) -> Number:
    if value is None:
        raise PlanError(
            field, None, "must be known before noise is sized", "Resolve the plan first."
        )
    return value


def _silo(
    plan: TrainingPlan, name: str, *, records: int, local_steps: int, sampling_rate: float
) -> ResolvedSilo:
    own = plan.silo.get(name, SiloPlan())
    return ResolvedSilo(
        name=name,
        records=records,
        local_steps=_first(own.local_steps, local_steps),
        sampling_rate=_first(own.sampling_rate, sampling_rate),
        learning_rate=_first(own.learning_rate, plan.training.learning_rate),
        clip_norm=_first(own.clip_norm, plan.training.clip_norm),
        std_factor=_first(own.std_factor, 1.0),
    )


def _first(own: Number | None, common: Number) -> Number:
    return common if own is None else own


def resolve(plan: TrainingPlan, facts: PublicFacts) -> ResolvedPlan:
    """The plan with every omitted number made explicit from public facts; a plan that is filled in
    already stays as it is.
    """
    plan = _as_the_task_means(plan, facts)
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
    if plan.protects_persons:
        plan = plan.replace("data", records_per_person=plan.rows_per_person)
    if plan.privacy.epsilon is None and plan.noise.noise_multiplier is None and plan.rules.private:
        plan = plan.replace("privacy", epsilon=DEFAULT_EPSILON)
    plan = _with_classes(_with_class_weights(plan, facts), facts)
    if plan.describes:
        plan = _resolve_cells(plan, facts)
    elif plan.training.dimension is None or plan.training.local_parameters is not None:
        plan = _resolve_dimension(plan, facts)
    fill_in = {
        "updates": _resolve_sampling,
        "moments": _resolve_moments,
        "curvature": _resolve_curvature,
        "cells": _resolve_once,
    }
    if plan.rules.steps == "bins":
        plan = _resolve_bins(plan, facts)
    else:
        plan = fill_in[plan.rules.sums](plan, facts)
    if plan.noise.rounding == "auto":
        plan = plan.replace("noise", rounding=plan.rules.rounding)
    return ResolvedPlan.of(plan, facts.silo_names)


def _as_the_task_means(plan: TrainingPlan, facts: PublicFacts) -> TrainingPlan:
    """Model and length of records where the task has a default of its own."""
    longest = feature_norm_of(plan, facts.shape, len(facts.columns))
    model = plan.task.model_name(plan.training.model)
    return plan.replace("training", model=model, feature_norm=longest)


def feature_norm_of(plan: TrainingPlan, shape: tuple[int, ...], columns: int) -> float | None:
    """L, `training.feature_norm` of records of this shape; columns are scaled to [−1, 1] each, so
    that few records are longer than the root of their number.

    Args:
        columns: of the table that the records were; 0: of none.
    """
    keeps = plan.task.keeps_lengths and plan.rules.bounded_records
    if not keeps or plan.training.feature_norm is not None:
        return plan.training.feature_norm
    training = plan.training
    behind = feature_shape(training.features, shape, training.components)
    return math.sqrt(columns or math.prod(behind))


def _with_class_weights(plan: TrainingPlan, facts: PublicFacts) -> TrainingPlan:
    """Weights in the order of the classes, one for each."""
    weights, names = plan.training.class_weights, facts.labels.names
    if weights is None or plan.training.task != "classification":
        return plan
    field, fix = "training.class_weights", "Give one weight for each class, by name or in order."
    if facts.labels.columns:
        rule = "must be left out beside data.label_columns, whose labels are all yes or no"
        raise PlanError(field, weights, rule, "Remove it, or learn one label (data.label_column).")
    if not isinstance(weights, tuple):
        strange = sorted(set(weights) ^ set(names))
        if strange:
            listed = ", ".join(names[:12])
            rule = f"must have the classes of the data for names ({listed})"
            raise PlanError(field, strange[0], rule, fix)
        weights = tuple(weights[name] for name in names)
    if len(weights) != len(names):
        raise PlanError(
            field, len(weights), f"must hold a weight for each of {len(names)} classes", fix
        )
    return plan.replace("training", class_weights=weights)


def _with_classes(plan: TrainingPlan, facts: PublicFacts) -> TrainingPlan:
    """The number of classes that secure metrics count, written down: what a test record adds to the
    counts, and so its guarantee, must follow from the stored plan alone.
    """
    if plan.evaluation.metrics != "secure":
        return plan
    classes, stated = plan.task.counted_classes(facts.labels), plan.evaluation.classes
    if stated is not None and stated != classes:
        rule = (
            f"must be left out (training.task = {plan.training.task})"
            if classes is None
            else f"must be the {classes} classes of the data"
        )
        raise PlanError("evaluation.classes", stated, rule, "Omit it to have them counted.")
    return plan.replace("evaluation", classes=classes)


def _resolve_dimension(plan: TrainingPlan, facts: PublicFacts) -> TrainingPlan:
    """Parameters that are sent, and those that are not."""
    training, kept = plan.training, 0
    if training.local_parameters is not None:
        kept = _local_dimension(plan, facts)
        plan = plan.replace("training", local_dimension=kept)
    if training.dimension is not None:
        return plan
    return plan.replace("training", dimension=_dimension(plan, facts) - kept)


def _behind(plan: TrainingPlan, facts: PublicFacts) -> tuple[int, ...]:
    """Shape of one record behind the plan's features."""
    return feature_shape(plan.training.features, facts.shape, plan.training.components)


def _local_dimension(plan: TrainingPlan, facts: PublicFacts) -> int:
    training = plan.training
    if training.local_dimension is not None:
        return training.local_dimension
    if training.local_parameters != "intercept" or training.model not in MODELS:
        rule = "must be set for local parameters by name: they are counted by `sumus train` only"
        fix = "Give the number of parameters whose names begin so."
        raise PlanError("training.local_dimension", None, rule, fix)
    return plan.task.outputs(facts.labels, training.model)


def _dimension(plan: TrainingPlan, facts: PublicFacts) -> int:
    shape = _behind(plan, facts)
    training, outputs = plan.training, plan.task.outputs(facts.labels, plan.training.model)
    if training.tangent_layers is not None and training.model in ("mlp", "cnn"):
        sizes = parameter_sizes(
            training.model, shape=shape, outputs=outputs, hidden=training.hidden
        )
        beginnings = tuple(part.strip() for part in training.tangent_layers.split(","))
        return sum(size for name, size in sizes.items() if name.startswith(beginnings))
    return parameter_count(
        training.model,
        shape=shape,
        outputs=outputs,
        hidden=training.hidden,
        shared_slopes=plan.task.shared_slopes,
    )


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
    if plan.rules.steps == "one":
        steps = 1
    elif steps is None and training.learning_rates is not None:
        steps = len(training.learning_rates)
    elif steps is None:
        epochs = federation.local_epochs
        steps = 1 if epochs is None else math.ceil(epochs / rate - 1e-9)
    divisor = (
        training.divisor
        if training.divisor is not None
        else (batch if batch is not None else rate * mean)
    )
    plan = plan.replace("federation", local_steps=steps, local_epochs=None)
    plan = plan.replace("training", sampling_rate=rate, batch_size=None, divisor=divisor)
    return _with_silos(plan, overrides)


def _resolve_bins(plan: TrainingPlan, facts: PublicFacts) -> TrainingPlan:
    """Passes: S bins of about b records each; with a batch size every silo has its own number
    of bins.
    """
    records = plan.data.records_per_silo or ()
    mean = math.fsum(records) / len(records)
    training, federation, overrides = plan.training, plan.federation, dict(plan.silo)
    if training.sampling_rate is not None and training.sampling_rate < 1.0:
        rule = (
            f"has no meaning for {training.algorithm} (every record falls into one bin of every "
            "pass)"
        )
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


def _resolve_moments(plan: TrainingPlan, facts: PublicFacts) -> TrainingPlan:
    """One sum over all records, once: as many numbers as two moments of a record have."""
    training = plan.training
    outputs, matrices = (
        plan.task.outputs(facts.labels, training.model),
        plan.task.moment_matrices(training.model),
    )
    if matrices == 1 and plan.task.target_bound(outputs) is None:
        rule = f"has no targets for training.task = {plan.task.name}"
        raise PlanError("training.algorithm", training.algorithm, rule, 'Use "convex-pass".')
    if training.model not in LINEAR_MODELS:
        rule = f"must be {', '.join(LINEAR_MODELS)} for normal-equations (the solution is linear)"
        raise PlanError("training.model", training.model, rule, 'Use "linear".')
    plan = plan.replace("federation", rounds=1, local_steps=1)
    plan = plan.replace("training", sampling_rate=1.0, divisor=1.0)
    if training.coordinates is not None:
        return plan
    features = math.prod(_behind(plan, facts))
    features += training.local_parameters is None  # about a silo's own mean there is no bias
    shape = MomentShape(features, outputs, matrices)
    return plan.replace("training", coordinates=shape.count)


def _resolve_curvature(plan: TrainingPlan, facts: PublicFacts) -> TrainingPlan:
    """Sums over all records, one a round: second moments and a gradient."""
    training, task = plan.training, plan.task
    if training.model not in LINEAR_MODELS or task.shared_slopes:
        of = f" in {task.name}" if task.shared_slopes else ""
        rule = f"must be {', '.join(LINEAR_MODELS)} for newton (moments bend linear models){of}"
        raise PlanError("training.model", training.model, rule, 'Use "dp-sgd".')
    plan = plan.replace("federation", local_steps=1)
    plan = plan.replace("training", sampling_rate=1.0, divisor=1.0)
    if training.coordinates is not None:
        return plan
    features = math.prod(_behind(plan, facts)) + 1
    shape = MomentShape(features, task.outputs(facts.labels, training.model))
    return plan.replace("training", coordinates=shape.count)


def _resolve_cells(plan: TrainingPlan, facts: PublicFacts) -> TrainingPlan:
    """Columns and their cells; what is released is the sum itself, in the place of a model."""
    plan = with_columns(plan, facts.columns, facts.numbers, facts.labels)
    cells = cells_of(plan)
    dimension = sum(column.count for column in cells)
    if plan.training.dimension not in (None, dimension):
        rule = f"must be the {dimension} cells of the described columns"
        raise PlanError(
            "training.dimension", plan.training.dimension, rule, "Omit it to have it counted."
        )
    plan = plan.replace("training", dimension=dimension)
    return plan.replace("evaluation", metrics="none")


def _resolve_once(plan: TrainingPlan, facts: PublicFacts) -> TrainingPlan:
    """One sum over all records, once."""
    plan = plan.replace("federation", rounds=1, local_steps=1)
    return plan.replace("training", sampling_rate=1.0, divisor=1.0)


def _with_silos(plan: TrainingPlan, overrides: dict[str, SiloPlan]) -> TrainingPlan:
    return replace(plan, silo=dict(sorted(overrides.items())))
