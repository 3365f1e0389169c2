"""One self-contained HTML page about one or several runs: no network, no file beside it, nothing
executed but its own few lines of script.

write_report([RunFolder.open("runs/digits-…")], Path("report.html"))
"""

from __future__ import annotations

import base64
import hashlib
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, final

import jinja2

from sumus.books import RoundEntry, RunFolder, rounded_up
from sumus.files import name_of_file, replace_atomically
from sumus.plan import TrainingPlan
from sumus.report import figures, scales
from sumus.report.comparison import ComparedView, compared, test_records
from sumus.report.figures import Figure
from sumus.report.measures import MeasureView, view_of
from sumus.report.words import Statement, statement_of
from sumus.tasks import CONFIDENCE, Measure

__all__ = ["render_report", "rendered", "write_report"]

_TEMPLATES = Path(__file__).parent / "templates"
_EXACT = "exact: simulation only"  # no guarantee covers an exact count


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
    head: str
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
    def status(self) -> str:
        planned, done = self.run.plan.federation.rounds, len(self.rounds)
        if self.run.summary is not None:
            return "finished"
        return f"{done} of {planned} rounds so far"


def write_report(runs: Sequence[RunFolder], path: Path) -> None:
    """Render the page and write it atomically."""
    replace_atomically(path, render_report(runs).encode())


def render_report(runs: Sequence[RunFolder]) -> str:
    """The page as text. Checks the hash chain of every run first; a changed file is a
    `StorageError`.
    """
    views = [_view(run, colour) for colour, run in enumerate(runs)]
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
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
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
        "told": lambda value, measure, plus_minus=None: _told(measure, value, plus_minus),
        "value": lambda entry, measure: _value(measure, entry),
    }
    style, script = (
        (_TEMPLATES / name).read_text(encoding="utf-8") for name in ("page.css", "page.js")
    )
    return environment.get_template(template).render(
        style=style, script=script, policy=_content_policy(style, script), **values
    )


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


def _view(run: RunFolder, colour: int) -> RunView:
    head = run.verify()
    rounds, statement = run.rounds(), statement_of(run)
    return RunView(
        run=run,
        rounds=rounds,
        statement=statement,
        figures=figures.of_run(run, rounds, statement),
        tiles=_tiles(run, rounds),
        measures=_measures(run, rounds),
        compared=compared(run, rounds),
        test_records=test_records(run),
        extremes=_extremes(run, rounds),
        health=_health(run, rounds),
        head=head,
        colour=colour,
    )


def _tiles(run: RunFolder, rounds: list[RoundEntry]) -> list[tuple[str, str, str]]:
    """The figures everybody asks for first: (name, value, remark)."""
    seconds = sum(sum(entry.seconds.values()) for entry in rounds)
    traffic = sum(entry.bytes_up + entry.bytes_down for entry in rounds)
    planned = run.plan.federation.silos
    silos = len(run.silos) if run.silos or planned is None else planned
    tiles = []
    measured = next((entry for entry in reversed(rounds) if entry.metrics), None)
    if measured is not None:
        last = run.summary is not None and measured.round == rounds[-1].round
        model = "the released model" if last else f"the model of round {measured.round}"
        how = (
            f"{CONFIDENCE}, noisy count"
            if measured.metrics_are == "secure"
            else measured.metrics_are
        )
        tiles += [
            (measure.title, _value(measure, measured), f"of {model}, {how}")
            for measure in _first_measures(run, measured)
        ]
    tiles.append(("Rounds", f"{len(rounds)}", f"of {run.plan.federation.rounds} planned"))
    tiles.append(
        (
            "Silos",
            f"{silos}",
            f"{run.plan.noise_contributors} counted for noise"
            if run.plan.federation.silos
            else "from the data",
        )
    )
    tiles.append(
        (
            "Traffic",
            scales.as_bytes(traffic),
            f"{scales.as_bytes(traffic / max(silos, 1))} per silo",
        )
    )
    tiles.append(
        (
            "Time",
            scales.as_seconds(seconds),
            f"{scales.as_seconds(seconds / max(len(rounds), 1))} per round",
        )
    )
    return tiles


