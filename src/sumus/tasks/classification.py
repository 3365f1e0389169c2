"""Classes: cross-entropy, accuracy, and three noisy counts.

    loss       −log softmax(z)_y;  one output: the binary logistic loss log(1 + e^z) − y·z
    a test record adds (±2, 2, t)      + where the model is right, − where it is wrong
                                       t = 2·loss/LOSS_CAP − 1 in [−1, 1]
    accuracy = ½ + S₁ / (2·S₂),        mean loss = LOSS_CAP·(½ + S₃ / S₂)

Centred like this a record moves the counts by at most Δ₂ = |(2, 2, 1)| = 3, exactly, and on a grid
that divides 1 no rounding adds to it. The counts of right and of all records weigh twice as much as
the loss, because that makes the accuracy most accurate for a given Δ₂.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, final

import numpy as np
import numpy.typing as npt

from sumus.errors import DataError, PlanError
from sumus.tasks.task import (
    CountShape,
    Curvature,
    LabelColumn,
    LabelFacts,
    Labels,
    Link,
    Measure,
    Metrics,
    Task,
)
from sumus.tasks.uncertainty import Measured, noisy_share

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["COUNT_SENSITIVITY", "LOSS_CAP", "Classification"]

LOSS_CAP = 4.0
"""A record's loss is counted up to this many nats."""
_GRID = 1 << 8  # grid steps per unit of a count
_RIGHT, _RECORD = 2 * _GRID, 2 * _GRID
COUNT_SENSITIVITY = 3 * _GRID
"""Δ₂ of the counts in grid steps: the length of (2, 2, 1), the largest vector that one record adds.
"""

_LARGEST_LABEL = 2**31
_MOST_DECLARED = 1000
_MOST_CLASSES = 20  # that are taken from a file without being declared
_MOST_NUMBERS = 10  # the same where all are numbers: more of them are a quantity
# of such a class: the name of a rarer one would tell something about a few people
_LEAST_RECORDS = 5


