"""Axes and numbers: ticks at round values, quantities in units people read."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from sumus.tasks import number_text, percent_text

Formatter = Callable[[float], str]

__all__ = [
    "Axis",
    "Formatter",
    "as_bytes",
    "as_number",
    "as_percent",
    "as_seconds",
    "linear_axis",
    "on_axis",
    "round_axis",
]


@final
@dataclass(frozen=True)
class Axis:
    """A straight axis: values from `low` to `high`, with ticks inside."""

    low: float
    high: float
    ticks: tuple[float, ...]

    def place(self, value: float, start: float, stop: float) -> float:
        """Where a value lies between two ends in pixels."""
        return start + (stop - start) * (value - self.low) / (self.high - self.low)


def linear_axis(
    values: list[float],
    *,
    from_zero: bool = False,
    within: tuple[float, float] | None = None,
    about: int = 5,
) -> Axis:
    """An axis that holds all values, with about so many ticks at multiples of 1, 2 or 5.

    Args:
        from_zero: the axis starts at zero.
        within: the axis never leaves this interval (a share stays between 0 and 1).
    """
    low = 0.0 if from_zero else min(values, default=0.0)
    high = max(values, default=1.0)
    size = max(abs(low), abs(high))
    if high - low <= 1e-9 * size or size < 1e-200:  # all the same: no step could tell them apart
        low, high = (
            (min(low, 0.0), max(high, 1.0))
            if from_zero or size < 1e-200
            else (low - 0.5 * size, high + 0.5 * size)
        )
    step = _step((high - low) / about)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = [index * step for index in range(first, last + 1)]
    if within is not None:
        ticks = [tick for tick in ticks if within[0] - 1e-12 <= tick <= within[1] + 1e-12] or [
            within[0],
            within[1],
        ]
    ends = (min(ticks[0], low), max(ticks[-1], high))
    return Axis(ends[0], ends[1], tuple(ticks))


def _step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return power * next(
        factor for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= rough * (1.0 - 1e-9)
    )


def round_axis(last: int, *, about: int = 8) -> Axis:
    """The axis of rounds 1…last, with ticks at whole rounds."""
    step = max(1, math.ceil(_step(max(last, 2) / about)))
    ticks = [1, *(number for number in range(step, last + 1, step) if number > 1)]
    return Axis(1.0, float(max(last, 2)), tuple(map(float, ticks)))


def as_number(value: float, plus_minus: float | None = None) -> str:
    """Up to four significant digits, and no more than a half-width bears."""
    if plus_minus is not None:
        return number_text(value, plus_minus)
    if not math.isfinite(value):
        return {math.inf: "∞", -math.inf: "−∞"}.get(value, "NaN")
    if value != 0.0 and not 1e-3 <= abs(value) < 1e6:
        return f"{value:.3g}"
    return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def as_percent(value: float, plus_minus: float | None = None) -> str:
    """A share in per cent: one decimal, or what its half-width bears."""
    return (
        percent_text(value, plus_minus).replace("%", "\u00a0%")
        if math.isfinite(value)
        else as_number(value)
    )


def as_seconds(value: float) -> str:
    """A duration in the unit that suits it."""
    if value < 1e-3:
        return f"{value * 1e6:.0f}\u00a0µs"
    if value < 1.0:
        return f"{value * 1e3:.3g}\u00a0ms"
    if value < 120.0:
        return f"{value:.3g}\u00a0s"
    return f"{value / 60.0:.3g}\u00a0min" if value < 7200.0 else f"{value / 3600.0:.3g}\u00a0h"


def as_bytes(value: float) -> str:
    """A size in the unit that suits it, powers of ten."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(value) < 999.5:
            return f"{value:.3g}\u00a0{unit}"
        value /= 1000.0
    return f"{value:,.3g}\u00a0TB"


def on_axis(value: float, formatter: Formatter) -> str:
    """The same quantity beside a tick, without the decimals that a round number does not need."""
    return "0" if value == 0.0 else formatter(value).replace(".0\u00a0", "\u00a0")
