"""`sumus history`: all runs of a folder, at the terminal and as one page."""

from __future__ import annotations

import webbrowser
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from sumus.cli.options import AsJson, print_json
from sumus.cli.terminal import Hanging, screen
from sumus.errors import StorageError

if TYPE_CHECKING:
    from sumus.report import History, Row

__all__ = ["history_command"]

_DEFAULT_PAGE = "history.html"
_WIDEST = 10_000


def history_command(
    runs: Annotated[Path, typer.Argument(help="Folder with run folders.")] = Path("runs"),
    html: Annotated[
        bool, typer.Option("--html", help="Write one self-contained page as well.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Where the page goes; default: history.html in the folder."),
    ] = None,
    show: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in a browser.")
    ] = False,
    state: Annotated[
        Path | None,
        typer.Option(
            "--state",
            help="Folder of the ledgers; default: SUMUS_STATE or the user's state folder.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """All runs of a folder, newest first: plan, rounds, ε with all it rests on, headline measure,
    model, whose model it began with; and what their data sets have spent over time.
    """
    if not runs.is_dir():
        raise StorageError(f"{runs} is not a folder. Give the folder that holds run folders.")
    from sumus.report import History, write_history

    history = History.of_folder(runs, state=state)
    page = out or runs / _DEFAULT_PAGE if html or out is not None or show else None
    if page is not None:
        write_history(history, page)
    if as_json:
        print_json(_told(history) | ({} if page is None else {"page": str(page)}))
        return
    console = screen()
    _show(console, history)
    if page is not None:
        console.print(f"page  {page}", soft_wrap=True, markup=False, highlight=False)
        if show:
            webbrowser.open(page.resolve().as_uri())


def _told(history: History) -> dict[str, Any]:
    runs = [
        asdict(run) | {"path": str(run.path), "parent": history.parents.get(run.name)}
        for run in history.runs
    ]
    spent = [
        asdict(each) | {"steps": [asdict(step) | {"after": step.after} for step in each.steps]}
        for each in history.spent
    ]
    return {
        "folder": str(history.folder),
        "runs": runs,
        "spent": spent,
        "unread": [{"folder": name, "why": why} for name, why in history.unread],
    }


def _show(console: Console, history: History) -> None:
    from sumus.report import rows_of, spent_words

    rows = rows_of(history)
    if not rows:
        console.print(f"No run is in {history.folder}.", markup=False, highlight=False)
    for number, kind in enumerate(history.kinds, start=1):
        words = (
            f"[{number}] {kind.verdict}, at δ = {kind.delta:.3g}\n  protects     {kind.protects}\n"
            f"  counts on    {kind.trust}\n  analysis     {kind.analysis}"
        )
        console.print(Hanging(Text(words)))
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    names = list(dict.fromkeys(run.measure for run in history.runs if run.measure))
    measured = names[0] if len(names) == 1 else "measured"
    for heading in ("began", "run", "plan", "rounds", "ε ≤", measured, "model", "from"):
        table.add_column(heading, no_wrap=True)
    for row in rows:
        table.add_row(*map(escape, _cells(row)))
    wide = Measurement.get(console, console.options.update(max_width=_WIDEST), table).maximum
    if rows and wide <= console.width:
        console.print(table)
    else:
        _show_below_each_other(console, rows)
    for spent in history.spent:
        console.print(Hanging(Text(f"\n{spent.dataset}: {spent_words(spent)}")))
    for name, why in history.unread:
        console.print(f"not read: {name}: {why}", style="yellow", markup=False, soft_wrap=True)


def _cells(row: Row) -> tuple[str, ...]:
    """As much as a terminal of 120 columns has room for; the page and `--json` have the rest."""
    from sumus.books import rounded_up

    run = row.run
    return (
        run.started[:10],
        run.name,
        run.plan_hash[:8],
        row.rounds,
        f"{'no bound' if run.epsilon is None else rounded_up(run.epsilon)} [{row.kind}]",
        run.measured or "-",
        row.model[:8] or "-",
        row.began_with[-8:] or "-",
    )


def _show_below_each_other(console: Console, rows: Sequence[Row]) -> None:
    """For a terminal on which the columns would squeeze each other out: no name is cut."""
    for row in rows:
        run = row.run
        console.print(f"{row.when}  {run.name}", markup=False, soft_wrap=True, highlight=False)
        began = f", began with {row.began_with}" if row.began_with else ""
        words = (
            f"{row.bound} {row.verdict} [{row.kind}]; plan {run.plan_hash[:8]} ({run.words}); "
            f"rounds {row.rounds}; silos {row.silos}; {row.measured}; model {row.model or '-'}"
            f"{began}"
        )
        console.print(Padding(Text(words), (0, 0, 0, 4)))
