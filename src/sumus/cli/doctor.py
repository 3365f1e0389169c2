"""`sumus doctor`: is this installation, silo or server well, and what mends it?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from sumus.cli.options import AsJson, print_json
from sumus.cli.terminal import screen

__all__ = ["doctor_command"]

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def doctor_command(
    place: Annotated[
        str | None,
        typer.Argument(
            metavar="[KIT|VAULT]",
            help="A silo's, the server's or the operator's kit, a vault, or the name of a silo with "
            "one vault. Omitted: the installation alone.",
        ),
    ] = None,
    vault: Annotated[
        Path | None,
        typer.Option(help="Of a silo whose vault is not below the folder of the ledgers."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Look at everything that a run needs, say what is broken and what mends it; changes nothing.
    Ends with 1 if a check fails.
    """
    from sumus.care import diagnose
    from sumus.cli.vaults import vault_of

    where = None if place is None else vault_of(place)
    diagnosis = diagnose(where, vault=vault)
    if as_json:
        print_json(diagnosis.as_json())
    else:
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        for finding in diagnosis.findings:
            table.add_row(
                Text(finding.state, style=_COLOURS[finding.state]),
                Text(finding.check),
                Text(finding.line, overflow="fold"),
            )
        console = screen()
        console.print(f"{diagnosis.of}:", markup=False, highlight=False)
        console.print(table)
    if not diagnosis.passed:
        raise typer.Exit(1)
