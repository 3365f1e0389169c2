"""What runs have set aside on a data set's ledger, and `sumus ledger cancel`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from sumus.cli.options import AsJson, print_json
from sumus.cli.terminal import Hanging
from sumus.errors import PlanError

if TYPE_CHECKING:
    from sumus.books import Ledger, Reservation

__all__ = ["cancel_command", "reservations_json", "show_reservations"]


def cancel_command(
    run: Annotated[
        str, typer.Argument(help="Name of the run on the ledger (`sumus ledger show`).")
    ],
    state: Annotated[
        Path | None,
        typer.Option(
            "--state",
            help="Folder of the ledgers; default: SUMUS_STATE or the user's state folder.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Let go of what a run has set aside and not spent. It releases nothing more until it is joined
    or resumed again; what it has spent stays.
    """
    from sumus.books import Ledger, rounded_up

    held = [
        (ledger, each)
        for ledger in Ledger.all(state=state)
        for each in ledger.reservations()
        if each.run == run
    ]
    if not held:
        names = sorted(
            each.run for ledger in Ledger.all(state=state) for each in ledger.reservations()
        )
        rule = "must be a run that has set something aside"
        raise PlanError("RUN", run, rule, f"There are: {', '.join(names) or 'none'}.")
    told = []
    for ledger, reservation in held:
        run, plan_hash = reservation.key
        ledger.end(run, plan_hash, why="cancelled by its people", cancelled=True)
        told.append(_told(ledger, reservation) | {"cancelled": True})
    if as_json:
        print_json({"cancelled": told})
        return
    for each in told:
        typer.echo(
            f"{each['dataset']}: {run} had set ε ≤ {rounded_up(each['epsilon'])} aside for one "
            f"{each['unit']} and counts with the ε ≤ {rounded_up(each['spent'])} that it has spent"
        )


def reservations_json(ledger: Ledger) -> list[dict[str, Any]]:
    """For scripts."""
    return [_told(ledger, each) for each in ledger.reservations()]


def show_reservations(console: Console, ledger: Ledger) -> None:
    """A line for every run that has not ended."""
    from sumus.books import rounded_up

    for each in ledger.reservations():
        told = _told(ledger, each)
        proved = "proved" if each.proved else "NOT PROVED"
        line = (
            f"\n  set aside: ε ≤ {rounded_up(each.epsilon)} at δ = {each.delta:.3g} for one "
            f"{each.unit} ({proved}) by {each.run}, which has spent ε ≤ "
            f"{rounded_up(told['spent'])} of it and has not ended; sumus ledger cancel {each.run}"
        )
        console.print(Hanging(Text(line)))


def _told(ledger: Ledger, reservation: Reservation) -> dict[str, Any]:
    own = [
        spent
        for spent in ledger.runs()
        if (spent.run, spent.plan_hash) == (reservation.run, reservation.plan_hash)
    ]
    return {
        "dataset": ledger.dataset,
        "run": reservation.run,
        "plan_hash": reservation.plan_hash,
        "unit": reservation.unit,
        "epsilon": reservation.epsilon,
        "delta": reservation.delta,
        "proved": reservation.proved,
        "since": reservation.time,
        "spent": ledger.sum_of(own, reservation.unit).epsilon,
    }
