"""What a chart shows, in a sentence for somebody who does not see it; and how many points of a long
run are drawn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from sumus.report.scales import Formatter

__all__ = ["MOST_POINTS", "drawn_rounds", "spoken_bars", "spoken_curve", "spoken_lines"]

MOST_POINTS = 200
"""Rounds that a chart draws about, however many there are."""
_MOST_SPOKEN = 6

Points = Sequence[tuple[float, float]]


def drawn_rounds(lines: Sequence[Points]) -> tuple[set[float], int]:
    """The rounds that are drawn, and every how many: the last, and each line's extremes, always
    are.
    """
    rounds = sorted({x for points in lines for x, _ in points})
    every = max(1, math.ceil(len(rounds) / MOST_POINTS))
    kept = set(rounds[::-1][::every]) | set(rounds[:1])
    for points in lines if every > 1 else ():
        if points:
            kept |= {min(points, key=_height)[0], max(points, key=_height)[0]}
    return kept, every


def spoken_lines(lines: Sequence[tuple[str, Points]], formatter: Formatter) -> str:
    """Where each line begins, ends and turns."""
    said = []
    for name, points in lines[:_MOST_SPOKEN]:
        if not points:
            continue
        (first, begin), (last, end) = points[0], points[-1]
        low, high = min(points, key=_height), max(points, key=_height)
        text = f"{formatter(end)} in round {last:g}"
        if last > first:
            text = f"from {formatter(begin)} in round {first:g} to {text}"
        ends = {first, last}
        turns = [
            f"{word} {formatter(value)} in round {at:g}"
            for word, (at, value) in (("lowest", low), ("highest", high))
            if at not in ends
        ]
        said.append(f"{name}: {', '.join([text, *turns])}")
    return "; ".join([*said, *_left_out(len(lines))])


def spoken_bars(
    rounds: Sequence[int], stacks: Mapping[str, Sequence[float]], formatter: Formatter
) -> str:
    """What a round takes on average, by part."""
    if not rounds:
        return "no round"
    said = [
        f"{name} {formatter(math.fsum(part) / len(rounds))}"
        for name, part in list(stacks.items())[:_MOST_SPOKEN]
    ]
    return f"mean of {len(rounds)} rounds: " + ", ".join([*said, *_left_out(len(stacks))])


def spoken_curve(points: Points, names: tuple[str, str]) -> str:
    """A few points of a curve.

    Args:
        names: of the two axes.
    """
    step = max(1, math.ceil(len(points) / _MOST_SPOKEN))
    kept = points[::step]
    return "; ".join(f"{100.0 * x:.3g} % {names[0]}: {100.0 * y:.3g} % {names[1]}" for x, y in kept)


def _height(point: tuple[float, float]) -> float:
    return point[1]


def _left_out(count: int) -> list[str]:
    return [f"and {count - _MOST_SPOKEN} more"] if count > _MOST_SPOKEN else []
