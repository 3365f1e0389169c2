"""A ledger as bars: what each run has spent, and where the sum stands against its limit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sumus.books import Ledger, Step, limit_of, rounded_up, steps_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["BLOCKS", "LETTERS", "bars", "draw_ledger"]

_WIDTH: Final = 40
BLOCKS: Final = ("█", "▒", "·")
"""By the run, before it, not yet."""
LETTERS: Final = ("#", "=", ".")
"""The same where there are no blocks."""


def bars(
    steps: Sequence[Step],
    limit: float,
    *,
    width: int = _WIDTH,
    drawn: tuple[str, str, str] = BLOCKS,
) -> list[str]:
    """A line for each run: what was spent before it, and by it; the last place is the limit or the
    sum, whichever is more.
    """
    filled, earlier, empty = drawn
    finite = [step.after for step in steps if math.isfinite(step.after)]
    most = max([*finite, limit if math.isfinite(limit) else 0.0, 1e-12])
    lines = []
    for step in steps:
        if not math.isfinite(step.after):
            lines.append(f"{filled * width} no bound")
            continue
        start, end = (round(width * value / most) for value in (step.before, step.after))
        end = max(end, start + 1) if step.spent > 0.0 else end
        start = min(start, width - 1)
        line = earlier * start + filled * (min(end, width) - start)
        lines.append(f"{line.ljust(width, empty)} {rounded_up(step.after)}")
    return lines


def draw_ledger(ledger: Ledger, unit: str, folder: Path) -> list[Path]:
    """The same as PNG and SVG."""
    from sumus.report import save

    steps, limit = steps_of(ledger, unit), limit_of(ledger)
    name = ledger.path.stem if unit == "record" else f"{ledger.path.stem}-{unit}"
    return save(folder, name, lambda: _figure(ledger.dataset, unit, steps, limit))


def _figure(dataset: str, unit: str, steps: Sequence[Step], limit: float) -> Figure:
    from sumus.report import INK, SOFT, plain_figure, tidy

    figure = plain_figure(8.0, 1.6 + 0.32 * len(steps))
    axes = tidy(figure.subplots())
    shown = [step for step in steps if math.isfinite(step.after)]
    names = [step.run if len(step.run) <= 34 else f"{step.run[:33]}…" for step in shown]
    places = range(len(shown))
    axes.barh(places, [step.before for step in shown], color="#d1d5db", label="before")
    axes.barh(
        places,
        [step.spent for step in shown],
        left=[step.before for step in shown],
        color="#1d4ed8",
        label="by the run",
    )
    for place, step in zip(places, shown, strict=True):
        axes.text(
            step.after, place, f" {rounded_up(step.after)}", va="center", color=SOFT, fontsize=9
        )
    if math.isfinite(limit):
        axes.axvline(limit, color="#b91c1c", linestyle="--", linewidth=1.2)
        axes.text(
            limit,
            -0.75,
            f"limit {limit:g} ",
            color="#b91c1c",
            ha="right",
            va="center",
            fontsize=9,
        )
    axes.set_ylim(len(shown) - 0.4, -1.1)
    axes.set_yticks(list(places), names)
    axes.grid(visible=False, axis="y")
    top = max([*(step.after for step in shown), limit if math.isfinite(limit) else 0.0])
    axes.set_xlim(0.0, 1.12 * max(top, 1e-12))
    axes.set_xlabel(f"ε of one {unit}, simple addition over runs")
    hidden = len(steps) - len(shown)
    more = f"; {hidden} without a bound are not drawn" if hidden else ""
    axes.set_title(
        f"What {dataset} has spent, run by run{more}", loc="left", color=INK, fontsize=11
    )
    if shown:
        figure.legend(frameon=False, loc="outside upper right", ncols=2, fontsize=9)
    return figure
