"""One self-contained HTML page about a description: the guarantee in words, a histogram for every
column, the numbers as tables.

    write_description(Description.of_run(RunFolder.open("runs/…")), Path("description.html"))
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import final

from markupsafe import Markup

from sumus.books import RunFolder
from sumus.describing import ColumnStatistics, Description, Estimate
from sumus.files import name_of_file, replace_atomically
from sumus.report import scales
from sumus.report.histograms import histogram
from sumus.report.page import rendered
from sumus.report.sheets import letters_for
from sumus.report.signatures import EvidenceSummary, signatures_of
from sumus.report.spent import spent_of
from sumus.report.words import statement_of

__all__ = ["render_description", "write_description"]

_KINDS = {
    "bounded": "numbers between public bounds",
    "wide": "numbers without bounds, on a wide public grid",
    "categories": "categories of the plan",
    "text": "text without a list: list its values in data.categories to have them counted",
    "survival": "share without an event by each cut point of time (Kaplan–Meier)",
}


@final
@dataclass(frozen=True, kw_only=True)
class ColumnView:
    """Everything the page shows about one column."""

    column: ColumnStatistics
    kind: str
    chart: Markup
    facts: list[tuple[str, str]]
    note: str


def write_description(
    description: Description, path: Path, *, evidence: EvidenceSummary | None = None
) -> None:
    """Render the page and write it atomically.

    Args:
        evidence: what was checked of the signatures of a run across machines.
    """
    replace_atomically(path, render_description(description, evidence=evidence).encode())


def render_description(description: Description, *, evidence: EvidenceSummary | None = None) -> str:
    """The page as text; a changed run is a `StorageError`."""
    run = RunFolder.open(description.path)
    run.verify()
    statement, spent, plan = statement_of(run), spent_of(run), description.plan
    return rendered(
        "description.html",
        description=description,
        run=run,
        statement=statement,
        title=plan.data.name
        or (name_of_file(plan.data.path) if plan.data.path else plan.data.objects or run.name),
        tiles=_tiles(description),
        columns=[_view(column) for column in description.columns.values()],
        bounds=description.bounds_toml,
        promised=None if description.void else description.account,
        spent=spent,
        letters=letters_for(statement, rows=len(spent.rows) + 4, bars=0, figures=True),
        signatures=signatures_of(run, evidence),
        made=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
    )


def _tiles(description: Description) -> list[tuple[str, str, str]]:
    records = description.records
    return [
        (
            description.unit.capitalize(),
            scales.as_number(round(records.value)),
            f"± {scales.as_number(math.ceil(records.plus_minus))}, 95 %, all silos together",
        ),
        ("Columns", f"{len(description.columns)}", "noise grows with the root of their number"),
        (
            "Noise",
            scales.as_number(description.noise_std),
            "standard deviation of every count",
        ),
        (
            "Silos",
            f"{description.survivors}",
            f"of {description.silos}; none is told apart",
        ),
    ]


def _view(column: ColumnStatistics) -> ColumnView:
    shown, ticks, aside, note = _shown(column)
    label = f"Histogram of {column.name}: {len(shown)} cells, each ± {column.plus_minus:.0f}"
    if column.kind == "survival":
        label = f"Kaplan–Meier curve of {column.name}, {len(shown)} cut points"
    chart = histogram(
        shown,
        plus_minus=column.plus_minus,
        label=label,
        ticks=ticks,
        aside=aside,
        whiskers=[(100.0 * each.low, 100.0 * each.high) for _, each in column.survival],
    )
    facts = [("Missing", _share(column.missing))]
    facts += [
        (name, _number(estimate, column))
        for name, estimate in (("Mean", column.mean), ("Standard deviation", column.std))
        if estimate is not None
    ]
    facts += [
        (f"{100 * level:g} % quantile", _number(estimate, column))
        for level, estimate in column.quantiles.items()
    ]
    if column.kind == "bounded":
        facts += [("Below the bounds", _share(column.below)), ("Above", _share(column.above))]
    facts += [(f"Share {name}", _share(share)) for name, share in column.shares.items()]
    facts += [(f"No event by {time:g}", _share(share)) for time, share in column.survival]
    if column.bounds is not None and column.learned:
        facts.append(("Bounds learned", f"{column.bounds[0]:g} to {column.bounds[1]:g}"))
    return ColumnView(column=column, kind=_KINDS[column.kind], chart=chart, facts=facts, note=note)


def _shown(
    column: ColumnStatistics,
) -> tuple[list[tuple[str, float]], list[tuple[float, str]], int, str]:
    """Cells that are drawn, ticks, how many stand aside, and what is left out."""
    cells = list(column.cells)
    if column.kind == "survival":
        curve = [(f"{time:g}", 100.0 * each.value) for time, each in column.survival]
        return curve, [], 0, "In per cent; whiskers hold the choice of people too."
    if column.kind == "bounded":
        edges, bars = column.edges, len(column.edges) - 1
        every = max(1, bars // 4)
        ticks = [(1.0 + place, f"{edges[place]:.4g}") for place in range(0, bars + 1, every)]
        return cells, ticks, 1, "The first and the last bar lie beyond the bounds."
    if column.kind != "wide":
        return cells, [], 1, ""
    return _busy(column, cells)


def _busy(
    column: ColumnStatistics, cells: list[tuple[str, float]]
) -> tuple[list[tuple[str, float]], list[tuple[float, str]], int, str]:
    """Of a wide grid the cells from the first to the last that stand out of their noise, and two
    more on each side.
    """
    out = [place for place, (_, count) in enumerate(cells[:-1]) if count > 2.0 * column.plus_minus]
    if not out:
        return (
            cells[-1:],
            [],
            0,
            "No cell stands out of the noise: too few records, or too small ε.",
        )
    first, last = max(out[0] - 2, 0), min(out[-1] + 2, len(cells) - 2)
    kept = [*cells[first : last + 1], cells[-1]]
    edges = (-math.inf, *column.edges, math.inf)
    every = max(1, (last - first + 1) // 6)
    ticks = [
        (float(place - first), f"{edges[place]:.3g}")
        for place in range(first, last + 2, every)
        if math.isfinite(edges[place])
    ]
    note = f"{len(cells) - len(kept)} cells that hold nothing but noise are not drawn."
    return kept, ticks, 1, note


def _share(estimate: Estimate | None) -> str:
    return (
        "too few records for the noise"
        if estimate is None
        else scales.as_percent(estimate.value, estimate.plus_minus)
    )


def _number(estimate: Estimate, column: ColumnStatistics) -> str:
    """A value and its interval; an end at the edge of a wide grid is no end that anybody knows."""
    first, last = (-math.inf, math.inf)
    if column.kind == "wide":
        first, last = column.edges[0], column.edges[-1]
    below, above = estimate.low <= first, estimate.high >= last
    interval = f"{estimate.low:.4g} to {estimate.high:.4g}"
    if below and above:
        interval = "anywhere"
    elif below:
        interval = f"below {estimate.high:.4g}"
    elif above:
        interval = f"above {estimate.low:.4g}"
    return f"{estimate.value:.4g} ({interval})"
