"""How often something happens: Poisson regression within a public bound.

    stored target   u = y/most in [0, 1]                  public bound: 0 … most
    expected        μ(z) = e^min(z, 0); in the target's own units most·μ(z)
    loss            e^z − u·z where z ≤ 0, 1 + z − u·z beyond: the exponential goes on as a line

Poisson's loss has neither a bounded gradient nor a bounded curvature. No expectation above the bound
is of use, so the loss goes on as its tangent there: it stays convex, its slope μ(z) − u lies in
[−1, 1] and its curvature e^min(z, 0) at most in [0, 1], so C = t·R and β = R² as for Huber's loss.

Counts are measured as numbers are (`regression`), with [0, most] for bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, final

import numpy as np
import numpy.typing as npt

from sumus.errors import DataError, PlanError, dotted
from sumus.tasks.measures import Metrics
from sumus.tasks.numbers import number_per_record, numbers_of
from sumus.tasks.regression import Regression
from sumus.tasks.task import Curvature, Declared, LabelColumn, LabelFacts, Labels, Link, Task

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Counts"]

_SMALLEST, _LARGEST = 1e-30, 1e30  # bounds that a target can be divided by
_FIRST_SHARE = 0.1  # of the bound, that the first model expects


@final
class Counts(Task):
    """A number of events within a public bound.

    Args:
        most: the bound; 1 where no plan has declared it.
    """

    name = "counts"
    label_type = "float32"
    label_declaration = "bounds"
    keeps_lengths = True
    first_intercept = math.log(_FIRST_SHARE)
    measures = Regression.measures
    constant = Regression.constant
    counts = Regression.counts

    def __init__(self, most: float = 1.0) -> None:
        self.most, self._numbers = most, Regression(0.0, most)

    def of(self, declared: Declared) -> Task:
        """Scaled by the bound of the label column."""
        column = declared.columns["label_column"]
        if column is None:
            return self
        key = dotted("data.bounds", column)
        if column not in declared.bounds:
            rule = "must say up to which number counts go (training.task = counts)"
            fix = f"Add {column} = [0, most] to data.bounds; larger counts are clamped."
            raise PlanError(key, None, rule, fix)
        low, high = declared.bounds[column]
        if low != 0.0 or not _SMALLEST <= high <= _LARGEST:
            rule = "must be [0, most] with a usable number (training.task = counts)"
            fix = 'Begin at 0, or learn numbers of any sign with training.task = "regression".'
            raise PlanError(key, [low, high], rule, fix)
        return _up_to(high)

    # -- labels

    def read(self, columns: Mapping[str, LabelColumn]) -> Labels:
        """Counts up to their bound, scaled to [0, 1]."""
        column = columns["label_column"]
        numbers, bounds = numbers_of(column), column.bounds
        if bounds is None:
            raise DataError(
                f"data.label_column {column.name!r} has no bound. Add {column.name} = [0, most] to "
                "data.bounds."
            )
        scaled = _up_to(bounds[1])
        return Labels(
            scaled.scale(numbers), LabelFacts(bounds=(bounds,)), clamped=scaled.outside(numbers)
        )

    def store(self, labels: npt.NDArray[Any], where: str) -> npt.NDArray[np.float32]:
        """Scaled to [0, 1]."""
        return self.scale(number_per_record(labels, where, called="count"))

    def outside(self, labels: npt.NDArray[Any]) -> int:
        """Counts below 0 or beyond the bound."""
        return self._numbers.outside(labels)

    def scale(self, numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
        """From the target's own units to [0, 1], clamped; minus zero becomes zero."""
        inside = np.clip(np.clip(numbers, 0.0, self.most) / self.most, 0.0, 1.0)
        return inside.astype(np.float32) + np.float32(0.0)

    def accept(self, labels: npt.NDArray[Any], declared: int | None) -> Labels:
        """Counts need no classes; their bound is the plan's."""
        if declared is not None:
            raise DataError("classes must be left out in counts. Remove classes=.")
        return Labels(labels, LabelFacts(bounds=((0.0, self.most),)))

    def check(self, labels: npt.NDArray[Any], outputs: int) -> None:
        """One number in [0, 1] a record."""
        if labels.ndim != 1:
            raise DataError(
                f"labels must be one number a record, got shape {labels.shape}. Flatten them."
            )
        if len(labels) and not ((labels >= 0.0) & (labels <= 1.0)).all():  # NaN fails too
            raise DataError("labels must be scaled to [0, 1] by their bound. Load them anew.")

    def farthest(
        self, labels: npt.NDArray[Any], facts: LabelFacts, below: Callable[[int, int], Any]
    ) -> npt.NDArray[Any]:
        """None at all, or the bound."""
        return np.where(labels > 0.5, 0.0, 1.0).astype(labels.dtype)

    def outputs(self, labels: LabelFacts, model: str) -> int:
        """One number."""
        if not labels.bounds or labels.bounds[0][0] != 0.0:
            rule = (
                "must be learned from counts up to a bound, and the labels of these data are others"
            )
            fix = 'Use "classification", or data of your own with data.bounds for the label column.'
            raise PlanError("training.task", self.name, rule, fix)
        if model == "logistic":
            rule = "must return a logarithm, not that of odds (training.task = counts)"
            raise PlanError("training.model", model, rule, 'Use "linear".')
        return 1

    def check_outputs(self, outputs: int, labels: LabelFacts) -> None:
        """One output."""
        self._numbers.check_outputs(outputs, labels)

    def model_name(self, model: str) -> str:
        """A softmax of one number is nothing: what is meant is a linear model."""
        return self._numbers.model_name(model)

    def linear_outputs(self, model: str, rows: int) -> int:
        """One row of weights."""
        return 1

    # -- loss

    def link(self, outputs: int) -> Link | None:
        """The compiled loop of the exponential."""
        return Link.EXPONENTIAL if outputs == 1 else None

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Poisson's loss of every record, a line above the bound."""
        z = outputs[:, 0]
        return z.clamp(max=0.0).exp() + z.clamp(min=0.0) - labels.to(outputs.dtype) * z

    def predict(self, outputs: Tensor) -> Tensor:
        """What is expected, as targets are stored."""
        return outputs[:, 0].clamp(max=0.0).exp()

    def predictions(self, outputs: Tensor, labels: LabelFacts) -> dict[str, npt.NDArray[Any]]:
        """The expected number."""
        return {"prediction": self.most * self.predict(outputs).double().numpy()}

    def curvature(
        self, model: str, *, feature_bound: float, residual_cap: float
    ) -> Curvature | None:
        """Slope in [−1, 1] and capped at t, curvature in [0, 1]: C = t·R and β = R²."""
        return self._numbers.curvature(
            model, feature_bound=feature_bound, residual_cap=residual_cap
        )

    # -- measures

    def scores(self, outputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Prediction and target of each record, in the scale of numbers; NaN counts as the end that
        is farther away.
        """
        import torch

        targets = labels.to(outputs.dtype)
        farthest = torch.where(targets > 0.5, torch.zeros_like(targets), torch.ones_like(targets))
        predicted = self.predict(outputs)
        predicted = torch.where(predicted.isnan(), farthest, predicted)
        return 2.0 * predicted - 1.0, 2.0 * targets - 1.0

    def exact(
        self, *scores: npt.NDArray[Any], weights: npt.NDArray[np.float64] | None = None
    ) -> dict[str, float]:
        """R² and mean absolute error."""
        return self._numbers.exact(*scores, weights=weights)

    def pooled(self, parts: Sequence[Metrics]) -> Metrics | None:
        """R² of all records together."""
        return self._numbers.pooled(parts)

    def count(self, *scores: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Five sums."""
        return self._numbers.count(*scores)

    def measured(self, total_grid: npt.NDArray[np.float64], *, noise_std_grid: float) -> Metrics:
        """R² and mean absolute error, with what noise and the choice of records leave open."""
        return self._numbers.measured(total_grid, noise_std_grid=noise_std_grid)

    def baseline(self, train: npt.NDArray[Any], test: npt.NDArray[Any]) -> float:
        """R² of the mean of the training counts."""
        return self._numbers.baseline(train, test)


@lru_cache(maxsize=64)
def _up_to(most: float) -> Counts:
    """One object for each bound: what is known about a model and a loss is kept by the loss's
    identity.
    """
    return Counts(most)
