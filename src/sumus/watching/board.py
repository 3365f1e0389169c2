"""Where whoever runs something posts how it goes, and whoever watches reads it.

The poster only puts a value down: it waits for nobody, and what readers do, or fail to do, cannot
reach it.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import final

from sumus.watching.health import Health
from sumus.watching.state import LiveState

__all__ = ["Board"]


@final
class Board:
    """The latest state.

    Guarantee: `post` takes constant time however many readers there are; a state is encoded once,
        by the first reader who asks for it.

    Args:
        state: to begin with.
        patience_seconds: without a sign of life the loop that posts counts as dead; None: it gives
            none, and lives as long as its process.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        state: LiveState,
        *,
        patience_seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._changed, self._encoding = threading.Condition(), threading.Lock()
        self._state, self._version = state, 1
        self._health = state.health
        self._encoded: tuple[int, bytes] = (0, b"")
        self._closed = False
        self._patience, self._clock = patience_seconds, clock
        self._beat = clock()
        self.encodings = 0

    @property
    def state(self) -> LiveState:
        """As it was posted last."""
        return self._state

    @property
    def version(self) -> int:
        """Of the latest state, counted from 1."""
        return self._version

    @property
    def closed(self) -> bool:
        """Whether nothing is posted any more."""
        return self._closed

    @property
    def alive(self) -> bool:
        """Whether the loop that posts has given a sign of life in time."""
        return self._patience is None or self._clock() - self._beat <= self._patience

    def beat(self) -> None:
        """A sign of life."""
        self._beat = self._clock()

    def post(self, state: LiveState) -> None:
        """Put the next state down; the machine's health is another poster's, and stays."""
        self.beat()
        with self._changed:
            self._put(
                state if state.health == self._health else replace(state, health=self._health)
            )

    def post_health(self, health: Health) -> None:
        """Put down how the machine is; no sign of life of the loop that posts."""
        with self._changed:
            self._health = health
            self._put(replace(self._state, health=health))

    def _put(self, state: LiveState) -> None:
        if state != self._state:
            self._state, self._version = state, self._version + 1
            self._changed.notify_all()

    def close(self) -> None:
        """Nothing follows: readers who wait go home."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def encoded(self) -> tuple[int, bytes]:
        """The latest state's version and JSON text."""
        with self._encoding:
            with self._changed:
                state, version = self._state, self._version
            if self._encoded[0] != version:
                text = json.dumps(state.as_json(), ensure_ascii=False, separators=(",", ":"))
                self._encoded = version, text.encode()
                self.encodings += 1
            return self._encoded

    def wait(self, after: int, seconds: float) -> bool:
        """Wait until there is a later version than `after`; returns whether there is one."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._version > after or self._closed, timeout=seconds
            ) and (self._version > after)
