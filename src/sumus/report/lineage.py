"""Which run began with whose model, drawn: a row for each line of descent, left to right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

from markupsafe import Markup

from sumus.report.charts import tag

__all__ = ["Lineage", "Place", "drawn_lineage"]

_COLUMN, _ROW, _MARGIN = 110.0, 46.0, 16.0
_MOST_ROWS = 40
_LETTERS = 14
_DIGITS = 8  # that tell the names of runs apart


@final
@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a run stands.

    Args:
        row: from 0 at the top; `generation`: runs before it in its line.
    """

    name: str
    row: int
    generation: int


@final
@dataclass(frozen=True, kw_only=True)
class Lineage:
    """Runs that began with another's model, and those whose models they are.

    Guarantee: no two runs have one place; a run is right of the one that it began with, in the same
        row or below.
    """

    places: tuple[Place, ...]
    parents: Mapping[str, str]

    @classmethod
    def of(cls, names: Sequence[str], parents: Mapping[str, str]) -> Lineage:
        """Of runs in the order of time.

        Args:
            parents: name of a run → name of the one that it began with.
        """
        children: dict[str, list[str]] = {}
        for name in names:
            if name in parents:
                children.setdefault(parents[name], []).append(name)
        places: list[Place] = []
        row = 0
        for root in (name for name in names if name in children and name not in parents):
            waiting = [(root, 0, True)]
            while waiting:
                name, generation, begins = waiting.pop()
                row += not begins
                places.append(Place(name=name, row=row, generation=generation))
                below = children.get(name, [])
                # the eldest goes on in the row of its parent, so it is drawn next
                for place, child in reversed(list(enumerate(below))):
                    waiting.append((child, generation + 1, place == 0))
            row += 1
        return cls(places=tuple(places), parents=dict(parents))


def drawn_lineage(lineage: Lineage, links: Mapping[str, str]) -> tuple[Markup, int]:
    """The drawing, and how many runs there was no room for.

    Args:
        links: name of a run → where the page tells more of it.
    """
    shown = {place.name: place for place in lineage.places if place.row < _MOST_ROWS}
    parts = [
        _edge(shown[lineage.parents[name]], place)
        for name, place in shown.items()
        if name in lineage.parents
    ]
    parts += [_node(place, links[name]) for name, place in shown.items()]
    wide = (1 + max((place.generation for place in shown.values()), default=0)) * _COLUMN
    high = (1 + max((place.row for place in shown.values()), default=0)) * _ROW
    told = "; ".join(
        f"{name} began with the model of {lineage.parents[name]}"
        for name in shown
        if name in lineage.parents
    )
    drawing = tag(
        "svg",
        Markup("").join(parts),
        cls="lineage",
        viewBox=f"0 0 {wide + _MARGIN:g} {high:g}",
        width=f"{wide + _MARGIN:g}",
        height=f"{high:g}",
        role="img",
        label=f"Which run began with whose model. {told}.",
    )
    return drawing, len(lineage.places) - len(shown)


def _at(place: Place) -> tuple[float, float]:
    return _MARGIN + place.generation * _COLUMN, 14.0 + place.row * _ROW


def _edge(start: Place, end: Place) -> Markup:
    """Straight on, or down shortly before the next column, clear of the names below the dots."""
    (x, y), (to_x, to_y) = _at(start), _at(end)
    path = f"M{x:g},{y:g}L{to_x:g},{to_y:g}"
    if start.row != end.row:
        down, bend = to_x - 22.0, 12.0
        path = (
            f"M{x:g},{y:g}L{down - bend:g},{y:g}Q{down:g},{y:g} {down:g},{y + bend:g}"
            f"L{down:g},{to_y - bend:g}Q{down:g},{to_y:g} {down + bend:g},{to_y:g}L{to_x:g},{to_y:g}"
        )
    return tag("path", cls="line c7", d=path)


def _node(place: Place, link: str) -> Markup:
    x, y = _at(place)
    short = place.name if len(place.name) <= _LETTERS else f"…{place.name[-_DIGITS:]}"
    inside = Markup("").join(
        (
            tag("title", place.name),
            tag("circle", cls="dot c0", cx=f"{x:g}", cy=f"{y:g}", r="5"),
            tag("text", short, cls="tick", x=f"{x - 5:g}", y=f"{y + 19:g}"),
        )
    )
    return tag("a", inside, href=f"#{link}")
