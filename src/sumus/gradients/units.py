"""Which rows make a unit of privacy, and how much each of them counts in its loss.

    f_p(θ) = Σ_j w_j·f_{p,j}(θ)        over the rows j of unit p, w_j ≥ 0, Σ_j w_j ≤ 1

A person's records and the rows that a task makes of one record (`Task.expand`) are the same thing
here: weights multiply. A sub-convex combination of convex, β-smooth losses whose gradients have
length at most C is one of them, so whatever holds for a record holds for a unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self, final

import numpy as np
import numpy.typing as npt

from sumus.errors import GuaranteeError
from sumus.tasks import LinearRows

__all__ = ["Units"]

# 1/m, m times, adds up to no more than this in floats, and so do products of two such weights
_MOST = 1.0 + 2.0**-40


@final
@dataclass(frozen=True, eq=False)
class Units:
    """Rows in groups.

    Guarantee: no unit counts more than once: its weights are not negative and add up to at most 1
        (and rounding).

    Args:
        count: units.
        of_row: the unit of each row, 0 … count − 1 in rising order; None: each row is one.
        weights: of each row in its unit's loss.
    """

    count: int
    of_row: npt.NDArray[np.int64] | None
    weights: npt.NDArray[np.float64]

    def __post_init__(self) -> None:
        if self.of_row is None:
            return
        sums = np.bincount(self.of_row, weights=self.weights, minlength=self.count)
        whole = len(sums) == self.count and len(self.weights) == len(self.of_row)
        sorted_by_unit = whole and bool((np.diff(self.of_row) >= 0).all())
        # NaN fails too
        if not (sorted_by_unit and (self.weights >= 0.0).all() and (sums <= _MOST).all()):
            raise GuaranteeError(
                "rows must be sorted by unit, with weights of at least 0 that add up to at most 1 "
                "in each. A task or a data set breaks this."
            )

    @classmethod
    def single(cls, rows: int) -> Self:
        """Every row a unit of its own."""
        return cls(rows, None, np.zeros(0))

    @property
    def rows(self) -> int:
        """How many there are."""
        return self.count if self.of_row is None else len(self.of_row)

    def take(self, chosen: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], Units]:
        """The rows of some units, and these units numbered anew.

        Args:
            chosen: positions among the units, in rising order.
        """
        if self.of_row is None:
            return chosen, Units.single(len(chosen))
        numbers = np.full(self.count, -1, dtype=np.int64)
        numbers[chosen] = np.arange(len(chosen))
        of_row = numbers[self.of_row]
        rows = np.flatnonzero(of_row >= 0)
        return rows, Units(len(chosen), of_row[rows], self.weights[rows])

    def portions(self, count: int) -> list[int]:
        """Row numbers 0 … rows that cut the rows into so many parts of about one size, none of
        which ends within a unit.
        """
        even = np.linspace(0, self.rows, count + 1).astype(np.int64)
        if self.of_row is not None and self.rows:
            inner = self.of_row[np.minimum(even[1:-1], self.rows - 1)]
            even[1:-1] = np.searchsorted(self.of_row, inner)
        return [int(cut) for cut in even]

    def expanded(self, rows: LinearRows) -> Units:
        """Of the rows that a task made of the records which these units group."""
        units = np.arange(self.count) if self.of_row is None else self.of_row
        weights = np.ones(self.count) if self.of_row is None else self.weights
        return Units(self.count, units[rows.records], rows.weights * weights[rows.records])

    def in_bins(
        self, assigned: npt.NDArray[np.int64], bins: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """(order, ends, units): rows by bin, where each bin ends among them, and its units.

        Args:
            assigned: the bin of each unit.
        """
        units = np.bincount(assigned, minlength=bins)
        rows = assigned if self.of_row is None else assigned[self.of_row]
        ends = np.cumsum(np.bincount(rows, minlength=bins))
        return np.argsort(rows, kind="stable"), ends, units
