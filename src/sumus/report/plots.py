"""The one style for plots that are files: PNG and SVG, the same bytes for the same numbers.

Matplotlib is loaded here and nowhere else: whoever draws gets a figure from this module, and hands
a function that draws to `save`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sumus.errors import PlanError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "GRID",
    "INK",
    "SOFT",
    "blank_figure",
    "colour_scale",
    "plain_figure",
    "save",
    "tidy",
    "whole_numbers",
]

INK = "#1f2937"
SOFT = "#4b5563"
GRID = "#e5e7eb"
_LETTERS_AN_INCH = 11.5  # of a title


def save(folder: Path, name: str, draw: Callable[[], Figure]) -> list[Path]:
    """Draw and write a figure as PNG and SVG, the same bytes for the same numbers."""
    try:
        import matplotlib as mpl
    except ModuleNotFoundError:
        raise PlanError(
            "--plot", str(folder), "needs matplotlib", "Run: pip install 'sumus[report]'"
        ) from None
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


def plain_figure(width: float, height: float, *, constrained: bool = True) -> Figure:
    """An empty figure, inches; `constrained`: its panels are laid out so that no text is cut."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained" if constrained else None)


def blank_figure(title: str, panels: int) -> tuple[Figure, tuple[Axes, ...]]:
    """A figure with a title and panels side by side."""
    width = 5.6 * panels if panels > 1 else 7.0
    figure = plain_figure(width, 5.6)
    figure.suptitle(
        textwrap.fill(title, int(_LETTERS_AN_INCH * width)),
        color=INK,
        fontsize=11,
        x=0.01,
        ha="left",
    )
    return figure, tuple(map(tidy, figure.subplots(1, panels, squeeze=False)[0]))


def tidy(axes: Axes) -> Axes:
    """The same axes with a light grid behind the lines and no frame."""
    axes.grid(color=GRID, linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)
    return axes


def whole_numbers(axes: Axes) -> None:
    """Ticks of the horizontal axis at whole numbers only."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def colour_scale(low: float, high: float) -> Any:
    """A scale that `figure.colorbar` shows and whose `to_rgba` colours a value."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    return ScalarMappable(norm=Normalize(low, high), cmap="viridis")
