"""Gradients of units that are made of several rows: rows are weighed and added up, units are clipped.

    g_p = Σ_j w_j·∇f_{p,j}        in float64, one row after the other in the order of the unit's rows
    integers += round(scale_p · g_p)        as if g_p was the gradient of one record (`totals`)

Guarantee: g_p follows from the rows of p alone, bit for bit: chunks have no say in the order of
    its additions, and a row's gradient does not depend on its company (`examination`). A unit with
    a row whose gradient holds a NaN or an infinity contributes zero, all of its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

import numpy as np
import torch

from sumus.gradients.parts import Part, Rows
from sumus.gradients.totals import Totals
from sumus.gradients.units import Units

__all__ = ["UnitSums"]

_BLOCK_BYTES: Final = 4 << 20  # of units that are clipped together: they stay in cache
_MOST_TOGETHER: Final = 64


@final
class UnitSums:
    """Adds up the rows of units in rising order and hands whole units on to be clipped.

    Args:
        totals: that takes them.
        units: of the batch whose rows will come.
    """

    def __init__(self, totals: Totals, units: Units) -> None:
        dimension = totals.dimension
        together = min(_MOST_TOGETHER, max(1, _BLOCK_BYTES // (8 * max(dimension, 1))))
        self._sums = np.zeros((together, dimension))
        self._totals, self._weights = totals, units.weights
        self._unit_of = np.arange(units.count) if units.of_row is None else units.of_row
        self._first, self._held = 0, 0

    def add(self, parts: Sequence[Part], first: int, count: int) -> None:
        """Add rows `first` … of the batch, the first `count` of a chunk; every row once, in
        order.
        """
        begin = 0
        while begin < count:
            slots = self._unit_of[first + begin : first + count] - self._first
            fitting = int(np.searchsorted(slots, len(self._sums)))
            if not fitting:
                self.finish()
                self._first = int(self._unit_of[first + begin])
                continue
            rows, place = slice(begin, begin + fitting), 0
            weights = self._weights[first + begin : first + begin + fitting]
            for part in parts:
                part.add_to_units(rows, weights, slots[:fitting], place, self._sums)
                place += part.size
            self._held = int(slots[fitting - 1]) + 1
            begin += fitting

    def finish(self) -> None:
        """Hand on the units that are held: none of their rows is missing."""
        if self._held:
            gradients = torch.from_numpy(self._sums[: self._held])
            self._totals.add([Rows(gradients)], self._held)
        self._sums[:] = 0.0
        self._held = 0
