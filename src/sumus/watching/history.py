"""The rounds of a run, thinned while they come: a hundred thousand cost no more to keep and to send
than a few hundred.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

from sumus.watching.state import History

__all__ = ["MOST_POINTS", "Point", "Rounds"]

MOST_POINTS = 192
"""Rounds that are kept at an even distance, however many there are; half as many at least."""


@final
@dataclass(frozen=True, kw_only=True)
class Point:
    """One round, as `History` has it."""

    round: int
    epsilon: float | None = None
    value: float | None = None
    plus_minus: float | None = None
    bytes: int = 0
    seconds: float = 0.0


@final
class Rounds:
    """Keeps every round, then every second, every fourth, …; the last one, and the highest and the
    lowest measure, always.

    Guarantee: `add` takes constant time on average, and what is kept has at most `MOST_POINTS` + 3
        points.
    """

    def __init__(self) -> None:
        self.every = 1
        self._even: list[Point] = []
        self._count = 0
        self._last: Point | None = None
        self._lowest: Point | None = None
        self._highest: Point | None = None

    def add(self, point: Point) -> None:
        """The next round; one that was added already is left out."""
        if self._last is not None and point.round <= self._last.round:
            return
        if self._count % self.every == 0:
            self._even.append(point)
            if len(self._even) > MOST_POINTS:
                self._even, self.every = self._even[::2], 2 * self.every
        self._count += 1
        self._last = point
        self._compare(point)

    def measured(self, number: int, value: float, plus_minus: float | None) -> None:
        """What came out of the last round's model afterwards; of an earlier round nothing is
        changed.
        """
        last = self._last
        if last is None or last.round != number:
            return
        point = replace(last, value=value, plus_minus=plus_minus)
        if self._even and self._even[-1].round == number:
            self._even[-1] = point
        self._last = point
        self._compare(point)

    def _compare(self, point: Point) -> None:
        if point.value is not None:
            if self._lowest is None or point.value < (self._lowest.value or 0.0):
                self._lowest = point
            if self._highest is None or point.value > (self._highest.value or 0.0):
                self._highest = point

    def history(self) -> History:
        """What is kept, in the order of rounds."""
        ends = [point for point in (self._last, self._lowest, self._highest) if point is not None]
        by_round = {point.round: point for point in (*self._even, *ends)}
        points = [by_round[number] for number in sorted(by_round)]
        return History(
            every=self.every,
            round=tuple(point.round for point in points),
            epsilon=tuple(point.epsilon for point in points),
            value=tuple(point.value for point in points),
            plus_minus=tuple(point.plus_minus for point in points),
            bytes=tuple(point.bytes for point in points),
            seconds=tuple(point.seconds for point in points),
        )
