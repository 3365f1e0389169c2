"""Which charts a page has, what their captions say, and when one is left out for lack of data."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

from markupsafe import Markup

from sumus.books import RoundEntry, RunFolder, rounded_up
from sumus.report.charts import Line, bar_chart, line_chart
from sumus.report.scales import Formatter, as_bytes, as_number, as_percent, as_seconds
from sumus.report.words import Statement
from sumus.tasks import CONFIDENCE

__all__ = ["Figure", "comparison", "of_run"]

_STAGES = ("local", "noise", "protocol", "server", "evaluate")
_SHARE = (0.0, 1.0)


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
    made = [
        _accuracy(rounds),
        _loss(rounds),
        _epsilon(run, rounds, statement),
        _fairness(rounds),
        _norms(rounds),
        _clipping(rounds),
    ]
    return [figure for figure in [*made, _seconds(rounds), _traffic(rounds)] if figure is not None]


def comparison(runs: Sequence[tuple[str, list[RoundEntry], Statement]]) -> list[Figure]:
    """The same figure for several runs at once."""
    kinds: tuple[tuple[str, str, Formatter, Callable[[RoundEntry], float | None]], ...] = (
        ("accuracy", "Accuracy", as_percent, lambda each: each.accuracy),
        ("loss", "Loss", as_number, lambda each: each.loss),
        (
            "worst",
            "Accuracy of the worst silo",
            as_percent,
            lambda each: min(each.known_silo_accuracies, default=None),
        ),
        ("epsilon", "ε spent", as_number, lambda each: each.epsilon_spent),
    )
    figures = []
    for key, title, formatter, pick in kinds:
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
        share = formatter is as_percent
        label = f"{title} per round of {len(lines)} runs"
        chart = line_chart(
            lines,
            label=label,
            formatter=formatter,
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
    found = [(float(each.round), pick(each)) for each in rounds]
    return [
        (number, float(value))
        for number, value in found
        if value is not None and math.isfinite(value)
    ]


def _legend(lines: Sequence[Line]) -> tuple[tuple[str, int, bool], ...]:
    return tuple((line.name, line.colour % 8, line.dashed) for line in lines)


def _measured_how(rounds: list[RoundEntry]) -> str:
    kinds = {
        each.metrics_are for each in rounds if each.accuracy is not None or each.loss is not None
    }
    if "simulation-only" in kinds:
        return (
            "Measured in the clear on test records: simulation only, not covered by the guarantee."
        )
    if "secure" in kinds:
        width = max(each.accuracy_plus_minus or 0.0 for each in rounds)
        return (
            "Noisy counts of test records that are accounted; accuracies are within ± "
            f"{as_percent(width)} ({CONFIDENCE})."
        )
    return ""


def _accuracy(rounds: list[RoundEntry]) -> Figure | None:
    line = Line(name="accuracy", points=_points(rounds, lambda each: each.accuracy))
    if not line.points:
        return None
    chart = line_chart([line], label="Accuracy per round", formatter=as_percent, within=_SHARE)
    return Figure(
        key="accuracy", title="Accuracy", chart=chart, legend=(), caption=_measured_how(rounds)
    )


def _loss(rounds: list[RoundEntry]) -> Figure | None:
    line = Line(name="loss", points=_points(rounds, lambda each: each.loss), colour=1)
    if not line.points:
        return None
    chart = line_chart([line], label="Loss per round", formatter=as_number, from_zero=True)
    return Figure(key="loss", title="Loss", chart=chart, legend=(), caption=_measured_how(rounds))


def _epsilon(run: RunFolder, rounds: list[RoundEntry], statement: Statement) -> Figure | None:
    guarantee = run.guarantee
    if guarantee is None or statement.verdict == "void":
        return None
    budget = guarantee.target_epsilon if guarantee.target_epsilon is not None else guarantee.epsilon
    line = Line(name="ε spent", points=_points(rounds, lambda each: each.epsilon_spent), colour=2)
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


def _fairness(rounds: list[RoundEntry]) -> Figure | None:
    known = [
        (float(each.round), each.known_silo_accuracies)
        for each in rounds
        if each.known_silo_accuracies
    ]
    if not known:
        return None

    def over(name: str, pick: Callable[[tuple[float, ...]], float], colour: int) -> Line:
        return Line(
            name=name, points=[(number, pick(values)) for number, values in known], colour=colour
        )

    band = [(number, min(values), max(values)) for number, values in known]
    middle = Line(
        name="median silo",
        points=[(number, statistics.median(values)) for number, values in known],
        colour=0,
        band=band,
    )
    lines = [over("best silo", max, 2), middle, over("worst silo", min, 1)]
    chart = line_chart(
        lines,
        label="Accuracy of the worst, median and best silo per round",
        formatter=as_percent,
        within=_SHARE,
    )
    worst, middle_one, best = (
        as_percent(pick(known[-1][1])) for pick in (min, statistics.median, max)
    )
    caption = f"Last round: worst {worst}, median {middle_one}, best {best}. Simulation only."
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
            points=_points(rounds, lambda each: each.update_norm),
            colour=0,
        ),
        Line(
            name="noise, expected",
            points=_points(rounds, lambda each: each.noise_norm_expected),
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
        name="clipped records", points=_points(rounds, lambda each: each.clipped_fraction), colour=3
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
    found = {stage for each in rounds for stage in each.seconds}
    stages = [stage for stage in _STAGES if stage in found] + sorted(found.difference(_STAGES))
    if not stages:
        return None
    stacks = {stage: [each.seconds.get(stage, 0.0) for each in rounds] for stage in stages}
    chart = bar_chart(
        [each.round for each in rounds],
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
    if not any(each.bytes_up or each.bytes_down for each in rounds):
        return None
    stacks = {
        "silos → server": [float(each.bytes_up) for each in rounds],
        "server → silos": [float(each.bytes_down) for each in rounds],
    }
    chart = bar_chart(
        [each.round for each in rounds], stacks, label="Bytes per round", formatter=as_bytes
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
