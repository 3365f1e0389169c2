"""Markdown tables of the experiments of Heikkilä 2025: no accuracy without its ε, no ε without its analysis and whether
it is proved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from sumus.paper.experiments.results import Summary

__all__ = ["experiment_table", "markdown", "percent", "promise"]


def markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first column is text, the others are numbers."""
    lines = [headings, ["---"] + ["---:"] * (len(headings) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def percent(mean: float, sem: float) -> str:
    """Mean ± SEM in per cent; without the error where a single seed gives none."""
    return (
        f"{100.0 * mean:.2f} %" if math.isnan(sem) else f"{100.0 * mean:.2f} ± {100.0 * sem:.2f} %"
    )


def promise(summary: Summary) -> str:
    """ε in one cell: proved with its analysis, or the paper's claim with what is proved instead."""
    first = summary.first
    if first.epsilon is None:
        return "none"
    if first.claimed_epsilon is not None:
        return (
            f"{_up(first.claimed_epsilon)} claimed, not proved for S > 1; proved "
            f"{_up(first.epsilon)} ({first.analysis})"
        )
    ends = ""
    if first.epsilon_smallest_silo is not None and first.epsilon_largest_silo is not None:
        ends = (
            f"; smallest silo {_up(first.epsilon_smallest_silo)}, largest "
            f"{_up(first.epsilon_largest_silo)}"
        )
    return f"{_up(first.epsilon)} proved ({first.analysis}){ends}"


def experiment_table(summaries: Sequence[Summary]) -> str:
    """One line per setting: privacy, accuracy of the final and of the best round, the worst silo,
    rounds, bytes and minutes.
    """
    headings = [
        "setting",
        "ε",
        "accuracy",
        "best round",
        "worst silo",
        "seeds",
        "rounds",
        "silos",
        "MB sent per silo",
        "minutes per seed",
        "of these CPU",
    ]
    rows = [
        [
            each.first.label,
            promise(each),
            percent(each.accuracy, each.accuracy_sem),
            percent(each.best_accuracy, each.best_accuracy_sem),
            f"{100.0 * each.worst_silo:.1f} %",
            str(each.seeds),
            str(each.first.rounds),
            str(each.first.silos),
            f"{each.first.bytes_up_per_silo / 1e6:.2f}" if each.first.bytes_up_per_silo else "0",
            f"{each.train_seconds / 60.0:.2f}",
            "–" if math.isnan(each.cpu_seconds) else f"{each.cpu_seconds / 60.0:.2f}",
        ]
        for each in summaries
    ]
    return markdown(headings, rows)


def _up(epsilon: float) -> str:
    """Three digits, never rounded down: a printed bound must still be one."""
    if not math.isfinite(epsilon) or epsilon <= 0.0:
        return f"{epsilon:g}"
    digits = 2 - math.floor(math.log10(epsilon))
    return f"{math.ceil(epsilon * 10.0**digits - 1e-9) / 10.0**digits:g}"
