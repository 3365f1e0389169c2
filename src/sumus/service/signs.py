"""Signs of life of a process, given by the loop that does its work and by nothing else."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import final

from sumus.service.channels import (
    HEALTH,
    KEEPER,
    Channel,
    HealthFile,
    KeeperPipe,
    ManagerSocket,
)

__all__ = ["PATIENCE_SECONDS", "Signs"]

PATIENCE_SECONDS = 180.0
"""A process that gave no sign for so long hangs, where nobody says otherwise."""
_MOST_PAUSE_SECONDS = 5.0
_LEAST_WORK = 0.002
"""Processor seconds a second that somebody who works uses; who waits for ever uses none."""
_LONGEST = 200


@final
class Signs:
    """What a process says of itself to whoever keeps it.

    Guarantee: a sign of life is sent by the thread that calls `turned`, or while `working` lasts and
        the process has used processor time since the last one. A loop that stands still gives none.

    Args:
        channels: where signs go.
        patience_seconds: after how long without one somebody will call it hung.
    """

    def __init__(
        self, channels: Sequence[Channel] = (), *, patience_seconds: float = PATIENCE_SECONDS
    ) -> None:
        self._channels = tuple(channels)
        self._pause = min(patience_seconds / 4.0, _MOST_PAUSE_SECONDS)
        self._due, self._ready, self._said, self._news = 0.0, False, "starting", True
        self._lock = threading.Lock()

    @classmethod
    def of_environment(cls, variables: MutableMapping[str, str] = os.environ) -> Signs:
        """As the variables say, which are taken away: processes that this one starts speak for
        themselves.
        """
        named = (HEALTH, KEEPER, "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
        told = {name: value for name in named if (value := variables.pop(name, ""))}
        seconds = _watchdog_seconds(told)
        patience = PATIENCE_SECONDS if seconds is None else seconds
        channels: list[Channel] = []
        if told.get("NOTIFY_SOCKET", "").startswith(("/", "@")):
            channels.append(ManagerSocket(told["NOTIFY_SOCKET"], watched=seconds is not None))
        if HEALTH in told:
            channels.append(HealthFile(Path(told[HEALTH]), seconds=patience))
        if told.get(KEEPER, "").isdigit():
            with contextlib.suppress(OSError):  # it was closed on the way
                channels.append(KeeperPipe(int(told[KEEPER])))
        return cls(channels, patience_seconds=patience)

    def turned(self, said: str | None = None, *, ready: bool | None = None) -> None:
        """The loop has gone round. Cheap: what has not changed is said every few seconds.

        Args:
            said: what the process does now, one line without secrets: every user of the machine may
                read it.
            ready: whether it can do its work.
        """
        with self._lock:
            plain = self._said if said is None else _one_line(said)
            now_ready = self._ready if ready is None else ready
            self._news = self._news or (plain, now_ready) != (self._said, self._ready)
            self._said, self._ready = plain, now_ready
            if self._news or time.monotonic() >= self._due:
                self._tell()

    @contextlib.contextmanager
    def working(self, said: str) -> Iterator[None]:
        """A block during which the loop stands still because it computes."""
        before = self._said
        self.turned(said)
        over = threading.Event()
        if self._channels:
            threading.Thread(target=self._vouch, args=(over,), name="signs", daemon=True).start()
        try:
            yield
        finally:
            over.set()
            self.turned(before)

    def stopping(self) -> None:
        """The process was asked to stop, and does."""
        with self._lock:
            for channel in self._channels:
                channel.end()
            self._channels = ()

    def _tell(self) -> None:
        news, self._news = self._news, False
        self._due = time.monotonic() + self._pause
        for channel in self._channels:
            channel.tell(ready=self._ready, said=self._said, news=news)

    def _vouch(self, over: threading.Event) -> None:
        """Signs for a thread that computes, as long as somebody uses the processor."""
        used = time.process_time()
        while not over.wait(self._pause):
            before, used = used, time.process_time()
            if used - before >= _LEAST_WORK * self._pause:
                with self._lock:
                    if not over.is_set():
                        self._tell()


def _watchdog_seconds(told: Mapping[str, str]) -> float | None:
    """How often a service manager wants a sign of this very process; None: it does not."""
    if told.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    usec = told.get("WATCHDOG_USEC", "")
    return int(usec) / 1e6 if usec.isdigit() and int(usec) > 0 else None


def _one_line(said: str) -> str:
    """A line break would be another order to the service manager; an escape one to a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in said)[:_LONGEST]
