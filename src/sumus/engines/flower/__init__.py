"""Flower as the engine, for trials on one machine: every message starts a process at the silo,
which finds all it needs in its folder.

Flower's control interface has no authentication and shares a port with the nodes' interface:
whoever reaches the server can submit code that runs at every silo. Kits for another host than this
machine are therefore neither made nor joined.

`kits` makes the kits, `start` starts SuperLink and SuperNodes, `client_app` and `server_app` are
what a run names, `driver` carries the messages, `jobs` is the operator's end.
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

PACKAGE = "flwr"
CONNECTED = "SuperNode ID:"


def make_kits(folder: FederationFolder, address: Address, requests: Mapping[str, bytes]) -> None:
    """See `Engine.make_kits`."""
    from sumus.engines.flower.kits import write_kits

    write_kits(folder, address)


def add_kit(
    folder: FederationFolder, address: Address, silo: str, requests: Mapping[str, bytes]
) -> None:
    """See `Engine.add_kit`."""
    from sumus.engines.flower.kits import write_silo_kit

    write_silo_kit(folder, silo)


def drop_kit(folder: FederationFolder, silo: str) -> None:
    """See `Engine.drop_kit`: the server lets in the nodes whose keys its kit holds."""
    from sumus.engines.flower.kits import node_file

    node_file(folder, silo).unlink(missing_ok=True)


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
    from sumus.engines.flower.kits import server_command

    return server_command(kit)


def join(kit: Path) -> list[str]:
    """See `Engine.join`."""
    from sumus.engines.flower.kits import silo_command

    return silo_command(kit)


def present(kit: Path) -> Mapping[str, float] | None:
    """See `Engine.present`: the server's process tells nobody."""
    return None


def operator(kit: Path, *, first_contact_seconds: float = 30.0) -> Operator:
    """See `Engine.operator`."""
    from sumus.engines.flower.jobs import FlowerOperator

    return FlowerOperator(kit, first_contact_seconds=first_contact_seconds)
