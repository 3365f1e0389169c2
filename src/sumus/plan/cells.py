"""Into which cells a describing plan sorts the values of every column: public, by the plan alone.

| the plan says of a column        | its cells                                                    |
|----------------------------------|--------------------------------------------------------------|
| `data.bounds`                    | below, `describe.bins` of equal width, above, missing        |
| `describe.numbers`               | below, a signed logarithmic grid, above, missing             |
| `data.categories`                | one per category, other, missing                             |
| times of events (`survival`)     | event in each interval, followed through none … all, missing |
| nothing                          | there, missing                                               |

A value falls into exactly one cell of its column, whatever it is: so a record adds one unit to one
cell per column, and m columns have L2 norm √m.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, final

import numpy as np
import numpy.typing as npt

from sumus.errors import PlanError, dotted
from sumus.plan.plan import TrainingPlan
from sumus.tasks import LabelFacts

__all__ = [
    "MOST_CELLS",
    "WIDE_EDGES",
    "ColumnCells",
    "cells_of",
    "described_labels",
    "with_columns",
]

MOST_CELLS = 1 << 22
"""Numbers of a description's sum."""

_STEPS = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
_SIZES = (*(float(f"{step}e{power}") for power in range(-6, 12) for step in _STEPS), 1e12)
WIDE_EDGES = (*(-size for size in reversed(_SIZES)), 0.0, *_SIZES)
"""Of the cells of numbers whose range nobody knows: six a decade on both sides of zero."""


@final
@dataclass(frozen=True)
class ColumnCells:
    """The cells of one column.

    Args:
        name: of the column.
        kind: bounded and wide numbers, listed categories, text without a list, or times with their
            events, cell by cell as `Survival.encode` numbers them.
        start: place of its first cell in the sum.
        edges: of numbers; a cell holds its left edge, the last one both. Of times, the cut points.
        names: of categories.
    """

    name: str
    kind: Literal["bounded", "wide", "categories", "text", "survival"]
    start: int
    edges: tuple[float, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def is_number(self) -> bool:
        """Whether the cells lie between edges."""
        return self.kind in ("bounded", "wide")

    @property
    def count(self) -> int:
        """How many cells there are."""
        if self.is_number:
            return len(self.edges) + 2
        if self.kind == "survival":
            return 2 * len(self.edges) + 2
        return len(self.names) + 2 if self.kind == "categories" else 2

    @property
    def missing(self) -> int:
        """The cell of values that are not there, the last one."""
        return self.count - 1

    @property
    def place(self) -> slice:
        """Where its cells are in the sum."""
        return slice(self.start, self.start + self.count)

    @cached_property
    def _edges(self) -> npt.NDArray[np.float64]:
        return np.array(self.edges)

    def of_numbers(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        """The cell of every number; NaN is missing, infinities lie beyond the edges."""
        found = np.searchsorted(self._edges, values, side="right")
        found[values == self._edges[-1]] = len(self.edges) - 1
        return np.where(np.isnan(values), self.missing, found).astype(np.int64)


def cells_of(plan: TrainingPlan) -> tuple[ColumnCells, ...]:
    """The cells of every described column, in the order of the sum.

    Args:
        plan: with `describe.columns` and `describe.numbers` filled in.
    """
    described, data = plan.describe, plan.data
    if described.columns is None or described.numbers is None:
        name = "columns" if described.columns is None else "numbers"
        raise PlanError(
            f"describe.{name}",
            None,
            "must be known before noise is sized",
            "Resolve the plan first.",
        )
    bounds, categories = data.bounds or {}, data.categories or {}
    out, start = [], 0
    for name in described.columns:
        column = ColumnCells(name, "text", start)
        if name == _times(plan):
            column = ColumnCells(name, "survival", start, edges=data.intervals or ())
        elif name in categories:
            column = ColumnCells(name, "categories", start, names=categories[name])
        elif name in bounds:
            edges = np.linspace(*bounds[name], described.bins + 1)
            if not (np.isfinite(edges).all() and (np.diff(edges) > 0.0).all()):
                rule = f"must be wide enough for {described.bins} bins of numbers that differ"
                raise PlanError(
                    dotted("data.bounds", name), list(bounds[name]), rule, "Lower describe.bins."
                )
            column = ColumnCells(name, "bounded", start, edges=tuple(edges.tolist()))
        elif name in described.numbers:
            column = ColumnCells(name, "wide", start, edges=WIDE_EDGES)
        out.append(column)
        start += column.count
    if start > MOST_CELLS:
        rule = f"must give at most {MOST_CELLS:,} cells, these have {start:,}"
        raise PlanError("describe.columns", len(out), rule, "Name fewer, or lower describe.bins.")
    return tuple(out)


def described_labels(plan: TrainingPlan) -> tuple[str, ...]:
    """The columns that stand for a plan's labels in a description: times bring their events along."""
    times = _times(plan)
    if times is not None:
        return (times,)
    named = plan.data.named(plan.task.label_keys).values()
    return tuple(name for name in named if name is not None)


def _times(plan: TrainingPlan) -> str | None:
    """The column of times with events, of a plan that has one."""
    if plan.training.task != "survival" or not plan.data.intervals:
        return None
    return plan.data.time_column or "label"


def with_columns(
    plan: TrainingPlan, columns: tuple[str, ...], numbers: tuple[str, ...], labels: LabelFacts
) -> TrainingPlan:
    """A describing plan that says which columns are described and how; what it says already stays.

    Args:
        columns: all that could be described.
        numbers: those of them that hold numbers.
        labels: what is public about them, where the plan does not declare it.
    """
    described, data = plan.describe, plan.data
    chosen = columns if described.columns is None else described.columns
    column = data.label_column or "label"
    if labels.names and column not in (data.categories or {}):
        listed = {**(data.categories or {}), column: labels.names}
        plan = plan.replace("data", categories=listed)
    if labels.bounds and column not in (data.bounds or {}):
        plan = plan.replace("data", bounds={**(data.bounds or {}), column: labels.bounds[0]})
    declared = {*(plan.data.bounds or {}), *(plan.data.categories or {})}
    found = tuple(name for name in numbers if name in chosen and name not in declared)
    return plan.replace(
        "describe",
        columns=chosen,
        numbers=found if described.numbers is None else described.numbers,
    )
