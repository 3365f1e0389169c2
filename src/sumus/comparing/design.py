"""A linear model's rows: what is multiplied by weights, what is compared with it, and how much each
row counts.

    outputs   Z = ((X − m)/s)·W + a      m, s: mean and standard deviation of the training rows

Standard columns make one penalty fair to all of them; intercepts are not penalised.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np
import numpy.typing as npt

from sumus.data import Records
from sumus.tasks import Link, Task

__all__ = ["Floats", "LinearDesign", "Scale", "link_of"]

Floats = npt.NDArray[np.float64]


@final
@dataclass(frozen=True, eq=False)
class Scale:
    """Mean and standard deviation of every column; a constant column has no weight."""

    mean: Floats
    std: Floats

    @classmethod
    def of(cls, x: npt.NDArray[Any]) -> Self:
        """Of rows that hold whatever they hold: what is not finite counts as 0."""
        mean, square = np.zeros(x.shape[1]), np.zeros(x.shape[1])
        for start in range(0, len(x), _BLOCK):
            part = _finite(x[start : start + _BLOCK])
            mean += part.sum(axis=0)
            square += np.square(part).sum(axis=0)
        mean /= max(len(x), 1)
        variance = square / max(len(x), 1) - mean**2
        noise = 1e-12 * np.maximum(mean**2, 1e-12)  # of the subtraction
        return cls(mean, np.where(variance > noise, np.sqrt(np.maximum(variance, noise)), np.inf))

    def __call__(self, x: npt.NDArray[Any]) -> Floats:
        """Standard columns with a 1 behind them."""
        out = np.ones((len(x), x.shape[1] + 1))
        np.divide(_finite(x) - self.mean, self.std, out=out[:, :-1])
        return out


_BLOCK = 8192  # rows that are in memory in double precision at once


def _finite(x: npt.NDArray[Any]) -> Floats:
    return np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)


def link_of(task: Task, outputs: int) -> Link | None:
    """How a linear model's outputs are fitted; squares where Huber's loss caps a residual that
    stays within the bounds anyway. None: no link says it all.
    """
    if task.shared_slopes:
        return Link.LOGISTIC
    link = task.link(outputs)
    return Link.IDENTITY if link is Link.HUBER else link


@final
@dataclass(frozen=True, eq=False)
class LinearDesign:
    """Rows of records that a linear model is fitted to.

    Args:
        x: standard columns, then one column for every intercept.
        y: what outputs are compared with: classes for softmax, else (rows, outputs).
        weights: of the rows; those of a unit add up to at most 1.
        outputs: of the model that is fitted; one where slopes are shared.
        intercepts: columns at the end that are not penalised.
    """

    x: Floats
    y: npt.NDArray[Any]
    weights: Floats
    link: Link
    outputs: int
    intercepts: int

    @classmethod
    def of(cls, task: Task, records: Records, scale: Scale, outputs: int) -> Self:
        """Records behind a scale, for a task whose link is known."""
        x = scale(records.x.reshape(len(records), -1))
        weights = records.weights("mean")
        link = link_of(task, outputs)
        if link is None:
            raise ValueError("a design needs a link")
        rows = task.expand(x.astype(np.float32), records.y)
        if rows is None:
            y = records.y if link is Link.SOFTMAX else records.y.reshape(len(records), -1)
            return cls(x, y, weights, link, outputs, 1)
        weights = weights[rows.records] * rows.weights
        y = rows.y if link is Link.SOFTMAX else rows.y.reshape(len(rows.y), -1)
        if not task.shared_slopes:  # class weights alone: the rows are the records
            return cls(x, y, weights, link, outputs, 1)
        wide = rows.x.astype(np.float64)
        return cls(wide, y, weights, link, 1, wide.shape[1] - x.shape[1] + 1)
