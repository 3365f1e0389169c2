"""A bounded number: Huber's loss, R² and mean absolute error, and five noisy sums.

    stored target   u = (y − middle)/half in [−1, 1]      public bounds: middle ± half
    loss            ½·e² where |e| ≤ 1, |e| − ½ beyond    e = z − u; Huber's loss of slope 1
    prediction      z clamped to [−1, 1]; in the target's own units middle + half·z
    a test record adds (4, 2·u, 2·(2u² − 1), 4·(e²/2 − 1), 3·(|e| − 1))     e of the prediction

Every factor behind a weight lies in [−1, 1], so a record moves the sums by at most
Δ₂ = |(4, 2, 2, 4, 3)| = 7, exactly, and on a grid that divides 1 no rounding adds to it. The weights
are near those that make R² most accurate for a given Δ₂.

Targets beyond the bounds are clamped to them: what a target tells is bounded whatever it holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, final

import numpy as np
import numpy.typing as npt

from sumus.errors import DataError, PlanError, dotted
from sumus.tasks.measures import Measure, Metrics
from sumus.tasks.numbers import number_per_record, numbers_of
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
from sumus.tasks.uncertainty import Measured, noisy_ratio, noisy_share

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["SUM_SENSITIVITY", "Regression"]

_GRID = 1 << 10  # grid steps per unit of a sum
_RECORD, _TARGET, _SPREAD, _SQUARE, _ERROR = 4, 2, 2, 4, 3
SUM_SENSITIVITY = 7 * _GRID
"""Δ₂ of the sums in grid steps: the length of (4, 2, 2, 4, 3), the longest that one record adds."""
_LARGEST_SQUARE = 4.0  # of an error, whose two ends lie in [−1, 1]
_WORST = -1.0  # R² is told down to here: a model beyond it is of no use


@final
class Regression(Task):
    """A number within public bounds.

    Args:
        low, high: the bounds, in the target's own units; ±1 where no plan has declared them.
    """

    name = "regression"
    label_type = "float32"
    label_declaration = "bounds"
    keeps_lengths = True
    measures = (
        Measure("r2", larger_is_better=True, word="R²"),
        Measure("mae", larger_is_better=False, word="MAE"),
    )
    constant = ("mean", "mean of the targets")
    counts = CountShape(
        length=5,
        l2_grid=SUM_SENSITIVITY,
        largest_grid=_RECORD * _GRID,
        record_place=0,
        record_grid=_RECORD * _GRID,
    )

    def __init__(self, low: float = -1.0, high: float = 1.0) -> None:
        self.low, self.high = low, high
        self.half, self.middle = high / 2.0 - low / 2.0, high / 2.0 + low / 2.0

    def of(self, declared: Declared) -> Task:
        """Scaled by the bounds of the label column."""
        column, bounds = declared.columns["label_column"], declared.bounds
        if column is None:
            return self
        if column not in bounds:
            raise PlanError(
                dotted("data.bounds", column),
                None,
                "must say between which numbers targets lie (training.task = regression)",
                f"Add {column} = [low, high] to data.bounds; targets beyond are clamped.",
            )
        low, high = bounds[column]
        if not (math.isfinite(high - low) and np.float32((high - low) / 2.0) > 0.0):
            raise PlanError(
                dotted("data.bounds", column),
                [low, high],
                "must be two numbers whose difference is a usable number",
                "Give other bounds, or the target in other units.",
            )
        return _bounded(low, high)

    # -- labels

    def read(self, columns: Mapping[str, LabelColumn]) -> Labels:
        """Targets within their bounds, scaled to [−1, 1]."""
        column = columns["label_column"]
        numbers, bounds = numbers_of(column), column.bounds
        if bounds is None:
            raise DataError(
                f"data.label_column {column.name!r} has no bounds. Add {column.name} = [low, high] "
                "to data.bounds."
            )
        scaled = _bounded(*bounds)
        return Labels(
            scaled.scale(numbers), LabelFacts(bounds=(bounds,)), clamped=scaled.outside(numbers)
        )

    def store(self, labels: npt.NDArray[Any], where: str) -> npt.NDArray[np.float32]:
        """Scaled to [−1, 1]."""
        return self.scale(number_per_record(labels, where, called="target"))

    def outside(self, labels: npt.NDArray[Any]) -> int:
        """Targets beyond the bounds."""
        return int(np.count_nonzero((labels < self.low) | (labels > self.high)))

    def scale(self, numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
        """From the target's own units to [−1, 1], clamped; minus zero becomes zero, so that equal
        targets are equal bits.
        """
        inside = np.clip(numbers, self.low, self.high)
        scaled = np.clip((inside - self.middle) / self.half, -1.0, 1.0).astype(np.float32)
        return scaled + np.float32(0.0)

    def accept(self, labels: npt.NDArray[Any], declared: int | None) -> Labels:
        """Targets need no classes; their bounds are the plan's."""
        if declared is not None:
            raise DataError("classes must be left out in regression. Remove classes=.")
        return Labels(labels, LabelFacts(bounds=((self.low, self.high),)))

    def check(self, labels: npt.NDArray[Any], outputs: int) -> None:
        """One number in [−1, 1] a record."""
        if labels.ndim != 1:
            raise DataError(
                f"labels must be one number a record, got shape {labels.shape}. Flatten them."
            )
        if len(labels) and not (np.abs(labels) <= 1.0).all():  # NaN fails too
            raise DataError("labels must be scaled to [-1, 1] by their bounds. Load them anew.")

    def outputs(self, labels: LabelFacts, model: str) -> int:
        """One number."""
        if not labels.bounds:
            rule = "must be learned from numbers within bounds, and the labels of these data are classes"
            fix = 'Use "classification", or data of your own with data.bounds for the label column.'
            raise PlanError("training.task", self.name, rule, fix)
        if model == "logistic":
            rule = "must return a number, not the logarithm of odds (training.task = regression)"
            raise PlanError("training.model", model, rule, 'Use "linear".')
        return 1

    def check_outputs(self, outputs: int, labels: LabelFacts) -> None:
        """One output."""
        if outputs != 1:
            raise DataError(
                f"model must return one number for each record, got {outputs} outputs. Give its "
                "last layer one."
            )

    def model_name(self, model: str) -> str:
        """A softmax of one number is nothing: what is meant is a linear model."""
        return "linear" if model == "softmax" else model

    def linear_outputs(self, model: str, rows: int) -> int:
        """One row of weights."""
        return 1

    def target_bound(self, outputs: int) -> float | None:
        """Targets are scaled to [−1, 1]."""
        return 1.0

    def targets(self, labels: npt.NDArray[Any], outputs: int) -> npt.NDArray[np.float64]:
        """The targets themselves."""
        return np.clip(labels.astype(np.float64), -1.0, 1.0)[:, None]

    # -- loss

    def link(self, outputs: int) -> Link | None:
        """The compiled loop of a capped residual."""
        return Link.HUBER if outputs == 1 else None

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Huber's loss of every record."""
        from torch.nn import functional

        targets = labels.to(outputs.dtype)
        return functional.huber_loss(outputs[:, 0], targets, reduction="none")

    def predict(self, outputs: Tensor) -> Tensor:
        """Within the bounds, as targets are stored."""
        return outputs[:, 0].clamp(-1.0, 1.0)

    def predictions(self, outputs: Tensor, labels: LabelFacts) -> dict[str, npt.NDArray[Any]]:
        """The number in its own units."""
        return {"prediction": self.middle + self.half * self.predict(outputs).double().numpy()}

    def curvature(
        self, model: str, *, feature_bound: float, residual_cap: float
    ) -> Curvature | None:
        """Huber's loss of slope t: |φ′| ≤ t and 0 ≤ φ″ ≤ 1, so C = t·R and β = R²."""
        if self.model_name(model) != "linear":
            return None
        return Curvature(residual_cap * feature_bound, feature_bound**2)

    # -- measures

    def scores(self, outputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Prediction and target of each record; NaN counts as the end that is farther away."""
        import torch

        targets = labels.to(outputs.dtype)
        farthest = torch.where(targets > 0, -torch.ones_like(targets), torch.ones_like(targets))
        predicted = self.predict(outputs)
        return torch.where(predicted.isnan(), farthest, predicted), targets

    def exact(
        self, *scores: npt.NDArray[Any], weights: npt.NDArray[np.float64] | None = None
    ) -> dict[str, float]:
        """R² and mean absolute error; R² is 0 where all targets are equal."""
        predicted, targets = (score.astype(np.float64) for score in scores)
        errors = predicted - targets
        if weights is None:
            spread = targets - targets.mean()
            whole, left = float(spread @ spread), float(errors @ errors)
            error = float(np.abs(errors).mean())
        else:
            spread = targets - np.average(targets, weights=weights)
            whole, left = float(weights @ spread**2), float(weights @ errors**2)
            error = float(np.average(np.abs(errors), weights=weights))
        r2 = 1.0 - left / whole if whole > 0.0 else 0.0
        return {"r2": max(r2, _WORST), "mae": self.half * error}

    def metrics(
        self, *scores: npt.NDArray[Any], weights: npt.NDArray[np.float64] | None = None
    ) -> Metrics:
        """The measures in the clear, and those of the mean of the targets."""
        targets = scores[1].astype(np.float64)
        mean = np.full(len(targets), np.average(targets, weights=weights))
        constant = self.exact(mean, targets, weights=weights)
        return replace(super().metrics(*scores, weights=weights), baseline=constant)

    def pooled(self, parts: Sequence[Metrics]) -> Metrics | None:
        """R² of all records together, which is no mean over silos."""
        held = [part for part in parts if part.records]
        if not held:
            return None
        scores = (np.concatenate(column) for column in zip(*(p.scores for p in held), strict=True))
        weights = [part.weights for part in held if part.weights is not None]
        return self.metrics(*scores, weights=np.concatenate(weights) if weights else None)

    def count(self, *scores: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """(4, 2·u, 2·(2u² − 1), 4·(e²/2 − 1), 3·(|e| − 1)) on the grid."""
        predicted, targets = (np.clip(score.astype(np.float64), -1.0, 1.0) for score in scores)
        errors = np.abs(predicted - targets)  # in [0, 2]
        rows = np.empty((len(targets), 5), dtype=np.int64)
        for place, (weight, factor) in enumerate(
            (
                (_RECORD, np.ones(len(targets))),
                (_TARGET, targets),
                (_SPREAD, 2.0 * targets**2 - 1.0),
                (_SQUARE, errors**2 / 2.0 - 1.0),
                (_ERROR, errors - 1.0),
            )
        ):
            rows[:, place] = np.rint(weight * _GRID * factor).astype(np.int64)
        return rows

    def measured(self, total_grid: npt.NDArray[np.float64], *, noise_std_grid: float) -> Metrics:
        """R² and mean absolute error, with what noise and the choice of records leave open.

        E = Σ e² and V = Σ u² − (Σ u)²/n give R² = 1 − E/V. Squares of errors lie in [0, 4], and so
        do those of distances from the mean, which bounds how much the choice of records matters.
        """
        std = noise_std_grid / _GRID
        records, targets, spread, squares, errors = (
            float(value) / (_GRID * weight)
            for value, weight in zip(
                total_grid, (_RECORD, _TARGET, _SPREAD, _SQUARE, _ERROR), strict=True
            )
        )
        held = max(records, 0.0)
        share = noisy_share(
            errors / 2.0,
            records,
            numerator_std=std / (2.0 * _ERROR),
            denominator_std=std / _RECORD,
        )
        width = min((share.plus_minus or 0.0) + 0.25 / (_ERROR * _GRID), 1.0)
        mae = Measured(2.0 * self.half * share.value, 2.0 * self.half * width)
        mean = min(max(targets / held, -1.0), 1.0) if held > 0.0 else 0.0
        whole = (spread + records) / 2.0 - (targets**2 / held if held > 0.0 else 0.0)
        left = 2.0 * (squares + records)
        ratio = noisy_ratio(
            left,
            whole,
            numerator_variance=(2.0 * std / _SQUARE) ** 2
            + (2.0 * std / _RECORD) ** 2
            + _LARGEST_SQUARE * max(left, 0.0),
            denominator_variance=(0.5 * std / _SPREAD) ** 2
            + ((0.5 + mean**2) * std / _RECORD) ** 2
            + (2.0 * mean * std / _TARGET) ** 2
            + (1.0 + abs(mean)) ** 2 * max(whole, 0.0),
            rounding=held / (_SQUARE * _GRID),
            largest=1.0 - _WORST,
        )
        r2 = Measured(1.0 - ratio.value, ratio.plus_minus)
        return Metrics({"r2": r2, "mae": mae}, round(held), baseline={"r2": 0.0})

    def baseline(self, train: npt.NDArray[Any], test: npt.NDArray[Any]) -> float:
        """R² of the mean of the training targets."""
        constant = np.full(len(test), train.astype(np.float64).mean())
        return self.exact(constant, test)["r2"]


@lru_cache(maxsize=64)
def _bounded(low: float, high: float) -> Regression:
    """One object for each pair of bounds: what is known about a model and a loss is kept by the
    loss's identity.
    """
    return Regression(low, high)
