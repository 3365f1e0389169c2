"""The one style for plots that are files: PNG and SVG, the same bytes for the same numbers."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["GRID", "INK", "blank_figure", "save"]

INK, GRID = "#1f2937", "#e5e7eb"
_LETTERS_AN_INCH = 11.5  # of a title


def save(folder: Path, name: str, draw: Callable[[], Figure]) -> list[Path]:
    """Draw and write a figure as PNG and SVG, the same bytes for the same numbers."""
    import matplotlib as mpl

    mpl.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with mpl.rc_context(
        {
            "font.family": "DejaVu Sans",
            "font.size": 10,
            "svg.fonttype": "path",
            "svg.hashsalt": "sumus",
        }
    ):
        figure = draw()
        for suffix in ("png", "svg"):
            path = folder / f"{name}.{suffix}"
            figure.savefig(path, dpi=150, metadata={"Date": None} if suffix == "svg" else None)
            written.append(path)
    return written


def blank_figure(title: str, panels: int) -> tuple[Figure, tuple[Axes, ...]]:
    from matplotlib.figure import Figure

    width = 5.6 * panels if panels > 1 else 7.0
    figure = Figure(figsize=(width, 5.6), layout="constrained")
    figure.suptitle(
        textwrap.fill(title, int(_LETTERS_AN_INCH * width)),
        color=INK,
        fontsize=11,
        x=0.01,
        ha="left",
    )
    row = figure.subplots(1, panels, squeeze=False)[0]
    for axes in row:
        axes.grid(color=GRID, linewidth=0.8)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_axisbelow(True)
    return figure, tuple(row)
