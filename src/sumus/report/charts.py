"""Charts as inline SVG: lines, bands and stacked bars over rounds. No script is needed to read
them; each says in words what it shows, and pointing at it, or the arrow keys, show the values.

Every text goes through `escape`; colours are classes that the page's style sheet resolves for
light, dark and paper.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import final

from markupsafe import Markup, escape

from sumus.report.scales import Axis, Formatter, linear_axis, on_axis, round_axis
from sumus.report.spoken import drawn_rounds, spoken_bars, spoken_curve, spoken_lines

__all__ = [
    "Dot",
    "Drawing",
    "Line",
    "axes",
    "bar_chart",
    "curve_chart",
    "finished",
    "limit_line",
    "line_chart",
    "short",
    "tag",
]

_WIDTH, _HEIGHT = 460.0, 250.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 62.0, 14.0, 12.0, 34.0


@final
@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a chart, with an optional band around it.

    Args:
        points: (round, value); values that are not finite are left out.
        colour: index into the page's palette.
        band: (round, low, high).
        dashed: drawn dashed, for what was expected rather than measured.
    """

    name: str
    points: Sequence[tuple[float, float]]
    colour: int = 0
    band: Sequence[tuple[float, float, float]] = ()
    dashed: bool = False


@final
@dataclass(frozen=True, kw_only=True)
class Dot:
    """A point with a whisker up and down.

    Args:
        size: radius.
    """

    x: float
    y: float
    plus_minus: float
    size: float


@final
@dataclass
class Drawing:
    """SVG elements, and what the pointer shows: one column per round."""

    x: Axis
    y: Axis
    parts: list[Markup] = field(default_factory=list)

    def across(self, value: float) -> float:
        return self.x.place(value, _LEFT, _WIDTH - _RIGHT)

    def up(self, value: float) -> float:
        return self.y.place(value, _HEIGHT - _BOTTOM, _TOP)

    def add(self, name: str, content: str = "", **attributes: object) -> None:
        self.parts.append(tag(name, content, **attributes))


def line_chart(
    lines: Sequence[Line],
    *,
    label: str,
    formatter: Formatter,
    from_zero: bool = False,
    within: tuple[float, float] | None = None,
    limit: tuple[float, str] | None = None,
) -> Markup:
    """Lines over rounds.

    Args:
        label: what the chart shows, for readers who cannot see it.
        limit: a value that must not be exceeded, drawn across, with its name.
    """
    finite = [[(x, y) for x, y in line.points if math.isfinite(y)] for line in lines]
    drawn, every = drawn_rounds(finite)
    kept = [
        (_thinned(line, drawn), [(x, y) for x, y in points if x in drawn])
        for line, points in zip(lines, finite, strict=True)
    ]
    values = [y for _, points in kept for _, y in points] + [
        v for line, _ in kept for _, *both in line.band for v in both if math.isfinite(v)
    ]
    last = max((int(x) for line, points in kept for x, _ in points), default=1)
    drawing = Drawing(
        round_axis(last),
        linear_axis([*values, *([limit[0]] if limit else [])], from_zero=from_zero, within=within),
    )
    axes(drawing, formatter, name=_rounds_name(every))
    for line, _ in kept:
        _band(drawing, line)
    if limit is not None:
        limit_line(drawing, *limit)
    for line, points in kept:
        _line(drawing, line, points)
    shown = {
        x: [(line.name, line.colour, dict(points).get(x)) for line, points in kept]
        for x in sorted({x for _, p in kept for x, _ in p})
    }
    told = spoken_lines([(line.name, points) for line, points in kept], formatter)
    return finished(
        drawing,
        f"{label}. {told}.",
        [
            (x, f"{x:g}", [(n, c, formatter(v)) for n, c, v in rows if v is not None])
            for x, rows in shown.items()
        ],
    )


