"""An SQLite file as the engine, for trials on one machine: server, silos and operator are processes
that leave rows of bytes for each other.

Whoever may write the file can answer in any silo's name, but has no key to send an input for it.
Kits for another host than this machine are not made.

`mailbox` is the file, `driver` the server's end of it, `processes` are server and silo, `kits`
their commands, `jobs` is the operator's end.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sumus.engines.engine import Address, Operator
    from sumus.engines.federation_folder import FederationFolder

__all__ = ["CONNECTED", "PACKAGE", "join", "make_kits", "operator", "serve"]

PACKAGE = "sqlite3"
CONNECTED = "connected to the mailbox"


def make_kits(folder: FederationFolder, address: Address) -> None:
    """See `Engine.make_kits`."""
    from sumus.engines.sqlite.kits import write_kits

    write_kits(folder, address)


def serve(kit: Path) -> list[str]:
    """See `Engine.serve`."""
    from sumus.engines.sqlite.kits import command

    return command(kit, "server")


def join(kit: Path) -> list[str]:
    """See `Engine.join`."""
    from sumus.engines.sqlite.kits import command

    return command(kit, "silo")


def operator(kit: Path, *, first_contact_seconds: float = 30.0) -> Operator:
    """See `Engine.operator`."""
    from sumus.engines.sqlite.jobs import SqliteOperator

    return SqliteOperator(kit, first_contact_seconds=first_contact_seconds)
