"""Plots of a search: its history, which number mattered, and what the good runs have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from sumus.report import blank_figure, colour_scale, save

__all__ = ["draw_tuning"]


def draw_tuning(study: Any, folder: Path, objective: str) -> list[Path]:
    """History, importance and parallel coordinates as PNG and SVG; returns the files. Needs two
    finished runs.
    """
    import optuna

    complete = [each for each in study.trials if each.state == optuna.trial.TrialState.COMPLETE]
    if len(complete) < 2:
        return []
    written = save(folder, "history", lambda: _history(study, complete, objective))
    varied = [
        key for key in complete[0].params if len({str(each.params[key]) for each in complete}) > 1
    ]
    if varied:
        written += save(folder, "importance", lambda: _importance(study, varied))
        written += save(
            folder,
            "parallel-coordinates",
            lambda: _parallel(
                complete, varied, objective, raised=study.direction.name == "MAXIMIZE"
            ),
        )
    return written


def _history(study: Any, complete: list[Any], objective: str) -> Any:
    figure, (axes,) = blank_figure(
        f"search history: {objective} on the validation records (not accounted)", 1
    )
    numbers, values = (
        [each.number + 1 for each in complete],
        np.array([each.value for each in complete]),
    )
    best = (
        np.maximum.accumulate(values)
        if study.direction.name == "MAXIMIZE"
        else np.minimum.accumulate(values)
    )
    axes.plot(numbers, values, "o", color="#1f77b4", markersize=5, label="run")
    axes.step(numbers, best, where="post", color="#15803d", linewidth=2, label="best so far")
    axes.set_xlabel("run")
    axes.set_ylabel(objective)
    axes.legend(frameon=False)
    return figure


def _importance(study: Any, varied: list[str]) -> Any:
    import optuna

    evaluator = optuna.importance.PedAnovaImportanceEvaluator()
    shares = optuna.importance.get_param_importances(study, params=varied, evaluator=evaluator)
    figure, (axes,) = blank_figure("which number mattered (PED-ANOVA)", 1)
    keys = list(reversed(shares))
    axes.barh(keys, [shares[key] for key in keys], color="#1f77b4")
    axes.set_xlabel("share of the variation among good runs")
    return figure


def _parallel(complete: list[Any], varied: list[str], objective: str, *, raised: bool) -> Any:
    """One line per run through its values, each axis scaled to [0, 1]; colour is the score."""
    figure, (axes,) = blank_figure(f"runs as lines, colour: {objective}", 1)
    columns = [_scaled([each.params[key] for each in complete]) for key in varied]
    scores = np.array([each.value for each in complete])
    scale = colour_scale(float(scores.min()), float(scores.max()))
    for position in np.argsort(scores if raised else -scores):
        heights = [column[0][position] for column in columns]
        axes.plot(
            range(len(varied)),
            heights,
            color=scale.to_rgba(scores[position]),
            alpha=0.8,
            linewidth=1.6,
        )
    for number, (_, low, high) in enumerate(columns):
        axes.annotate(low, (number, -0.02), ha="center", va="top", fontsize=8)
        axes.annotate(high, (number, 1.02), ha="center", va="bottom", fontsize=8)
    axes.set_xticks(range(len(varied)), [key.replace(".", "\n") for key in varied])
    axes.tick_params(axis="x", pad=16)
    axes.set_yticks([])
    figure.colorbar(scale, ax=axes, label=objective)
    return figure


def _scaled(values: list[Any]) -> tuple[list[float], str, str]:
    """Positions in [0, 1] and the texts of both ends; words are put in order of appearance."""
    if all(isinstance(each, int | float) for each in values):
        low, high = min(values), max(values)
        logarithmic = low > 0 and high / low > 20.0
        shift = np.log(values) if logarithmic else np.array(values, dtype=float)
        span = float(shift.max() - shift.min()) or 1.0
        return [float(each) for each in (shift - shift.min()) / span], f"{low:.3g}", f"{high:.3g}"
    known = list(dict.fromkeys(map(str, values)))
    return [known.index(str(each)) / max(len(known) - 1, 1) for each in values], known[0], known[-1]
