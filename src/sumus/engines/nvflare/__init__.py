"""NVIDIA FLARE as the engine: mutual TLS, one process per silo and job, sites that refuse foreign
code. It moves bytes and nothing else.

`kits` makes kits and closes them down, `start`, `gate` and `control` stand before the engine's own
processes, `executor` and `controller` are the two classes that a job names, `driver` carries the
messages, `jobs` is the operator's end.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sumus.engines.engine import Address, Operator
    from sumus.engines.federation_folder import FederationFolder

__all__ = ["CONNECTED", "PACKAGE", "join", "make_kits", "operator", "serve"]

PACKAGE = "nvflare"
CONNECTED = "Successfully registered client"


def make_kits(folder: FederationFolder, address: Address) -> None:
    """See `Engine.make_kits`."""
    from sumus.engines.nvflare.kits import provision

    provision(folder, address)


def serve(kit: Path) -> list[str]:
    """See `Engine.serve`."""
    from sumus.engines.nvflare.kits import close_down_server, server_command

    close_down_server(kit)
    return server_command(kit)


def join(kit: Path) -> list[str]:
    """See `Engine.join`."""
    from sumus.engines.nvflare.kits import client_command, close_down_silo

    close_down_silo(kit)
    return client_command(kit)


def operator(kit: Path, *, first_contact_seconds: float = 30.0) -> Operator:
    """See `Engine.operator`."""
    from sumus.engines.nvflare.jobs import NvflareOperator

    return NvflareOperator(kit, first_contact_seconds=first_contact_seconds)
