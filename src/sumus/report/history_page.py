"""The page over the runs of a folder: one self-contained file in the style of the other pages."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import final

from markupsafe import Markup

from sumus.books import rounded_up
from sumus.files import replace_atomically
from sumus.report.history import History, Kind, PastRun, Spending
from sumus.report.lineage import Lineage, drawn_lineage
from sumus.report.page import rendered
from sumus.report.scales import as_number
from sumus.report.timeline import step_chart

__all__ = ["Row", "rows_of", "spent_words", "write_history"]

_HASH = 12
_VERDICTS = {"proved": "proved", "not proved": "NOT PROVED", "void": "VOID", "none": "no guarantee"}


@final
@dataclass(frozen=True, kw_only=True)
class Row:
    """One run as people read it, at a terminal or on the page.

    Args:
        kind: number of what stands beside its ε, from 1.
        measured: the headline measure by its name.
        bound: ε and δ; of a run without a guarantee, that.
        began_with: whose model, or its hash; empty: a fresh one.
        parent: the run of this folder that it began with, if it is one.
    """

    number: int
    run: PastRun
    when: str
    rounds: str
    bound: str
    verdict: str
    kind: int
    measured: str
    silos: str
    model: str
    began_with: str
    parent: str

    @property
    def anchor(self) -> str:
        """Its name within the page: run names are other people's text."""
        return f"run-{self.number}"


def rows_of(history: History) -> list[Row]:
    """Every run, newest first."""
    kinds = {kind: number for number, kind in enumerate(history.kinds, start=1)}
    rows = []
    for number, run in enumerate(history.runs, start=1):
        parent = history.parents.get(run.name, "")
        rows.append(
            Row(
                number=number,
                run=run,
                when=_moment(run.started),
                rounds=_rounds(run),
                bound=_bound(run),
                verdict=_VERDICTS[run.kind.verdict],
                kind=kinds[run.kind],
                measured=f"{run.measure} {run.measured}" if run.measured else "not measured",
                silos=_silos(run),
                model=_short(run.model),
                began_with=parent or run.started_from or _short(run.start),
                parent=parent,
            )
        )
    return rows[::-1]


def write_history(history: History, path: Path) -> None:
    """Render the page and write it atomically."""
    replace_atomically(path, _page(history).encode())


def spent_words(spent: Spending) -> str:
    """What a data set has spent by now, in a sentence."""
    reached = spent.steps[-1].after if spent.steps else 0.0
    bound = "no bound" if math.isinf(reached) else f"ε ≤ {rounded_up(reached)}"
    most = "" if math.isinf(spent.limit) else f" of at most {spent.limit:g}"
    proved = "every part proved" if spent.proved else "NOT PROVED in part"
    runs = "1 run" if len(spent.steps) == 1 else f"{len(spent.steps)} runs"
    return f"{bound}{most} for one {spent.unit}, {runs}, {proved}: {spent.source}"


def _page(history: History) -> str:
    rows = rows_of(history)
    anchors = {row.run.name: row.anchor for row in rows}
    lineage = Lineage.of([run.name for run in history.runs], history.parents)
    drawing, hidden = drawn_lineage(lineage, anchors)
    return rendered(
        "history.html",
        history=history,
        rows=rows,
        anchors=anchors,
        kinds=[(number, *_told(kind)) for number, kind in enumerate(history.kinds, start=1)],
        tiles=_tiles(history),
        charts=[(spent, _chart(spent), spent_words(spent)) for spent in history.spent],
        lineage=drawing if lineage.places else None,
        hidden=hidden,
        made=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
    )


def _told(kind: Kind) -> tuple[str, str]:
    """Verdict, and all that an ε of the kind must carry."""
    if kind.verdict == "none":
        return "none", "no noise, no guarantee"
    void = "; the guarantee is VOID: the noise came from a public seed"
    words = (
        f"at δ = {kind.delta:.3g}; protects {kind.protects}; counts on {kind.trust}; analysis "
        f"{kind.analysis}"
    )
    return kind.verdict, words + (void if kind.verdict == "void" else "")


def _chart(spent: Spending) -> Markup:
    limit = None if math.isinf(spent.limit) else (spent.limit, f"limit {spent.limit:g}")
    return step_chart(
        [(step.when, step.after, step.run) for step in spent.steps],
        label=f"ε that {spent.dataset} has spent for one {spent.unit}, over time",
        formatter=as_number,
        limit=limit,
    )


def _tiles(history: History) -> list[tuple[str, str, str]]:
    runs = history.runs
    over = [run for run in runs if run.finished]
    lost = sum(run.lost for run in runs)
    plans = len({run.plan_hash for run in runs})
    continued = len(history.parents)
    return [
        ("Runs", f"{len(runs)}", f"{len(over)} finished"),
        ("Plans", f"{plans}", "by their hash"),
        ("Rounds", f"{sum(run.rounds for run in runs)}", f"{lost} lost"),
        ("Continued", f"{continued}", "began with the model of another run here"),
    ]


def _rounds(run: PastRun) -> str:
    lost = f", {run.lost} lost" if run.lost else ""
    return f"{run.rounds} of {run.planned}{lost}{'' if run.finished else ', under way'}"


def _bound(run: PastRun) -> str:
    if run.epsilon is None:
        return "no bound"
    more = "" if run.metrics_epsilon is None else f" + {rounded_up(run.metrics_epsilon)}"
    return f"ε ≤ {rounded_up(run.epsilon)}{more} at δ = {run.delta:.3g}"


def _silos(run: PastRun) -> str:
    if run.took_part is None:
        return f"– of {run.silos}"
    fewest, most = run.took_part
    return f"{most if fewest == most else f'{fewest} to {most}'} of {run.silos}"


def _short(model: str) -> str:
    return model.removeprefix("sha256:")[:_HASH]


def _moment(started: str) -> str:
    return started[:16].replace("T", " ")
