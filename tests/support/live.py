"""A live page without a run: a board with a made-up plan, and readers that say what they like."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from typing import Any

from sumus.watching import Board, Following, LiveState, RoundTold
from support.synthetic_runs import made_account, made_plan

TOKEN = "0123456789abcdef" * 4
NOON = 1_800_000_000.0
"""When everything happens in states that are made up."""


def made_board(watched: str = "train", **changes: Any) -> Board:
    """A board with nothing on it."""
    return Board(LiveState(watched=watched, began=NOON, at=NOON, since=NOON, **changes))


def begun(
    board: Board,
    *,
    void: str | None = None,
    private: bool = True,
    losses: bool = True,
    **overrides: Any,
) -> Following:
    """A made-up run that has just begun."""
    plan = made_plan(**overrides)
    follow = Following(board, losses=losses, clock=lambda: NOON)
    account = made_account(plan) if private else None
    follow.begins(plan, account, silos=5, needed=4, void=void, connected=5, ready=True)
    return follow


def told(number: int, rounds: int = 12, **changes: Any) -> RoundTold:
    """A plausible round."""
    values: dict[str, Any] = {
        "number": number,
        "epsilon": 0.9994 * (number / rounds) ** 0.5,
        "metrics": {"accuracy": 0.9 - 0.6 / number, "loss": 1.0 / number},
        "plus_minus": {"accuracy": 0.012},
        "how": "secure",
        "seconds": {"local": 0.2, "protocol": 0.05, "server": 0.01},
        "bytes_up": 30_000,
        "bytes_down": 6_000,
    }
    return RoundTold(**values | changes)


def asked(
    port: int,
    path: str,
    headers: Mapping[str, str] | None = None,
    *,
    method: str = "GET",
    host: str | None = None,
    raw: bytes | None = None,
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of one request, as whoever writes bytes to the port gets them.

    Args:
        host: the `Host` header; None: the right one.
        raw: these bytes instead of a request.
    """
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host or f'127.0.0.1:{port}'}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(raw or ("\r\n".join(lines) + "\r\n\r\n").encode())
        answer = b""
        while more := connection.recv(1 << 16):
            answer += more
    if not answer:
        return 0, {}, b""
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *rest = head.decode("latin-1").split("\r\n")
    named = dict(line.split(": ", 1) for line in rest)
    return int(first.split(" ")[1]), {name.lower(): value for name, value in named.items()}, body


def until(condition: Any, *, seconds: float = 60.0) -> None:
    """Wait until something holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.01)
