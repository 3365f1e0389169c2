"""What each address of a live page answers.

| address | answer |
|---|---|
| `/TOKEN/` | the page |
| `/TOKEN/events` | the state, and again whenever it changes: server-sent events |
| `/TOKEN/state` | the state once, as JSON |
| `/TOKEN/metrics` | the same numbers as Prometheus text |
| `/healthz` | 200 `ok` while the process and its loop live, else 503 |
| `/readyz` | 200 `ok` if it can do its work now, else 503 |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, final

from sumus.watching.board import Board
from sumus.watching.page import PAGE, POLICY

if TYPE_CHECKING:
    from sumus.watching.metrics import Exposition

__all__ = ["Answer", "Answers"]

_TEXT = "text/plain; charset=utf-8"
_ALWAYS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_WORDS = {
    200: "OK",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    501: "Not Implemented",
    503: "Service Unavailable",
}


@final
@dataclass(frozen=True, kw_only=True)
class Answer:
    """Status, headers and body; `streams`: events follow instead of a body."""

    status: int
    body: bytes = b""
    kind: str = _TEXT
    headers: Mapping[str, str] = field(default_factory=dict)
    streams: bool = False

    def head(self) -> bytes:
        """Status line and headers; a connection carries one answer."""
        headers = {**_ALWAYS, "Content-Type": self.kind, "Connection": "close", **self.headers}
        if not self.streams:
            headers["Content-Length"] = str(len(self.body))
        lines = [f"HTTP/1.1 {self.status} {_WORDS[self.status]}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()


@final
class Answers:
    """Answers of one board.

    Args:
        board: that is read.
        watchers: how many streams are open.
    """

    def __init__(self, board: Board, *, watchers: Callable[[], int] = lambda: 0) -> None:
        self._board, self._watchers = board, watchers

    def to(self, route: str | int) -> Answer:
        """The answer to a route, or to what `Access.route` refused."""
        if isinstance(route, int):
            more = {"Allow": "GET, HEAD"} if route == 405 else {}
            return Answer(status=route, body=f"{_WORDS[route]}\n".encode(), headers=more)
        known: dict[str, Callable[[], Answer]] = {
            "": self._page,
            "events": lambda: Answer(status=200, kind="text/event-stream", streams=True),
            "state": self._state,
            "metrics": self._metrics,
            "healthz": lambda: _yes_or_no(self._board.alive, "not alive"),
            "readyz": lambda: _yes_or_no(
                self._board.alive and self._board.state.ready, "not ready"
            ),
        }
        return known.get(route, lambda: self.to(404))()

    def _page(self) -> Answer:
        headers = {"Content-Security-Policy": POLICY}
        return Answer(status=200, body=PAGE, kind="text/html; charset=utf-8", headers=headers)

    def _state(self) -> Answer:
        return Answer(status=200, body=self._board.encoded()[1], kind="application/json")

    def _metrics(self) -> Answer:
        exposition = self._exposition
        if exposition is None:
            fix = "prometheus_client is not installed. Run: pip install 'sumus[watch]'\n"
            return Answer(status=501, body=fix.encode())
        return Answer(status=200, body=exposition.text(), kind=exposition.KIND)

    @cached_property
    def _exposition(self) -> Exposition | None:
        try:
            from sumus.watching.metrics import Exposition
        except ModuleNotFoundError:
            return None
        return Exposition(self._board, watchers=self._watchers)


def _yes_or_no(yes: bool, otherwise: str) -> Answer:
    return Answer(status=200 if yes else 503, body=f"{'ok' if yes else otherwise}\n".encode())
