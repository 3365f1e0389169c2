"""The shape of a task: what is learned from labels, and how well.

A task is one object. Plans name it (`training.task`), and whatever depends on the kind of a label
asks it: how labels are read and stored, how many numbers a model returns, the loss and its
gradient, what is counted of a test record and what the counts say.

Guarantee: the loss of several records is the sum of theirs, so that a record's gradient is a
    function of that record; a likelihood that compares records (Cox) is no task.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, final

import numpy as np
import numpy.typing as npt

from sumus.errors import PlanError
from sumus.tasks.measures import Measure, Metrics
from sumus.tasks.uncertainty import Measured

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "Categories",
    "CountShape",
    "Curvature",
    "Declared",
    "LabelColumn",
    "LabelFacts",
    "Labels",
    "LinearRows",
    "Link",
    "Loss",
    "Task",
]


@final
class Link(IntEnum):
    """From outputs z to the expected label μ(z), where the gradient of the loss is μ(z) − y, for
    Huber's loss capped at ±1.

    All but softmax treat every output by itself. Compiled paths have a loop for each; its number is
    how they are told which.
    """

    SOFTMAX = 0
    LOGISTIC = 1
    IDENTITY = 2
    HUBER = 3
    EXPONENTIAL = 4

    def residual(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """μ(z) − y of every record, capped or not: the gradient of its loss at its outputs."""
        if self is Link.SOFTMAX:
            expected = outputs.softmax(dim=1)
            return expected.scatter_add_(
                1, labels[:, None], expected.new_full((len(labels), 1), -1.0)
            )
        expected = outputs
        if self is Link.LOGISTIC:
            expected = outputs.sigmoid()
        elif self is Link.EXPONENTIAL:
            expected = outputs.clamp(max=0.0).exp()
        residual = expected - labels.reshape(len(labels), -1).to(outputs.dtype)
        return residual.clamp(-1.0, 1.0) if self is Link.HUBER else residual


@final
@dataclass(frozen=True)
class Declared:
    """What a plan declares of its labels.

    Args:
        columns: that labels are read from, by the key of the data section that names them; None
            where the plan names no records.
        bounds: the plan's `data.bounds`.
        classes: how many there are, `evaluation.classes`.
        intervals: cut points of time, `data.intervals`.
        start_hazard: `training.start_hazard`.
        class_weights: `training.class_weights`, in the order of the classes.
        label_columns: `data.label_columns`, several labels of one record.
        squares: the model is fitted by least squares to the task's `targets`.
    """

    columns: Mapping[str, str | None]
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    classes: int | None = None
    intervals: tuple[float, ...] | None = None
    start_hazard: float | None = None
    class_weights: tuple[float, ...] | None = None
    label_columns: tuple[str, ...] | None = None
    squares: bool = False


@final
@dataclass(frozen=True)
class LabelFacts:
    """What is public about labels.

    Args:
        names: of the classes, in label order; empty where labels are no classes.
        bounds: (low, high) of each number that a label holds; empty where labels are classes.
        intervals: where time is cut, in rising order; empty where labels are no times.
        columns: names of several labels of one record; empty where there is one.
    """

    names: tuple[str, ...] = ()
    bounds: tuple[tuple[float, float], ...] = ()
    intervals: tuple[float, ...] = ()
    columns: tuple[str, ...] = ()


@final
@dataclass(frozen=True, eq=False)
class Labels:
    """Labels as they are stored, what is public about them, and what had to be assumed for that.

    Args:
        clamped: labels that were beyond what is declared and were moved to the nearest that is not;
            for the silo's own eyes.
    """

    values: npt.NDArray[Any]
    facts: LabelFacts
    assumptions: tuple[str, ...] = ()
    clamped: int = 0


@final
@dataclass(frozen=True, eq=False)
class Categories:
    """A column of names.

    Args:
        names: those of `data.categories`, or the distinct values in sorted order.
        positions: of every record's value among them.
        declared: whether the plan lists them.
        numeric: whether all of them are numbers.
    """

    names: tuple[str, ...]
    positions: npt.NDArray[np.int64]
    declared: bool
    numeric: bool


class LabelColumn(Protocol):
    """A column of a table that a plan names for a task, such as `data.label_column`."""

    @property
    def name(self) -> str: ...

    def categories(self) -> Categories:
        """The values as names from a list."""
        ...

    def numbers(self) -> npt.NDArray[np.float64]:
        """The values as numbers, NaN where there is none."""
        ...

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Of `data.bounds`."""
        ...


