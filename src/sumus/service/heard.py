"""A keeper's end: what a process that it has started says of itself."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from typing import final

from sumus.service.channels import KEEPER, READY, TURNED

__all__ = ["Heard"]

_MOST_BYTES = 4096
_OWN_GAP_SECONDS = 10.0


@final
class Heard:
    """Signs of life of one process, over a pipe that it inherits.

    Guarantee: whatever the process writes, a look takes bounded time and memory, and means no more
        than "alive" and "ready".
    """

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        self._last: float | None = None
        self._looked = time.monotonic()
        self.ready = False

    @property
    def variables(self) -> Mapping[str, str]:
        """For the process."""
        return {KEEPER: str(self._writing)}

    @property
    def inherited(self) -> tuple[int, ...]:
        """Descriptors for the process."""
        return (self._writing,)

    def begun(self) -> None:
        """The process has its end."""
        os.close(self._writing)

    def silent_seconds(self) -> float | None:
        """For how long nothing has been heard; None: of a process that has said nothing so far.

        A keeper that stood still itself, with the machine or by a signal, begins to count anew: the
        process stood still too, or its signs wait in the pipe.
        """
        now = time.monotonic()
        if self._last is not None and now - self._looked > _OWN_GAP_SECONDS:
            self._last = now
        self._looked = now
        with contextlib.suppress(OSError):
            signs = os.read(self._reading, _MOST_BYTES)
            if READY in signs or TURNED in signs:
                self._last = now
                self.ready = self.ready or READY in signs
        return None if self._last is None else now - self._last

    def close(self) -> None:
        """Listen no longer."""
        with contextlib.suppress(OSError):
            os.close(self._reading)
