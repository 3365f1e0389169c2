"""The two plots of `sumus plan`: ε against rounds, and noise against silos, for the algorithms side
by side.
"""

from __future__ import annotations

import math
import textwrap
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sumus.guarantee import STATEMENTS, Account, AlgorithmCost, Comparison, NoiseDesign
from sumus.report import GRID, INK, SOFT, plain_figure, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw"]

_COLOURS = ("#7c3aed", "#be185d", "#b5651d", "#1f77b4", "#15803d", "#0e7490", "#a16207")
_UNPROVED, _DASHES = "#9ca3af", (0, (5, 2))  # analyses that are proved for some settings only
_LABEL_COLUMNS = 30
_LETTERS_A_LINE = 125  # of what is assumed, below the plot


def draw(
    folder: Path,
    design: NoiseDesign,
    account: Account,
    comparison: Comparison,
    costs: list[AlgorithmCost],
) -> list[Path]:
    """Write both plots as PNG and SVG; returns the files."""
    return save(
        folder,
        "epsilon-against-rounds",
        lambda: _epsilon_against_rounds(design, account, comparison, costs),
    ) + save(
        folder,
        "noise-against-silos",
        lambda: _noise_against_silos(account, comparison, costs),
    )


def _epsilon_against_rounds(
    design: NoiseDesign, account: Account, comparison: Comparison, costs: list[AlgorithmCost]
) -> Figure:
    """ε of every algorithm as rounds go by, all at the noise that the plan adds to its averaged
    update.
    """
    plan = design.plan
    noise = comparison.average_noise(comparison.own, design.noise_multiplier)
    rounds = sorted(
        {max(1, round(place)) for place in np.geomspace(1, 2 * plan.federation.rounds, 13)}
        | {plan.federation.rounds}
    )
    figure, axes = _figure("ε against rounds, at equal noise in the averaged update", account)
    ends: list[tuple[float, str, str, float]] = []
    for cost, look in _looks(costs):
        values = [comparison.epsilon_at(cost.analysis, noise, number) for number in rounds]
        shown = [
            (x, y) for x, y in zip(rounds, values, strict=True) if math.isfinite(y) and y > 0.0
        ]
        if shown:
            axes.plot(*zip(*shown, strict=True), **look)
            ends.append((shown[-1][1], _label(cost), look["color"], shown[-1][0]))
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xlim(1, 2 * plan.federation.rounds)
    if account.target_epsilon is not None:
        axes.axhline(account.target_epsilon, color=INK, linewidth=0.8, linestyle=(0, (1, 2)))
        # below the line and right of the planned rounds, where the plan's own curve has left it
        axes.annotate(
            f"target ε = {account.target_epsilon:g}", (1, account.target_epsilon), (-4, -12), xycoords=("axes fraction", "data"),
            textcoords="offset points", fontsize=9, ha="right",
        )  # fmt: skip
    axes.axvline(plan.federation.rounds, color=INK, linewidth=0.8, linestyle=(0, (1, 2)))
    axes.annotate(
        f"{plan.federation.rounds} rounds", (plan.federation.rounds, 0), (4, 6), xycoords=("data", "axes fraction"),
        textcoords="offset points", fontsize=9,
    )  # fmt: skip
    axes.set_xlabel("rounds")
    axes.set_ylabel(f"ε at δ = {account.delta:g}")
    _label_ends(axes, ends)
    return figure


def _noise_against_silos(
    account: Account, comparison: Comparison, costs: list[AlgorithmCost]
) -> Figure:
    """Noise of the averaged update that every algorithm needs for the target, against the number of
    silos.
    """
    lost = comparison.silos - next(iter(comparison.settings.values())).contributors
    most = max(100, 2 * comparison.silos)
    counts = sorted({max(lost + 1, round(place)) for place in np.geomspace(lost + 1, most, 24)})
    figure, axes = _figure("Noise in the averaged update against silos, at the same ε", account)
    ends: list[tuple[float, str, str, float]] = []
    for cost, look in _looks(costs):
        values = _noise_of_average(comparison, cost, counts)
        axes.plot(counts, values, **look)
        ends.append((values[-1], _label(cost), look["color"], counts[-1]))
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(counts[0], counts[-1])
    axes.axvline(comparison.silos, color=INK, linewidth=0.8, linestyle=(0, (1, 2)))
    axes.annotate(
        f"{comparison.silos} silos",
        (comparison.silos, 0),
        (4, 6),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        fontsize=9,
    )
    axes.set_xlabel("silos")
    axes.set_ylabel("noise std per coordinate and round, in γC/b")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_major_formatter("{x:g}")
    _label_ends(axes, ends)
    return figure


