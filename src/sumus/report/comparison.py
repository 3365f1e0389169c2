"""What privacy costs and what joining brings, as rows of a page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from sumus.books import RoundEntry, RunFolder
from sumus.comparing import Comparison, difference_text, stored_comparisons
from sumus.tasks import CONFIDENCE, Measure

__all__ = ["ComparedView", "Row", "compared", "test_records"]

_CLEAR = (
    "Models without privacy saw records in the clear and belong to this simulation: no guarantee "
    "covers them, and no silo may send them."
)


@final
@dataclass(frozen=True, kw_only=True)
class Row:
    """One bar: a model, its measure and the run's minus it."""

    name: str
    value: float
    plus_minus: float | None
    remark: str
    difference: str = ""


@final
@dataclass(frozen=True, kw_only=True)
class ComparedView:
    """Bars by one measure, what they say, and what the intervals hold."""

    measure: Measure
    rows: tuple[Row, ...]
    sentences: tuple[str, ...]
    note: str

    def bar(self, value: float) -> float:
        """The length of a bar, in per cent of the longest that there may be."""
        longest = max((abs(row.value) for row in self.rows), default=1.0) or 1.0
        return 100.0 * value if self.measure.is_share else 100.0 * abs(value) / longest


def compared(run: RunFolder, rounds: list[RoundEntry]) -> list[ComparedView]:
    """Of a finished run; empty where nothing was measured to compare with."""
    stored = stored_comparisons(run.summary or {})
    if stored:
        return [_view(run, comparison) for comparison in stored]
    return _constant_alone(run, rounds)


def test_records(run: RunFolder) -> dict[str, str]:
    """How many test records each silo has, as far as the run tells."""
    stored = stored_comparisons(run.summary or {})
    return {silo.name: f"{silo.test:,}" for silo in stored[0].silos} if stored else {}


def _view(run: RunFolder, found: Comparison) -> ComparedView:
    measure = run.plan.task.measure(found.measure, field="comparison")
    name, remark = (
        ("This run", "all silos together, without privacy")
        if run.guarantee is None
        else ("This run, simulated", "all silos together; the guarantee is void")
        if run.void is not None
        else ("This run, private", "all silos together, with the guarantee above")
    )
    mine = Row(name=name, value=found.value, plus_minus=found.plus_minus, remark=remark)
    others = [
        Row(
            name=each.title[:1].upper() + each.title[1:],
            value=each.value,
            plus_minus=each.plus_minus,
            remark=each.remark,
            difference=difference_text(each, measure),
        )
        for each in found.contenders
    ]
    tested = sum(silo.test for silo in found.silos)
    note = (
        f"± holds with {CONFIDENCE} for the choice of the {tested:,} test {found.unit}s, "
        f"differences in pairs; not for another draw of noise or of training records. {_CLEAR}"
    )
    return ComparedView(
        measure=measure,
        rows=(mine, *others),
        sentences=tuple(
            f"{sentence[:1].upper()}{sentence[1:]}." for sentence in found.sentences(measure)
        ),
        note=note,
    )


def _constant_alone(run: RunFolder, rounds: list[RoundEntry]) -> list[ComparedView]:
    """A run that was compared with a constant answer only."""
    stored, task = (run.summary or {}).get("baselines"), run.plan.task
    measure, (constant, title) = task.headline, task.constant
    mine = rounds[-1].metrics.get(measure.name) if rounds else None
    value = stored.get(constant) if isinstance(stored, dict) else None
    if isinstance(value, int | float):  # the answer that stands in the table of measures too
        value = rounds[-1].metrics_of_constant.get(measure.name, value) if rounds else value
    if mine is None or not isinstance(value, int | float):
        return []
    width = rounds[-1].metrics_plus_minus.get(measure.name)
    kind = "without privacy" if run.guarantee is None else "with the guarantee above"
    rows = (
        Row(
            name="This run" if run.guarantee is None else "This run, private",
            value=mine,
            plus_minus=width,
            remark=f"all silos together, {kind}",
        ),
        Row(
            name=title.capitalize(),
            value=float(value),
            plus_minus=None,
            remark="what always answering the same would reach",
        ),
    )
    return [ComparedView(measure=measure, rows=rows, sentences=(), note="")]
