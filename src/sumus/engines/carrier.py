"""Becomes the engine's process of a silo: `python -m sumus.engines.carrier KIT`.

The kit is closed down here, under the user that the engine runs as, because whoever owns the kit
could lead a mightier user's writes elsewhere. One process holds a kit: a second would take over its
place at the server.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from sumus.engines.kit import Kit
from sumus.errors import SumusError
from sumus.files import FolderLock

__all__ = ["become_engine"]


def become_engine(path: Path) -> None:
    """Close a silo's kit down and run its engine in this process, which keeps the kit locked."""
    kit = Kit.open(path, "silo")
    with FolderLock(path, kept=True):
        command = kit.engine.join(path)
        os.execv(command[0], command)  # noqa: S606 - its own words, no shell


if __name__ == "__main__":
    try:
        become_engine(Path(sys.argv[1]))
    except SumusError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)
