"""Two classes: a weighted tree over class and score, one path a record.

A test record falls into one of 128 cells: right or wrong, its class, how sure the model is. It adds
to the nodes on the way from the root to its cell and to nothing else:

    root             9         all records
    right or wrong   ±9
    class            ±3        among the right, among the wrong
    sureness         ±3 five times: halves, quarters, … of the 32 bins on a side of the decision
    loss, Brier      3·(2·loss/LOSS_CAP − 1), 2·(2·(p − y)² − 1)
    spread           at most 2: what the silo's share of right answers adds (`silo_spread`)

A Haar tree is a histogram in other coordinates: its sums give the number of records of every cell,
c = H⁻¹·s. What is asked most, accuracy, needs two of them with the largest weights instead of 128
cells with one each, and everything that changes slowly with the score needs few.
With all of it a record has length √(9² + 9² + 6·3² + 3² + 2² + 2²) = √233.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any, final

import numpy as np
import numpy.typing as npt

from sumus.tasks.score_bins import PER_SIDE, SCORE_BINS
from sumus.tasks.task import CountShape

__all__ = [
    "BRIER",
    "GRID",
    "HEAD",
    "LOSS",
    "RECORD",
    "SPREAD",
    "SPREAD_PLACE",
    "NoisyCells",
    "ScoreTree",
    "score_tree",
]

Floats = npt.NDArray[np.float64]

GRID = 56
"""Grid steps per unit: with it a record adds no more than 504 to any sum."""
RECORD, LOSS, BRIER = 9 * GRID, 3 * GRID, 2 * GRID
"""What a record adds at most to the sum of all, of losses, of squared errors."""
SPREAD, SPREAD_PLACE = 2 * GRID, 4
"""What a record moves its silo's part in the spread over silos by, at most, and where that stands."""
HEAD = 5
"""The sums that every number of classes has: records, right ones, losses, squared errors, spread."""
_LEVEL = 3 * GRID
_CELLS = 2 * SCORE_BINS
_DEPTH = int(math.log2(_CELLS))


@final
@dataclass(frozen=True, eq=False)
class NoisyCells:
    """Records by class and score bin, as far as noise tells.

    Args:
        cells: c[y, b], which may be negative.
        mixing: from the noise of the sums, of standard deviation 1 each, to that of the cells, flat.
    """

    cells: Floats
    mixing: Floats

    def noise_of(self, first: Floats, second: Floats) -> float:
        """Covariance of two linear functions of the cells that the noise brings."""
        return float((self.mixing.T @ first.ravel()) @ (self.mixing.T @ second.ravel()))

    @property
    def covariance(self) -> Floats:
        """Of the cells, flat."""
        return self.mixing @ self.mixing.T


@final
@dataclass(frozen=True, eq=False)
class ScoreTree:
    """The tree; one object, `score_tree()`.

    Args:
        leaves: flat place (class, bin) of each leaf.
        signs: of every node at every leaf, with the root first: (128, 128).
    """

    leaves: npt.NDArray[np.int64]
    signs: Floats

    @property
    def shape(self) -> CountShape:
        """Δ₂ is the length of a path, and of what a record adds to losses and squared errors."""
        square = 2 * RECORD**2 + (_DEPTH - 1) * _LEVEL**2 + LOSS**2 + BRIER**2 + SPREAD**2
        return CountShape(
            length=HEAD + _CELLS - 2,
            l2_grid=math.isqrt(square - 1) + 1,
            largest_grid=RECORD,
            record_place=0,
            record_grid=RECORD,
        )

    def add_paths(
        self,
        rows: npt.NDArray[np.int64],
        right: npt.NDArray[np.bool_],
        labels: npt.NDArray[Any],
        sureness: npt.NDArray[np.int64],
    ) -> None:
        """What each record adds below "right or wrong".

        Args:
            rows: of counts, changed in place.
            labels: 0 or 1.
            sureness: bin on the record's side of the decision.
        """
        leaf = (
            np.where(right, 0, SCORE_BINS)
            + np.where(labels > 0, 0, PER_SIDE)
            + np.clip(sureness, 0, PER_SIDE - 1)
        )
        place, records = HEAD, np.arange(len(rows))
        for level in range(1, _DEPTH):
            node = leaf >> (_DEPTH - level)
            second = (leaf >> (_DEPTH - level - 1)) & 1
            rows[records, place + node] = np.where(second, -_LEVEL, _LEVEL)
            place += 1 << level

    def cells(self, total_grid: Floats, *, noise_std_grid: float) -> NoisyCells:
        """The histogram that the sums tell, with the noise that is in it."""
        nodes = np.concatenate([total_grid[:2], total_grid[HEAD:]])
        weights = np.full(_CELLS, float(_LEVEL))
        weights[:2] = RECORD
        # rows of `signs` are orthogonal: the inverse is the transpose over their squared lengths
        inverse = self.signs.T / (np.abs(self.signs).sum(axis=1) * weights)
        flat, mixing = np.empty(_CELLS), np.empty((_CELLS, _CELLS))
        flat[self.leaves] = inverse @ nodes
        mixing[self.leaves] = noise_std_grid * inverse
        return NoisyCells(flat.reshape(2, SCORE_BINS), mixing)

    def plausible(self, noisy: NoisyCells) -> Floats:
        """Numbers of records near the noisy ones, none negative: every node is split between its
        two sides as its own sum says, and never more than it holds.
        """
        leaves = noisy.cells.ravel()[self.leaves]
        shares = np.array([max(float(leaves.sum()), 0.0)])
        while len(shares) < _CELLS:
            halves = leaves.reshape(2 * len(shares), -1).sum(axis=1).reshape(-1, 2)
            difference = np.clip(halves[:, 0] - halves[:, 1], -shares, shares)
            shares = np.stack([shares + difference, shares - difference], axis=1).ravel() / 2.0
        flat = np.empty(_CELLS)
        flat[self.leaves] = shares
        return flat.reshape(2, SCORE_BINS)


@cache
def score_tree() -> ScoreTree:
    """The tree over the public bins."""
    sure = np.arange(PER_SIDE)
    above, below = PER_SIDE + sure, PER_SIDE - 1 - sure  # bins of class 1's side, and of class 0's
    case, control = SCORE_BINS, 0  # where the class's bins begin
    leaves = np.concatenate([case + above, control + below, case + below, control + above])
    signs = np.zeros((_CELLS, _CELLS))
    signs[0], row = 1.0, 1
    for level in range(_DEPTH):
        size = _CELLS >> level
        for start in range(0, _CELLS, size):
            signs[row, start : start + size // 2] = 1.0
            signs[row, start + size // 2 : start + size] = -1.0
            row += 1
    return ScoreTree(leaves, signs)
