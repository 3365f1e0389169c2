"""Figures of the experiments of Heikkilä 2025 as PNG and SVG: mean over seeds with a band of one
standard error; unproved curves are dashed and say so.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sumus.paper.experiments.averaging import AveragingRow
from sumus.paper.experiments.results import Summary
from sumus.report import INK, blank_figure, whole_numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_averaging", "draw_final", "draw_frontier", "draw_rounds"]

_COLOURS = (
    "#15803d",
    "#1f77b4",
    "#ea580c",
    "#7c3aed",
    "#be123c",
    "#0e7490",
    "#854d0e",
    "#4b5563",
    "#db2777",
    "#65a30d",
)
_DASHES = {"paper": (0, (5, 2)), "proved": "-", "no privacy": (0, (1, 1.5))}


def draw_rounds(title: str, summaries: Sequence[Summary]) -> Figure:
    """Test accuracy and loss after every round, for settings with one number of rounds."""
    figure, (left, right) = blank_figure(title, 2)
    for number, each in enumerate(summaries):
        colour, dashes = _COLOURS[number % len(_COLOURS)], _DASHES[each.first.group]
        if len(each.accuracies) == 1:  # each silo alone: a level, not a curve
            left.axhline(
                100.0 * each.accuracy,
                color=colour,
                linestyle=dashes,
                linewidth=1.5,
                label=_label(each),
            )
            continue
        rounds = np.arange(1, len(each.accuracies) + 1)
        _band(
            left,
            rounds,
            100.0 * np.array(each.accuracies),
            100.0 * np.array(each.accuracies_sem),
            colour,
            dashes,
            _label(each),
        )
        _band(right, rounds, np.array(each.losses), np.array(each.losses_sem), colour, dashes, None)
    left.set_ylabel("test accuracy, %")
    right.set_ylabel("test loss, nats")
    for axes in (left, right):
        axes.set_xlabel("round")
        whole_numbers(axes)
    _limit_loss(right, summaries)
    _legend(figure, left)
    return figure


def draw_final(title: str, summaries: Sequence[Summary]) -> Figure:
    """Accuracy and loss of the best round against the number of rounds (the paper's CIFAR-10
    figure).
    """
    figure, (left, right) = blank_figure(title, 2)
    for number, name in enumerate(dict.fromkeys(each.first.label for each in summaries)):
        chosen = sorted(
            (each for each in summaries if each.first.label == name),
            key=lambda each: each.first.rounds,
        )
        colour, dashes = _COLOURS[number % len(_COLOURS)], _DASHES[chosen[0].first.group]
        rounds = np.array([each.first.rounds for each in chosen])
        best = 100.0 * np.array([each.best_accuracy for each in chosen])
        best_sem = 100.0 * np.array([each.best_accuracy_sem for each in chosen])
        least = np.array([min(each.losses) for each in chosen])
        least_sem = np.array([each.losses_sem[int(np.argmin(each.losses))] for each in chosen])
        _band(left, rounds, best, best_sem, colour, dashes, _label(chosen[0]), marker="o")
        _band(right, rounds, least, least_sem, colour, dashes, None, marker="o")
    left.set_ylabel("best test accuracy, %")
    right.set_ylabel("least test loss, nats")
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_xticks(sorted({each.first.rounds for each in summaries}))
        axes.minorticks_off()
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_xlabel("rounds")
    _legend(figure, left)
    return figure


def draw_frontier(title: str, summaries: Sequence[Summary]) -> Figure:
    """Accuracy of the final model against ε, rounds and silos: a panel for each of them that takes
    several values.

    A panel holds the settings whose other two numbers are the commonest ones: the middle of the
        star that was measured.
    """
    named: dict[str, Callable[[Summary], float]] = {
        "ε": lambda each: each.first.target_epsilon or math.nan,
        "rounds": lambda each: float(each.first.rounds),
        "silos": lambda each: float(each.first.silos),
    }
    private = [each for each in summaries if each.first.target_epsilon is not None]
    middle = {
        axis: Counter(map(value, private)).most_common(1)[0][0] for axis, value in named.items()
    }
    shown = {axis: value for axis, value in named.items() if len(set(map(value, private))) > 1}
    groups = {each.first.label: each.first.group for each in private}
    figure, panels = blank_figure(title, len(shown))
    for axes, (axis, value) in zip(panels, shown.items(), strict=True):
        fixed = [other for other in named if other != axis]
        on_axis = [
            each for each in private if all(named[other](each) == middle[other] for other in fixed)
        ]
        for number, (label, group) in enumerate(groups.items()):
            chosen = sorted((each for each in on_axis if each.first.label == label), key=value)
            mean, sem = (
                100.0 * np.array([getattr(each, key) for each in chosen])
                for key in ("accuracy", "accuracy_sem")
            )
            shown_as = f"{label}: ε {'claimed, not proved' if group == 'paper' else 'proved'}"
            x, colour = np.array([value(each) for each in chosen]), _COLOURS[number % len(_COLOURS)]
            _band(axes, x, mean, sem, colour, _DASHES[group], shown_as, marker="o")
        axes.set_xscale("log")
        axes.set_xticks(sorted({value(each) for each in on_axis}))
        axes.minorticks_off()
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_xlabel(axis)
        axes.set_title(
            ", ".join(
                f"ε = {middle[other]:g}" if other == "ε" else f"{middle[other]:g} {other}"
                for other in fixed
            ),
            fontsize=10,
        )
    panels[0].set_ylabel("test accuracy, %")
    _legend(figure, panels[0])
    return figure


def draw_averaging(rows: Sequence[AveragingRow]) -> Figure:
    """ε of the average of N models: by the paper's theorem and as proved."""
    figure, (axes,) = blank_figure(
        "average of N models, each ε = 5 alone (δ = 1e-5; one record, add or remove)", 1
    )
    for number, steps in enumerate(dict.fromkeys(row.steps for row in rows)):
        chosen = [row for row in rows if row.steps == steps]
        colour, parties = _COLOURS[number], [row.parties for row in chosen]
        several = steps > 1
        noun = f"{steps} steps" if several else "1 step"
        axes.plot(parties, [row.paper_epsilon for row in chosen], color=colour, linestyle=_DASHES["paper"], marker="o",
                  label=f"{noun}, paper's accounting" + (" (not proved)" if several else ""))  # fmt: skip
        axes.plot(parties, [row.pld_epsilon for row in chosen], color=colour, linestyle=_DASHES["paper"] if several else "-", marker="s",
                  alpha=0.7, label=f"{noun}, privacy-loss distribution" + (" (not proved)" if several else " (proved)"))  # fmt: skip
    axes.axhline(5.0, color=INK, linewidth=1.0, label="several steps: proved (each model's own ε)")
    axes.set_xlabel("models in the average")
    axes.set_ylabel("ε")
    axes.set_ylim(bottom=0.0)
    _legend(figure, axes)
    return figure


