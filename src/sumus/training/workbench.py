"""Records and model as the algorithms want them: public features in front, bounded norms for the convex pass, a fresh model."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import numpy.typing as npt
from torch import nn

from sumus.data.silos import FederatedData, Records, SiloRecords
from sumus.errors import PlanError
from sumus.plan import TrainingPlan
from sumus.training.features import bounded, feature_map
from sumus.training.models import build_model, flat_parameters

__all__ = ["Workbench", "prepare"]


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
    built = model if model is not None else _named_model(plan, ready, bias=not convex)
    return Workbench(ready, built, flat_parameters(built).numpy().astype(np.float64))


def _named_model(plan: TrainingPlan, data: FederatedData, *, bias: bool) -> nn.Module:
    training = plan.training
    return build_model(
        training.model,
        shape=data.shape,
        classes=data.classes,
        hidden=training.hidden,
        init_seed=training.init_seed,
        bias=bias,
    )
