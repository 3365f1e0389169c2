"""Classes: cross-entropy, accuracy, ranking, calibration, and noisy counts of all of them.

    loss       −log softmax(z)_y;  one output: the binary logistic loss log(1 + e^z) − y·z;
               outputs fitted by squares: −log of the class's share (`least_squares`)
    accuracy = ½ + S₁ / (2·S₀),        mean loss = LOSS_CAP·(½ + S₂ / (2·S₀))

S₀ counts records, S₁ right minus wrong ones, S₂ centred losses, S₃ centred squared errors; what
follows them is a tree over scores for two classes (`score_tree`), and classes by answers for more
(`class_counts`).
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
from sumus.tasks.class_measures import (
    LOSS_CAP,
    count_shape,
    counted,
    details_of,
    exact_measures,
    told,
)
from sumus.tasks.least_squares import shares_of_squares
from sumus.tasks.measures import Measure, Metrics
from sumus.tasks.score_tree import SPREAD_PLACE
from sumus.tasks.silo_spread import exact_spread, noisy_spread, spread_of_silo
from sumus.tasks.task import (
    CountShape,
    Curvature,
    Declared,
    LabelColumn,
    LabelFacts,
    Labels,
    LinearRows,
    Link,
    Task,
)
from sumus.tasks.uncertainty import Measured

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["LOSS_CAP", "Classification"]

_RARE = 0.8  # share of the most frequent class from which on accuracy is not what to read first
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
        Measure("auroc", larger_is_better=True, word="AUROC", of_second=True),
        Measure(
            "average_precision", larger_is_better=True, word="average precision", of_second=True
        ),
        Measure("brier", larger_is_better=False, word="Brier score"),
        Measure("calibration_error", larger_is_better=False, word="calibration error"),
    )
    spread = Measure(
        "accuracy_spread",
        larger_is_better=False,
        is_share=True,
        word="spread of accuracy over silos",
        at_zero="none beyond chance",
    )
    constant = ("majority", "most frequent class")

    def __init__(
        self,
        classes: int | None = None,
        class_weights: tuple[float, ...] = (),
        *,
        squares: bool = False,
    ) -> None:
        self.classes, self.class_weights, self.squares = classes, class_weights, squares

    def of(self, declared: Declared) -> Task:
        """With the number of classes and their weights, where the plan tells them, and with what
        outputs mean.
        """
        if declared.classes is None and declared.class_weights is None and not declared.squares:
            return self
        weights = _scaled(declared.class_weights or ())
        return _counting(declared.classes, weights, squares=declared.squares)

    def by_loss(self) -> Task:
        """Outputs are logits."""
        return _counting(self.classes, self.class_weights) if self.squares else self

    @property
    def counts(self) -> CountShape:  # type: ignore[override]
        """Of the declared number of classes."""
        return count_shape(self._counted)

    @property
    def _counted(self) -> int:
        if self.classes is None:
            rule = "must be known before noise is sized"
            raise PlanError("evaluation.classes", None, rule, "Resolve the plan first.")
        return self.classes

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
                f"classes, got {len(names)}. Name another column, or turn the numbers into classes; a "
                f'number is learned by training.task = "regression" (--task regression).'
            )
        if categories.declared:
            return Labels(classes, LabelFacts(names))
        listed = dotted("data.categories", column.name)
        why = _why_not_classes(
            np.bincount(classes, minlength=len(names)), numeric=categories.numeric
        )
        if why is not None:
            fix = (
                f"List the classes in {listed}, name another column, or learn the number itself: "
                f'training.task = "regression" with {dotted("data.bounds", column.name)}.'
                if categories.numeric
                else f"List the classes in {listed}, or name another column."
            )
            raise DataError(
                f"data.label_column {column.name!r} cannot be taken for classes, which the plan "
                f"does not list: {why}. {fix}"
            )
        shown = ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
        assumed = f"classes were read off column {column.name}: {shown} ({listed} declares them)"
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
        """Cross-entropy of every record, times the weight of its class."""
        return self._weighted(_cross_entropy(outputs, labels, "none"), labels)

    def mean_loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """The mean over the records; their number does not hang on the weights."""
        if self.class_weights:
            return self.loss(outputs, labels).mean()
        return _cross_entropy(outputs, labels, "mean")

    def output_gradient(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """μ(z) − y, times the weight of the class."""
        residual = self.link(outputs.shape[1]).residual(outputs, labels)
        return self._weighted(residual, labels)

    def _weighted(self, values: Tensor, labels: Tensor) -> Tensor:
        """One or more numbers of every record, times the weight of its class."""
        if not self.class_weights:
            return values
        of_class = values.new_tensor(self.class_weights)
        return values * of_class[labels].reshape(-1, *(1 for _ in values.shape[1:]))

    def expand(self, x: npt.NDArray[np.float32], y: npt.NDArray[Any]) -> LinearRows | None:
        """With class weights every record is a row of that weight."""
        if not self.class_weights:
            return None
        self.check(y, len(self.class_weights))
        weights = np.array(self.class_weights, dtype=np.float64)[y]
        return LinearRows(x, y, weights, np.arange(len(y)))

    def predict(self, outputs: Tensor) -> Tensor:
        """The most likely class."""
        return (outputs[:, 0] > 0).long() if outputs.shape[1] == 1 else outputs.argmax(1)

    def predictions(self, outputs: Tensor, labels: LabelFacts) -> dict[str, npt.NDArray[Any]]:
        """The most likely class by its name, and the probability of each; classes that are named
        0, 1, 2, … come as whole numbers.
        """
        import torch

        exact = outputs.double()
        if outputs.shape[1] == 1:
            exact = torch.cat([torch.zeros_like(exact), exact], dim=1)
        classes, names = self.predict(outputs).numpy(), labels.names
        said = classes if names == _numbered(len(names)).names else np.array(names)[classes]
        shares = (shares_of_squares(exact) if self.squares else exact.softmax(dim=1)).numpy()
        each = {f"probability:{name}": shares[:, place] for place, name in enumerate(names)}
        return {"prediction": said, **each}

    def curvature(
        self, model: str, *, feature_bound: float, residual_cap: float
    ) -> Curvature | None:
        """softmax: C = √2·t·R, β = R²/2; binary logistic: C = t·R, β = R²/4; weights of classes are
        at most 1.
        """
        bound2 = feature_bound**2
        if model in ("softmax", "linear"):
            return Curvature(residual_cap * math.sqrt(2.0 * bound2), bound2 / 2.0)
        if model == "logistic":
            return Curvature(residual_cap * feature_bound, bound2 / 4.0)
        return None

    # -- measures

    def counted_classes(self, labels: LabelFacts) -> int | None:
        """As many as there are names."""
        return len(labels.names)

    def leading(self, values: Mapping[str, float], constant: Mapping[str, float]) -> Measure:
        """AUROC where a constant answer is right for four of five records: there accuracy says
        little about a model.
        """
        rare = constant.get("accuracy", 0.0) >= _RARE and "auroc" in values
        return self.measure("auroc" if rare else "accuracy", field="measure")

    def scores(self, outputs: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
        """Whether each record is classified rightly, its loss, its class, and what the model says:
        the log-odds of class 1, or the probabilities of three classes and more. NaN is never right.
        """
        if self.squares:
            return self._scores_of_squares(outputs, labels)
        losses = _cross_entropy(outputs, labels, "none")  # of the record, whatever its class weighs
        right = (self.predict(outputs) == labels) & ~losses.isnan()
        if outputs.shape[1] > 2:
            said = outputs.softmax(dim=1)
        else:
            said = outputs[:, 0] if outputs.shape[1] == 1 else outputs[:, 1] - outputs[:, 0]
        return right, losses, labels, said

    def _scores_of_squares(self, outputs: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
        shares = shares_of_squares(outputs)
        losses = -shares.gather(1, labels[:, None])[:, 0].log()
        right = (self.predict(outputs) == labels) & ~losses.isnan()
        said = shares if shares.shape[1] > 2 else shares[:, 1].log() - shares[:, 0].log()
        return right, losses, labels, said

    def exact(
        self, *scores: npt.NDArray[Any], weights: npt.NDArray[np.float64] | None = None
    ) -> dict[str, float]:
        """Accuracy, mean loss, and what ranks and calibration say."""
        return exact_measures(scores, weights)

    def one(
        self, name: str, *scores: npt.NDArray[Any], weights: npt.NDArray[np.float64] | None = None
    ) -> float:
        """Accuracy is a mean, for which nothing has to be ranked."""
        if name == "accuracy":
            return float(np.average(scores[0], weights=weights))
        return super().one(name, *scores, weights=weights)

    def pooled(self, parts: Sequence[Metrics]) -> Metrics | None:
        """Accuracy and loss are means over silos; ranks are of all records together."""
        held = [part for part in parts if part.records]
        if not held:
            return None
        scores = [np.concatenate(column) for column in zip(*(p.scores for p in held), strict=True)]
        known = [part.weights for part in held if part.weights is not None]
        weights = np.concatenate(known) if known else None
        together, sizes = self.metrics(*scores, weights=weights), [part.records for part in held]
        means = {
            name: Measured(float(np.average([part[name] for part in held], weights=sizes)))
            for name in ("accuracy", "loss")
        }
        if len(held) > 1:
            accuracies = np.array([part["accuracy"] for part in held])
            between = exact_spread(accuracies, np.array(sizes, dtype=np.float64))
            means[self.spread.name] = Measured(between)
        baseline, tables = details_of(tuple(scores), weights)
        return replace(
            together,
            values={**together.values, **means},
            records=sum(sizes),
            baseline=baseline,
            tables=tables,
        )

    def count(self, *scores: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """A path of the tree over scores, or one entry of each kind."""
        return counted(self._counted, scores)

    def of_silo(self, total_grid: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """With the silo's part in the spread over silos."""
        sent = total_grid.copy()
        sent[SPREAD_PLACE] = spread_of_silo(int(total_grid[0]), int(total_grid[1]))
        return sent

    def between_silos(
        self, total_grid: npt.NDArray[np.float64], *, noise_std_grid: float, silos: int
    ) -> Mapping[str, Measured]:
        """The standard deviation of accuracy over silos, beyond what chance makes of it."""
        found = noisy_spread(total_grid, SPREAD_PLACE, noise_std_grid=noise_std_grid, silos=silos)
        return {self.spread.name: found}

    def measured(self, total_grid: npt.NDArray[np.float64], *, noise_std_grid: float) -> Metrics:
        """Every measure with what noise, bins and the choice of records leave open."""
        return told(self._counted, total_grid, noise_std_grid=noise_std_grid)

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


@lru_cache(maxsize=64)
def _counting(
    classes: int | None, class_weights: tuple[float, ...], *, squares: bool = False
) -> Classification:
    """One object for equal classes: what is known about a model and a loss is kept by the loss's
    identity.
    """
    return Classification(classes, class_weights, squares=squares)


def _scaled(class_weights: tuple[float, ...]) -> tuple[float, ...]:
    """In the same proportions, the largest 1: no record counts more than one without weights, so C
    and β stay what they are.
    """
    return tuple(weight / max(class_weights) for weight in class_weights)


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
