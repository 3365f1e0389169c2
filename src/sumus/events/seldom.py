"""Events that somebody else can provoke: the trail takes a few of them and counts the rest, so that
nobody fills a disk, or pushes the past out of sight, by asking in vain.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import final

from sumus.errors import StorageError
from sumus.events.declaring import Event, tell
from sumus.events.trail import Trail

__all__ = ["Seldom"]

_BURST = 20
_SECONDS = 600.0


@final
class Seldom:
    """A narrow way into a trail.

    Guarantee: in t seconds a process writes at most burst + t/seconds events into the trail; each
        says how many were not written since the one before. The log gets all of them. Never raises.

    Args:
        trail: None: nothing but the log.
        burst: so many are written at once.
        seconds: until one more may be.
    """

    def __init__(
        self,
        trail: Trail | None,
        *,
        burst: int = _BURST,
        seconds: float = _SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._trail, self._burst, self._seconds, self._clock = trail, burst, seconds, clock
        self._lock, self._left, self._when, self._unwritten = threading.Lock(), burst, clock(), 0

    def append(self, happened: Callable[[int], Event]) -> None:
        """Write an event down, or count it.

        Args:
            happened: from the number of those that were not written to the event.
        """
        with self._lock:
            now = self._clock()
            more = int((now - self._when) / self._seconds)
            if more > 0:
                self._left, self._when = min(self._burst, self._left + more), now
            if self._trail is not None and self._left > 0:
                with contextlib.suppress(StorageError, OSError):
                    self._trail.append(happened(self._unwritten))
                    self._left, self._unwritten = self._left - 1, 0
                    return
            self._unwritten += 1
        tell(happened(self._unwritten))