def _noise_of_average(
    comparison: Comparison, cost: AlgorithmCost, counts: list[int]
) -> list[float]:
    """Noise of the average in γC/b. Where the total noise itself depends on the silos, it is
    calibrated at every third of their numbers.
    """
    name, noise = cost.analysis, STATEMENTS[cost.analysis].counts
    scaled = {silos: comparison.with_silos(silos) for silos in counts}
    if noise == "both":
        places = [*counts[:-1:3], counts[-1]]
        exact = [
            scaled[silos].average_noise(name, scaled[silos].least_multiplier(name)) / silos
            for silos in places
        ]
        return list(np.exp(np.interp(np.log(counts), np.log(places), np.log(exact))).tolist())
    contributors = comparison.settings[name].contributors
    growth = {
        silos: scaled[silos].settings[name].contributors / contributors if noise == "own" else 1.0
        for silos in counts
    }
    return [
        scaled[silos].average_noise(name, cost.noise_multiplier * math.sqrt(growth[silos])) / silos
        for silos in counts
    ]


def _looks(costs: list[AlgorithmCost]) -> list[tuple[AlgorithmCost, dict[str, Any]]]:
    """How the line of every analysis is drawn."""
    always = [cost for cost in costs if STATEMENTS[cost.analysis].proved_for is None]
    colours = dict(zip((cost.analysis for cost in always), cycle(_COLOURS), strict=False))
    return [
        (
            cost,
            {
                "color": colours.get(cost.analysis, _UNPROVED),
                "linestyle": "-" if cost.analysis in colours else _DASHES,
                "linewidth": 2.2,
                "solid_capstyle": "round",
            },
        )
        for cost in costs
    ]


def _label(cost: AlgorithmCost) -> str:
    label = textwrap.fill(f"{cost.algorithm}, {cost.remark}", _LABEL_COLUMNS)
    return label if cost.proved else f"{label}\nNOT PROVED"


def _figure(title: str, account: Account) -> tuple[Figure, Axes]:
    figure = plain_figure(9.2, 5.2, constrained=False)
    axes = figure.add_axes((0.085, 0.235, 0.615, 0.65))
    axes.set_title(title, loc="left", fontsize=13, fontweight="bold", color=INK, pad=12)
    axes.grid(True, which="major", color=GRID, linewidth=0.8)
    axes.tick_params(colors=INK, which="both", length=0)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(GRID)
    target = (
        ""
        if account.target_epsilon is None
        else f"target ε = {account.target_epsilon:g} at δ = {account.delta:g}; "
    )
    assumptions = (
        f"{textwrap.fill(f'{account.neighbours}; {account.trust}', _LETTERS_A_LINE)}\n"
        f"{target}accountant {account.accountant}; solid "
        "lines are proved analyses"
    )
    figure.text(0.085, 0.022, assumptions, fontsize=8.5, color=SOFT, linespacing=1.5)
    return figure, axes


def _label_ends(axes: Axes, ends: list[tuple[float, str, str, float]]) -> None:
    """Names at the right end of the lines, pushed apart where they would overlap."""
    low, high = (math.log(each) for each in axes.get_ylim())
    placed: list[float] = []
    for value, label, colour, _ in sorted(ends):
        lines = label.count("\n") + 1
        place = (math.log(value) - low) / (high - low)
        if placed:
            place = max(place, placed[-1] + 0.055)
        placed.append(place + 0.05 * (lines - 1))
        options: dict[str, Any] = {
            "xycoords": "axes fraction",
            "textcoords": "offset points",
            "annotation_clip": False,
        }
        axes.annotate(
            label, (1.0, place), (8, -4), color=colour, fontsize=9.5, linespacing=1.2, **options
        )
