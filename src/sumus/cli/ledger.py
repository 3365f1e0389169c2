"""`sumus ledger`: what a data set has spent across runs, and whether its ledger is untouched."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from sumus.books import Ledger, RunFolder, RunSpending, Total, rounded_up, state_directory
from sumus.cli.options import AsJson, print_json
from sumus.cli.terminal import Hanging, screen
from sumus.errors import GuaranteeError, StorageError

__all__ = ["ledger_app"]

ledger_app = typer.Typer(
    help="Privacy spent on a data set across runs.", no_args_is_help=True, add_completion=False
)

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


@ledger_app.command("show")
def show_command(
    dataset: DataSet = None, state: State = None, compose: Runs = None, as_json: AsJson = False
) -> None:
    """What every run on a data set has released, and all of it added up; composed as well where the
    run folders are at hand.
    """
    ledgers = _chosen(dataset, state)
    if as_json:
        print_json({"ledgers": [_as_json(ledger, compose) for ledger in ledgers]})
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


@ledger_app.command("verify")
def verify_command(dataset: DataSet = None, state: State = None, as_json: AsJson = False) -> None:
    """Recompute every hash of a ledger; fails on the first line that was changed, added or
    removed.
    """
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


def _composed(ledger: Ledger, unit: str, root: Path) -> float:
    """ε of all runs of one unit composed with each other, at the ledger's total δ; refuses if any
    of them cannot be.
    """
    from sumus.guarantee import PastRun, joint_epsilon

    past, runs = [], ledger.runs()
    for spent in runs:
        if spent.unit != unit or spent.purpose not in ("model", "metrics") or not spent.proved:
            raise GuaranteeError(
                f"{spent.run} cannot be composed: only proved releases that protect one {unit} "
                "can. See the total."
            )
    for spent in runs:
        run = RunFolder.open(root / spent.run)
        if run.plan_hash != spent.plan_hash:
            raise StorageError(
                f"{run.path} is of plan {run.plan_hash[:8]}, the ledger says "
                f"{spent.plan_hash[:8]}. Find the right folder."
            )
        models, measurements = (
            (spent.releases, 0) if spent.purpose == "model" else (0, spent.releases)
        )
        past.append(
            PastRun(plan=run.plan, silos=run.silos, rounds=models, measurements=measurements)
        )
    return joint_epsilon(past, delta=ledger.total(unit).delta)


def _as_json(ledger: Ledger, compose: Path | None) -> dict[str, Any]:
    composed = (
        {}
        if compose is None
        else {
            "composed_epsilon": {unit: _composed(ledger, unit, compose) for unit in _units(ledger)}
        }
    )
    return composed | {
        "dataset": ledger.dataset,
        "path": str(ledger.path),
        "head": ledger.head,
        "runs": [asdict(spent) for spent in ledger.runs()],
        "totals": [asdict(ledger.total(unit)) for unit in _units(ledger)],
        "composition": "simple addition of epsilon and delta over runs",
    }


def _show(console: Console, ledger: Ledger, compose: Path | None) -> None:
    """One table for all runs that protect the same and count on the same: it fits an ordinary
    terminal.
    """
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
        if compose is not None:
            epsilon, total = _composed(ledger, unit, compose), ledger.total(unit)
            bound = f"ε ≤ {rounded_up(epsilon)} at δ = {total.delta:.3g} for {_NEIGHBOURS[unit]}"
            composed = (
                f"composed: {bound}; by the analyses above, every part proved, if no plan was "
                "chosen by what an earlier run released"
            )
            measured = any(spent.purpose == "metrics" for spent in ledger.runs())
            both = (
                "; a record is taken to be trained on and measured with in every run"
                if measured
                else ""
            )
            console.print(Hanging(Text(f"  {composed}{both}")))
    console.print(f"  last hash {ledger.head}\n", style="dim", highlight=False, soft_wrap=True)


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
    if math.isinf(total.epsilon):
        return f"total: no bound for one {total.unit}"
    proved = "every part proved" if total.proved else "NOT PROVED in part"
    many = "1 run" if total.runs == 1 else f"{total.runs} runs"
    return (
        f"total: ε ≤ {rounded_up(total.epsilon)} at δ = {total.delta:.3g} for "
        f"{_NEIGHBOURS[total.unit]}; {many} by simple addition; "
        f"{proved}; counts on what every run above counts on"
    )