def curve_chart(
    lines: Sequence[Line],
    *,
    label: str,
    names: tuple[str, str],
    dots: Sequence[Dot] = (),
    top: float = 1.0,
) -> Markup:
    """One share over another, with the diagonal.

    Args:
        label: what the chart shows, for readers who cannot see it.
        names: of the two axes, across and up.
        top: the largest share that must be seen.
    """
    end = next((end for end in (0.05, 0.1, 0.2, 0.5) if top <= end), 1.0)
    axis = Axis(0.0, end, tuple(end * step / 5.0 for step in range(6)))
    drawing = Drawing(axis, axis)
    axes(drawing, lambda value: f"{value:.3g}", name=names[0])
    drawing.add("text", names[1], cls="name", x=_LEFT + 6, y=_TOP + 8, anchor="start")
    path = f"M{short(drawing.across(0))},{short(drawing.up(0))}"
    path += f"L{short(drawing.across(end))},{short(drawing.up(end))}"
    drawing.add("path", cls="line c7 dashed", d=path)
    for line in lines:
        placed = [f"{short(drawing.across(x))},{short(drawing.up(y))}" for x, y in line.points]
        drawing.add("path", cls=f"line c{line.colour % 8}", d="M" + "L".join(placed))
    for dot in dots:
        x = short(drawing.across(dot.x))
        low, high = max(dot.y - dot.plus_minus, 0.0), min(dot.y + dot.plus_minus, end)
        ends = {"y1": short(drawing.up(low)), "y2": short(drawing.up(high))}
        drawing.add("line", cls="whisker", x1=x, x2=x, **ends)
        drawing.add("circle", cls="dot c0", cx=x, cy=short(drawing.up(dot.y)), r=short(dot.size))
    told = [spoken_curve(line.points, names) for line in lines]
    told += [spoken_curve([(dot.x, dot.y) for dot in dots], names)] if dots else []
    return finished(drawing, f"{label}. {'; '.join(told)}.", [])


def bar_chart(
    rounds: Sequence[int],
    stacks: Mapping[str, Sequence[float]],
    *,
    label: str,
    formatter: Formatter,
) -> Markup:
    """Stacked bars, one per round; each part is a named list of values."""
    told = f"{label}. {spoken_bars(rounds, stacks, formatter)}."
    drawn, every = drawn_rounds([[(float(number), 0.0) for number in rounds]])
    places = [place for place, number in enumerate(rounds) if number in drawn]
    rounds = [rounds[place] for place in places]
    stacks = {name: [part[place] for place in places] for name, part in stacks.items()}
    totals = [math.fsum(part[index] for part in stacks.values()) for index in range(len(rounds))]
    axis = round_axis(max(rounds, default=1))
    drawing = Drawing(
        Axis(axis.low - 0.6, axis.high + 0.6, axis.ticks), linear_axis(totals, from_zero=True)
    )
    axes(drawing, formatter, name=_rounds_name(every))
    width = min(26.0, 0.76 * every * (_WIDTH - _LEFT - _RIGHT) / (drawing.x.high - drawing.x.low))
    for index, number in enumerate(rounds):
        reached = 0.0
        for colour, part in enumerate(stacks.values()):
            top, bottom = drawing.up(reached + part[index]), drawing.up(reached)
            left = drawing.across(number) - width / 2
            size = {
                "x": short(left),
                "y": short(top),
                "width": short(width),
                "height": short(max(bottom - top, 0.0)),
            }
            drawing.add("rect", cls=f"fill c{colour % 8}", **size)
            reached += part[index]
    shown = [
        (
            float(number),
            f"{number:g}",
            [
                (name, colour % 8, formatter(part[index]))
                for colour, (name, part) in enumerate(stacks.items())
            ],
        )
        for index, number in enumerate(rounds)
    ]
    return finished(drawing, told, shown)


def _thinned(line: Line, drawn: set[float]) -> Line:
    return replace(line, band=[each for each in line.band if each[0] in drawn])


def _rounds_name(every: int) -> str:
    return "round" if every == 1 else f"round (1 in {every} drawn)"


def axes(
    drawing: Drawing,
    formatter: Formatter,
    *,
    name: str = "round",
    across: Formatter = lambda tick: f"{tick:g}",
) -> None:
    """Both axes with their ticks.

    Args:
        formatter: of ticks upwards; `across`: of those along.
        name: of the axis along.
    """
    for tick in drawing.y.ticks:
        height = short(drawing.up(tick))
        drawing.add("line", cls="grid", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=height, y2=height)
        drawing.add(
            "text",
            on_axis(tick, formatter),
            cls="tick",
            x=_LEFT - 8,
            y=short(drawing.up(tick) + 4),
            anchor="end",
        )
    base = _HEIGHT - _BOTTOM
    drawing.add("line", cls="axis", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=base, y2=base)
    for tick in drawing.x.ticks:
        drawing.add(
            "text",
            across(tick),
            cls="tick",
            x=short(drawing.across(tick)),
            y=base + 16,
            anchor="middle",
        )
    drawing.add("text", name, cls="name", x=_WIDTH - _RIGHT, y=_HEIGHT - 3, anchor="end")


