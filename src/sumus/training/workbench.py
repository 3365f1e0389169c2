"""Records and model as the algorithms want them: public features in front, bounded norms for the convex pass, a fresh model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from sumus.data.silos import FederatedData, Records, SiloRecords
from sumus.errors import DataError, PlanError
from sumus.plan import TrainingPlan
from sumus.shapes import feature_shape
from sumus.training.features import bounded, feature_map
from sumus.training.isolation import refuse_mixing_layers
from sumus.training.models import build_model, flat_parameters

__all__ = ["Workbench", "named_model", "prepare"]


@final
@dataclass(frozen=True)
class Workbench:
    """What training needs besides the design: every silo's records behind the public features, and the model on top of them."""

    data: FederatedData
    model: nn.Module
    first_parameters: npt.NDArray[np.float64]


def prepare(plan: TrainingPlan, data: FederatedData, *, model: nn.Module | None = None) -> Workbench:
    """Apply the plan's public feature map record by record and build the model (or take the user's).

    Guarantee: what happens to a record depends on that record and on the plan alone, so it costs no privacy; for `convex-pass`
        every record, bias feature included, ends with norm at most `feature_bound`.
    """
    training = plan.training
    convex = training.algorithm == "convex-pass"
    if convex and model is not None:
        rule = "must be one of softmax, linear, logistic for convex-pass; a model of your own has no proved convexity"
        raise PlanError("training.model", type(model).__name__, rule, 'Use algorithm "split-noise" or "dp-sgd".')
    mapping = feature_map(training.features, data.shape)

    def transform(records: Records) -> Records:
        x = mapping(records.x)
        if convex:
            x = bounded(x.reshape(len(x), math.prod(x.shape[1:])), training.feature_bound)
        return Records(np.ascontiguousarray(x, dtype=np.float32), records.y)

    silos = tuple(SiloRecords(silo.name, transform(silo.train), transform(silo.validation), transform(silo.test)) for silo in data.silos)
    shape = silos[0].train.x.shape[1:]
    ready = replace(data, silos=silos, shape=tuple(int(side) for side in shape))
    built = model if model is not None else _build(plan, ready.shape, data.classes)
    if training.algorithm != "fedavg":
        _require_fit(built, ready.shape, data.classes)
    return Workbench(ready, built, flat_parameters(built).numpy().astype(np.float64))


def named_model(plan: TrainingPlan, shape: Sequence[int], classes: int) -> nn.Module:
    """The model that a plan names, for records of this shape before the plan's features."""
    return _build(plan, feature_shape(plan.training.features, shape), classes)


def _require_fit(model: nn.Module, shape: tuple[int, ...], classes: int) -> None:
    """Try the model on one blank record: what does not fit is found before a round is entered into any ledger."""
    refuse_mixing_layers(model)
    try:
        with torch.no_grad():
            outputs = model(torch.zeros(1, *shape, dtype=next(model.parameters()).dtype)).shape
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"records of shape {shape} do not fit the model: {reason}. Check the data or the feature map.") from None
    if len(outputs) != 2:
        raise DataError(f"model must return (records, classes), got {tuple(outputs)}. Flatten its output.")
    if outputs[1] < classes and (outputs[1], classes) != (1, 2):
        raise DataError(f"model must return one number for each of {classes} classes, got {outputs[1]}. Widen its last layer.")


def _build(plan: TrainingPlan, shape: Sequence[int], classes: int) -> nn.Module:
    training = plan.training
    bias = training.algorithm != "convex-pass"  # whose features carry a bias feature
    return build_model(training.model, shape=shape, classes=classes, hidden=training.hidden, init_seed=training.init_seed, bias=bias)
