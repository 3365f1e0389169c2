"""Draws docs/figures/house.svg: every room of the package, and whom it imports.

    python docs/gen_map.py

Read off the sources, so the picture cannot be older than the code; a test compares the two.
An arrow that follows from two others is left out.
"""

from __future__ import annotations

import ast
from functools import cache
from html import escape
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "sumus"
FIGURE = Path(__file__).parent / "figures" / "house.svg"
EVERYBODY = {"errors", "randomness", "files"}  # may be imported from everywhere: no arrows drawn
WIDTH, BOX_WIDTH, BOX_HEIGHT, ROW = 1100, 176, 74, 122
LETTERS = 27  # of a line in a box


def arrows() -> dict[str, set[str]]:
    """For every room the rooms that it imports, at run time and through their doors."""
    rooms = {path.parent.name: set[str]() for path in SOURCE.glob("*/__init__.py")}
    for room in rooms:
        for path in (SOURCE / room).rglob("*.py"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            for node in _at_run_time(tree):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sumus."):
                    rooms[room].add((node.module or "").split(".")[1])
        rooms[room] -= {room, *EVERYBODY}
    return {room: targets for room, targets in rooms.items() if room not in EVERYBODY}


def _at_run_time(tree: ast.Module) -> list[ast.AST]:
    """All nodes but those that only type checkers see."""
    typed = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    return [node for node in ast.walk(tree) if id(node) not in typed]


def first_sentence(room: str) -> str:
    """What the room says is inside, up to its first full stop or colon."""
    tree = ast.parse((SOURCE / room / "__init__.py").read_text(encoding="utf-8"))
    text = " ".join((ast.get_docstring(tree) or "").split("\n\n")[0].split())
    return text.split(". ")[0].removesuffix(".").replace("`", "").replace("*", "")


def direct(rooms: dict[str, set[str]]) -> dict[str, set[str]]:
    """The arrows that do not follow from two others."""

    @cache
    def below(room: str) -> frozenset[str]:
        reached = set(rooms[room])
        for target in rooms[room]:
            reached |= below(target)
        return frozenset(reached)

    return {
        room: {
            target
            for target in targets
            if not any(target in below(other) for other in targets - {target})
        }
        for room, targets in rooms.items()
    }


def levels(rooms: dict[str, set[str]]) -> list[list[str]]:
    """Rooms in rows, each above everything that it imports, the lowest row first."""

    @cache
    def level(room: str) -> int:
        return 1 + max((level(target) for target in rooms[room]), default=-1)

    rows: dict[int, list[str]] = {}
    for room in sorted(rooms):
        rows.setdefault(level(room), []).append(room)
    return [rows[number] for number in sorted(rows)]


def draw() -> str:
    """The picture, the same text for the same sources."""
    rooms = arrows()
    rows, lines = levels(rooms), direct(rooms)
    height = ROW * len(rows) + 40
    places: dict[str, tuple[float, float]] = {}
    for number, row in enumerate(rows):
        y = height - 20 - BOX_HEIGHT - number * ROW
        gap = (WIDTH - len(row) * BOX_WIDTH) / (len(row) + 1)
        for place, room in enumerate(_above_their_targets(row, lines, places)):
            places[room] = (gap + place * (BOX_WIDTH + gap), y)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="DejaVu Sans, sans-serif" role="img" aria-label="Rooms of Sumus">',
        "<title>Rooms of Sumus: a room imports what its lines lead down to</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for room in sorted(lines):
        for target in sorted(lines[room]):
            parts.append(_line(places[room], places[target]))
    for room in sorted(places):
        parts += _box(room, *places[room])
    return "\n".join([*parts, "</svg>"]) + "\n"


def _above_their_targets(
    row: list[str], lines: dict[str, set[str]], places: dict[str, tuple[float, float]]
) -> list[str]:
    """A row in an order in which few lines cross: by the mean place of what a room imports."""

    def mean_place(room: str) -> float:
        left = [places[target][0] for target in lines[room]]
        return sum(left) / len(left) if left else 0.0

    return sorted(row, key=mean_place)


def _line(upper: tuple[float, float], lower: tuple[float, float]) -> str:
    x0, y0 = upper[0] + BOX_WIDTH / 2, upper[1] + BOX_HEIGHT
    x1, y1 = lower[0] + BOX_WIDTH / 2, lower[1]
    path = f"M{x0:g},{y0:g} C{x0:g},{y0 + 40:g} {x1:g},{y1 - 40:g} {x1:g},{y1:g}"
    return f'<path d="{path}" fill="none" stroke="#94a3b8" stroke-width="1.4"/>'


def _box(room: str, x: float, y: float) -> list[str]:
    fill = "#dcfce7" if room == "parties" else "#f1f5f9"
    rows, line = [], ""
    for word in first_sentence(room).split():
        if len(line) + len(word) + 1 > LETTERS:
            rows.append(line)
            line = ""
        line = f"{line} {word}".strip()
    rows.append(line)
    if len(rows) > 3:
        rows = [*rows[:2], rows[2] + " …"]
    texts = [
        f'<text x="{x + BOX_WIDTH / 2:g}" y="{y + 34 + 14 * number:g}" font-size="10.5" '
        f'fill="#475569" text-anchor="middle">{escape(text)}</text>'
        for number, text in enumerate(rows)
    ]
    return [
        f'<rect x="{x:g}" y="{y:g}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="7" '
        f'fill="{fill}" stroke="#64748b"/>',
        f'<text x="{x + BOX_WIDTH / 2:g}" y="{y + 18:g}" font-size="14" font-weight="bold" '
        f'fill="#0f172a" text-anchor="middle">{room}</text>',
        *texts,
    ]


if __name__ == "__main__":
    FIGURE.write_text(draw(), encoding="utf-8")
