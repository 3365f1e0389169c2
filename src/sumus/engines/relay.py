"""The engine's end of the vault: hands bytes to the silo's own process and its answer back.

Whatever runs in the engine's process holds no key, record or vector: it imports no party, and the
one thing it knows of the silo is the socket (`SUMUS_VAULT`, set by `sumus join`).
"""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path
from typing import final

from sumus.errors import EngineError, PeerProtocolError
from sumus.events import RelayUnanswered, tell
from sumus.files import receive_sized, send_sized

__all__ = ["VARIABLE", "Relay"]

VARIABLE = "SUMUS_VAULT"
_MOST_ANSWER_BYTES = 1 << 34
_ANSWER_SECONDS = 1800.0
_AT_ONCE = 16
"""A server asks again while a silo computes; a vault that hangs is not asked for ever."""


@final
class Relay:
    """Carries messages to the vault behind a Unix socket.

    Guarantee: `handle` returns in bounded time, with the vault's answer or with None if there is
        none: the vault is away, hangs, or refuses to read the message. It never raises.

    Args:
        path: of the socket.
        seconds: patience with one answer; local steps may take long.
    """

    def __init__(self, path: str, *, seconds: float = _ANSWER_SECONDS) -> None:
        self._path, self._seconds = path, seconds
        self._lock, self._open = threading.Lock(), set[socket.socket]()
        self._closed = False

    @classmethod
    def of_environment(cls) -> Relay:
        """To the vault that `sumus join` has started for this process."""
        path = os.environ.get(VARIABLE)
        if not path:
            raise EngineError(
                f"{VARIABLE} is not set: no vault belongs to this process. Start the silo with "
                "`sumus join`."
            )
        return cls(path)

    @property
    def is_there(self) -> bool:
        """Whether the vault's socket is where it should be; nobody is asked."""
        return Path(self._path).is_socket()

    def handle(self, message: bytes) -> bytes | None:
        """The vault's answer to one message of the server."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            with self._lock:
                if self._closed or len(self._open) >= _AT_ONCE:
                    return None
                self._open.add(connection)
            try:
                connection.settimeout(self._seconds)
                connection.connect(self._path)
                send_sized(connection, message, seconds=self._seconds)
                return receive_sized(connection, most=_MOST_ANSWER_BYTES, seconds=self._seconds)
            except (OSError, PeerProtocolError) as error:
                tell(RelayUnanswered(cause=type(error).__name__))
                return None
            finally:
                with self._lock:
                    self._open.discard(connection)

    def close(self) -> None:
        """End what is waited for, and take no further message."""
        with self._lock:
            self._closed = True
            for connection in self._open:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue  # it is not connected yet, and will not be answered
