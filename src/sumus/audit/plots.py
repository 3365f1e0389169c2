"""The audits' plots: claimed against measured, as PNG and SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.stats import norm

from sumus.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Measured", "draw_bounds", "draw_membership", "draw_roc"]

Measured = tuple[str, float, Sequence[tuple[float, float, float, float]]]
"""(name, exact separation μ, points of (false rate, true rate, its lower limit, its upper limit))."""

_COLOURS = ("#b91c1c", "#b5651d", "#1f77b4", "#15803d", "#7c3aed")
_INK, _GRID, _CLAIM = "#1f2937", "#e5e7eb", "#9ca3af"


@contextmanager
def _matplotlib() -> Iterator[Any]:
    try:
        import matplotlib as mpl
    except ModuleNotFoundError:
        raise PlanError("--plot", "a folder", "needs matplotlib", "Run: pip install 'sumus[report]'") from None
    mpl.use("Agg")
    with mpl.rc_context({"font.family": "DejaVu Sans", "font.size": 10, "svg.fonttype": "path", "svg.hashsalt": "sumus"}):
        yield mpl


def _figure(title: str, subtitle: str) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.6, 5.0), layout="constrained")
    axes = figure.subplots()
    axes.set_title(f"{title}\n", loc="left", fontsize=12, color=_INK, fontweight="bold")
    axes.text(0.0, 1.02, subtitle, transform=axes.transAxes, fontsize=9, color="#4b5563")
    axes.grid(True, color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes


def _save(figure: Figure, folder: Path, name: str) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for suffix in ("png", "svg"):
        path = folder / f"{name}.{suffix}"
        figure.savefig(path, dpi=160, metadata={"Date": None} if suffix == "svg" else None)
        written.append(path)
    return written


def draw_roc(folder: Path, *, title: str, subtitle: str, epsilon: float, delta: float, measured: Sequence[Measured]) -> list[Path]:
    """True against false positive rate on logarithmic axes: the limit that (ε, δ) allows, and what the attacks reach."""
    with _matplotlib():
        figure, axes = _figure(title, subtitle)
        false_rates = np.geomspace(1e-5, 1.0, 400)
        limit = np.minimum(1.0, math.exp(epsilon) * false_rates + delta)
        axes.fill_between(false_rates, limit, 1.0, color="#fee2e2", alpha=0.7, linewidth=0)
        axes.plot(
            false_rates, limit, color=_INK, linestyle=(0, (5, 2)), linewidth=1.6, label=f"limit of (ε = {epsilon:.4g}, δ = {delta:g})"
        )
        axes.plot(false_rates, false_rates, color=_CLAIM, linewidth=1.0, label="guessing")
        for colour, (name, separation, points) in zip(_COLOURS, measured, strict=False):
            axes.plot(false_rates, norm.sf(norm.isf(false_rates) - separation), color=colour, linewidth=1.3, alpha=0.85)
            if points:
                x, y, low, high = (np.array(column) for column in zip(*points, strict=True))
                bars = np.vstack([np.maximum(y - low, 0.0), np.maximum(high - y, 0.0)])
                axes.errorbar(x, y, yerr=bars, fmt="o", markersize=4, color=colour, linewidth=1.1, capsize=2, label=name)
        axes.set(xscale="log", yscale="log", xlim=(1e-5, 1.0), ylim=(1e-5, 1.2))
        axes.set_xlabel('says "in" without the record (false positive rate)')
        axes.set_ylabel('says "in" with the record (true positive rate)')
        axes.text(
            0.02, 0.96, "a mechanism with this guarantee\ncannot be here", transform=axes.transAxes, fontsize=9, color="#b91c1c", va="top"
        )
        axes.legend(loc="lower right", frameon=False, fontsize=9)
        return _save(figure, folder, "roc")


def draw_bounds(
    folder: Path, *, title: str, subtitle: str, upper: float, upper_name: str, lower: Sequence[tuple[str, float]]
) -> list[Path]:
    """Measured lower bounds as bars against the proved upper bound as a line."""
    with _matplotlib():
        figure, axes = _figure(title, subtitle)
        names, values = [name for name, _ in lower], [value for _, value in lower]
        positions = np.arange(len(names))
        colours = ["#b91c1c" if value > upper else "#1f77b4" for value in values]
        axes.barh(positions, values, color=colours, height=0.55)
        axes.axvline(upper, color=_INK, linestyle=(0, (5, 2)), linewidth=1.6)
        axes.text(upper, len(names) - 0.45, f"{upper_name}: ε ≤ {upper:.3g} ", color=_INK, fontsize=9, va="bottom", ha="right")
        for position, value in enumerate(values):
            axes.text(value, position, f" ε ≥ {value:.3g}", va="center", fontsize=9, color=_INK)
        axes.set_yticks(positions, names)
        axes.grid(False, axis="y")
        axes.set_xlim(0.0, 1.25 * max([upper, *values]))
        axes.set_ylim(-0.6, len(names) - 0.1)
        axes.set_xlabel("ε")
        return _save(figure, folder, "bounds")


def draw_membership(
    folder: Path, curves: Sequence[tuple[str, npt.NDArray[np.float64], npt.NDArray[np.float64]]], *, subtitle: str, records: int
) -> list[Path]:
    """ROC curves of membership inference, with and without privacy."""
    with _matplotlib():
        figure, axes = _figure("Who was in the training data?", subtitle)
        lowest = 1.0 / records
        for colour, (name, false_rates, true_rates) in zip((_COLOURS[2], _COLOURS[0]), curves, strict=False):
            axes.step(np.maximum(false_rates, lowest / 2), np.maximum(true_rates, lowest / 2), where="post", color=colour, label=name)
        guess = np.geomspace(lowest, 1.0, 100)
        axes.plot(guess, guess, color=_CLAIM, linewidth=1.0, label="guessing")
        axes.set(xscale="log", yscale="log", xlim=(lowest, 1.0), ylim=(lowest, 1.2))
        axes.set_xlabel("false positive rate")
        axes.set_ylabel("true positive rate")
        axes.legend(loc="lower right", frameon=False, fontsize=9)
        return _save(figure, folder, "membership")