@final
@dataclass(frozen=True)
class CountShape:
    """What one test record adds to the counts of secure metrics, in grid steps.

    Args:
        length: coordinates.
        l2_grid: Δ₂, the largest L2 norm of one record's counts.
        largest_grid: the most that one record adds to a coordinate.
        record_place: the coordinate to which every record adds the same; None: there is none.
        record_grid: what it adds to it.
    """

    length: int
    l2_grid: int
    largest_grid: int
    record_place: int | None = None
    record_grid: int = 1


@final
@dataclass(frozen=True)
class Curvature:
    """Constants of a convex loss of linear outputs.

    Args:
        gradient_norm: C, the largest norm of a record's gradient.
        smoothness: β, the Lipschitz constant of that gradient.
    """

    gradient_norm: float
    smoothness: float


@final
@dataclass(frozen=True, eq=False)
class LinearRows:
    """Records as rows of a linear model, where a record's loss is a weighted sum over its rows:
    f = Σ_j w_j·φ(x_j·θ, y_j).

    Args:
        x: a row each, none longer than the record that it comes from.
        y: what `link` compares the rows' outputs with.
        weights: w_j ≥ 0; those of a record add up to at most 1.
        records: the position of the record that each row comes from, in rising order.
        link: of φ; None: the task's.
    """

    x: npt.NDArray[np.float32]
    y: npt.NDArray[Any]
    weights: npt.NDArray[np.float64]
    records: npt.NDArray[np.int64]
    link: Link | None = None


