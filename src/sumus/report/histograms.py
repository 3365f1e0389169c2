"""Histograms as inline SVG: a bar for every cell, and whiskers as long as its noise.

Readable without colour and without script: every bar has its name and count as a title, and the page
has the same numbers as a table.
"""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup, escape

from sumus.report.scales import as_number, linear_axis, on_axis

__all__ = ["histogram"]

_WIDTH, _HEIGHT = 460.0, 210.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 54.0, 12.0, 10.0, 40.0
_ASIDE, _GAP = 34.0, 22.0  # width of a bar that stands aside, and the gap before it
_FEW = 12
"""Cells that have room for a name each."""


def histogram(
    cells: Sequence[tuple[str, float]],
    *,
    plus_minus: float,
    label: str,
    ticks: Sequence[tuple[float, str]] = (),
    aside: int = 0,
    whiskers: Sequence[tuple[float, float]] = (),
) -> Markup:
    """Bars with whiskers.

    Args:
        cells: (name, noisy count).
        plus_minus: half of a whisker.
        label: what the chart shows, for readers who cannot see it.
        ticks: (place among the cells, text) below the axis; none: every cell's own name.
        aside: cells at the end that are no part of the scale, such as missing values.
        whiskers: (low, high) of every cell, where they differ.
    """
    counts = [count for _, count in cells]
    ends = whiskers or [(count - plus_minus, count + plus_minus) for count in counts]
    axis = linear_axis(
        [*(high for _, high in ends), *(min(count, 0.0) for count in counts)], from_zero=False
    )
    parts: list[Markup] = []

    def up(value: float) -> float:
        return axis.place(value, _HEIGHT - _BOTTOM, _TOP)

    def across(place: float) -> float:
        inside = len(cells) - aside
        if place > inside or (place == inside and not aside):
            return _WIDTH - _RIGHT - (len(cells) - place) * _ASIDE
        return _LEFT + (_WIDTH - _LEFT - _RIGHT - aside * (_ASIDE + _GAP)) * place / max(inside, 1)

    def width(place: int) -> float:
        return _ASIDE if place >= len(cells) - aside else across(place + 1.0) - across(place)

    for tick in axis.ticks:
        parts.append(
            _tag("line", cls="grid", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=up(tick), y2=up(tick))
        )
        parts.append(
            _tag(
                "text",
                on_axis(tick, as_number),
                cls="tick",
                x=_LEFT - 8,
                y=up(tick) + 4,
                anchor="end",
            )
        )
    for place, (name, count) in enumerate(cells):
        outside = place >= len(cells) - aside
        left, step = across(place + (1e-9 if outside else 0.0)), width(place)
        zero, top = up(0.0), up(count)
        half = max(ends[place][1] - count, count - ends[place][0])
        title = Markup("<title>{}: {} ± {}</title>").format(
            name, as_number(float(f"{count:.3g}")), as_number(float(f"{half:.2g}"))
        )
        parts.append(
            _tag(
                "rect",
                title,
                cls=f"fill c{7 if outside else 0}",
                x=left + 0.08 * step,
                y=min(top, zero),
                width=max(0.84 * step, 0.5),
                height=abs(zero - top),
            )
        )
        middle = left + step / 2.0
        parts.append(
            _tag(
                "line",
                cls="whisker",
                x1=middle,
                x2=middle,
                y1=up(ends[place][1]),
                y2=up(ends[place][0]),
            )
        )
    base = up(0.0)
    parts.append(_tag("line", cls="axis", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=base, y2=base))
    named = [(place + 0.5, name) for place, (name, _) in enumerate(cells)]
    shown = [*ticks, *(named[len(cells) - aside :] if ticks and aside else ())] or _few(named)
    for tick_place, text in shown:
        parts.append(
            _tag(
                "text",
                _short_name(text),
                cls="tick",
                x=across(tick_place),
                y=_HEIGHT - _BOTTOM + 16,
                anchor="middle",
            )
        )
    box = f"0 0 {_WIDTH:g} {_HEIGHT:g}"
    told = f"{label}. {_spoken(cells)}."
    return _tag("svg", Markup("").join(parts), cls="chart", viewBox=box, role="img", label=told)


def _spoken(cells: Sequence[tuple[str, float]]) -> str:
    """The largest cells, or all of a few."""
    if len(cells) <= _FEW // 2:
        kept, word = list(cells), "Cells"
    else:
        kept, word = sorted(cells, key=lambda cell: -cell[1])[:3], "Largest"
    return f"{word}: " + ", ".join(
        f"{name} with {as_number(float(f'{count:.3g}'))}" for name, count in kept
    )


def _few(named: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """Every name, or every so many of them."""
    every = -(-len(named) // _FEW)
    return [pair for index, pair in enumerate(named) if index % every == 0]


def _short_name(text: str) -> str:
    return text if len(text) <= 14 else f"{text[:13]}…"


_NAMES = {"cls": "class", "anchor": "text-anchor", "label": "aria-label"}


def _tag(name: str, content: str = "", **attributes: object) -> Markup:
    """One element; content and attributes are escaped unless they are markup already."""
    pairs = Markup("").join(
        Markup(' {}="{}"').format(
            _NAMES.get(key, key), f"{value:.1f}" if isinstance(value, float) else value
        )
        for key, value in attributes.items()
    )
    return Markup("<{}{}>{}</{}>").format(name, pairs, escape(content), name)
