"""Which charts a page has, what their captions say, and when one is left out for lack of data."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import final

from markupsafe import Markup

from sumus.books import RoundEntry, RunFolder, rounded_up
from sumus.report.charts import Line, bar_chart, line_chart
from sumus.report.scales import as_bytes, as_number, as_percent, as_seconds
from sumus.report.words import Statement, in_the_clear
from sumus.tasks import CONFIDENCE, Measure, Task

__all__ = ["Figure", "comparison", "of_run"]

_STAGES = ("local", "noise", "protocol", "server", "evaluate")
_SHARE = (0.0, 1.0)
_CHARTED = 3  # measures that have a chart over rounds


@final
@dataclass(frozen=True, kw_only=True)
class Figure:
    """A chart with its title, legend (name, colour, dashed) and caption."""

    key: str
    title: str
    chart: Markup
    legend: tuple[tuple[str, int, bool], ...]
    caption: str


def of_run(run: RunFolder, rounds: list[RoundEntry], statement: Statement) -> list[Figure]:
    """The figures of one run, in reading order."""
    if not rounds:
        return []
    task, fitted = run.plan.task, run.plan.training.local_parameters is not None
    made = [
        *(
            _measure(task, place, rounds, fitted)
            for place in range(min(len(task.measures), _CHARTED))
        ),
        _epsilon(run, rounds, statement),
        _fairness(task.headline, rounds),
        _norms(rounds),
        _clipping(rounds),
    ]
    return [figure for figure in [*made, _seconds(rounds), _traffic(rounds)] if figure is not None]


def comparison(task: Task, runs: Sequence[tuple[str, list[RoundEntry], Statement]]) -> list[Figure]:
    """The same figure for several runs at once; measures of another task have no line.

    Args:
        task: whose measures are compared.
    """
    headline = task.headline
    kinds: list[tuple[str, str, bool, Callable[[RoundEntry], float | None]]] = [
        *(
            (measure.name, measure.title, measure.is_share, _value_of(measure))
            for measure in task.measures[:_CHARTED]
        ),
        ("worst", f"{headline.title} of the worst silo", headline.is_share, _worst_silo(headline)),
        ("epsilon", "ε spent", False, lambda entry: entry.epsilon_spent),
    ]
    figures = []
    for key, title, share, pick in kinds:
        compared = [
            (colour, *run)
            for colour, run in enumerate(runs)
            if key != "epsilon" or run[2].verdict not in ("none", "void")
        ]
        lines = [
            Line(name=name, points=_points(rounds, pick), colour=colour)
            for colour, name, rounds, _ in compared
        ]
        lines = [line for line in lines if line.points]
        if len(lines) < 2:
            continue
        caption = (
            "What each ε protects, counts on and rests on is in the table above; compare only like "
            "with like."
            if key == "epsilon"
            else ""
        )
        label = f"{title} per round of {len(lines)} runs"
        chart = line_chart(
            lines,
            label=label,
            formatter=as_percent if share else as_number,
            within=_SHARE if share else None,
            from_zero=not share,
        )
        figures.append(
            Figure(
                key=f"compare-{key}",
                title=f"{title} per round",
                chart=chart,
                legend=_legend(lines),
                caption=caption,
            )
        )
    return figures


def _points(
    rounds: list[RoundEntry], pick: Callable[[RoundEntry], float | None]
) -> list[tuple[float, float]]:
    """(round, value) wherever the value is known and finite."""
    values = [(float(entry.round), pick(entry)) for entry in rounds]
    return [
        (number, float(value))
        for number, value in values
        if value is not None and math.isfinite(value)
    ]


def _legend(lines: Sequence[Line]) -> tuple[tuple[str, int, bool], ...]:
    return tuple((line.name, line.colour % 8, line.dashed) for line in lines)


def _value_of(measure: Measure) -> Callable[[RoundEntry], float | None]:
    return lambda entry: entry.metrics.get(measure.name)


def _worst_silo(measure: Measure) -> Callable[[RoundEntry], float | None]:
    def pick(entry: RoundEntry) -> float | None:
        return measure.worst(entry.known_silo_scores) if entry.known_silo_scores else None

    return pick


def _measured_how(task: Task, rounds: list[RoundEntry], fitted: bool) -> str:
    kinds = {entry.metrics_are for entry in rounds if entry.metrics}
    if "simulation-only" in kinds:
        return in_the_clear(fitted)
    if "secure" in kinds:
        headline = task.headline
        width = max(entry.metrics_plus_minus.get(headline.name, 0.0) for entry in rounds)
        shown = as_percent(width) if headline.is_share else as_number(width)
        return (
            f"Noisy counts of test records that are accounted; {headline.shown} is known to ± "
            f"{shown} ({CONFIDENCE})."
        )
    return ""


def _measure(task: Task, place: int, rounds: list[RoundEntry], fitted: bool) -> Figure | None:
    """The figure of one of the task's measures."""
    measure = task.measures[place]
    line = Line(name=measure.shown, points=_points(rounds, _value_of(measure)), colour=place)
    if not line.points:
        return None
    chart = line_chart(
        [line],
        label=f"{measure.title} per round",
        formatter=as_percent if measure.is_share else as_number,
        within=_SHARE if measure.is_share else None,
        from_zero=not measure.is_share,
    )
    caption = _measured_how(task, rounds, fitted)
    return Figure(key=measure.name, title=measure.title, chart=chart, legend=(), caption=caption)


