"""How well the released model does: every measure beside a constant answer, and its curves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

from sumus.books import RoundEntry
from sumus.report.charts import Dot, Line, curve_chart
from sumus.report.facts import told_as
from sumus.report.figures import Figure
from sumus.report.histograms import histogram
from sumus.report.scales import as_percent
from sumus.report.words import in_the_clear
from sumus.tasks import CONFIDENCE, Measure, Task

__all__ = ["MeasureView", "view_of"]

_MOST_ROWS = 12  # classes that are listed


@final
@dataclass(frozen=True, kw_only=True)
class MeasureView:
    """What the page says about a model that was measured.

    Args:
        rows: (measure, value with ±, what a constant answer reaches).
        classes: (class, share, recall, precision).
        confusion: records by true and predicted class, row by row.
        figures: curves.
        notes: how it was measured, and what is not told.
    """

    rows: tuple[tuple[str, str, str], ...]
    classes: tuple[tuple[str, ...], ...]
    confusion: tuple[tuple[str, ...], ...]
    figures: tuple[Figure, ...]
    notes: tuple[str, ...]


def view_of(
    task: Task, entry: RoundEntry, names: Sequence[str] = (), *, fitted: bool = False
) -> MeasureView:
    """Of the model that a round released.

    Args:
        names: of the classes (`class_names`); empty: not known.
        fitted: silos fit parameters of their own.
    """
    constant = entry.metrics_of_constant
    shown = [*task.measures, *([task.spread] if task.spread is not None else [])]
    first = task.leading(entry.metrics, constant)
    shown.sort(key=lambda measure: measure is not first)  # stable: the others keep their order
    rows = tuple(
        (
            measure.among(names).title,
            told_as(
                measure, entry.metrics[measure.name], entry.metrics_plus_minus.get(measure.name)
            ),
            told_as(measure, constant[measure.name]) if measure.name in constant else "–",
        )
        for measure in shown
        if measure.name in entry.metrics
    )
    tables = entry.metrics_tables
    figures = (
        _roc(tables.get("roc")),
        _reliability(tables.get("reliability")),
        _kaplan_meier(tables.get("kaplan_meier")),
    )
    confusion, classes = _classes(tables, names)
    return MeasureView(
        rows=rows,
        classes=classes,
        confusion=confusion,
        figures=tuple(figure for figure in figures if figure is not None),
        notes=_notes(task, entry, fitted),
    )


def _notes(task: Task, entry: RoundEntry, fitted: bool) -> tuple[str, ...]:
    notes = [
        in_the_clear(fitted)
        if entry.metrics_are == "simulation-only"
        else f"± holds with {CONFIDENCE}: noise, bins and the choice of test records included."
    ]
    if task.spread is not None and task.spread.name in entry.metrics:
        notes.append(_about_spread(task.spread, entry.metrics[task.spread.name]))
    return tuple(notes)


def _about_spread(spread: Measure, value: float) -> str:
    title = spread.title
    untold = "Which silo does how well is not told: that would be a fact about an organisation."
    if spread.text(value) == spread.at_zero:
        return (
            f"{title}: silos differ no more than chance makes silos differ that are alike. {untold}"
        )
    return (
        f"{title}: its standard deviation, each silo weighing as its test records do, beyond what "
        "chance makes of silos that are all alike. At most a tenth of all records are in silos that "
        f"do worse than the whole by three times as much. {untold}"
    )


def _classes(
    tables: Mapping[str, Mapping[str, tuple[float, ...]]], names: Sequence[str]
) -> tuple[tuple[tuple[str, ...], ...], tuple[tuple[str, ...], ...]]:
    """The confusion matrix and each class's row, where there are few enough to read."""
    told = tables.get("classes", {})
    count = len(told.get("share", ()))
    if not 2 <= count <= _MOST_ROWS:
        return (), ()
    called = tuple(names) if len(names) == count else tuple(map(str, range(count)))
    rows = tuple(
        (
            called[place],
            as_percent(told["share"][place]),
            *(
                as_percent(told[name][place], told[f"{name}_plus_minus"][place])
                for name in ("recall", "precision")
            ),
        )
        for place in range(count)
    )
    flat = tables.get("confusion", {}).get("true_by_predicted", ())
    if len(flat) != count**2:
        return (), rows
    confusion = tuple(
        (called[place], *(f"{value:,.0f}" for value in flat[place * count : (place + 1) * count]))
        for place in range(count)
    )
    return (("", *called), *confusion), rows


def _roc(table: Mapping[str, tuple[float, ...]] | None) -> Figure | None:
    if table is None or len(table["false_positive_rate"]) < 2:
        return None
    points = list(zip(table["false_positive_rate"], table["true_positive_rate"], strict=True))
    chart = curve_chart(
        [Line(name="model", points=points, colour=0)],
        label="True positive rate over false positive rate",
        names=("false positives", "true positives"),
    )
    return Figure(
        key="roc",
        title="True over false positives",
        chart=chart,
        legend=(("model", 0, False), ("by chance", 7, True)),
        caption="Every threshold that bins of scores tell apart. AUROC is the area below.",
    )


def _reliability(table: Mapping[str, tuple[float, ...]] | None) -> Figure | None:
    if table is None or not table["predicted"]:
        return None
    dots = [
        Dot(x=predicted, y=observed, plus_minus=width, size=2.0 + 9.0 * math.sqrt(share))
        for predicted, observed, width, share in zip(
            table["predicted"], table["observed"], table["plus_minus"], table["share"], strict=True
        )
    ]
    chart = curve_chart(
        [],
        dots=dots,
        label="Share of outcomes over what was predicted",
        top=max(max(dot.x, dot.y + dot.plus_minus) for dot in dots),
        names=("predicted", "observed"),
    )
    return Figure(
        key="reliability",
        title="Predicted and observed",
        chart=chart,
        legend=(("groups of scores, larger with more records", 0, False), ("calibrated", 7, True)),
        caption=f"Whiskers: {CONFIDENCE}. Below the line more is predicted than happens.",
    )


def _kaplan_meier(table: Mapping[str, tuple[float, ...]] | None) -> Figure | None:
    if table is None or len(table["time"]) < 2:
        return None
    points = list(zip(table["time"], table["survival"], table["plus_minus"], strict=True))[1:]
    chart = histogram(
        [(f"{time:g}", 100.0 * share) for time, share, _ in points],
        plus_minus=0.0,
        label=f"Kaplan–Meier curve of the test records, {len(points)} cut points",
        whiskers=[
            (100.0 * max(share - width, 0.0), 100.0 * min(share + width, 1.0))
            for _, share, width in points
        ],
    )
    return Figure(
        key="kaplan-meier",
        title="Without an event by each cut point",
        chart=chart,
        legend=(("per cent of the test records (Kaplan–Meier)", 0, False),),
        caption=f"Whiskers: {CONFIDENCE}. Of the records, not of the model.",
    )
