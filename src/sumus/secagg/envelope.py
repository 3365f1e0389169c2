"""The envelope of every message, and how fields are written and read.

    message = "SUMU" | version | kind | sender | session | round id | body

Lengths are checked before anything is allocated, so decoding a hostile message costs no more than
its own size. Integers are little-endian. A *bitmap* has one bit per silo of the roster; bits behind
the last silo are zero.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Self

from sumus.errors import PeerProtocolError

__all__ = [
    "MAGIC",
    "NO_ROUND",
    "SERVER",
    "VERSION",
    "Message",
    "Reader",
    "encode_bitmap",
    "size_of",
]

SERVER = 0xFFFF
VERSION = 1
MAGIC = b"SUMU"  # four bytes make the envelope 72, so that a vector starts at a multiple of eight
NO_ROUND = bytes(32)


class Reader:
    """Takes a message apart and refuses to read past its end."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = memoryview(data)
        self._at = 0

    def view(self, count: int) -> memoryview:
        """The next `count` bytes without a copy."""
        if count > len(self._data) - self._at:
            raise PeerProtocolError(
                f"a message ends after {len(self._data)} bytes in the middle of a field. Send it "
                "again whole."
            )
        self._at += count
        return self._data[self._at - count : self._at]

    def take(self, count: int) -> bytes:
        """The next `count` bytes."""
        return bytes(self.view(count))

    def number(self, width: int) -> int:
        """The next `width` bytes as an unsigned integer."""
        return int.from_bytes(self.view(width), "little")

    def sized(self) -> memoryview:
        """A field preceded by its length in eight bytes."""
        return self.view(self.number(8))

    def bitmap(self, silos: int) -> frozenset[int]:
        """The silos whose bit is set."""
        field = self.view((silos + 7) // 8)
        if silos & 7 and field[-1] >> (silos & 7):
            raise PeerProtocolError(
                "a bitmap names silos that are not on the roster. The sender does not encode "
                "canonically."
            )
        # byte by byte: shifting one large integer once per silo would cost the square of the length
        return frozenset(
            8 * place + bit
            for place, byte in enumerate(field)
            if byte
            for bit in range(8)
            if byte >> bit & 1
        )

    def finish(self) -> None:
        """Refuse bytes behind the last field."""
        if self._at != len(self._data):
            raise PeerProtocolError(
                f"a message has {len(self._data) - self._at} bytes behind its last field. Refuse "
                "the sender."
            )


def encode_bitmap(silos: int, members: Iterable[int]) -> bytes:
    """One bit per silo."""
    bits = bytearray((silos + 7) // 8)
    for silo in members:
        bits[silo >> 3] |= 1 << (silo & 7)
    return bytes(bits)


def size_of(field: bytes | memoryview) -> bytes:
    """A length in eight bytes; the field itself follows."""
    return len(field).to_bytes(8, "little")


@dataclass(frozen=True, kw_only=True)
class Message(ABC):
    """The envelope of every message: who speaks, in which session and round."""

    kind: ClassVar[int]
    sender: int
    session: bytes
    round_id: bytes = NO_ROUND

    def encode(self) -> bytes:
        """The canonical bytes."""
        head = MAGIC + bytes((VERSION, self.kind)) + self.sender.to_bytes(2, "little")
        return b"".join((head, self.session, self.round_id, *self._body()))

    @abstractmethod
    def _body(self) -> Iterable[bytes | memoryview]:
        """The fields behind the envelope."""

    @classmethod
    @abstractmethod
    def _read(cls, reader: Reader, *, sender: int, session: bytes, round_id: bytes) -> Self:
        """The message from the fields behind the envelope."""
