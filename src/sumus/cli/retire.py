"""`sumus keys retire`: end a federation at a silo."""

from __future__ import annotations

from typing import Annotated

import typer

from sumus.cli.options import AsJson, print_json
from sumus.cli.vaults import vault_of
from sumus.errors import StorageError

__all__ = ["keys_app"]

keys_app = typer.Typer(add_completion=False)


@keys_app.command("retire")
def retire_silo(
    vault: Annotated[
        str, typer.Argument(help="The silo's vault, or its name if it has one vault only.")
    ],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """End a federation at this silo: destroy its key and the secrets of its sessions, keep ledger,
    evidence and refusals. There is no way back.
    """
    from sumus.parties import retire

    folder = vault_of(vault)
    if not yes and not typer.confirm(
        f"Destroy the secrets in {folder}? The silo cannot take part in this federation again",
        err=True,
    ):
        raise StorageError(f"nothing was destroyed in {folder}. Say yes, or give --yes.")
    destroyed = retire(folder)
    if as_json:
        print_json({"vault": str(folder), "destroyed": destroyed})
        return
    typer.echo(f"destroyed {len(destroyed)} files in {folder}: {', '.join(destroyed) or 'none'}")
    typer.echo(
        "kept ledger, evidence, refusals; destroy backups of sessions/ and every copy of the key too"
    )
