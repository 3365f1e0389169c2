"""Records and model as the algorithms want them: public features in front, bounded norms for the
convex pass, a fresh model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self, final

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from sumus.data import FeaturesFor, FederatedData, Records
from sumus.errors import DataError, PlanError
from sumus.features import BIAS_SHARE, FeatureMap, bounded, feature_map
from sumus.gradients import (
    OwnLoss,
    PerRecordGradients,
    Units,
    one_thread_each,
)
from sumus.guarantee import LARGEST_WEIGHT_NORM
from sumus.plan import TrainingPlan, cells_of, feature_norm_of, feature_shape
from sumus.purity import (
    Form,
    InputKind,
    RecordLoss,
    is_chain,
    own_copy,
    refuse_mixing_layers,
    require_precision,
    try_out,
)
from sumus.tasks import LabelFacts
from sumus.training.frozen_layers import kept_frozen, load_frozen
from sumus.training.models import Counts, build_model, flat_parameters
from sumus.training.own_loss import own_loss
from sumus.training.trained_part import freeze_untrained

__all__ = [
    "Prepared",
    "PublicFeatures",
    "kept_features",
    "model_behind",
    "named_model",
    "prepare",
    "require_persons",
    "units_of",
]

_AT_ONCE = 1 << 18  # numbers of records whose features are in memory twice: few enough for caches


@final
@dataclass(frozen=True)
class Prepared:
    """What training needs besides the design: every silo's records behind the public features, and
    the model on top of them.

    Args:
        loss: given in Python instead of the task's; None: as the plan says.
    """

    data: FederatedData
    model: nn.Module
    first_parameters: npt.NDArray[np.float64]
    loss: RecordLoss | None = None


@final
@dataclass(frozen=True)
class PublicFeatures:
    """The public features of records of one shape.

    Guarantee: row j of the result depends on record j and on the plan alone.

    Args:
        mapping: the map that `training.features` names.
        bound: R, the longest that a record becomes with its bias feature; None: as the map leaves
            it.
        longest: L, `training.feature_norm`, below which lengths are kept.
    """

    mapping: FeatureMap
    bound: float | None
    longest: float | None

    @classmethod
    def of(cls, plan: TrainingPlan, shape: tuple[int, ...]) -> Self:
        """Those of a plan, for records of this shape."""
        training = plan.training
        return cls(
            feature_map(
                training.features,
                shape,
                components=training.components,
                whitening=training.whitening,
            ),
            training.feature_bound if plan.rules.bounded_records else None,
            training.feature_norm,
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one record behind them."""
        mapped = self.mapping.shape
        return mapped if self.bound is None else (math.prod(mapped) + 1,)

    @property
    def changes_nothing(self) -> bool:
        """Records are their own features."""
        return self.mapping.name == "none" and self.bound is None

    def __call__(self, records: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Features of all records, some on every core; besides the result, memory for a few of them
        at once.
        """
        out = np.empty((len(records), *self.shape), dtype=np.float32)
        batches = _AT_ONCE // (self.mapping.batch * max(1, math.prod(self.shape)))
        at_once = self.mapping.batch * max(1, batches)

        def fill(start: int) -> None:
            out[start : start + at_once] = self._of(records[start : start + at_once])

        one_thread_each([partial(fill, start) for start in range(0, len(records), at_once)])
        return out

    def _of(self, records: npt.NDArray[np.generic]) -> npt.NDArray[np.float32]:
        x = self.mapping(records)
        if self.bound is None:
            return x
        flat = x.reshape(len(x), math.prod(x.shape[1:]))
        return bounded(flat, self.bound, longest=self.longest)


def kept_features(plan: TrainingPlan) -> FeaturesFor | None:
    """What whoever loads records for this plan alone may keep instead of them; None: records."""
    if plan.describes:
        return None

    def of(shape: tuple[int, ...], columns: int) -> PublicFeatures | None:
        longest = feature_norm_of(plan, shape, columns)
        features = PublicFeatures.of(plan.replace("training", feature_norm=longest), shape)
        return None if features.changes_nothing else features

    return of


def prepare(
    plan: TrainingPlan,
    data: FederatedData,
    *,
    model: nn.Module | None = None,
    loss: RecordLoss | None = None,
    frozen: npt.NDArray[np.float64] | None = None,
) -> Prepared:
    """Apply the plan's public feature map record by record and build the model (or take a copy of
    the user's).

    Guarantee: what happens to a record depends on that record and on the plan alone, so it costs no
        privacy; for `convex-pass` every record, bias feature included, ends with norm at most
        `feature_bound`. A model or a loss that is no pure function of one record is refused
        (except without privacy, `fedavg`).

    Args:
        data: records, or what `kept_features` of this plan kept of them.
        model: given in Python instead of the one that the plan names.
        loss: given in Python, which the plan names.
        frozen: values of the layers that are not trained, which the plan names; omitted: those that
            this machine keeps.
    """
    training = plan.training
    if plan.describes:
        counts = Counts(sum(column.count for column in cells_of(plan)))
        return Prepared(data, counts, flat_parameters(counts).numpy().astype(np.float64))
    bounds = plan.rules.bounded_records
    if bounds and model is not None:
        rule = (
            f"must be one of softmax, linear, logistic for {training.algorithm}; a model of your "
            "own has no proved convexity"
        )
        raise PlanError(
            "training.model", type(model).__name__, rule, 'Use algorithm "split-noise" or "dp-sgd".'
        )
    features = PublicFeatures.of(plan, data.shape)
    if data.behind is not None and data.behind != features:
        raise DataError(
            f"{data.name}: was loaded behind other features than training.features = "
            f"{training.features!r}. Load the records by the plan that is trained."
        )
    shape = features.shape
    trained = (
        freeze_untrained(plan, own_copy(model, logits=training.logits))
        if model is not None
        else model_behind(plan, shape, data.labels)
    )
    load_frozen(plan, trained, kept_frozen(plan) if frozen is None else frozen)
    kind = InputKind.of(trained, training.vocabulary)

    def transform(records: Records, silo: str) -> Records:
        if data.behind is not None:
            return records
        return replace(records, x=in_front(features, kind, records.x, f"silo {silo!r}"))

    silos = tuple(
        replace(
            silo,
            train=transform(silo.train, silo.name),
            validation=transform(silo.validation, silo.name),
            test=transform(silo.test, silo.name),
        )
        for silo in data.silos
    )
    ready = replace(data, silos=silos, shape=shape, behind=None)
    first = silos[0].train
    form = kind.form(torch.from_numpy(first.x[:0]), torch.from_numpy(first.y[:0]))
    _require_fit(plan, trained, form, data.labels, own_loss(plan, loss))
    first_parameters = flat_parameters(trained).numpy().astype(np.float64)
    return Prepared(ready, trained, first_parameters, loss)


def named_model(plan: TrainingPlan, shape: Sequence[int], labels: LabelFacts) -> nn.Module:
    """The model that a plan names, for records of this shape before the plan's features."""
    behind = feature_shape(plan.training.features, shape, plan.training.components)
    return model_behind(plan, behind, labels)


def in_front(
    features: PublicFeatures, kind: InputKind, x: npt.NDArray[np.float32 | np.int64], where: str
) -> npt.NDArray[np.float32 | np.int64]:
    """Records as they reach the model: behind the public features or, where the model looks whole
    numbers up, as they are.

    Args:
        kind: what the model takes.
        where: they come from, for errors.
    """
    if features.mapping.name == "none" and kind.form(torch.from_numpy(x[:0])).whole:
        _require_known(x, kind, where)
        return x
    return features(x)


def _require_known(x: npt.NDArray[np.generic], kind: InputKind, where: str) -> None:
    """Whole numbers must be ones that the model can look up: a public rule, checked before anything
    is computed.
    """
    if len(x) and not (int(x.min()) >= 0 and int(x.max()) < (kind.limit or 0)):
        rule = f"whole numbers outside 0 … {(kind.limit or 0) - 1}, which the model cannot look up"
        raise DataError(
            f"{where} has records with {rule}. Map unknown tokens to one number, or set "
            "training.vocabulary."
        )


def _require_fit(
    plan: TrainingPlan, model: nn.Module, form: Form, labels: LabelFacts, loss: OwnLoss | None
) -> None:
    """Try the model on made-up records: what does not fit or cannot be certified is found before a
    round is entered into any ledger.
    """
    require_precision(model)
    training = plan.training
    kind = InputKind.of(model, training.vocabulary)
    if plan.rules.private and (loss is not None or not is_chain(model)):
        gradients = PerRecordGradients(
            model, loss=loss or plan.task, vocabulary=training.vocabulary
        )
        outputs = gradients.examine(form)
    else:
        if plan.rules.private:
            refuse_mixing_layers(model)
        with torch.no_grad():
            outputs = try_out(model, kind.records(2, form)).shape[1]
    plan.task.check_outputs(outputs, labels)


def model_behind(plan: TrainingPlan, shape: Sequence[int], labels: LabelFacts) -> nn.Module:
    """The model that a plan names, for records of this shape behind the plan's features."""
    training, task, bounds = plan.training, plan.task, plan.rules.bounded_records
    outputs, start = task.outputs(labels, training.model), task.first_intercept
    if (
        bounds and start
    ):  # intercepts are multiplied by the bias feature, and weights stay in a ball
        most = LARGEST_WEIGHT_NORM / (2.0 * math.sqrt(outputs))
        start = max(-most, min(most, start / (BIAS_SHARE * training.feature_bound)))
    model = build_model(
        training.model,
        shape=shape,
        outputs=outputs,
        hidden=training.hidden,
        init_seed=training.init_seed,
        bias=not bounds,
        shared_slopes=task.shared_slopes,
        first_intercept=start,
        local_intercept=bounds and training.local_parameters is not None,
    )
    return freeze_untrained(
        plan, own_copy(model, logits=training.logits) if ":" in training.model else model
    )


def units_of(plan: TrainingPlan, records: Records) -> Units:
    """Persons with the weights of their rows where they are the unit, otherwise rows one by one.

    Guarantee: refuses records that do not say whose they are where persons are protected, and a
        person with more rows than the plan's public bound, which rounding is accounted for.
    """
    if not plan.protects_persons:
        return Units.single(len(records))
    require_persons(records)
    most = plan.rows_per_person
    if records.rows_per_unit.max(initial=0) > most:
        raise DataError(
            f"data.records_per_person = {most} is exceeded by a person's rows. Load the records by "
            "the plan that is trained."
        )
    weights = records.weights(plan.data.person_weighting, most)
    return Units(records.units, records.persons, weights)


def require_persons(records: Records) -> None:
    """Refuse records that do not say whose they are."""
    if records.persons is None:
        raise DataError(
            'records must say whose they are for privacy.unit = "person". Name '
            "data.person_column, or pass groups."
        )
