"""Columns of a table and the public encoders that turn them into features.

Every encoder is a fixed function of one value and of public numbers: bounds and categories from the
plan, or constants of this file. None looks at other records, so encoding costs no privacy. Widths
never depend on the records either.

    ScaledNumber   bounds known       [value scaled to −1 … 1, missing]
    KnottedNumber  nothing known      [piecewise linear at 0, ±0.01, ±0.1, ±1, ±3, … ±10⁶; missing]
    OneHot         categories known   [one per category; other or missing]
    HashedText     nothing known      [2 × 32 buckets; missing]
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, final

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "MISSING_WORDS",
    "Column",
    "Encoder",
    "HashedText",
    "KnottedNumber",
    "NumberColumn",
    "OneHot",
    "ScaledNumber",
    "TextColumn",
    "hats",
]

Indices = NDArray[np.int64]

_STEPS = (0.01, 0.1, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4, 1e5, 1e6)
KNOTS: NDArray[np.float64] = np.array([*(-step for step in reversed(_STEPS)), 0.0, *_STEPS])
BUCKETS = 32
MISSING_WORDS = frozenset(("", "na", "n/a", "nan", "null", "?"))
"""What stands for a missing value where text is all there is, whatever its case."""


@final
@dataclass(frozen=True)
class NumberColumn:
    """Numbers; NaN means missing. `bounds` are those that the file's own type declares (booleans),
    if any.
    """

    name: str
    values: NDArray[np.float64]
    bounds: tuple[float, float] | None = None

    def __len__(self) -> int:
        return len(self.values)


@final
@dataclass(frozen=True)
class TextColumn:
    """Strings as positions in a list of distinct values; −1 means missing.

    Args:
        declared: the file's schema lists the values.
        untyped: no schema says that this is text; whether it is, or numbers, shows in the values.
    """

    name: str
    values: Sequence[str]
    codes: NDArray[np.int32]
    declared: bool = False
    untyped: bool = False

    def __len__(self) -> int:
        return len(self.codes)


Column = NumberColumn | TextColumn


class Encoder(Protocol):
    """A public map from one value of a column to `width` features of Euclidean norm at most 1."""

    @property
    def width(self) -> int: ...

    def write(self, rows: Indices, out: NDArray[np.float32]) -> None:
        """Add the features of the given rows into `out`, which is zero and has `width` columns."""
        ...


def hats(values: NDArray[np.float64], knots: NDArray[np.float64]) -> NDArray[np.float32]:
    """Piecewise linear features: a value between two knots is shared linearly by them, beyond the
    ends it stays at the end.

    h_j(v) is 1 at knot j, 0 at all others and linear between; at most two are positive and all sum
    to 1.

    Args:
        values: finite or infinite, not NaN.
        knots: increasing, public.
    """
    inside = np.clip(values, knots[0], knots[-1])
    left = np.clip(np.searchsorted(knots, inside, side="right") - 1, 0, len(knots) - 2)
    share = ((inside - knots[left]) / (knots[left + 1] - knots[left])).astype(np.float32)
    out = np.zeros((len(values), len(knots)), dtype=np.float32)
    row = np.arange(len(values))
    out[row, left] = 1.0 - share
    out[row, left + 1] = share
    return out


@final
@dataclass(frozen=True)
class ScaledNumber:
    """A number clipped to public bounds and scaled to −1 … 1; a missing one is 0 with its flag
    set.
    """

    column: NumberColumn
    low: float
    high: float

    @property
    def width(self) -> int:
        return 2

    def write(self, rows: Indices, out: NDArray[np.float32]) -> None:
        values = self.column.values[rows]
        absent = np.isnan(values)
        # halves first: the width of the bounds themselves may overflow
        scaled = (np.clip(values, self.low, self.high) / 2 - self.low / 2) / (
            self.high / 2 - self.low / 2
        ) * 2 - 1
        out[:, 0] = np.where(absent, 0.0, scaled)
        out[:, 1] = absent


@final
@dataclass(frozen=True)
class KnottedNumber:
    """A number of unknown range, piecewise linear at fixed public knots; a missing one only sets
    its flag.
    """

    column: NumberColumn

    @property
    def width(self) -> int:
        return len(KNOTS) + 1

    def write(self, rows: Indices, out: NDArray[np.float32]) -> None:
        values = self.column.values[rows]
        absent = np.isnan(values)
        out[:, :-1] = hats(np.where(absent, 0.0, values), KNOTS)
        out[absent, :-1] = 0.0
        out[:, -1] = absent


@final
@dataclass(frozen=True)
class OneHot:
    """One feature per public category, and one for everything else (missing or not on the list)."""

    column: TextColumn
    categories: tuple[str, ...]

    @property
    def width(self) -> int:
        return len(self.categories) + 1

    def write(self, rows: Indices, out: NDArray[np.float32]) -> None:
        position = {category: index for index, category in enumerate(self.categories)}
        other = len(self.categories)
        # the last entry serves code −1, which is how a missing value is written
        lookup = np.array([*(position.get(value, other) for value in self.column.values), other])
        out[np.arange(len(rows)), lookup[self.column.codes[rows]]] = 1.0


@final
@dataclass(frozen=True)
class HashedText:
    """Text without a public list: each value lights one of 32 buckets in each of two groups, chosen
    by a fixed public hash.

    Two given values share both buckets with probability 2⁻¹⁰ and are then not told apart; nothing
    depends on the records.
    """

    column: TextColumn

    @property
    def width(self) -> int:
        return 2 * BUCKETS + 1

    def write(self, rows: Indices, out: NDArray[np.float32]) -> None:
        digests = [
            hashlib.sha256(f"{self.column.name}\0{value}".encode(errors="surrogatepass")).digest()
            for value in self.column.values
        ]
        codes = self.column.codes[rows]
        row = np.arange(len(rows))
        present = codes >= 0
        for group in range(2):
            lookup = np.array(
                [group * BUCKETS + digest[group] % BUCKETS for digest in digests] or [0]
            )
            out[row[present], lookup[codes[present]]] = np.sqrt(0.5)
        out[~present, -1] = 1.0
