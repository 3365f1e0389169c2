"""A sum over time as inline SVG: steps up, and the limit that it must stay below."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from markupsafe import Markup

from sumus.report.charts import Drawing, axes, finished, limit_line, short
from sumus.report.scales import Axis, Formatter, linear_axis

__all__ = ["step_chart", "time_axis"]

_MOST_DOTS = 60
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 180, 365, 730)  # days between ticks


def step_chart(
    points: Sequence[tuple[str, float, str]],
    *,
    label: str,
    formatter: Formatter,
    limit: tuple[float, str] | None = None,
) -> Markup:
    """A line that rises at every point and stays there until the next.

    Args:
        points: (when in ISO 8601, value from then on, name), oldest first.
        label: what the chart shows, for readers who cannot see it.
        limit: a value that must not be exceeded, drawn across, with its name.
    """
    placed = [(_seconds(when), value, name) for when, value, name in points if math.isfinite(value)]
    across, tick_text = time_axis([moment for moment, _, _ in placed])
    reached = [value for _, value, _ in placed]
    drawing = Drawing(
        across, linear_axis([*reached, *([limit[0]] if limit else [])], from_zero=True)
    )
    axes(drawing, formatter, name="", across=tick_text)
    if limit is not None:
        limit_line(drawing, *limit)
    path, last = "", drawing.up(0.0)
    for moment, value, _ in placed:
        x, y = short(drawing.across(moment)), drawing.up(value)
        path += f"{'L' if path else 'M'}{x},{short(last)}L{x},{short(y)}"
        last = y
    if placed:
        path += f"L{short(drawing.across(across.high))},{short(last)}"
        drawing.add("path", cls="line c0", d=path)
    dotted = placed if len(placed) <= _MOST_DOTS else placed[-1:]
    for moment, value, _ in dotted:
        place = {"cx": short(drawing.across(moment)), "cy": short(drawing.up(value))}
        drawing.add("circle", cls="dot c0", r=2.6, **place)
    told = f"From 0 to {formatter(reached[-1])} in {len(placed)} runs" if placed else "No run yet"
    beside = f", limit {formatter(limit[0])}" if limit else ""
    columns = [
        (moment, _day(moment), [("sum", 0, f"{formatter(value)} with {name}")])
        for moment, value, name in placed
    ]
    return finished(drawing, f"{label}. {told}{beside}.", columns, heading="")


def time_axis(moments: Sequence[float]) -> tuple[Axis, Formatter]:
    """An axis from before the first moment to after the last, with ticks at whole days, and how a
    tick reads.
    """
    low = min(moments, default=0.0)
    high = max(moments, default=86400.0)
    if high - low < 3 * 86400.0:  # a few days at most: the hour tells them apart
        middle = (low + high) / 2.0
        room = max(high - low, 600.0)
        low, high = middle - 0.55 * room, middle + 0.55 * room
        ticks = tuple(low + (high - low) * share for share in (0.1, 0.5, 0.9))
        return Axis(low, high, ticks), lambda moment: f"{_moment(moment):%m-%d %H:%M}"
    days = (high - low) / 86400.0
    step = next((step for step in _STEPS if days / step <= 6.0), math.ceil(days / 6.0))
    first = _moment(low).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    ticks_at = []
    while first.timestamp() <= high:
        ticks_at.append(first.timestamp())
        first += timedelta(days=step)
    margin = 0.02 * (high - low)
    return Axis(low - margin, high + margin, tuple(ticks_at)), _day


def _seconds(when: str) -> float:
    return datetime.fromisoformat(when).timestamp()


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _day(seconds: float) -> str:
    return f"{_moment(seconds):%Y-%m-%d}"
