"""What the sockets of a process and its descendants say, without touching a port: a probe would be
a stranger in the engine's log.
"""

from __future__ import annotations

from collections.abc import Iterator

import psutil  # type: ignore[import-untyped]

__all__ = ["connects", "listens"]


def listens(pid: int, port: int) -> bool:
    """Whether one of them listens on a port."""
    return any(
        socket.status == psutil.CONN_LISTEN and socket.laddr and socket.laddr.port == port
        for socket in _sockets(pid)
    )


def connects(pid: int, port: int) -> bool:
    """Whether one of them has a connection to a port of somebody else's."""
    return any(
        socket.status == psutil.CONN_ESTABLISHED and socket.raddr and socket.raddr.port == port
        for socket in _sockets(pid)
    )


def _sockets(pid: int) -> Iterator[psutil._common.pconn]:
    try:
        first = psutil.Process(pid)
        family = [first, *first.children(recursive=True)]
    except psutil.Error:
        return
    for member in family:
        try:
            yield from member.net_connections(kind="tcp")
        except psutil.Error:
            continue  # it has just ended, or is another user's