def _line(drawing: Drawing, line: Line, points: list[tuple[float, float]]) -> None:
    placed = [(drawing.across(x), drawing.up(y)) for x, y in points]
    path = "M" + "L".join(f"{short(x)},{short(y)}" for x, y in placed) if placed else "M0,0"
    drawing.add("path", cls=f"line c{line.colour % 8}" + (" dashed" if line.dashed else ""), d=path)
    for x, y in placed if len(placed) <= 40 and not line.dashed else placed[-1:]:
        drawing.add("circle", cls=f"dot c{line.colour % 8}", cx=short(x), cy=short(y), r=2.6)


def _band(drawing: Drawing, line: Line) -> None:
    finite = [
        (x, low, high) for x, low, high in line.band if math.isfinite(low) and math.isfinite(high)
    ]
    if len(finite) < 2:
        return
    there = [f"{short(drawing.across(x))},{short(drawing.up(high))}" for x, _, high in finite]
    back = [
        f"{short(drawing.across(x))},{short(drawing.up(low))}" for x, low, _ in reversed(finite)
    ]
    drawing.add("path", cls=f"band c{line.colour % 8}", d="M" + "L".join([*there, *back]) + "Z")


def limit_line(drawing: Drawing, value: float, name: str) -> None:
    height = drawing.up(value)
    drawing.add(
        "line", cls="limit", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=short(height), y2=short(height)
    )
    below = height - _TOP < 14.0
    drawing.add(
        "text",
        name,
        cls="limit-name",
        x=_LEFT + 4,
        y=short(height + (14.0 if below else -5.0)),
        anchor="start",
    )


def finished(
    drawing: Drawing,
    label: str,
    columns: Sequence[tuple[float, str, Sequence[tuple[str, int, str]]]],
    *,
    heading: str = "round ",
) -> Markup:
    """The whole SVG; what the pointer shows travels in an attribute, escaped like every other.

    Args:
        columns: (place, what it is called, its values: name, colour, text).
        heading: in front of what a column is called.
    """
    drawing.add("line", cls="cursor", x1=0, x2=0, y1=_TOP, y2=_HEIGHT - _BOTTOM)
    reachable = {"values": _values(drawing, columns, heading), "tabindex": 0} if columns else {}
    inside = Markup("").join(drawing.parts)
    box = f"0 0 {_WIDTH:g} {_HEIGHT:g}"
    return tag("svg", inside, cls="chart", viewBox=box, role="img", label=label, **reachable)


def _values(
    drawing: Drawing,
    columns: Sequence[tuple[float, str, Sequence[tuple[str, int, str]]]],
    heading: str,
) -> str:
    """Names and colours once, then place, name and values of every column; null where a line has
    none.
    """
    names = list(dict.fromkeys((name, colour) for *_, rows in columns for name, colour, _ in rows))
    placed = []
    for x, called, rows in columns:
        told = {(name, colour): value for name, colour, value in rows}
        values = [told.get(name) for name in names]
        placed.append([round(drawing.across(x), 1), called, *values])
    both = {"names": names, "columns": placed}
    return json.dumps(
        both if heading == "round " else both | {"heading": heading},
        ensure_ascii=False,
        separators=(",", ":"),
    )


_NAMES = {"cls": "class", "anchor": "text-anchor", "label": "aria-label", "values": "data-values"}


def tag(name: str, content: str = "", **attributes: object) -> Markup:
    """One element; content and attributes are escaped unless they are markup already."""
    pairs = Markup("").join(
        Markup(' {}="{}"').format(_NAMES.get(key, key), value) for key, value in attributes.items()
    )
    return Markup("<{}{}>{}</{}>").format(name, pairs, escape(content), name)


def short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
