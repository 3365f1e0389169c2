"""How a job at the server goes, in a small file for whoever watches the server: written by a thread
of its own, so that the rounds wait for no disk.

STATE/live.json     the latest job: phase, stage, who is there and who is waited for, where its run is
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self, final

__all__ = ["LIVE", "LiveFile", "read_live"]

LIVE = "live.json"
_AGAIN_SECONDS = 1.0
_MOST_BYTES = 1 << 20


@final
class LiveFile:
    """Writes what it is given again and again, until the block ends and once more then.

    Guarantee: nothing that goes wrong with the file reaches the job.

    Args:
        folder: the server's own state.
        state: what to write; called by the thread.
    """

    def __init__(self, folder: Path, state: Callable[[], Mapping[str, Any]]) -> None:
        self._path, self._state = folder / LIVE, state
        self._due, self._over = threading.Event(), False
        self._thread = threading.Thread(target=self._write, name="live-file", daemon=True)

    def changed(self) -> None:
        """There is something new."""
        self._due.set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        self._due.set()
        self._thread.join(timeout=10.0)

    def _write(self) -> None:
        while True:
            over = self._over
            with contextlib.suppress(Exception):  # whoever watches sees an older state
                text = json.dumps({**self._state(), "pid": os.getpid(), "at": time.time()})
                beside = self._path.with_suffix(".new")
                beside.write_text(text)
                beside.replace(self._path)
            if over:
                return
            self._due.wait(_AGAIN_SECONDS)
            self._due.clear()


def read_live(folder: Path) -> dict[str, Any] | None:
    """What is in the file; None before the first job, and where it cannot be read."""
    path = folder / LIVE
    try:
        if path.stat().st_size > _MOST_BYTES:
            return None
        state = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return state if isinstance(state, dict) else None