@final
class Classification(Task):
    """One class out of several, or out of two with one output."""

    name = "classification"
    measures = (
        Measure("accuracy", larger_is_better=True, is_share=True),
        Measure("loss", larger_is_better=False),
    )
    constant = ("majority", "most frequent class")
    counts = CountShape(
        length=3,
        l2_grid=COUNT_SENSITIVITY,
        largest_grid=_RECORD,
        record_place=1,
        record_grid=_RECORD,
    )

    # -- labels

    def read(self, columns: Mapping[str, LabelColumn]) -> Labels:
        """Positions in the declared list of classes, or in the sorted list of those that are
        there.
        """
        column = columns["label_column"]
        categories = column.categories()
        names, classes = categories.names, categories.positions
        if not 2 <= len(names) <= _MOST_DECLARED:
            raise DataError(
                f"data.label_column {column.name!r} must hold between 2 and {_MOST_DECLARED} "
                f"classes, got {len(names)}. Name another column, or turn the numbers into classes."
            )
        if categories.declared:
            return Labels(classes, LabelFacts(names))
        why = _why_not_classes(
            np.bincount(classes, minlength=len(names)), numeric=categories.numeric
        )
        if why is not None:
            fix = (
                f"List the classes in data.categories.{column.name}, name another column, or learn "
                f'the number itself: training.task = "regression" with data.bounds.{column.name}.'
                if categories.numeric
                else f"List the classes in data.categories.{column.name}, or name another column."
            )
            raise DataError(
                f"data.label_column {column.name!r} cannot be taken for classes, which the plan "
                f"does not list: {why}. {fix}"
            )
        shown = ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
        assumed = (
            f"classes were read off column {column.name}: {shown} (data.categories.{column.name} "
            "declares them)"
        )
        return Labels(classes, LabelFacts(names), (assumed,))

    def store(self, labels: npt.NDArray[Any], where: str) -> npt.NDArray[np.int64]:
        """Whole numbers from 0."""
        if labels.ndim == 2 and labels.shape[1] == 1:
            labels = labels[:, 0]
        if labels.ndim != 1:
            raise DataError(
                f"{where} must have one label per record, got labels {labels.shape}. Check the "
                "pair (x, y)."
            )
        whole = labels.dtype.kind != "f" or (
            np.isfinite(labels).all() and np.array_equal(labels, np.floor(labels))
        )
        if not whole:
            raise DataError(
                f"{where} has labels that are not whole numbers. Number the classes 0, 1, 2, …, or "
                'learn the number itself: training.task = "regression" with data.bounds.label.'
            )
        if len(labels) and (labels.min() < 0 or labels.max() > _LARGEST_LABEL):
            fault = "a negative label" if labels.min() < 0 else f"a label above {_LARGEST_LABEL}"
            raise DataError(f"{where} has {fault}. Number the classes 0, 1, 2, …")
        return labels.astype(np.int64)

    def accept(self, labels: npt.NDArray[Any], declared: int | None) -> Labels:
        """Classes 0, 1, 2, …; their number is the declared one, or read off the labels."""
        largest = int(labels.max(initial=-1))
        if declared is not None:
            if largest >= declared:
                raise DataError(
                    f"labels must be 0 … {declared - 1}, a larger one is there. Raise classes or "
                    "number the labels from 0."
                )
            return Labels(labels, _numbered(declared))
        if largest < 0:
            raise DataError(
                "silos hold no label to count the classes from. Pass classes=, the number of "
                "labels."
            )
        # the largest label is what would become public
        why = _why_not_classes(
            np.unique(labels, return_counts=True)[1], numeric=True, classes=largest + 1
        )
        if why is not None:
            raise DataError(
                f"labels cannot be taken for classes, which are not declared: {why}. Pass "
                "classes=, the number of labels, or learn the number itself: training.task = "
                '"regression" with data.bounds.label.'
            )
        assumed = (
            f"the number of classes, {largest + 1}, was read off the labels (classes= declares it)"
        )
        return Labels(labels, _numbered(largest + 1), (assumed,))

    def check(self, labels: npt.NDArray[Any], outputs: int) -> None:
        """Classes lie in 0 … K − 1; one output knows two."""
        if labels.ndim != 1:
            raise DataError(
                f"labels must be one integer a record, got shape {labels.shape}. Flatten them."
            )
        if not len(labels):
            return
        lowest, highest, classes = int(labels.min()), int(labels.max()), max(outputs, 2)
        if lowest < 0 or highest >= classes:
            raise DataError(
                f"labels must lie in 0 … {classes - 1}, got {lowest} … {highest}. Recode them."
            )

    def outputs(self, labels: LabelFacts, model: str) -> int:
        """One logit for binary logistic regression, one per class otherwise."""
        classes = len(labels.names)
        if classes < 2:
            raise PlanError(
                "classes", classes, "must be at least 2", "A label column needs two values or more."
            )
        if model == "logistic" and classes != 2:
            raise PlanError(
                "training.model",
                model,
                f"must fit the {classes} classes of the data",
                'Use "softmax".',
            )
        return 1 if model == "logistic" else classes

    def check_outputs(self, outputs: int, labels: LabelFacts) -> None:
        """One output per class, or one for two classes."""
        classes = len(labels.names)
        if outputs != classes and (outputs, classes) != (1, 2):
            rule = f"must return one number for each of {classes} classes, got {outputs}"
            raise DataError(
                f"model {rule}. Give its last layer {classes} outputs, or declare the classes that "
                "it knows."
            )

    def linear_outputs(self, model: str, rows: int) -> int:
        """One row of weights is logistic regression, more are softmax: each has the constants of
        its own loss.
        """
        return 1 if model == "logistic" else max(2, rows)

    def moment_matrices(self, model: str) -> int:
        """Two classes with one row of weights: a matrix for the records of each."""
        return 2 if model == "logistic" else 1

    def target_bound(self, outputs: int) -> float | None:
        """√(1 − 1/K)."""
        return math.sqrt(1.0 - 1.0 / outputs)

    def targets(self, labels: npt.NDArray[Any], outputs: int) -> npt.NDArray[np.float64]:
        """1 − 1/K for the class and −1/K for all others."""
        return np.asarray(np.eye(outputs)[labels] - 1.0 / outputs)

    # -- loss

    def link(self, outputs: int) -> Link:
        """One output is read as a binary logistic regression."""
        return Link.LOGISTIC if outputs == 1 else Link.SOFTMAX

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Cross-entropy of every record."""
        return _cross_entropy(outputs, labels, "none")

    def mean_loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Mean cross-entropy."""
        return _cross_entropy(outputs, labels, "mean")

    def predict(self, outputs: Tensor) -> Tensor:
        """The most likely class."""
        return (outputs[:, 0] > 0).long() if outputs.shape[1] == 1 else outputs.argmax(1)

    def curvature(
        self, model: str, *, feature_bound: float, residual_cap: float
    ) -> Curvature | None:
        """softmax: C = √2·t·R, β = R²/2; binary logistic: C = t·R, β = R²/4."""
        bound2 = feature_bound**2
        if model in ("softmax", "linear"):
            return Curvature(residual_cap * math.sqrt(2.0 * bound2), bound2 / 2.0)
        if model == "logistic":
            return Curvature(residual_cap * feature_bound, bound2 / 4.0)
        return None

    # -- measures

    def scores(self, outputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Whether each record is classified rightly, and its loss; NaN is never right."""
        losses = self.loss(outputs, labels)
        return (self.predict(outputs) == labels) & ~losses.isnan(), losses

    def exact(
        self, *scores: npt.NDArray[Any], weights: npt.NDArray[np.float64] | None = None
    ) -> dict[str, float]:
        """Accuracy and mean loss."""
        correct, losses = scores
        if weights is None:
            return {
                "accuracy": float(correct.mean()),
                "loss": float(losses.astype(np.float64).mean()),
            }
        return {
            "accuracy": float(np.average(correct, weights=weights)),
            "loss": float(np.average(losses.astype(np.float64), weights=weights)),
        }

    def count(self, *scores: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """(±2, 2, t) on the grid; a loss that is not a number counts as wrong and as the cap."""
        correct, losses = scores
        known = ~np.isnan(losses)
        capped = np.clip(np.where(known, losses.astype(np.float64), LOSS_CAP), 0.0, LOSS_CAP)
        rows = np.empty((len(losses), 3), dtype=np.int64)
        rows[:, 0] = np.where(correct & known, _RIGHT, -_RIGHT)
        rows[:, 1] = _RECORD
        # in [−_GRID, _GRID]
        rows[:, 2] = np.rint(capped * (2.0 / LOSS_CAP) * _GRID).astype(np.int64) - _GRID
        return rows

    def measured(self, total_grid: npt.NDArray[np.float64], *, noise_std_grid: float) -> Metrics:
        """Accuracy and capped mean loss, with what noise and the choice of records leave open."""
        right, records, loss = (float(value) / _GRID for value in total_grid)
        std = noise_std_grid / _GRID
        accuracy = noisy_share(
            right / 4.0, records / 2.0, numerator_std=std / 4.0, denominator_std=std / 2.0
        )
        share = noisy_share(
            loss / 2.0, records / 2.0, numerator_std=std / 2.0, denominator_std=std / 2.0
        )
        rounding = 0.25 / _GRID  # of a loss, in units of the cap
        width = min((share.plus_minus or 0.0) + rounding, 1.0)
        capped = Measured(LOSS_CAP * share.value, LOSS_CAP * width)
        return Metrics({"accuracy": accuracy, "loss": capped}, round(max(records / 2.0, 0.0)))

    def baseline(self, train: npt.NDArray[Any], test: npt.NDArray[Any]) -> float:
        """The accuracy of the class that most training records have."""
        return float(np.mean(test == np.bincount(train).argmax()))


def _cross_entropy(outputs: Tensor, labels: Tensor, reduction: str) -> Tensor:
    """Cross-entropy; a model with one output gets the binary logistic loss."""
    from torch.nn import functional

    if outputs.shape[1] == 1:
        return functional.binary_cross_entropy_with_logits(
            outputs[:, 0], labels.to(outputs.dtype), reduction=reduction
        )
    return functional.cross_entropy(outputs, labels, reduction=reduction)


def _numbered(classes: int) -> LabelFacts:
    return LabelFacts(tuple(map(str, range(classes))))


def _why_not_classes(
    counts: npt.NDArray[np.int64], *, numeric: bool, classes: int = 0
) -> str | None:
    """Why labels must not be read off the records: they are a quantity, or one of them tells
    something about a few people.

    Args:
        counts: records of every label.
        numeric: whether all labels are numbers.
        classes: how many there are with those that no record has, if that is more.
    """
    records, most = int(counts.sum()), _MOST_NUMBERS if numeric else _MOST_CLASSES
    kind = "numbers" if numeric else "values"
    if max(len(counts), classes) > most:
        return (
            f"it holds more than {most} different {kind}, and this task learns classes, not "
            "quantities"
        )
    if len(counts) > 2 and 2 * len(counts) > records:
        return (
            f"it holds a different one of its {kind} in most records, and this task learns "
            "classes, not quantities"
        )
    if np.any((counts < _LEAST_RECORDS) & (10 * counts < records)):
        return f"one of them has fewer than {_LEAST_RECORDS} records, and would become public"
    return None
