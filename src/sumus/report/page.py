"""One self-contained HTML page about one or several runs: no network, no file beside it, nothing
executed but its own few lines of script.

write_report([RunFolder.open("runs/digits-…")], Path("report.html"))
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, final

import jinja2

from sumus.books import RoundEntry, RunFolder, rounded_up
from sumus.files import name_of_file, replace_atomically
from sumus.plan import TrainingPlan
from sumus.report import figures, scales
from sumus.report.comparison import ComparedView, compared, test_records
from sumus.report.facts import class_names, extremes_of, health_of, tiles_of, told_as, value_of
from sumus.report.figures import Figure
from sumus.report.measures import MeasureView, view_of
from sumus.report.sheets import ASSUMED, letters_for
from sumus.report.signatures import EvidenceSummary, SignatureView, signatures_of
from sumus.report.spent import SpentView, spent_of
from sumus.report.style import TEMPLATES, house_style
from sumus.report.words import Statement, statement_of
from sumus.tasks import Measure

__all__ = ["render_report", "rendered", "write_report"]

_CONTENTS = (
    ("What ε means", "means"),
    ("What it does not protect", "gaps"),
    ("Assumptions", "assumptions"),
    ("How well the model does", "measures"),
    ("What privacy costs", "baselines"),
    ("Round by round", "rounds"),
    ("What the data set has spent", "spent"),
    ("Signatures", "signatures"),
)


@final
@dataclass(frozen=True, kw_only=True)
class RunView:
    """Everything the page shows about one run."""

    run: RunFolder
    rounds: list[RoundEntry]
    statement: Statement
    figures: list[Figure]
    tiles: list[tuple[str, str, str]]
    measures: MeasureView | None
    compared: list[ComparedView]
    test_records: dict[str, str]
    extremes: list[tuple[str, float]]
    health: list[tuple[str, str]]
    spent: SpentView
    signatures: SignatureView
    colour: int

    @property
    def title(self) -> str:
        plan = self.run.plan
        return plan.data.name or (
            name_of_file(plan.data.path) if plan.data.path else plan.data.objects or self.run.name
        )

    @property
    def headline(self) -> Measure:
        return self.run.plan.task.headline

    @property
    def contents(self) -> list[tuple[str, str]]:
        """(name, anchor) of what a reader may want to jump to."""
        there = {
            "assumptions": bool(self.statement.assumptions),
            "measures": self.measures is not None,
            "baselines": bool(self.compared),
            "rounds": bool(self.figures),
        }
        return [(name, anchor) for name, anchor in _CONTENTS if there.get(anchor, True)]

    @property
    def printed(self) -> tuple[str, ...]:
        """Figures that there is room for on paper."""
        return (self.headline.name, "epsilon")

    @property
    def letters(self) -> str:
        """Of the printed page."""
        told = self.measures
        listed = 0 if told is None else max(len(told.rows), len(told.classes))
        return letters_for(
            self.statement,
            rows=listed + len(self.spent.rows),
            bars=sum(len(each.rows) + len(each.sentences) for each in self.compared[:1]),
            figures=bool(self.figures),
        )

    @property
    def status(self) -> str:
        planned, done = self.run.plan.federation.rounds, len(self.rounds)
        if self.run.summary is not None:
            return "finished"
        return f"{done} of {planned} rounds so far"


def write_report(
    runs: Sequence[RunFolder],
    path: Path,
    *,
    evidence: Mapping[Path, EvidenceSummary] | None = None,
) -> None:
    """Render the page and write it atomically.

    Args:
        evidence: what was checked of the signatures of a run across machines, by its folder.
    """
    replace_atomically(path, render_report(runs, evidence=evidence).encode())


def render_report(
    runs: Sequence[RunFolder], *, evidence: Mapping[Path, EvidenceSummary] | None = None
) -> str:
    """The page as text. Checks the hash chain of every run first; a changed file is a
    `StorageError`.
    """
    checked = evidence or {}
    views = [_view(run, colour, checked.get(run.path)) for colour, run in enumerate(runs)]
    return rendered(
        "page.html",
        views=views,
        comparison=figures.comparison(
            runs[0].plan.task,
            [(view.run.name, view.rounds, view.statement) for view in views],
        )
        if len(views) > 1
        else [],
        datasets=list(dict.fromkeys(_records_of(run.plan) for run in runs)),
        differences=plan_differences([run.plan.as_table() for run in runs]),
        made=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
    )


def rendered(template: str, **values: Any) -> str:
    """A template with the style and script of all pages, and a policy that lets nothing else in."""
    style, script = house_style(), (TEMPLATES / "page.js").read_text(encoding="utf-8")
    return (
        _environment()
        .get_template(template)
        .render(
            style=style,
            script=script,
            policy=_content_policy(style, script),
            assumed=ASSUMED,
            **values,
        )
    )


@cache  # which keeps compiled templates
def _environment() -> jinja2.Environment:
    """How every page is written."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "percent": scales.as_percent,
        "number": scales.as_number,
        "seconds": scales.as_seconds,
        "bytes": scales.as_bytes,
        "bound": rounded_up,
        "told": lambda value, measure, plus_minus=None: told_as(measure, value, plus_minus),
        "value": lambda entry, measure: value_of(measure, entry),
    }
    return environment


def plan_differences(
    plans: Sequence[Mapping[str, Mapping[str, Any]]],
) -> list[tuple[str, list[str]]]:
    """The keys in which plans differ, with the value in each; "–" where a key is not set."""
    keys = list(
        dict.fromkeys(
            (section, key) for plan in plans for section, entries in plan.items() for key in entries
        )
    )
    rows = [
        (f"{section}.{key}", [_shown(plan.get(section, {}).get(key, "–")) for plan in plans])
        for section, key in keys
    ]
    return [(name, values) for name, values in rows if len(set(values)) > 1]


def _records_of(plan: TrainingPlan) -> str:
    given = (
        "records given in Python"
        if plan.data.objects is None
        else f"{plan.data.objects} (records given in Python)"
    )
    return plan.data.name or plan.data.path or given


def _shown(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _content_policy(style: str, script: str) -> str:
    """Nothing from anywhere but our own style and script, each by its hash: text from a run can
    neither run nor load anything.
    """
    hashes = [
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for text in (style, script)
    ]
    return (
        f"default-src 'none'; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _view(run: RunFolder, colour: int, evidence: EvidenceSummary | None) -> RunView:
    run.verify()
    rounds, statement = run.rounds(), statement_of(run)
    return RunView(
        run=run,
        rounds=rounds,
        statement=statement,
        figures=figures.of_run(run, rounds, statement),
        tiles=tiles_of(run, rounds),
        measures=_measures(run, rounds),
        compared=compared(run, rounds),
        test_records=test_records(run),
        extremes=extremes_of(run, rounds),
        health=health_of(run, rounds),
        spent=spent_of(run),
        signatures=signatures_of(run, evidence),
        colour=colour,
    )


def _measures(run: RunFolder, rounds: list[RoundEntry]) -> MeasureView | None:
    """Of the last model that was measured."""
    measured = next((entry for entry in reversed(rounds) if entry.metrics), None)
    if measured is None:
        return None
    fitted = run.plan.training.local_parameters is not None
    return view_of(run.plan.task, measured, class_names(run), fitted=fitted)
