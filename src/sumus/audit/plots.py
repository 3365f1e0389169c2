"""The audits' plots: claimed against measured, as PNG and SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
import numpy.typing as npt
from scipy.stats import norm

from sumus.report import INK, SOFT, plain_figure, save, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["RocCurve", "RocPoint", "draw_bounds", "draw_membership", "draw_roc"]

_COLOURS = ("#b91c1c", "#b5651d", "#1f77b4", "#15803d", "#7c3aed")
_CLAIM, _FORBIDDEN = "#9ca3af", "#fdf0f0"
_DASHED = (0, (5, 2))
_LEAST_RATE = 1e-4  # left end of the ROC axes


@final
@dataclass(frozen=True)
class RocPoint:
    """One test of one attack, both rates counted, with confidence limits of each."""

    false_rate: float
    false_limits: tuple[float, float]
    true_rate: float
    true_limits: tuple[float, float]

    def epsilon(self, delta: float) -> tuple[float, float, float, float] | None:
        """(false rate, ε that the rates show, its lower limit, its upper limit); None if nothing
        was counted.
        """
        if self.false_rate <= 0.0 or self.true_limits[0] <= delta:
            return None
        shown = math.log((self.true_rate - delta) / self.false_rate)
        low = math.log((self.true_limits[0] - delta) / self.false_limits[1])
        return (
            self.false_rate,
            shown,
            low,
            math.log((self.true_limits[1] - delta) / self.false_limits[0]),
        )


@final
@dataclass(frozen=True)
class RocCurve:
    """An attack at several tests, and the exact separation μ of its two hypotheses."""

    name: str
    colour: str
    marker: str
    separation: float
    points: tuple[RocPoint, ...]


def _figure(title: str, subtitle: str) -> tuple[Figure, Axes]:
    figure = plain_figure(7.6, 5.0)
    axes = tidy(figure.subplots())
    axes.set_title(f"{title}\n", loc="left", fontsize=12, color=INK, fontweight="bold")
    axes.text(0.0, 1.02, subtitle, transform=axes.transAxes, fontsize=9, color=SOFT)
    return figure, axes


def draw_roc(
    folder: Path,
    *,
    title: str,
    subtitle: str,
    epsilon: float,
    delta: float,
    curves: Sequence[RocCurve],
    others: Sequence[RocCurve],
) -> list[Path]:
    """Left: ROC curves of attacks and the limit that (ε, δ) sets. Right: the ε that each point
    shows, also for proved analyses.

    Args:
        curves: on the claimed mechanism, in both panels.
        others: on proved mechanisms, in the right panel only.
    """

    def draw() -> Figure:
        figure = plain_figure(12.4, 5.4)
        left, right = figure.subplots(1, 2)
        figure.suptitle(f"{title}\n", x=0.012, ha="left", fontsize=13, color=INK, fontweight="bold")
        figure.text(0.012, 0.945, subtitle, fontsize=9.5, color=SOFT, va="top")
        for axes in (left, right):
            tidy(axes)
            axes.set(xscale="log", xlim=(_LEAST_RATE, 1.0))
            axes.set_xlabel('says "in" without the record (false positive rate)')
        _draw_rates(left, epsilon, delta, curves)
        _draw_shown(right, epsilon, delta, [*curves, *others])
        return figure

    return save(folder, "roc", draw)


def _draw_rates(axes: Axes, epsilon: float, delta: float, curves: Sequence[RocCurve]) -> None:
    false_rates = np.geomspace(_LEAST_RATE, 1.0, 400)
    limit = np.minimum(1.0, math.exp(epsilon) * false_rates + delta)
    axes.fill_between(false_rates, limit, 2.0, color=_FORBIDDEN, linewidth=0)
    axes.plot(
        false_rates,
        limit,
        color=INK,
        linestyle=_DASHED,
        linewidth=1.6,
        label=f"limit of (ε = {epsilon:.4g}, δ = {delta:g})",
    )
    axes.plot(false_rates, false_rates, color=_CLAIM, linewidth=1.0, label="guessing")
    for curve in curves:
        axes.plot(
            false_rates,
            norm.sf(norm.isf(false_rates) - curve.separation),
            color=curve.colour,
            linewidth=1.2,
        )
        rates = [(point.false_rate, point.true_rate, *point.true_limits) for point in curve.points]
        _draw_points(
            axes,
            curve,
            [(x, y, low, high) for x, y, low, high in rates if x > 0.0],
            label=curve.name,
        )
    axes.set(yscale="log", ylim=(_LEAST_RATE, 1.25))
    axes.set_ylabel('says "in" with the record (true positive rate)')
    axes.text(
        0.03,
        0.965,
        "not possible under the claim",
        transform=axes.transAxes,
        fontsize=9.5,
        color="#b91c1c",
        va="top",
    )
    axes.legend(loc="lower right", frameon=False, fontsize=9)


def _draw_shown(axes: Axes, epsilon: float, delta: float, curves: Sequence[RocCurve]) -> None:
    false_rates = np.geomspace(_LEAST_RATE, 1.0, 400)
    highest = epsilon
    for curve in curves:
        exact = np.log(
            np.maximum(norm.sf(norm.isf(false_rates) - curve.separation) - delta, 1e-12)
            / false_rates
        )
        highest = max(highest, float(exact.max()))
        axes.plot(false_rates, exact, color=curve.colour, linewidth=1.2)
        _draw_points(
            axes,
            curve,
            [shown for point in curve.points if (shown := point.epsilon(delta)) is not None],
            label=curve.name,
        )
    top = 1.25 * highest
    axes.axhspan(epsilon, top, color=_FORBIDDEN, linewidth=0, zorder=0)
    axes.axhline(epsilon, color=INK, linestyle=_DASHED, linewidth=1.6)
    axes.text(
        0.97,
        epsilon + 0.015 * top,
        f"ε = {epsilon:.4g}",
        transform=axes.get_yaxis_transform(),
        ha="right",
        fontsize=9.5,
        color=INK,
    )
    axes.text(
        0.03,
        0.965,
        "more than claimed",
        transform=axes.transAxes,
        fontsize=9.5,
        color="#b91c1c",
        va="top",
    )
    axes.set(ylim=(0.0, top))
    axes.set_ylabel("ε that the point shows: log((TPR − δ)/FPR)")
    axes.legend(loc="upper right", frameon=False, fontsize=9)


def _draw_points(
    axes: Axes, curve: RocCurve, points: Sequence[tuple[float, float, float, float]], *, label: str
) -> None:
    """Measured points (x, y, lower limit, upper limit) with their bars."""
    if not points:
        return
    x, y, low, high = (np.array(column) for column in zip(*points, strict=True))
    bars = np.vstack([np.maximum(y - low, 0.0), np.maximum(high - y, 0.0)])
    style: dict[str, Any] = {
        "fmt": curve.marker,
        "markersize": 5,
        "markerfacecolor": "white",
        "linewidth": 1.1,
        "capsize": 2,
    }
    axes.errorbar(x, y, yerr=bars, label=label, color=curve.colour, **style)


def draw_bounds(
    folder: Path,
    *,
    title: str,
    subtitle: str,
    upper: float,
    upper_name: str,
    lower: Sequence[tuple[str, float]],
) -> list[Path]:
    """Measured lower bounds as bars against the proved upper bound as a line."""

    def draw() -> Figure:
        figure, axes = _figure(title, subtitle)
        names, values = [name for name, _ in lower], [value for _, value in lower]
        positions = np.arange(len(names))
        colours = ["#b91c1c" if value > upper else "#1f77b4" for value in values]
        axes.barh(positions, values, color=colours, height=0.55)
        axes.axvline(upper, color=INK, linestyle=_DASHED, linewidth=1.6)
        axes.text(
            upper,
            len(names) - 0.45,
            f"{upper_name}: ε ≤ {upper:.3g} ",
            color=INK,
            fontsize=9,
            va="bottom",
            ha="right",
        )
        for position, value in enumerate(values):
            axes.text(value, position, f" ε ≥ {value:.3g}", va="center", fontsize=9, color=INK)
        axes.set_yticks(positions, names)
        axes.grid(False, axis="y")
        axes.set_xlim(0.0, 1.25 * max([upper, *values]))
        axes.set_ylim(-0.6, len(names) - 0.1)
        axes.set_xlabel("ε")
        return figure

    return save(folder, "bounds", draw)


def draw_membership(
    folder: Path,
    curves: Sequence[tuple[str, npt.NDArray[np.float64], npt.NDArray[np.float64]]],
    *,
    subtitle: str,
    records: int,
) -> list[Path]:
    """ROC curves of membership inference, with and without privacy."""

    def draw() -> Figure:
        figure, axes = _figure("Who was in the training data?", subtitle)
        lowest = 1.0 / records
        for colour, (name, false_rates, true_rates) in zip(
            (_COLOURS[2], _COLOURS[0]), curves, strict=False
        ):
            axes.step(
                np.maximum(false_rates, lowest / 2),
                np.maximum(true_rates, lowest / 2),
                where="post",
                color=colour,
                label=name,
            )
        guess = np.geomspace(lowest, 1.0, 100)
        axes.plot(guess, guess, color=_CLAIM, linewidth=1.0, label="guessing")
        axes.set(xscale="log", yscale="log", xlim=(lowest, 1.0), ylim=(lowest, 1.2))
        axes.set_xlabel("false positive rate")
        axes.set_ylabel("true positive rate")
        axes.legend(loc="lower right", frameon=False, fontsize=9)
        return figure

    return save(folder, "membership", draw)
