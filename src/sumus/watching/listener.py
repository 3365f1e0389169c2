"""The HTTP server of a live page: loopback only, one answer a connection, and a bounded number of
connections, each with a deadline.

A client that is slow, silent or hostile costs one thread of a few until its deadline; a newcomer
takes the place of the one that has been silent longest.
"""

from __future__ import annotations

import contextlib
import io
import ipaddress
import math
import socket
import threading
import time
from email.message import Message
from http.client import HTTPException, parse_headers
from pathlib import Path
from typing import Self, final

from sumus.errors import EngineError, PlanError
from sumus.watching.access import Access, Request
from sumus.watching.answers import Answer, Answers
from sumus.watching.board import Board

__all__ = ["LivePage"]

_LOOPBACK = "127.0.0.1"
_HEAD_SECONDS = 5.0
_SEND_SECONDS = 10.0
_MOST_HEAD_BYTES = 16 << 10
_MOST_CONNECTIONS = 32
_MOST_STREAMS = 16
_EVENT_SECONDS = 0.25
"""Between two states of a stream: more often nobody can look."""
_BEAT_SECONDS = 10.0
_FAREWELL_SECONDS = 1.0


@final
class LivePage:
    """Serves a board until it is closed.

    Guarantee: listens on the loopback interface and nowhere else; has at most `_MOST_CONNECTIONS`
        connections and one thread for each; whoever posts on the board never waits for it.

    Args:
        board: what is shown.
        token: that readers must know.
        port: 0: one that is free.
        host: a loopback address.
    """

    def __init__(self, board: Board, *, token: str, port: int = 0, host: str = _LOOPBACK) -> None:
        _require_loopback(host)
        self.board = board
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._listener.bind((host, port))
        except OSError as error:
            self._listener.close()
            raise EngineError(
                f"port {port} of {host} cannot be listened on: {error.strerror}. Give another "
                "--watch-port, or 0 for one that is free."
            ) from None
        self._listener.listen(_MOST_CONNECTIONS)
        self.port = int(self._listener.getsockname()[1])
        self._access = Access(port=self.port, token=token)
        self._answers = Answers(board, watchers=lambda: self.streams)
        self._lock = threading.Lock()
        self._silent: dict[socket.socket, None] = {}
        self._open: set[socket.socket] = set()
        self._streams: set[socket.socket] = set()
        self._threads: set[threading.Thread] = set()
        self._closing = False
        self._accepting = threading.Thread(target=self._accept, name="watch", daemon=True)
        self._accepting.start()

    @property
    def address(self) -> str:
        """Where the page is, token included."""
        return f"http://{_LOOPBACK}:{self.port}/{self._access.token}/"

    def told_address(self, kept: Path, *, terminal: bool) -> str:
        """The address for whoever sits before a terminal. A service's output is read by more people:
        they are told which file has the token.

        Args:
            kept: the file that keeps the token.
        """
        if terminal:
            return self.address
        return f"http://{_LOOPBACK}:{self.port}/TOKEN/ with the TOKEN of {kept}"

    @property
    def streams(self) -> int:
        """Readers who are told of every change."""
        return len(self._streams)

    @property
    def connections(self) -> int:
        """That are open."""
        return len(self._open)

    def close(self) -> None:
        """Tell readers the last state, and listen no longer."""
        self.board.close()
        with self._lock:
            self._closing, threads = True, list(self._threads)
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        until = time.monotonic() + _FAREWELL_SECONDS
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        with self._lock:
            left = list(self._open)
        for connection in left:
            _hang_up(connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                if self._closing:
                    return
                time.sleep(0.1)  # no descriptor is free
                continue
            self._admit(connection)

    def _admit(self, connection: socket.socket) -> None:
        """Give a connection a thread; where there is none left, the place of the connection that
        has said nothing for longest.
        """
        with self._lock:
            if self._closing:
                connection.close()
                return
            if len(self._open) >= _MOST_CONNECTIONS:
                oldest = next(iter(self._silent), None)
                if oldest is None:
                    connection.close()
                    return
                del self._silent[oldest]
                self._open.discard(oldest)
                _hang_up(oldest)
            self._silent[connection] = None
            self._open.add(connection)
            thread = threading.Thread(
                target=self._serve, args=(connection,), name="watch-reader", daemon=True
            )
            self._threads.add(thread)
        try:
            thread.start()
        except RuntimeError:  # the machine has no thread left
            self._forget(connection, thread)

    def _forget(self, connection: socket.socket, thread: threading.Thread) -> None:
        with self._lock:
            self._silent.pop(connection, None)
            self._open.discard(connection)
            self._streams.discard(connection)
            self._threads.discard(thread)
        connection.close()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with contextlib.suppress(OSError):
                request = _read_head(connection)
                with self._lock:
                    self._silent.pop(connection, None)
                if request is not None:
                    self._answer(connection, request)
        finally:
            self._forget(connection, threading.current_thread())

    def _answer(self, connection: socket.socket, request: Request) -> None:
        answer = self._answers.to(self._access.route(request))
        if answer.streams and request.method == "GET":
            with self._lock:
                full = len(self._streams) >= _MOST_STREAMS
                if not full:
                    self._streams.add(connection)
            if full:
                answer = Answer(status=503, body=b"too many readers\n")
        connection.settimeout(_SEND_SECONDS)
        body = b"" if request.method == "HEAD" else answer.body
        connection.sendall(answer.head() + body)
        if answer.streams and request.method == "GET":
            self._stream(connection)
        else:
            _finish(connection)

    def _stream(self, connection: socket.socket) -> None:
        """The state whenever it has changed, and a sign of life when it has not."""
        told, heard = 0, -math.inf
        while True:
            if time.monotonic() - heard >= _BEAT_SECONDS:
                connection.sendall(b"event: clock\ndata: %.3f\n\n" % time.time())
                heard = time.monotonic()
            version, text = self.board.encoded()
            if version > told:
                connection.sendall(b"id: %d\ndata: %b\n\n" % (version, text))
                told = version
                time.sleep(0.0 if self.board.closed else _EVENT_SECONDS)
            elif self.board.closed:
                connection.sendall(b"event: end\ndata: {}\n\n")
                return
            self.board.wait(told, _BEAT_SECONDS)


def _require_loopback(host: str) -> None:
    try:
        loopback = ipaddress.IPv4Address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise PlanError(
            "watch host",
            host,
            "must be a loopback address: a live page is for this machine alone",
            "Leave it out, and reach it from elsewhere through ssh -L.",
        )


def _read_head(connection: socket.socket) -> Request | None:
    """The head of a request, if a whole one comes before the deadline; a body is never read."""
    until, head = time.monotonic() + _HEAD_SECONDS, b""
    while b"\r\n\r\n" not in head:
        left = until - time.monotonic()
        if left <= 0.0 or len(head) > _MOST_HEAD_BYTES:
            return None
        connection.settimeout(left)
        more = connection.recv(4096)
        if not more:
            return None
        head += more
    first, _, rest = head.partition(b"\r\n")
    words = first.decode("latin-1").split(" ")
    try:
        headers: Message = parse_headers(io.BytesIO(rest))
    except HTTPException:
        return None
    if len(words) != 3 or not words[2].startswith("HTTP/1.") or headers.defects:
        return None
    names = [name.lower() for name in headers]
    return Request(
        method=words[0],
        path=words[1],
        headers={
            name.lower(): str(value)
            for name, value in headers.items()
            if names.count(name.lower()) == 1
        },
        twice=frozenset(name for name in names if names.count(name) > 1),
    )


def _finish(connection: socket.socket) -> None:
    """Let the reader have all of the answer before the connection goes."""
    connection.shutdown(socket.SHUT_WR)
    connection.settimeout(1.0)
    with contextlib.suppress(OSError):
        for _ in range(8):
            if not connection.recv(4096):
                return


def _hang_up(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
