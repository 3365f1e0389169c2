"""Where a process says how it is.

    NOTIFY_SOCKET    a service manager's: datagrams of `NAME=value` lines, as systemd reads them
    SUMUS_HEALTH     a file for probes: what holds, and until when; only its owner can read it
    SUMUS_KEEPER     a pipe to the process that started this one: one byte a sign

Nobody who is away, slow or full holds up or ends whoever speaks.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from pathlib import Path
from typing import Protocol, final

__all__ = [
    "HEALTH",
    "KEEPER",
    "READY",
    "TURNED",
    "Channel",
    "HealthFile",
    "KeeperPipe",
    "ManagerSocket",
    "is_well",
]

HEALTH = "SUMUS_HEALTH"
KEEPER = "SUMUS_KEEPER"
READY, TURNED = b"R", b"T"
_SEND_SECONDS = 1.0
_MOST_BYTES = 4096


class Channel(Protocol):
    """One place where signs go."""

    def tell(self, *, ready: bool, said: str, news: bool) -> None:
        """A sign of life.

        Args:
            ready: whether the process can do its work.
            said: what it does, one line.
            news: whether either has changed since the last time.
        """
        ...

    def end(self) -> None:
        """The process was asked to stop, and does."""
        ...


@final
class ManagerSocket:
    """A service manager's socket.

    Args:
        address: as the manager gives it: a path, or @NAME in the abstract namespace.
        watched: whether the manager wants signs of life.
    """

    def __init__(self, address: str, *, watched: bool) -> None:
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._watched, self._was_ready = watched, False

    def tell(self, *, ready: bool, said: str, news: bool) -> None:
        """See `Channel.tell`; a service that was ready once stays so for its manager."""
        lines = [f"STATUS={said}"] if news else []
        if ready and not self._was_ready:
            self._was_ready = True
            lines.append("READY=1")
        if self._watched:
            lines.append("WATCHDOG=1")
        if lines:
            self._send(lines)

    def end(self) -> None:
        """See `Channel.end`."""
        self._send(["STOPPING=1", "STATUS=stopping"])

    def _send(self, lines: list[str]) -> None:
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as speaker,
        ):
            speaker.settimeout(_SEND_SECONDS)
            speaker.sendto("\n".join(lines).encode(), self._address)


@final
class HealthFile:
    """A file that says what holds until when, by the clock that goes on while a machine sleeps.

    Args:
        path: in a folder that this process can write.
        seconds: how long one sign of life counts.
    """

    def __init__(self, path: Path, *, seconds: float) -> None:
        self._path, self._seconds = path, seconds

    def tell(self, *, ready: bool, said: str, news: bool) -> None:
        """See `Channel.tell`."""
        state = {"ready": ready, "said": said, "until": _now() + self._seconds}
        beside = self._path.with_name(f".{self._path.name}.new")
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with open(os.open(beside, flags, 0o600), "w", encoding="ascii") as file:
                json.dump(state, file)
            beside.replace(self._path)

    def end(self) -> None:
        """See `Channel.end`."""
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)


@final
class KeeperPipe:
    """A pipe to whoever started this process; what this process starts does not get it.

    Args:
        descriptor: of the pipe's end.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        os.set_inheritable(descriptor, False)
        os.set_blocking(descriptor, False)

    def tell(self, *, ready: bool, said: str, news: bool) -> None:
        """See `Channel.tell`."""
        with contextlib.suppress(OSError):
            os.write(self._descriptor, READY if ready else TURNED)

    def end(self) -> None:
        """See `Channel.end`: its keeper has asked it to."""


def is_well(path: Path, *, ready: bool) -> bool:
    """Whether a health file says that its process is alive and, if asked, ready."""
    try:
        with path.open("rb") as file:
            state = json.loads(file.read(_MOST_BYTES))
        alive = _now() < float(state["until"])
        return alive and (not ready or state["ready"] is True)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _now() -> float:
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