def _epsilon(run: RunFolder, rounds: list[RoundEntry], statement: Statement) -> Figure | None:
    guarantee = run.guarantee
    if guarantee is None or statement.verdict == "void":
        return None
    budget = guarantee.target_epsilon if guarantee.target_epsilon is not None else guarantee.epsilon
    line = Line(name="ε spent", points=_points(rounds, lambda entry: entry.epsilon_spent), colour=2)
    limit = (
        budget,
        f"{'target' if guarantee.target_epsilon is not None else 'whole plan'}: ε = "
        f"{rounded_up(budget)}",
    )
    chart = line_chart(
        [line],
        label="Epsilon spent per round against the budget",
        formatter=as_number,
        from_zero=True,
        limit=limit,
    )
    caption = f"ε at δ = {guarantee.delta:g} for {statement.brief}."
    return Figure(
        key="epsilon", title="ε spent against the budget", chart=chart, legend=(), caption=caption
    )


def _fairness(measure: Measure, rounds: list[RoundEntry]) -> Figure | None:
    known = [
        (float(entry.round), entry.known_silo_scores) for entry in rounds if entry.known_silo_scores
    ]
    if not known:
        return None
    formatter = as_percent if measure.is_share else as_number
    kinds: dict[str, tuple[Callable[[Iterable[float]], float], int]] = {
        "best": (measure.best, 2),
        "median": (statistics.median, 0),
        "worst": (measure.worst, 1),
    }
    lines = [
        Line(
            name=f"{name} silo",
            points=[(number, pick(scores)) for number, scores in known],
            colour=colour,
            band=[(number, min(scores), max(scores)) for number, scores in known]
            if name == "median"
            else (),
        )
        for name, (pick, colour) in kinds.items()
    ]
    chart = line_chart(
        lines,
        label=f"{measure.title} of the worst, median and best silo per round",
        formatter=formatter,
        within=_SHARE if measure.is_share else None,
    )
    worst, median, best = (
        formatter(pick(known[-1][1])) for pick in (measure.worst, statistics.median, measure.best)
    )
    caption = f"Last round: worst {worst}, median {median}, best {best}. Simulation only."
    return Figure(
        key="fairness",
        title="Fairness across silos",
        chart=chart,
        legend=_legend(lines),
        caption=caption,
    )


def _norms(rounds: list[RoundEntry]) -> Figure | None:
    lines = [
        Line(
            name="update, noise included",
            points=_points(rounds, lambda entry: entry.update_norm),
            colour=0,
        ),
        Line(
            name="noise, expected",
            points=_points(rounds, lambda entry: entry.noise_norm_expected),
            colour=1,
            dashed=True,
        ),
    ]
    if not any(line.points for line in lines):
        return None
    chart = line_chart(
        lines,
        label="Norm of the update and of its noise per round",
        formatter=as_number,
        from_zero=True,
    )
    caption = "L2 norms of the averaged update. Where the two meet, a round is mostly noise."
    return Figure(
        key="noise", title="Update and noise", chart=chart, legend=_legend(lines), caption=caption
    )


def _clipping(rounds: list[RoundEntry]) -> Figure | None:
    line = Line(
        name="clipped records",
        points=_points(rounds, lambda entry: entry.clipped_fraction),
        colour=3,
    )
    if not any(share for _, share in line.points):  # not measured, or an algorithm that never clips
        return None
    chart = line_chart(
        [line],
        label="Share of clipped records per round",
        formatter=as_percent,
        from_zero=True,
        within=_SHARE,
    )
    caption = (
        "Share of sampled records whose gradient was clipped, counted exactly: simulation only."
    )
    return Figure(key="clipping", title="Clipped records", chart=chart, legend=(), caption=caption)


def _seconds(rounds: list[RoundEntry]) -> Figure | None:
    measured = {stage for entry in rounds for stage in entry.seconds}
    stages = [stage for stage in _STAGES if stage in measured] + sorted(
        measured.difference(_STAGES)
    )
    if not stages:
        return None
    stacks = {stage: [entry.seconds.get(stage, 0.0) for entry in rounds] for stage in stages}
    chart = bar_chart(
        [entry.round for entry in rounds],
        stacks,
        label="Seconds per stage and round",
        formatter=as_seconds,
    )
    total = sum(map(sum, stacks.values())) or 1.0
    caption = (
        "Share of the time: "
        + ", ".join(
            f"{stage} {100.0 * sum(values) / total:.0f} %" for stage, values in stacks.items()
        )
        + "."
    )
    return Figure(
        key="seconds",
        title="Time per stage",
        chart=chart,
        legend=_stack_legend(stages),
        caption=caption,
    )


def _traffic(rounds: list[RoundEntry]) -> Figure | None:
    if not any(entry.bytes_up or entry.bytes_down for entry in rounds):
        return None
    stacks = {
        "silos → server": [float(entry.bytes_up) for entry in rounds],
        "server → silos": [float(entry.bytes_down) for entry in rounds],
    }
    chart = bar_chart(
        [entry.round for entry in rounds], stacks, label="Bytes per round", formatter=as_bytes
    )
    return Figure(
        key="traffic",
        title="Traffic",
        chart=chart,
        legend=_stack_legend(list(stacks)),
        caption="All silos together.",
    )


def _stack_legend(names: list[str]) -> tuple[tuple[str, int, bool], ...]:
    return tuple((name, colour % 8, False) for colour, name in enumerate(names))