def _first_measures(run: RunFolder, entry: RoundEntry) -> list[Measure]:
    """The measure to read first, and the headline and loss or the like beside it."""
    task = run.plan.task
    first = task.leading(entry.metrics, entry.metrics_of_constant)
    wanted = [first, *(measure for measure in task.measures[:2] if measure is not first)]
    return [measure for measure in wanted if measure.name in entry.metrics]


def _measures(run: RunFolder, rounds: list[RoundEntry]) -> MeasureView | None:
    """Of the last model that was measured."""
    measured = next((entry for entry in reversed(rounds) if entry.metrics), None)
    if measured is None:
        return None
    data = run.plan.data
    names = (data.categories or {}).get(data.label_column or "", ())
    fitted = run.plan.training.local_parameters is not None
    return view_of(run.plan.task, measured, names, fitted=fitted)


def _extremes(run: RunFolder, rounds: list[RoundEntry]) -> list[tuple[str, float]]:
    """The last headline measure of each silo, worst first; only the ends of a long list."""
    last = next((entry.silo_scores for entry in reversed(rounds) if entry.silo_scores), None) or ()
    names = (
        run.silos
        if len(run.silos) == len(last)
        else tuple(f"silo {index + 1}" for index in range(len(last)))
    )
    known = [(name, score) for name, score in zip(names, last, strict=True) if score is not None]
    better = run.plan.task.headline.larger_is_better
    ordered = sorted(known, key=lambda pair: pair[1], reverse=not better)
    return ordered if len(ordered) <= 12 else ordered[:5] + ordered[-5:]


def _value(measure: Measure, entry: RoundEntry) -> str:
    """A measure of a round with its half-width, a dash where it was not measured."""
    if measure.name not in entry.metrics:
        return "–"
    return _told(measure, entry.metrics[measure.name], entry.metrics_plus_minus.get(measure.name))


def _told(measure: Measure, value: float, plus_minus: float | None = None) -> str:
    formatter = scales.as_percent if measure.is_share else scales.as_number
    return formatter(value, plus_minus)


def _health(run: RunFolder, rounds: list[RoundEntry]) -> list[tuple[str, str]]:
    """What an engineer looks at when something seems wrong."""
    dropped = [name for entry in rounds for name in entry.dropped]
    headroom = [entry.headroom_bits for entry in rounds if entry.headroom_bits is not None]
    clipped = [entry.clipped_fraction for entry in rounds if entry.clipped_fraction is not None]
    clamped = [entry.saturated for entry in rounds if entry.saturated is not None]
    nonfinite = [entry.nonfinite for entry in rounds if entry.nonfinite is not None]
    resumed = sum(1 for name, _ in run.events if name == "resumed")
    lost = (
        f"{len(dropped)} in {sum(1 for entry in rounds if entry.dropped)} rounds"
        if dropped
        else "none"
    )
    rows = [
        ("Drop-outs", f"{lost}; {run.plan.federation.dropouts or 'none'} tolerated in a round"),
        ("Overflow margin", f"at least {min(headroom):.1f} bits" if headroom else "not measured"),
        (
            "Clamped coordinates",
            f"{sum(clamped):,} ({_EXACT})" if clamped else "known to the silos only",
        ),
        (
            "Gradients not finite",
            f"{sum(nonfinite):,}, counted as zero ({_EXACT})"
            if nonfinite
            else "known to the silos only",
        ),
        (
            "Clipped records",
            f"{100.0 * statistics.fmean(clipped):.1f} % on average ({_EXACT})"
            if clipped
            else "not measured",
        ),
        ("Resumed", f"{resumed} times" if resumed > 1 else "once" if resumed else "never"),
    ]
    others = sorted({name for name, _ in run.events if name not in ("resumed", "records")})
    return [*rows, ("Events", ", ".join(others))] if others else rows
