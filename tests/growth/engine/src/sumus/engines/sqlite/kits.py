"""Kits for parties on one machine, which find the mailbox beside their kits."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

from sumus.engines.engine import Address
from sumus.engines.federation_folder import FederationFolder
from sumus.engines.kit import Kit
from sumus.engines.sqlite.mailbox import Mailbox
from sumus.errors import EngineError

__all__ = ["command", "mailbox_of", "write_kits"]


def write_kits(folder: FederationFolder, address: Address) -> None:
    """A private folder for every party."""
    if not address.is_this_machine:
        raise EngineError(
            f"engine sqlite exchanges files of one machine, got {address}. Use --server "
            "localhost:PORT, or --engine nvflare."
        )
    for party in folder.parties:
        folder.kit(party).mkdir(parents=True, mode=0o700)


def mailbox_of(kit: Path) -> Mailbox:
    """The mailbox that all kits of a federation share."""
    return Mailbox(kit.resolve().parent / "mailbox.sqlite")


def command(kit: Path, kind: Literal["server", "silo"]) -> list[str]:
    """The command line of a party's process."""
    Kit.open(kit, kind)
    module = "sumus.engines.sqlite.processes"
    return [sys.executable, "-u", "-m", module, kind, str(kit.resolve())]