def _band(
    axes: Axes,
    x: np.ndarray,
    mean: np.ndarray,
    sem: np.ndarray,
    colour: str,
    dashes: object,
    label: str | None,
    marker: str = "",
) -> None:
    axes.plot(
        x,
        mean,
        color=colour,
        linestyle=dashes,
        linewidth=2.0,
        label=label,
        marker=marker,
        markersize=4,
    )
    axes.fill_between(
        x,
        mean - np.nan_to_num(sem),
        mean + np.nan_to_num(sem),
        color=colour,
        alpha=0.2,
        linewidth=0,
    )


def _limit_loss(axes: Axes, summaries: Sequence[Summary]) -> None:
    """A run that diverges must not flatten all others."""
    last = [each.losses[-1] for each in summaries if len(each.losses) > 1]
    if last:
        axes.set_ylim(top=min(axes.get_ylim()[1], 3.0 * float(np.median(last))))


def _label(each: Summary) -> str:
    first = each.first
    if first.epsilon is None:
        return first.label
    if first.claimed_epsilon is not None:
        return f"{first.label}: ε = {first.claimed_epsilon:.2g} claimed, not proved"
    return f"{first.label}: ε ≤ {first.epsilon:.2g} proved"


def _legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", frameon=False, fontsize=9, ncols=2)
