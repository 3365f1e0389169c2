"""Models with made-up weights that predict, without any run; and rows for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sumus.data import ColumnRule, Encoding
from sumus.plan import TrainingPlan
from sumus.predicting import Model, ModelFacts
from sumus.tasks import LabelFacts
from sumus.training import PublicFeatures, model_behind

COLUMNS = Encoding(
    (
        ColumnRule("age", "scaled", low=18.0, high=99.0),
        ColumnRule("cost", "knotted"),
        ColumnRule("ward", "one-hot", categories=("surgery", "heart", "eyes")),
        ColumnRule("stage", "one-hot", categories=("3", "1", "2")),
        ColumnRule("smokes", "one-hot", categories=("True", "False")),
    )
)
HASHED = Encoding((*COLUMNS.columns, ColumnRule("town", "hashed")))
FILE = {"path": "visits.csv", "silo_column": "clinic", "label_column": "label"}


def made_up(
    training: Mapping[str, Any],
    data: Mapping[str, Any] | None = None,
    *,
    labels: LabelFacts | None = None,
    encoding: Encoding | None = COLUMNS,
    shape: tuple[int, ...] | None = None,
    module: torch.nn.Module | None = None,
) -> Model:
    """A model of a plan with weights from a fixed seed.

    Args:
        training, data: sections of the plan.
        shape: of records, where there is no encoding.
        module: given in Python.
    """
    plan = TrainingPlan.from_table(
        {"training": dict(training), "data": {"objects": "made up"} if data is None else dict(data)}
    )
    labels = LabelFacts(names=("no", "yes")) if labels is None else labels
    shape = (encoding.width,) if encoding is not None else (shape or (1,))
    built = module or model_behind(plan, PublicFeatures.of(plan, shape).shape, labels)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    facts = ModelFacts.of(
        plan, built, labels=labels, shape=shape, encoding=encoding, model_hash="sha256:" + "0" * 64
    )
    return Model(built, plan, facts)


def rows(count: int = 60, *, seed: int = 0) -> dict[str, NDArray[Any]]:
    """Rows of all kinds: within bounds and beyond, missing, on the list and not."""
    rng = np.random.default_rng(seed)
    age = rng.uniform(0.0, 130.0, count)
    cost = rng.normal(size=count) * 10.0 ** rng.uniform(-3, 7, count)
    age[::7], cost[::5], cost[1] = np.nan, np.nan, 3.0
    return {
        "age": age,
        "cost": cost,
        "ward": rng.choice(np.array(["surgery", "heart", "eyes", "ears"], object), count),
        "stage": rng.choice([1.0, 2.0, 3.0, 4.0], count),
        "smokes": rng.choice([True, False], count),
        "town": rng.choice(np.array(["Oslo", "Bergen"], object), count),
    }
