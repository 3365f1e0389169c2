"""The running integer sum of one batch: clip, round, add, in one of the three ways a plan may ask
for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import final

import numpy as np
import numpy.typing as npt
import torch

from sumus.gradients.kernels import add_rows_rounded, add_rows_truncated, scales
from sumus.gradients.linear import LinearSum
from sumus.gradients.parts import Outer, Part, Positions, Rows, Tied, Tokens
from sumus.noise import Grid, Rounding
from sumus.randomness import RandomSource

__all__ = ["Totals"]

_NO_FLOATS = torch.empty(0, dtype=torch.float64)
# each stochastic rounding is accepted with probability ≥ 0.39, so giving up has probability below
# 1e-27
_RETRIES = 128


@final
class Totals:
    """Σ_j round(scale_j · g_j) over the chunks of a batch, d integers in grid steps.

    Args:
        dimension: d.
        grid: C and r.
        rounding: "record", "stochastic" or "sum".
        source: random bits for "stochastic".
    """

    def __init__(
        self, dimension: int, *, grid: Grid, rounding: str, source: RandomSource | None
    ) -> None:
        self.rounding, self.clipped, self.nonfinite = rounding, 0, 0
        self._grid, self._source, self.dimension = grid, source, dimension
        self._integers = np.zeros(dimension, np.int64)
        self._floats = (
            torch.zeros(dimension, dtype=torch.float64) if rounding == "sum" else _NO_FLOATS
        )

    def add(self, parts: Sequence[Part], count: int) -> None:
        """Add the first `count` records of a chunk; the rest is padding."""
        norms2 = np.zeros(count)
        for part in parts:
            part.add_norms2(norms2)
        scale = np.empty(count)
        clipped, nonfinite = scales(
            norms2, self._grid.clip_norm, float(self._grid.resolution), scale
        )
        self.clipped += clipped
        self.nonfinite += nonfinite
        if self.rounding == "record":
            self._add_truncated(
                [Rows(part.as_rows()) if isinstance(part, Positions) else part for part in parts],
                scale,
            )
        elif self.rounding == "stochastic":
            self._add_stochastic(
                torch.cat([part.as_rows() for part in parts], dim=1).numpy()[:count], scale
            )
        else:
            start = 0
            for part in parts:
                part.add_weighted(scale, self._floats[start : start + part.size])
                start += part.size

    def add_linear(self, linear: LinearSum, x: torch.Tensor, y: torch.Tensor) -> None:
        """Add all records of a linear model, each truncated."""
        for records in self._in_32_bits(len(x)):
            _, clipped, nonfinite = linear.add(
                x[records], y[records], grid=self._grid, integers=self._integers
            )
            self.clipped += clipped
            self.nonfinite += nonfinite

    def fresh(self) -> Totals:
        """An empty sum of the same kind, for another thread."""
        return Totals(self.dimension, grid=self._grid, rounding=self.rounding, source=self._source)

    def merge(self, other: Totals) -> None:
        """Add another thread's sum."""
        self._integers += other._integers
        self._floats += other._floats
        self.clipped += other.clipped
        self.nonfinite += other.nonfinite

    def integers(self) -> torch.Tensor:
        """The sum so far, in grid steps; a float sum is truncated towards zero here, once."""
        return (
            self._floats.trunc().long()
            if self.rounding == "sum"
            else torch.from_numpy(self._integers)
        )

    def _add_truncated(
        self, parts: Sequence[Outer | Rows | Tokens | Tied], scale: npt.NDArray[np.float64]
    ) -> None:
        """Add in 32 bits over as many records as cannot overflow, then in 64 bits."""
        for records in self._in_32_bits(len(scale)):
            start = 0
            for part in parts:
                place = self._integers[start : start + part.size]
                if isinstance(part, Tokens):  # few coordinates of many
                    part.add_truncated(scale[records], records.start, place)
                else:
                    total = np.zeros(part.size, np.int32)
                    part.add_truncated(scale[records], records.start, total)
                    place += total
                start += part.size

    def _in_32_bits(self, count: int) -> Iterator[slice]:
        """Records whose truncated gradients, at most r a coordinate, cannot overflow 32 bits
        together.
        """
        step = (2**31 - 1) // self._grid.resolution
        return (slice(first, first + step) for first in range(0, count, step))

    def _add_stochastic(
        self, rows: npt.NDArray[np.floating], scale: npt.NDArray[np.float64]
    ) -> None:
        """Round each record at random; draw again what came out longer than the accounted
        sensitivity.
        """
        if self._source is None:
            raise ValueError(
                "source must be given for stochastic rounding, got None. Pass a RandomSource."
            )
        longest2 = int(self._grid.sensitivity_grid(Rounding.STOCHASTIC, self.dimension) ** 2)
        for _ in range(_RETRIES):
            words = np.empty((len(scale), self.dimension), np.uint32)
            self._source.fill(words)
            rejected = np.zeros(len(scale), np.bool_)
            add_rows_rounded(rows, scale, words, longest2, self._integers, rejected)
            if not rejected.any():
                return
            rows, scale = rows[rejected], scale[rejected]
        for record in range(len(scale)):  # truncation is always short enough
            total = np.zeros(self.dimension, np.int32)
            add_rows_truncated(rows[record : record + 1], scale[record : record + 1], total)
            self._integers += total
