"""Which silos the server's process is connected with, in a small file for whoever watches it.

STATE/connected.json     when it was written; by silo since when it is there
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import final

from sumus.engines.kit import STATE_FOLDER
from sumus.service import Signs

__all__ = ["PresenceFile", "read_presence"]

_FILE = "connected.json"
_AGAIN_SECONDS = 2.0
_OLD_SECONDS = 30.0
"""A file that was not written for so long is of a process that is gone."""
_SILENT_SECONDS = 60.0
"""A silo that gave no sign of life for so long is not connected, whatever the engine still says."""
_MOST_BYTES = 1 << 20


@final
class PresenceFile:
    """Writes the file every few seconds, for as long as the process lives.

    Args:
        kit: the server's.
        heard: silo → Unix time of its last sign of life.
        signs: of the process, given when `heard` has answered: it waits for the engine's own lock.
    """

    def __init__(
        self, kit: Path, heard: Callable[[], Mapping[str, float]], *, signs: Signs | None = None
    ) -> None:
        self._path, self._heard = kit / STATE_FOLDER / _FILE, heard
        self._signs = signs or Signs()
        self._since: dict[str, float] = {}

    def start(self) -> None:
        """Begin to write, in a thread that holds up nothing."""
        threading.Thread(target=self._keep_writing, name="presence", daemon=True).start()

    def write(self, now: float) -> None:
        """Once, as it is at a moment."""
        heard = self._heard()
        self._signs.turned(ready=True)
        there = [name for name, when in heard.items() if now - when < _SILENT_SECONDS]
        self._since = {name: self._since.get(name, now) for name in there}
        beside = self._path.with_suffix(".new")
        beside.write_text(json.dumps({"at": now, "silos": self._since}))
        beside.replace(self._path)

    def _keep_writing(self) -> None:
        while True:
            with contextlib.suppress(Exception):  # whoever watches sees an older state
                self.write(time.time())
            time.sleep(_AGAIN_SECONDS)


def read_presence(kit: Path, *, now: float | None = None) -> Mapping[str, float] | None:
    """Silo → since when it is there; None where no process says."""
    path = kit / STATE_FOLDER / _FILE
    try:
        if path.stat().st_size > _MOST_BYTES:
            return None
        told = json.loads(path.read_text())
        if abs((time.time() if now is None else now) - float(told["at"])) > _OLD_SECONDS:
            return None
        return {str(name): float(since) for name, since in told["silos"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
