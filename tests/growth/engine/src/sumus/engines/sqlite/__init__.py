"""An SQLite file as the engine, for trials on one machine: server, silos and operator are processes
that leave rows of bytes for each other.

Whoever may write the file can answer in any silo's name, but has no key to send an input for it.
Kits for another host than this machine are not made.

`mailbox` is the file, `driver` the server's end of it, `processes` are server and silo, `kits`
their commands, `jobs` is the operator's end.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sumus.errors import EngineError

if TYPE_CHECKING:
    from sumus.engines.engine import Address, Operator
    from sumus.engines.federation_folder import FederationFolder

__all__ = [
    "CONNECTED",
    "PACKAGE",
    "add_kit",
    "complete",
    "drop_kit",
    "join",
    "make_kits",
    "operator",
    "present",
    "renew",
    "serve",
]

PACKAGE = "sqlite3"
CONNECTED = "connected to the mailbox"


def make_kits(folder: FederationFolder, address: Address, requests: Mapping[str, bytes]) -> None:
    """See `Engine.make_kits`."""
    from sumus.engines.sqlite.kits import write_kits

    write_kits(folder, address)


def add_kit(
    folder: FederationFolder, address: Address, silo: str, requests: Mapping[str, bytes]
) -> None:
    """See `Engine.add_kit`."""
    folder.kit(silo).mkdir(mode=0o700)


def drop_kit(folder: FederationFolder, silo: str) -> None:
    """See `Engine.drop_kit`: whoever has no kit finds no mailbox beside it."""


def complete(kit: Path, party: str, key: Path | None, *, write: bool) -> str | None:
    """See `Engine.complete`; on one machine a kit is complete as it is made."""
    return None


def renew(folder: FederationFolder, days: int, requests: Mapping[str, bytes]) -> Mapping[str, Path]:
    """See `Engine.renew`; a trial on one machine makes new kits instead."""
    raise EngineError(
        "kits of this engine are for trials on one machine. Make new ones with `sumus federation "
        "init`."
    )


def serve(kit: Path, *, listen: str | None = None) -> list[str]:
    """See `Engine.serve`; hears this machine only, whatever `listen` says."""
    from sumus.engines.sqlite.kits import command

    return command(kit, "server")


def join(kit: Path) -> list[str]:
    """See `Engine.join`."""
    from sumus.engines.sqlite.kits import command

    return command(kit, "silo")


def present(kit: Path) -> Mapping[str, float] | None:
    """See `Engine.present`: only the operator looks into the mailbox."""
    return None


def operator(kit: Path, *, first_contact_seconds: float = 30.0) -> Operator:
    """See `Engine.operator`."""
    from sumus.engines.sqlite.jobs import SqliteOperator

    return SqliteOperator(kit, first_contact_seconds=first_contact_seconds)
