"""`sumus silo received`: the runs that a silo's people were handed, and who else has the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sumus.cli.options import AsJson, print_json

if TYPE_CHECKING:
    from sumus.parties import DeliveryNote
    from sumus.secagg import Roster

__all__ = ["received_command"]


def received_command(
    vault: Annotated[
        str, typer.Argument(help="The silo's vault, or its name if it has one vault only.")
    ],
    as_json: AsJson = False,
) -> None:
    """List the runs that this silo was handed: where they are, which model, and which other silos
    have signed for the very same. `sumus predict`, `report`, `export` and `audit evidence` take
    their folders. Exit code 5 if one was changed since.
    """
    from sumus.cli.vaults import vault_of
    from sumus.errors import StorageError
    from sumus.parties import Site, read_rosters

    folder = vault_of(vault)
    shelf, epochs = Site.of_folder(folder).shelf(folder), read_rosters(folder).epochs
    listed = [_facts(path, note, [epoch.roster for epoch in epochs]) for path, note in shelf.runs()]
    if as_json:
        print_json({"folder": str(shelf.root), "runs": listed})
    elif not listed:
        typer.echo(f"nothing was handed out yet; runs will be in {shelf.root}")
    else:
        typer.echo("\n".join(line for facts in listed for line in _lines(facts)))
    changed = [facts["run"] for facts in listed if not facts["whole"]]
    if changed:
        raise StorageError(
            f"{changed[0]} was changed since it was received. Delete it, and ask the operator for "
            "`sumus federation deliver`."
        )


def _facts(path: Path, note: DeliveryNote, rosters: Sequence[Roster]) -> dict[str, Any]:
    from sumus.parties import received_by

    return {
        "run": str(path),
        "plan_hash": note.plan_hash,
        "rounds": note.round,
        "finished": note.finished,
        "model": note.model,
        "journal": note.head,
        "parcel": note.parcel,
        "received": note.received,
        "certified": note.certified,
        "unopened": note.unopened,
        "also_at": list(received_by(path, rosters).get(note.parcel, ())),
        "whole": note.is_whole(path),
    }


def _lines(facts: dict[str, Any]) -> list[str]:
    state = "finished" if facts["finished"] else "not finished"
    certified = (
        "a quorum of silos has signed that they measured it"
        if facts["certified"]
        else "by the server's word: it was not measured"
    )
    others = ", ".join(facts["also_at"]) or "nobody has signed yet"
    unopened = facts["unopened"]
    return [
        f"plan {facts['plan_hash'][:8]}: {state}, {facts['rounds']} rounds, received "
        f"{facts['received']}",
        f"  run      {facts['run']}",
        f"  model    {facts['model']} ({certified})",
        f"  same at  {others}",
        *(
            [
                f"  missing  {unopened} sums that this silo helped to open, of which the server "
                "says nothing; their ε is on the ledger"
            ]
            if unopened
            else []
        ),
        *([] if facts["whole"] else ["  CHANGED  since it was received"]),
    ]