class Loss(ABC):
    """A loss that is a sum over records."""

    label_type: ClassVar[str] = "int64"
    """Of stored labels: the name of a numpy and torch type."""
    class_weights: tuple[float, ...] = ()
    """What the loss of a record of each class is multiplied by; empty: 1."""

    @abstractmethod
    def link(self, outputs: int) -> Link | None:
        """What compiled paths may use for a model with so many outputs; None: the general path."""

    @abstractmethod
    def check(self, labels: npt.NDArray[Any], outputs: int) -> None:
        """Refuse labels that a model with so many outputs cannot have, before any is used."""

    @abstractmethod
    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """One number per record."""

    def mean_loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """The mean over the records."""
        return self.loss(outputs, labels).mean()

    def output_gradient(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """The gradient of every record's loss at its outputs, (records, outputs)."""
        link = self.link(outputs.shape[1])
        if link is not None:
            return link.residual(outputs, labels)
        import torch

        with torch.enable_grad():
            leaf = outputs.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(self.loss(leaf, labels).sum(), leaf)
        return gradient


class Task(Loss):
    """What is learned: one file, one object of `TASKS`."""

    name: ClassVar[str]
    """`training.task`."""
    measures: ClassVar[tuple[Measure, ...]]
    """What is measured; the first is what a model is chosen by and what is shown."""
    spread: ClassVar[Measure | None] = None
    """How much the headline measure differs between silos, where that is counted."""
    constant: ClassVar[tuple[str, str]]
    """The best constant prediction: its key among a run's baselines, and what it is called."""
    counts: CountShape
    """What a test record adds to the secure counts. It follows from the plan (`of`), because the
    guarantee of a stored plan must follow from the plan alone.
    """
    label_keys: ClassVar[tuple[str, ...]] = ("label_column",)
    """Keys of a plan's data section that name columns of a table."""
    keeps_lengths: ClassVar[bool] = False
    """Whether a record's length says something about its label, so that records are not scaled to
    one length each where their norm must be bounded.
    """
    label_declaration: ClassVar[str | None] = "categories"
    """The table of the data section that says what labels can be: categories or bounds; None where
    a list of its own does.
    """
    shared_slopes: ClassVar[bool] = False
    """Whether the outputs of the named linear model differ in their intercepts alone."""
    first_intercept: float = 0.0
    """What the outputs of a named model start from, where that is public."""
    label_shape: tuple[int, ...] = ()
    """Of one record's stored label."""
    canary_label: int = 0
    """The label of a record that a linear model with large weights gets wrong as far as can be."""
    rows_per_record: int = 1
    """J, the most rows that `expand` makes of a record. It follows from the plan (`of`): what
    rounding can add to a sensitivity counts rows.
    """

    def of(self, declared: Declared) -> Task:
        """The task as a plan declares its labels; one object for equal declarations."""
        return self

    @property
    def headline(self) -> Measure:
        """The measure that is shown where there is room for one."""
        return self.measures[0]

    def leading(self, values: Mapping[str, float], constant: Mapping[str, float]) -> Measure:
        """The measure to read first, by a rule on what is told anyway.

        Args:
            values: what was measured; `constant`: what a constant answer would reach.
        """
        return self.headline

    def headline_text(self, values: Mapping[str, float], plus_minus: Mapping[str, float]) -> str:
        """Such as "accuracy 81.2% ± 0.3%"; empty where it was not measured."""
        name = self.headline.name
        if name not in values:
            return ""
        return f"{self.headline.shown} {self.headline.text(values[name], plus_minus.get(name))}"

    def measure(self, name: str, *, field: str) -> Measure:
        """The measure of that name; `field` is what asked for it."""
        for measure in self.measures:
            if measure.name == name:
                return measure
        known = " or ".join(measure.name for measure in self.measures)
        raise PlanError(field, name, f"must be {known}", f"Use {self.headline.name}.")

    # -- labels

    @abstractmethod
    def read(self, columns: Mapping[str, LabelColumn]) -> Labels:
        """Labels of a table, from the columns under `label_keys`, or a refusal."""

    @abstractmethod
    def store(self, labels: npt.NDArray[Any], where: str) -> npt.NDArray[Any]:
        """Labels of one silo that were given in Python, as they are stored, or a refusal.

        Args:
            labels: numbers, one or more per record.
            where: the silo, for errors.
        """

    def outside(self, labels: npt.NDArray[Any]) -> int:
        """How many labels given in Python are beyond what the plan declares; `store` moves them to
        the nearest that is not.
        """
        return 0

    @abstractmethod
    def accept(self, labels: npt.NDArray[Any], declared: int | None) -> Labels:
        """Stored labels of all silos together, with what is public about them, or a refusal.

        Args:
            declared: what the caller declares of them: the number of classes.
        """

    def farthest(
        self, labels: npt.NDArray[Any], facts: LabelFacts, below: Callable[[int, int], Any]
    ) -> npt.NDArray[Any]:
        """Labels that are wrong for records with these, for an audit.

        Args:
            below: (bound, count) → so many whole numbers drawn below the bound.
        """
        classes = len(facts.names)
        if not classes:  # a number: the bound that is farther away
            return np.where(labels > 0.0, -1.0, 1.0).astype(labels.dtype)
        shift = 1 + below(max(classes - 1, 1), len(labels))
        wrong: npt.NDArray[Any] = (labels + shift) % classes
        return wrong

    @abstractmethod
    def outputs(self, labels: LabelFacts, model: str) -> int:
        """How many numbers the named model returns for a record, or a refusal."""

    @abstractmethod
    def check_outputs(self, outputs: int, labels: LabelFacts) -> None:
        """Refuse a model of one's own that returns another number of outputs."""

    def model_name(self, model: str) -> str:
        """The named model as this task calls it."""
        return model

    def linear_outputs(self, model: str, rows: int) -> int:
        """Rows of weights of the named linear model, whose constants `curvature` gives.

        Args:
            rows: as many as the declared dimension makes.
        """
        return rows

    def moment_matrices(self, model: str) -> int:
        """Matrices Σ x·xᵀ of normal equations: one of all records, or one of every class."""
        return 1

    def target_bound(self, outputs: int) -> float | None:
        """B: no target vector is longer; None: the task has no normal equations."""
        return None

    def targets(self, labels: npt.NDArray[Any], outputs: int) -> npt.NDArray[np.float64]:
        """What linear outputs should be, (records, outputs), for least squares.

        Guarantee: no row is longer than `target_bound`.
        """
        raise PlanError(
            "training.algorithm",
            "normal-equations",
            f"has no targets for {self.name}",
            "Use another.",
        )

    def by_loss(self) -> Task:
        """The task of a model that is fitted by this loss, however the plan fits its own."""
        return self

    @abstractmethod
    def predict(self, outputs: Tensor) -> Tensor:
        """The predicted label of every record."""

    def predictions(self, outputs: Tensor, labels: LabelFacts) -> dict[str, npt.NDArray[Any]]:
        """What is said of every record as named columns, in the labels' own names and units.

        A column is `prediction` or, of a class, `probability:<class>`; several labels have
        `prediction:<label>` each.

        Args:
            outputs: of the model, (records, outputs), none of them NaN.
            labels: what is public about them.
        """
        return {"prediction": self.predict(outputs).numpy()}

    # -- measures

    def counted_classes(self, labels: LabelFacts) -> int | None:
        """How many classes the secure counts tell apart (`evaluation.classes`); None where they
        count none.
        """
        return None

    @abstractmethod
    def scores(self, outputs: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
        """What is measured of each record: tensors with one entry per record."""

    @abstractmethod
    def exact(
        self, *scores: npt.NDArray[Any], weights: npt.NDArray[np.float64] | None = None
    ) -> dict[str, float]:
        """The measures of one row or more, in the clear.

        Args:
            weights: of the rows, so that a person's together weigh 1; None: every row weighs 1.
        """

    def one(
        self, name: str, *scores: npt.NDArray[Any], weights: npt.NDArray[np.float64] | None = None
    ) -> float:
        """One of the exact measures; NaN where these rows do not tell it."""
        return self.exact(*scores, weights=weights).get(name, math.nan)

    def metrics(
        self, *scores: npt.NDArray[Any], weights: npt.NDArray[np.float64] | None = None
    ) -> Metrics:
        """The measures of one row or more with what they follow from, in the clear.

        Args:
            weights: of the rows, so that a person's together weigh 1; None: every row weighs 1.
        """
        exact = self.exact(*scores, weights=weights)
        values = {name: Measured(value) for name, value in exact.items()}
        records = len(scores[0]) if weights is None else round(float(weights.sum()))
        return Metrics(values, records, tuple(scores), weights)

    def pooled(self, parts: Sequence[Metrics]) -> Metrics | None:
        """The exact measures of several sets of records together; None if none holds a record."""
        held = [part for part in parts if part.records]
        if not held:
            return None
        sizes = np.array([part.records for part in held], dtype=np.float64)
        means = {
            measure.name: float(np.average([part[measure.name] for part in held], weights=sizes))
            for measure in self.measures
        }
        return Metrics({name: Measured(mean) for name, mean in means.items()}, int(sizes.sum()))

    @abstractmethod
    def count(self, *scores: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """The counts of each record, in grid steps: a row per record.

        Guarantee: no row is longer than `counts.l2_grid` in L2 norm, whatever the scores hold.
        """

    def of_silo(self, total_grid: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """What a silo sends for the sum of its records' counts, before noise.

        Guarantee: a record more moves it by a vector no longer than `counts.l2_grid`.
        """
        return total_grid

    def between_silos(
        self, total_grid: npt.NDArray[np.float64], *, noise_std_grid: float, silos: int
    ) -> Mapping[str, Measured]:
        """How much silos differ, by the name of `spread`; nothing where it is not counted.

        Args:
            silos: in the sum.
        """
        return {}

    @abstractmethod
    def measured(self, total_grid: npt.NDArray[np.float64], *, noise_std_grid: float) -> Metrics:
        """The measures that noisy counts tell, with their half-widths.

        Args:
            total_grid: the sum of all records' counts, with noise.
            noise_std_grid: of that noise, in each coordinate.
        """

    @abstractmethod
    def baseline(self, train: npt.NDArray[Any], test: npt.NDArray[Any]) -> float:
        """The headline measure of the best constant prediction.

        Args:
            train: labels that the constant is taken from.
            test: labels that it is measured on.
        """

    # -- convexity

    @abstractmethod
    def curvature(
        self, model: str, *, feature_bound: float, residual_cap: float
    ) -> Curvature | None:
        """The constants of the named model's loss; None: it has no convex pass.

        Args:
            feature_bound: R, of a record's norm, bias included.
            residual_cap: t, of the residuals; 1 is no cap.
        """

    def expand(self, x: npt.NDArray[np.float32], y: npt.NDArray[Any]) -> LinearRows | None:
        """Records as the rows that a convex pass runs over; None: a record is one row.

        Guarantee: a record's rows follow from that record alone, there are at most
            `rows_per_record` of them, and their weighted sum has the constants of `curvature`.

        Args:
            x: records, the bias feature last, norm at most R.
            y: stored labels.
        """
        return None
