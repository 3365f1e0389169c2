"""What noisy counts say: estimates with intervals that the known noise allows.

Every count is the true one plus independent noise of one standard deviation σ, so a statistic that
is a ratio of two weighted sums of counts has Fieller's interval:

    θ = a·c / b·c,      all θ with (a·c − θ·b·c)² ≤ z²·σ²·‖a − θ·b‖²

A quantile lies in the cells whose two edges its level does not contradict. Nothing here looks at a
record: it is post-processing of a released sum, and costs nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

__all__ = ["Estimate", "quantile", "ratio", "significant", "spread", "total"]

Vector = npt.NDArray[np.float64]
_Z = 1.96


@final
@dataclass(frozen=True)
class Estimate:
    """A number and its 95 % interval: the noise is in it, and what cells cannot tell apart.

    Args:
        low: infinite where the noise leaves that end open; likewise `high`.
    """

    value: float
    low: float
    high: float

    @property
    def plus_minus(self) -> float:
        """The larger half of the interval."""
        return max(self.value - self.low, self.high - self.value)

    def within(self, low: float, high: float) -> Estimate:
        """The same between two numbers that the truth cannot leave; what noise threw beyond them is
        no more certain for that, and keeps its half-width.
        """
        value = min(max(self.value, low), high)
        left, right = value - (self.value - self.low), value + (self.high - self.value)
        left, right = max(min(self.low, left), low), min(max(self.high, right), high)
        return Estimate(value, min(left, value), max(right, value))

    def widened(self, by: float) -> Estimate:
        """The same with so much more at both ends."""
        return Estimate(self.value, self.low - by, self.high + by)


def total(counts: Vector, sigma: float) -> Estimate:
    """The sum of counts."""
    value, width = float(counts.sum()), _Z * sigma * math.sqrt(len(counts))
    return Estimate(value, value - width, value + width)


def ratio(a: Vector, b: Vector, counts: Vector, sigma: float) -> Estimate | None:
    """a·c / b·c with Fieller's interval; None where b·c cannot be told from 0."""
    top, bottom = float(a @ counts), float(b @ counts)
    slack = (_Z * sigma) ** 2
    square = bottom**2 - slack * float(b @ b)
    cross = top * bottom - slack * float(a @ b)
    inside = cross**2 - square * (top**2 - slack * float(a @ a))
    if bottom <= 0.0 or square <= 0.0 or inside < 0.0:
        return None
    root = math.sqrt(inside)
    return Estimate(top / bottom, (cross - root) / square, (cross + root) / square)


def spread(values: Vector, counts: Vector, sigma: float) -> Estimate | None:
    """The standard deviation of values that so many records have, noise's own part taken off.

    Its noise is that of Σ c·((v − mean)² − variance)/n to first order; the square of the mean's own
    error is added at both ends.
    """
    mean = ratio(values, np.ones(len(values)), counts, sigma)
    records = float(counts.sum())
    if mean is None:
        return None
    apart = (values - mean.value) ** 2
    error = float(np.sqrt(apart.sum())) * sigma / records
    variance = float(apart @ counts) / records + error**2
    width = _Z * sigma * float(np.sqrt(((apart - variance) ** 2).sum())) / records
    low, high = variance - width - (_Z * error) ** 2, variance + width + (_Z * error) ** 2
    value, left, right = (math.sqrt(max(end, 0.0)) for end in (variance, low, high))
    return Estimate(value, left, right)


def quantile(
    level: float, edges: Vector, counts: Vector, sigma: float, *, shown: Vector | None = None
) -> Estimate:
    """The value that a share `level` of the records does not exceed.

    Args:
        edges: one more than cells, the first and the last may be infinite.
        counts: of the cells between them.
        shown: counts that the value is read from, if others than those of the interval.
    """
    # evidence at every edge: (1 − level)·records before it − level·records behind it
    before = np.concatenate([[0.0], np.cumsum(counts)])
    behind = before[-1] - before
    cells = np.arange(len(edges))
    evidence = (1.0 - level) * before - level * behind
    width = _Z * sigma * np.sqrt((1.0 - level) ** 2 * cells + level**2 * cells[::-1])
    width[0] = width[-1] = math.inf  # nothing lies beyond
    possible = np.flatnonzero((evidence - width)[:-1] <= 0.0)
    left = possible[(evidence + width)[possible + 1] >= 0.0]
    low, high = float(edges[left[0]]), float(edges[left[-1] + 1])
    value = _read_off(level, edges, counts if shown is None else shown)
    return Estimate(value, min(low, value), max(high, value))


def _read_off(level: float, edges: Vector, counts: Vector) -> float:
    """The quantile of counts, some of which may be negative, straight within a cell."""
    before = np.concatenate([[0.0], np.cumsum(counts)])
    upwards = np.maximum.accumulate(before)
    downwards = np.minimum.accumulate(before[::-1])[::-1]
    rising = (upwards + downwards) / 2.0
    target = rising[0] + level * (rising[-1] - rising[0])
    cell = int(np.clip(np.searchsorted(rising, target, side="left") - 1, 0, len(counts) - 1))
    left, right = float(edges[cell]), float(edges[cell + 1])
    if math.isinf(left) or math.isinf(right):
        return right if math.isinf(left) else left
    step = rising[cell + 1] - rising[cell]
    share = (target - rising[cell]) / step if step > 0.0 else 0.5
    return left + (right - left) * float(np.clip(share, 0.0, 1.0))


def significant(counts: Vector, sigma: float) -> Vector:
    """The counts that noise alone would hardly make, all others 0: of empty cells not one in a
    hundred descriptions passes σ·√(2·ln(10·cells)).
    """
    limit = sigma * math.sqrt(2.0 * math.log(10.0 * max(len(counts), 2)))
    return np.where(counts > limit, counts, 0.0)
