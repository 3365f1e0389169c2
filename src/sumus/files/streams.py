"""Bytes over a stream socket, each piece with its length before it: `8 bytes, little endian |
bytes`.
"""

from __future__ import annotations

import socket
import time

from sumus.errors import PeerProtocolError

__all__ = ["receive_sized", "send_sized"]

_SIZE_BYTES = 8


def send_sized(connection: socket.socket, content: bytes, *, seconds: float) -> None:
    """Send one piece, or raise `OSError` when the time is over."""
    connection.settimeout(seconds)
    connection.sendall(len(content).to_bytes(_SIZE_BYTES, "little"))
    connection.sendall(content)


def receive_sized(connection: socket.socket, *, most: int, seconds: float) -> bytes:
    """Receive one piece, or raise `OSError` when the time is over or the other end is gone.

    Guarantee: no memory is taken for a piece of more than `most` bytes: it is a
        `PeerProtocolError` as soon as its length is known.
    """
    until = time.monotonic() + seconds
    size = int.from_bytes(_exactly(connection, _SIZE_BYTES, until), "little")
    if size > most:
        raise PeerProtocolError(
            f"a message of {size} bytes is longer than any that is expected here ({most}). Refuse "
            "the sender."
        )
    return bytes(_exactly(connection, size, until))


def _exactly(connection: socket.socket, size: int, until: float) -> bytearray:
    content = bytearray(size)
    view, there = memoryview(content), 0
    while there < size:
        connection.settimeout(max(until - time.monotonic(), 0.001))
        received = connection.recv_into(view[there:])
        if not received:
            raise ConnectionResetError("the other end is gone")
        there += received
    view.release()
    return content
