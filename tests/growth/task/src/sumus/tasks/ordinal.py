"""Ordered classes: one logistic question per threshold (Frank and Hall 2001; Li and Lin 2006).

    loss         Σ_k log(1 + e^{z_k}) − [y > k]·z_k        over the K − 1 thresholds between K classes
    prediction   how many z_k are positive
    a test record adds (±2, 2, ±1)      the class is right or not; it is off by one at most or not

The counts are whole numbers of length exactly 3, so that no rounding adds to Δ₂.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, final

import numpy as np
import numpy.typing as npt

from sumus.errors import DataError, PlanError
from sumus.tasks.classification import Classification
from sumus.tasks.measures import Measure, Metrics
from sumus.tasks.task import CountShape, Curvature, LabelColumn, LabelFacts, Labels, Link, Task
from sumus.tasks.uncertainty import noisy_share

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Ordinal"]

_GRID = 1 << 8  # grid steps per unit of a count
_CLASSES = Classification()


@final
class Ordinal(Task):
    """One class out of several that have an order."""

    name = "ordinal"
    measures = (
        Measure("accuracy", larger_is_better=True, is_share=True),
        Measure("within one", larger_is_better=True, is_share=True),
    )
    constant = ("majority", "most frequent class")
    counts = CountShape(length=3, l2_grid=3 * _GRID, largest_grid=2 * _GRID)

    # -- labels

    def read(self, columns: Mapping[str, LabelColumn]) -> Labels:
        """Positions in the declared list: an alphabet is no order."""
        column = columns["label_column"]
        if not column.categories().declared:
            raise DataError(
                f"data.label_column {column.name!r} holds classes whose order is not known. List "
                f"them in data.categories.{column.name}, the lowest first."
            )
        return _CLASSES.read(columns)

    def store(self, labels: npt.NDArray[Any], where: str) -> npt.NDArray[np.int64]:
        """Whole numbers from 0, the lowest class first."""
        return _CLASSES.store(labels, where)

    def accept(self, labels: npt.NDArray[Any], declared: int | None) -> Labels:
        """As for classes without an order."""
        return _CLASSES.accept(labels, declared)

    def check(self, labels: npt.NDArray[Any], outputs: int) -> None:
        """K − 1 outputs know K classes."""
        _CLASSES.check(labels, outputs + 1)

    def outputs(self, labels: LabelFacts, model: str) -> int:
        """One for each threshold."""
        classes = len(labels.names)
        if model == "logistic" and classes != 2:
            rule = f"must fit the {classes} classes of the data"
            raise PlanError("training.model", model, rule, 'Use "linear".')
        return classes - 1

    def check_outputs(self, outputs: int, labels: LabelFacts) -> None:
        """One output less than classes."""
        thresholds = len(labels.names) - 1
        if outputs != thresholds:
            raise DataError(
                f"model must return one number for each of {thresholds} thresholds, got {outputs}. "
                f"Give its last layer {thresholds} outputs."
            )

    # -- loss

    def link(self, outputs: int) -> Link | None:
        """Two classes are a binary logistic regression; more have no compiled loop."""
        return Link.LOGISTIC if outputs == 1 else None

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """The sum of the thresholds' logistic losses."""
        from torch.nn.functional import binary_cross_entropy_with_logits

        above = (labels[:, None] > _thresholds(outputs)).to(outputs.dtype)
        return binary_cross_entropy_with_logits(outputs, above, reduction="none").sum(1)

    def predict(self, outputs: Tensor) -> Tensor:
        """The number of thresholds that the record is above."""
        return (outputs > 0).sum(1)

    def curvature(
        self, model: str, *, feature_bound: float, residual_cap: float
    ) -> Curvature | None:
        """None: the constants grow with the number of classes, which is no fact of a model."""
        return None

    # -- measures

    def scores(self, outputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Whether the class is right, and whether it is off by one at most; NaN is neither."""
        distance, known = (self.predict(outputs) - labels).abs(), ~outputs.isnan().any(1)
        return (distance == 0) & known, (distance <= 1) & known

    def exact(
        self, *scores: npt.NDArray[Any], weights: npt.NDArray[np.float64] | None = None
    ) -> dict[str, float]:
        """Shares of the records."""
        right, near = (float(np.average(score, weights=weights)) for score in scores)
        return {"accuracy": right, "within one": near}

    def count(self, *scores: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """(±2, 2, ±1) on the grid."""
        right, near = scores
        signs = (np.where(right, 2, -2), np.full(len(right), 2), np.where(near, 1, -1))
        return np.stack(signs, axis=1).astype(np.int64) * _GRID

    def measured(self, total_grid: npt.NDArray[np.float64], *, noise_std_grid: float) -> Metrics:
        """Both shares, with what noise and the choice of records leave open."""
        right, records, near = (float(value) / _GRID for value in total_grid)
        std = noise_std_grid / _GRID
        accuracy = noisy_share(
            right / 4.0, records / 2.0, numerator_std=std / 4.0, denominator_std=std / 2.0
        )
        within_one = noisy_share(
            near / 2.0, records / 2.0, numerator_std=std / 2.0, denominator_std=std / 2.0
        )
        values = {"accuracy": accuracy, "within one": within_one}
        return Metrics(values, round(max(records / 2.0, 0.0)))

    def baseline(self, train: npt.NDArray[Any], test: npt.NDArray[Any]) -> float:
        """The accuracy of the class that most training records have."""
        return _CLASSES.baseline(train, test)


def _thresholds(outputs: Tensor) -> Tensor:
    import torch

    return torch.arange(outputs.shape[1], device=outputs.device)
