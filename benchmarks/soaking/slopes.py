"""Whether something grows: the median slope within the lives of processes, which outliers and
restarts do not move.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

__all__ = ["Growth", "growth_of"]

_FEWEST = 6
_MOST_POINTS = 60
_RESAMPLES = 400

Life = Sequence[tuple[float, float]]
"""(place, value) of one process or folder, in order."""


@dataclass(frozen=True)
class Growth:
    """Per 1,000 of what is counted along.

    Args:
        slope: Theil–Sen, pooled over lives.
        low, high: 95 % of resampled lives.
        level: the median value.
        lives: that are long enough to say something.
    """

    slope: float
    low: float
    high: float
    level: float
    lives: int

    def is_flat(self, most: float) -> bool:
        """Whether it does not grow, or by no more than `most` per 1,000."""
        return self.low <= most


def growth_of(lives: Sequence[Life], *, seed: int = 0) -> Growth | None:
    """The growth of something over several lives; None: none is long enough."""
    slopes = [_pairs(life) for life in lives if len(life) >= _FEWEST]
    slopes = [each for each in slopes if each]
    if not slopes:
        return None
    generator = random.Random(seed)
    tries = sorted(
        median(itertools.chain.from_iterable(generator.choices(slopes, k=len(slopes))))
        for _ in range(_RESAMPLES)
    )
    values = [value for life in lives for _, value in life]
    return Growth(
        slope=1000.0 * median(itertools.chain.from_iterable(slopes)),
        low=1000.0 * tries[int(0.025 * _RESAMPLES)],
        high=1000.0 * tries[int(0.975 * _RESAMPLES)],
        level=median(values),
        lives=len(slopes),
    )


def _pairs(life: Life) -> list[float]:
    """The slopes between all pairs of points; a long life is thinned."""
    step = max(1, len(life) // _MOST_POINTS)
    points = life[::step]
    return [
        (value - before) / (place - earlier)
        for (earlier, before), (place, value) in itertools.combinations(points, 2)
        if place > earlier
    ]
