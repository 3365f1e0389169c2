"""`sumus federation renew`: new certificates before the old ones end."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sumus.cli.options import AsJson, print_json
from sumus.cli.terminal import screen

__all__ = ["renew_command"]

SERVER = "server"


def renew_command(
    folder: Annotated[Path, typer.Argument(help="The folder of `sumus federation init`.")],
    days: Annotated[int, typer.Option(help="How long the certificates hold.", min=1)] = 365,
    keys: Annotated[
        Path | None,
        typer.Option(help="Folder with the .csr files of parties that have a new TLS key."),
    ] = None,
    json_: AsJson = False,
) -> None:
    """Make new certificates for all parties, from the authority that `init` left: no secret
    travels, no key changes.
    """
    from sumus.engines import FederationFolder, Kit, requests_in

    federation = FederationFolder.open(folder)
    kit = Kit.open(federation.kit(SERVER), "server")
    requests = {} if keys is None else requests_in(keys, (*federation.roster.names, SERVER))
    made = kit.engine.renew(federation, days, requests)
    if json_:
        print_json({party: str(path) for party, path in made.items()})
        return
    console = screen()
    for party, path in made.items():
        console.print(f"{party:<12} {path}", soft_wrap=True, markup=False)
    console.print(
        "next: every party copies its file over KIT/startup/client.crt (the server over "
        "KIT/startup/server.crt) and starts again; there is nothing secret in it",
        soft_wrap=True,
    )
