"""What a model's outputs mean, in plain numbers that every format can write down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self, final

from sumus.errors import PlanError
from sumus.predicting import Model
from sumus.tasks import Classification, Counts, MultiLabel, Regression, SeveralNumbers, Survival

__all__ = ["Answer"]


@final
@dataclass(frozen=True)
class Answer:
    """From outputs z to what is said of a record.

        classes    softmax(z), or of one output 1/(1 + e^−z) for the second class
        squares    classes whose outputs were fitted by least squares: `shares_of_squares`(z)
        labels     1/(1 + e^−z), yes where z > 0
        numbers    middle + half·clip(z, −1, 1)
        count      most·e^min(z, 0)
        survival   exp(−Σ_{i ≤ j} log(1 + e^z_i)) for the j-th cut point

    Args:
        kind: as above.
        names: of classes, labels or numbers.
        numbered: classes are the whole numbers 0, 1, 2, …
        middles: of numbers; likewise `halves`; a count has its most as the half.
        intervals: cut points of times.
    """

    kind: Literal["classes", "squares", "labels", "numbers", "count", "survival"]
    names: tuple[str, ...] = ()
    numbered: bool = False
    middles: tuple[float, ...] = ()
    halves: tuple[float, ...] = ()
    intervals: tuple[float, ...] = ()

    @classmethod
    def of(cls, model: Model) -> Self:
        """That of a released model."""
        task = model.plan.task
        if isinstance(task, Classification):
            names = model.labels.names
            numbered = names == tuple(map(str, range(len(names))))
            return cls("squares" if task.squares else "classes", names, numbered)
        if isinstance(task, MultiLabel):
            return cls("labels", task.columns)
        if isinstance(task, Regression):
            return cls("numbers", ("",), middles=(task.middle,), halves=(task.half,))
        if isinstance(task, SeveralNumbers):
            middles, halves = zip(*((each.middle, each.half) for each in task.each), strict=True)
            return cls("numbers", task.columns, middles=middles, halves=halves)
        if isinstance(task, Counts):
            return cls("count", halves=(task.most,))
        if isinstance(task, Survival):
            return cls("survival", intervals=task.intervals)
        rule = "has no answer that a file could hold"
        raise PlanError("training.task", task.name, rule, "Use sumus predict.")
