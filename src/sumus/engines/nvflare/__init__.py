"""NVIDIA FLARE as the engine: mutual TLS, one process per silo and job, sites that refuse foreign
code. It moves bytes and nothing else.

`kits` makes kits and closes them down, `authority` and `certificates` say who may connect, `start`, `gate` and `control` stand before the engine's own
processes, `executor` and `controller` are the two classes that a job names, `driver` carries the
messages, `jobs` is the operator's end.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

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

PACKAGE = "nvflare"
CONNECTED = "Successfully registered client"


def make_kits(folder: FederationFolder, address: Address, requests: Mapping[str, bytes]) -> None:
    """See `Engine.make_kits`."""
    from sumus.engines.nvflare.kits import provision

    provision(folder, address, requests)


def add_kit(
    folder: FederationFolder, address: Address, silo: str, requests: Mapping[str, bytes]
) -> None:
    """See `Engine.add_kit`."""
    from sumus.engines.nvflare.kits import provision_silo

    provision_silo(folder, address, silo, requests)


def drop_kit(folder: FederationFolder, silo: str) -> None:
    """See `Engine.drop_kit`: the server's gate goes by the roster."""


def complete(kit: Path, party: str, key: Path | None, *, write: bool) -> str | None:
    """See `Engine.complete`."""
    from sumus.engines.nvflare import certificates

    return certificates.complete(kit, party, key, write=write)


def renew(folder: FederationFolder, days: int, requests: Mapping[str, bytes]) -> Mapping[str, Path]:
    """See `Engine.renew`."""
    from sumus.engines.nvflare import certificates

    return certificates.renew(folder, days=days, requests=requests)


def serve(kit: Path, *, listen: str | None = None) -> list[str]:
    """See `Engine.serve`."""
    from sumus.engines.nvflare.kits import close_down_server, server_command

    close_down_server(kit)
    return server_command(kit, listen=listen)


def join(kit: Path) -> list[str]:
    """See `Engine.join`."""
    from sumus.engines.nvflare.kits import client_command, close_down_silo

    close_down_silo(kit)
    return client_command(kit)


def present(kit: Path) -> Mapping[str, float] | None:
    """See `Engine.present`."""
    from sumus.engines.presence import read_presence

    return read_presence(kit)


def operator(kit: Path, *, first_contact_seconds: float = 30.0) -> Operator:
    """See `Engine.operator`."""
    from sumus.engines.nvflare.jobs import NvflareOperator

    return NvflareOperator(kit, first_contact_seconds=first_contact_seconds)
