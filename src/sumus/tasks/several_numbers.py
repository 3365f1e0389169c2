"""Several bounded numbers of one record: Huber's loss for each.

    stored     u_k in [−1, 1], each scaled by its public bounds        K targets
    loss       Σ_k of Huber's losses (`regression`)
    a record   adds the five sums of every target

Its gradient is (r ⊗ x), |r_k| ≤ t, so C = t·√K·R; the targets' weights are apart, so β is that of one
of them, R². Sums of a record have length 7·√K units at most, rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, final

import numpy as np
import numpy.typing as npt

from sumus.errors import DataError, PlanError
from sumus.tasks.measures import Measure, Metrics
from sumus.tasks.regression import Regression
from sumus.tasks.task import (
    CountShape,
    Curvature,
    Declared,
    LabelColumn,
    LabelFacts,
    Labels,
    Link,
    Task,
)
from sumus.tasks.uncertainty import Measured

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["SeveralNumbers", "several_numbers"]


@final
class SeveralNumbers(Task):
    """Numbers within public bounds.

    Args:
        columns: names of the targets.
        bounds: of each, in its own units.
    """

    name = "regression"
    label_keys = ("label_columns",)
    label_type = "float32"
    label_declaration = "bounds"
    keeps_lengths = True
    measures = (
        Measure("r2", larger_is_better=True, word="R²"),
        Measure("mae", larger_is_better=False, word="MAE over half the range"),
    )
    constant = ("mean", "means of the targets")

    def __init__(self, columns: tuple[str, ...], bounds: tuple[tuple[float, float], ...]) -> None:
        self.columns, self.bounds, self.label_shape = columns, bounds, (len(columns),)
        self.each = tuple(Regression(low, high) for low, high in bounds)
        one = Regression.counts
        self.counts = CountShape(
            length=one.length * len(columns),
            l2_grid=math.ceil(one.l2_grid * math.sqrt(len(columns))),
            largest_grid=one.largest_grid,
            record_place=one.record_place,
            record_grid=one.record_grid,
        )

    # -- labels

    def read(self, columns: Mapping[str, LabelColumn]) -> Labels:
        """Targets within their bounds, scaled to [−1, 1]."""
        read = [
            task.read({"label_column": column})
            for task, column in zip(self.each, columns.values(), strict=True)
        ]
        return Labels(
            np.stack([labels.values for labels in read], axis=1),
            LabelFacts(bounds=self.bounds, columns=self.columns),
            clamped=sum(labels.clamped for labels in read),
        )

    def store(self, labels: npt.NDArray[Any], where: str) -> npt.NDArray[np.float32]:
        """Each scaled to [−1, 1]."""
        if labels.ndim != 2 or labels.shape[1] != len(self.columns):
            raise DataError(
                f"{where} must have {len(self.columns)} targets per record (data.label_columns), got "
                f"labels {labels.shape}. Check the pair (x, y)."
            )
        return np.stack(
            [task.store(column, where) for task, column in zip(self.each, labels.T, strict=True)],
            axis=1,
        )

    def outside(self, labels: npt.NDArray[Any]) -> int:
        """Targets beyond their bounds."""
        return sum(task.outside(column) for task, column in zip(self.each, labels.T, strict=True))

    def accept(self, labels: npt.NDArray[Any], declared: int | None) -> Labels:
        """Targets need no classes; their bounds are the plan's."""
        if declared is not None:
            raise DataError("classes must be left out in regression. Remove classes=.")
        return Labels(labels, LabelFacts(bounds=self.bounds, columns=self.columns))

    def check(self, labels: npt.NDArray[Any], outputs: int) -> None:
        """One number in [−1, 1] for every output."""
        if labels.ndim != 2 or (len(labels) and labels.shape[1] != outputs):
            raise DataError(
                f"labels must be {outputs} numbers a record, got shape {labels.shape}. Load them anew."
            )
        if labels.size and not (np.abs(labels) <= 1.0).all():  # NaN fails too
            raise DataError("labels must be scaled to [-1, 1] by their bounds. Load them anew.")

    def outputs(self, labels: LabelFacts, model: str) -> int:
        """One number for every target."""
        if labels.columns != self.columns:
            rule = "must name targets of these data, which have others"
            fix = "Leave it out, or use data of your own."
            raise PlanError("data.label_columns", list(self.columns), rule, fix)
        if model == "logistic":
            rule = "must return numbers, not logarithms of odds (training.task = regression)"
            raise PlanError("training.model", model, rule, 'Use "linear".')
        return len(self.columns)

    def check_outputs(self, outputs: int, labels: LabelFacts) -> None:
        """One output for every target."""
        if outputs != len(self.columns):
            raise DataError(
                f"model must return one number for each of {len(self.columns)} targets, got "
                f"{outputs} outputs. Give its last layer {len(self.columns)}."
            )

    def model_name(self, model: str) -> str:
        """What is meant is a linear model."""
        return "linear" if model == "softmax" else model

    def linear_outputs(self, model: str, rows: int) -> int:
        """A row of weights for every target."""
        return len(self.columns)

    def target_bound(self, outputs: int) -> float | None:
        """Each target lies in [−1, 1]."""
        return math.sqrt(outputs)

    def targets(self, labels: npt.NDArray[Any], outputs: int) -> npt.NDArray[np.float64]:
        """The targets themselves."""
        return np.clip(labels.astype(np.float64), -1.0, 1.0).reshape(len(labels), outputs)

    # -- loss

    def link(self, outputs: int) -> Link | None:
        """Every output by itself."""
        return Link.HUBER

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """The sum of the targets' Huber losses."""
        from torch.nn import functional

        targets = labels.to(outputs.dtype)
        return functional.huber_loss(outputs, targets, reduction="none").sum(1)

    def predict(self, outputs: Tensor) -> Tensor:
        """Within the bounds, as targets are stored."""
        return outputs.clamp(-1.0, 1.0)

    def predictions(self, outputs: Tensor, labels: LabelFacts) -> dict[str, npt.NDArray[Any]]:
        """Each number in its own units."""
        return {
            f"prediction:{name}": task.predictions(outputs[:, k : k + 1], labels)["prediction"]
            for k, (name, task) in enumerate(zip(self.columns, self.each, strict=True))
        }

    def curvature(
        self, model: str, *, feature_bound: float, residual_cap: float
    ) -> Curvature | None:
        """C = t·√K·R, β = R²."""
        if self.model_name(model) != "linear":
            return None
        reach = residual_cap * math.sqrt(len(self.columns)) * feature_bound
        return Curvature(reach, feature_bound**2)

    # -- measures

    def scores(self, outputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Predictions and targets, (records, targets); NaN counts as the end that is farther away."""
        import torch

        targets = labels.to(outputs.dtype)
        farthest = torch.where(targets > 0, -torch.ones_like(targets), torch.ones_like(targets))
        predicted = self.predict(outputs)
        return torch.where(predicted.isnan(), farthest, predicted), targets

    def exact(
        self, *scores: npt.NDArray[Any], weights: npt.NDArray[np.float64] | None = None
    ) -> dict[str, float]:
        """Means over the targets; errors in units of half a target's range."""
        told = [
            {"r2": values["r2"], "mae": values["mae"] / task.half}
            for task, values in zip(self.each, self._of_each(scores, weights), strict=True)
        ]
        return {name: float(np.mean([values[name] for values in told])) for name in ("r2", "mae")}

    def _of_each(
        self, scores: tuple[npt.NDArray[Any], ...], weights: npt.NDArray[np.float64] | None
    ) -> list[dict[str, float]]:
        """Of every target, in its own units."""
        pairs = zip(scores[0].T, scores[1].T, strict=True)
        return [
            task.exact(*pair, weights=weights) for task, pair in zip(self.each, pairs, strict=True)
        ]

    def metrics(
        self, *scores: npt.NDArray[Any], weights: npt.NDArray[np.float64] | None = None
    ) -> Metrics:
        """The means, and what they are means of."""
        plain, told = super().metrics(*scores, weights=weights), self._of_each(scores, weights)
        table = {name: tuple(values[name] for values in told) for name in ("r2", "mae")}
        return replace(plain, tables={"labels": table})

    def pooled(self, parts: Sequence[Metrics]) -> Metrics | None:
        """Of all records together."""
        held = [part for part in parts if part.records]
        if not held:
            return None
        scores = (np.concatenate(column) for column in zip(*(p.scores for p in held), strict=True))
        weights = [part.weights for part in held if part.weights is not None]
        return self.metrics(*scores, weights=np.concatenate(weights) if weights else None)

    def count(self, *scores: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Five sums of every target."""
        pairs = zip(scores[0].T, scores[1].T, strict=True)
        return np.concatenate(
            [task.count(*pair) for task, pair in zip(self.each, pairs, strict=True)], axis=1
        )

    def measured(self, total_grid: npt.NDArray[np.float64], *, noise_std_grid: float) -> Metrics:
        """Means over the targets; widths are means too, whatever the targets have in common."""
        parts = total_grid.reshape(len(self.columns), -1)
        told = [
            task.measured(part, noise_std_grid=noise_std_grid)
            for task, part in zip(self.each, parts, strict=True)
        ]
        halves = {"r2": [1.0] * len(told), "mae": [task.half for task in self.each]}
        values = {
            name: Measured(
                float(np.mean([one[name] / half for one, half in zip(told, units, strict=True)])),
                float(
                    np.mean(
                        [one.plus_minus[name] / half for one, half in zip(told, units, strict=True)]
                    )
                ),
            )
            for name, units in halves.items()
        }
        table: dict[str, tuple[float, ...]] = {}
        for name in halves:
            table[name] = tuple(one[name] for one in told)
            table[f"{name}_plus_minus"] = tuple(one.plus_minus[name] for one in told)
        return Metrics(values, told[0].records, tables={"labels": table})

    def baseline(self, train: npt.NDArray[Any], test: npt.NDArray[Any]) -> float:
        """The mean R² of the targets' means."""
        return float(
            np.mean(
                [
                    task.baseline(train[:, place], test[:, place])
                    for place, task in enumerate(self.each)
                ]
            )
        )


def several_numbers(declared: Declared) -> SeveralNumbers:
    """The task of a plan's `data.label_columns`, each with its bounds."""
    columns = declared.label_columns or ()
    tasks = [
        Regression().of(Declared({"label_column": column}, declared.bounds)) for column in columns
    ]
    bounds = tuple((task.low, task.high) for task in tasks if isinstance(task, Regression))
    return _bounded(columns, bounds)


@lru_cache(maxsize=64)
def _bounded(columns: tuple[str, ...], bounds: tuple[tuple[float, float], ...]) -> SeveralNumbers:
    """One object for equal targets: what is known about a model and a loss is kept by the loss's
    identity.
    """
    return SeveralNumbers(columns, bounds)
