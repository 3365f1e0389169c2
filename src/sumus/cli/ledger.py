"""`sumus ledger`: what a data set has spent across runs, and whether its ledger is untouched."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from sumus.cli.options import AsJson, PlotFolder, print_json
from sumus.cli.reservations import cancel_command, reservations_json, show_reservations
from sumus.cli.terminal import Hanging, screen
from sumus.errors import PlanError, StorageError

if TYPE_CHECKING:
    from sumus.books import Ledger, RunSpending, Total
    from sumus.cli.ledger_composed import Composed

__all__ = ["ledger_app"]

ledger_app = typer.Typer(
    help="Privacy spent on a data set across runs.",
    invoke_without_command=True,
    add_completion=False,
)

ledger_app.command("cancel")(cancel_command)

_NEIGHBOURS = {
    "record": "one record, add or remove",
    "person": "one person with all its rows in one silo, add or remove",
    "silo": "all records of one silo, present or emptied",
}

DataSet = Annotated[str | None, typer.Argument(help="Name of the data set; omitted: all of them.")]
Runs = Annotated[
    Path | None,
    typer.Option(
        "--compose", help="Folder with the run folders: compose their releases, a tighter total."
    ),
]
State = Annotated[
    Path | None,
    typer.Option(
        "--state", help="Folder of the ledgers; default: SUMUS_STATE or the user's state folder."
    ),
]


@ledger_app.callback()
def every_ledger(
    context: typer.Context,
    state: State = None,
    compose: Runs = None,
    plot: PlotFolder = None,
    as_json: AsJson = False,
) -> None:
    """Privacy spent on a data set across runs. Without a command: all ledgers."""
    if context.invoked_subcommand is None:
        show_command(None, state, compose, plot, as_json)
    elif state is not None or compose is not None or plot is not None or as_json:
        raise PlanError(
            "sumus ledger",
            context.invoked_subcommand,
            "takes its options behind it",
            f"Write `sumus ledger {context.invoked_subcommand} --…`.",
        )


@ledger_app.command("show")
def show_command(
    dataset: DataSet = None,
    state: State = None,
    compose: Runs = None,
    plot: PlotFolder = None,
    as_json: AsJson = False,
) -> None:
    """What every run on a data set has released, and all of it added up; composed as well where the
    run folders are at hand.
    """
    from sumus.books import state_directory
    from sumus.cli.ledger_plots import draw_ledger

    ledgers = _chosen(dataset, state)
    drawn = {
        ledger.path: [path for unit in _units(ledger) for path in draw_ledger(ledger, unit, plot)]
        for ledger in ledgers
        if plot is not None
    }
    if as_json:
        told = [_as_json(ledger, compose, drawn.get(ledger.path, [])) for ledger in ledgers]
        print_json({"ledgers": told})
        return
    console = screen()
    if not ledgers:
        console.print(
            f"No ledger in {state or state_directory()}: nothing has been released from here.",
            markup=False,
            highlight=False,
        )
    for ledger in ledgers:
        _show(console, ledger, compose)
        for path in drawn.get(ledger.path, []):
            console.print(f"wrote {path}", style="green", soft_wrap=True)


@ledger_app.command("verify")
def verify_command(dataset: DataSet = None, state: State = None, as_json: AsJson = False) -> None:
    """Recompute every hash of a ledger; fails on the first line that was changed, added or
    removed.
    """
    from sumus.books import state_directory

    checked = [
        {
            "dataset": ledger.dataset,
            "path": str(ledger.path),
            "entries": len(ledger.entries()),
            "head": ledger.verify(),
        }
        for ledger in _chosen(dataset, state)
    ]
    if as_json:
        print_json({"verified": checked})
        return
    for row in checked:
        typer.echo(
            f"{row['dataset']}: {row['entries']} entries, every hash holds. Last: {row['head']}"
        )
    if not checked:
        typer.echo(f"No ledger in {state or state_directory()}.")


@ledger_app.command("move")
def move_command(
    file: Annotated[Path, typer.Argument(help="An old ledger: ledger-NAME.jsonl.")],
    state: State = None,
    as_json: AsJson = False,
) -> None:
    """Have an old ledger counted with the others: its releases go on the ledger of the same data
    set, and its files are set aside.
    """
    from sumus.books import Ledger

    old = Ledger.at(file)
    ledger = Ledger.of_dataset(old.dataset, state=state)
    moved = ledger.adopt(old)
    if as_json:
        print_json({"dataset": ledger.dataset, "path": str(ledger.path), "moved": moved})
        return
    typer.echo(f"{ledger.dataset}: {moved} releases were added to {ledger.path}")
    for unit in _units(ledger):
        typer.echo(_total_line(ledger.total(unit)))


def _chosen(dataset: str | None, state: Path | None) -> list[Ledger]:
    from sumus.books import Ledger

    if dataset is None:
        return Ledger.all(state=state)
    ledger = Ledger.of_dataset(dataset, state=state)
    if not ledger.path.exists():
        known = ", ".join(each.dataset for each in Ledger.all(state=state)) or "none"
        raise StorageError(
            f"{ledger.path} does not exist: nothing was released from {dataset!r}. Ledgers here: "
            f"{known}."
        )
    return [ledger]


def _units(ledger: Ledger) -> list[str]:
    return sorted({spent.unit for spent in ledger.runs()})


def _as_json(ledger: Ledger, compose: Path | None, files: list[Path]) -> dict[str, Any]:
    from sumus.books import limit_of, steps_of
    from sumus.cli.ledger_composed import composed

    units = _units(ledger)
    totals = [] if compose is None else [composed(ledger, unit, compose) for unit in units]
    told = {
        "composed_epsilon": {each.unit: each.epsilon for each in totals},
        "composed": [asdict(each) for each in totals],
    }
    return (told if compose is not None else {}) | {
        "dataset": ledger.dataset,
        "path": str(ledger.path),
        "head": ledger.head,
        "runs": [asdict(spent) for spent in ledger.runs()],
        "totals": [asdict(ledger.total(unit)) for unit in units],
        "reservations": reservations_json(ledger),
        "max_epsilon": limit_of(ledger),
        "steps": {
            unit: [asdict(step) | {"after": step.after} for step in steps_of(ledger, unit)]
            for unit in units
        },
        "composition": "simple addition of epsilon and delta over runs",
        **({"files": list(map(str, files))} if files else {}),
    }


def _show(console: Console, ledger: Ledger, compose: Path | None) -> None:
    """One table for all runs that protect the same and count on the same: it fits an ordinary
    terminal.
    """
    from sumus.cli.ledger_composed import composed

    groups: dict[tuple[str, str], list[RunSpending]] = {}
    for spent in ledger.runs():
        groups.setdefault((spent.neighbours, spent.trust), []).append(spent)
    console.print(ledger.dataset, style="bold", markup=False, highlight=False)
    for (neighbours, trust), runs in groups.items():
        console.print(Hanging(Text(f"\n  protects     {neighbours}\n  counts on    {trust}")))
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for heading in ("run", "sums", "ε ≤", "δ", "proved", "analysis"):
            table.add_column(
                heading,
                justify="right" if heading in ("sums", "ε ≤", "δ") else "left",
                no_wrap=heading != "run",
            )
        for spent in runs:
            table.add_row(*map(escape, _row(spent)))
        if console.measure(table).maximum + 2 <= console.width or not console.is_terminal:
            console.print(
                Padding(table, (0, 0, 0, 2)), crop=False, soft_wrap=not console.is_terminal
            )
        else:
            _show_below_each_other(console, runs)
    for unit in _units(ledger):
        console.print(Hanging(Text(f"\n  {_total_line(ledger.total(unit))}")))
        found = None if compose is None else composed(ledger, unit, compose)
        if found is not None:
            console.print(Hanging(Text(_composed_text(found))))
        _show_bars(console, ledger, unit)
    show_reservations(console, ledger)
    console.print(f"  last hash {ledger.head}\n", style="dim", highlight=False, soft_wrap=True)


def _composed_text(found: Composed) -> str:
    from sumus.books import rounded_up

    many = "1 run" if len(found.runs) == 1 else f"{len(found.runs)} runs"
    proved = "every part proved" if found.proved else "NOT PROVED in part"
    if not found.runs:
        return "  composed: no run can be" + _added_text(found)
    text = (
        f"  composed: ε ≤ {rounded_up(found.epsilon)} at δ = {found.delta:.3g} for "
        f"{_NEIGHBOURS[found.unit]}; {many} by the analyses above, {proved}, if no plan was chosen "
        "by what an earlier run released"
    )
    if found.measured:
        text += "; a record is taken to be trained on and measured with in every run"
    return text + _added_text(found)


def _added_text(found: Composed) -> str:
    return "".join(f"\n            added as it is: {run} ({why})" for run, why in found.added)


def _show_bars(console: Console, ledger: Ledger, unit: str) -> None:
    """What each run has spent on top of those before, up to the limit."""
    from sumus.books import limit_of, steps_of
    from sumus.cli.ledger_plots import BLOCKS, LETTERS, bars

    steps, limit = steps_of(ledger, unit), limit_of(ledger)
    if not steps:
        return
    name = max(len(step.run) for step in steps)
    width = 40 if not console.is_terminal else max(10, min(40, console.width - name - 14))
    try:
        "".join(BLOCKS).encode(console.encoding)
        drawn = BLOCKS
    except UnicodeEncodeError:
        drawn = LETTERS
    end = "" if math.isinf(limit) else f"; the last place is the limit, {limit:g}, or the sum"
    console.print(
        f"\n  ε of one {unit}: {drawn[0]} by the run, {drawn[1]} before it{end}",
        style="dim",
        highlight=False,
    )
    for step, line in zip(steps, bars(steps, limit, width=width, drawn=drawn), strict=True):
        console.print(
            f"  {step.run.ljust(name)}  {line}", markup=False, highlight=False, soft_wrap=True
        )


def _show_below_each_other(console: Console, runs: list[RunSpending]) -> None:
    """For a terminal on which the columns would squeeze each other out: no name is cut."""
    for spent in runs:
        name, sums, epsilon, delta, proved, analysis = _row(spent)
        words = (
            f"sums {sums}, ε ≤ {epsilon}, δ = {delta}, "
            f"{'proved' if proved == 'yes' else 'NOT PROVED'} ({analysis})"
        )
        console.print(f"  {name}", markup=False, soft_wrap=True)
        console.print(Padding(Text(words), (0, 0, 0, 4)))


def _row(spent: RunSpending) -> tuple[str, ...]:
    from sumus.books import rounded_up

    name = spent.run if spent.purpose == "model" else f"{spent.run} ({spent.purpose})"
    return (
        name,
        str(spent.releases),
        rounded_up(spent.epsilon),
        f"{spent.delta:.3g}",
        "yes" if spent.proved else "NO",
        spent.analysis,
    )


def _total_line(total: Total) -> str:
    from sumus.books import rounded_up

    if math.isinf(total.epsilon):
        return f"total: no bound for one {total.unit}"
    proved = "every part proved" if total.proved else "NOT PROVED in part"
    many = "1 run" if total.runs == 1 else f"{total.runs} runs"
    return (
        f"total: ε ≤ {rounded_up(total.epsilon)} at δ = {total.delta:.3g} for "
        f"{_NEIGHBOURS[total.unit]}; {many} by simple addition; "
        f"{proved}; counts on what every run above counts on"
    )
