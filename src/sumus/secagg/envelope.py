"""The envelope of every message, and how fields are written and read.

    message   = "SUMU" | version | kind | sender | session | round id | body | signature
    signature = Ed25519(sender's key on the roster, "sumus message 2" | digest)
    digest    = SHA-256(everything before the signature)

Of the two kinds whose last field may be large (a model, a masked vector), that field enters the
digest as its own SHA-256: who keeps a message as evidence need not keep the vector. Kind, sender,
session and round id are under the signature, so no message can stand for another one.

Lengths are checked before anything is allocated, so decoding a hostile message costs no more than
its own size. Integers are little-endian. A *bitmap* has one bit per silo of the roster; bits behind
the last silo are zero.
"""

from __future__ import annotations

import hashlib
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import ClassVar, Protocol, Self, final

import numpy as np

from sumus.errors import PeerProtocolError

__all__ = [
    "HEAD_BYTES",
    "NO_ROUND",
    "SERVER",
    "SIGNATURE_BYTES",
    "Head",
    "Message",
    "Reader",
    "Signer",
    "encode_bitmap",
    "head_of",
    "require_ascending",
    "signed_part",
    "size_of",
]

SERVER = 0xFFFF
NO_ROUND = bytes(32)
SIGNATURE_BYTES = 64
_VERSION = 2
_MAGIC = b"SUMU"  # four bytes make the head 72, so that a vector starts at a multiple of eight
_HEAD = struct.Struct("<4sBBH32s32s")  # magic, version, kind, sender, session, round id
HEAD_BYTES = _HEAD.size
_SIGNED = b"sumus message 2"


class Signer(Protocol):
    """Whoever holds the key of a sender."""

    def sign(self, message: bytes) -> bytes:
        """A 64-byte Ed25519 signature."""
        ...


class Reader:
    """Takes a message apart and refuses to read past its end."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = memoryview(data)
        self._at, self._size = 0, len(data)

    def view(self, count: int) -> memoryview:
        """The next `count` bytes without a copy."""
        start, end = self._at, self._at + count
        if end > self._size:
            raise PeerProtocolError(
                f"a message ends after {self._size} bytes in the middle of a field. Send it again "
                "whole."
            )
        self._at = end
        return self._data[start:end]

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
        bits = np.unpackbits(np.frombuffer(field, np.uint8), bitorder="little")
        return frozenset(np.flatnonzero(bits).tolist())

    def finish(self) -> None:
        """Refuse bytes behind the last field."""
        if self._at != self._size:
            raise PeerProtocolError(
                f"a message has {self._size - self._at} bytes behind its last field. Refuse the "
                "sender."
            )


def encode_bitmap(silos: int, members: Iterable[int]) -> bytes:
    """One bit per silo."""
    bits = bytearray((silos + 7) // 8)
    for silo in members:
        bits[silo >> 3] |= 1 << (silo & 7)
    return bytes(bits)


def require_ascending(silos: list[int]) -> None:
    """Lists are in strictly ascending order, so no silo appears twice and the encoding is
    canonical.
    """
    if any(left >= right for left, right in pairwise(silos)):
        raise PeerProtocolError(
            "a list of silos is not in ascending order, or names one twice. Refuse the sender."
        )


def size_of(field: bytes | memoryview) -> bytes:
    """A length in eight bytes; the field itself follows."""
    return len(field).to_bytes(8, "little")


@final
@dataclass(frozen=True, kw_only=True)
class Head:
    """The first 72 bytes of a message, by which it finds its reader: nothing in them is proved
    until the signature is checked.
    """

    kind: int
    sender: int
    session: bytes
    round_id: bytes


def head_of(data: bytes | memoryview) -> Head:
    """The head of a message; refuses what is no message of this protocol."""
    if bytes(data[: len(_MAGIC)]) != _MAGIC:
        raise PeerProtocolError(
            "these bytes are not a message of this protocol. Check what is connected to this port."
        )
    _, version, kind, sender, session, round_id = _HEAD.unpack(Reader(data).view(HEAD_BYTES))
    if version != _VERSION:
        raise PeerProtocolError(
            f"protocol version must be {_VERSION}, got {version}. Run the same version of Sumus "
            "everywhere."
        )
    return Head(kind=kind, sender=sender, session=session, round_id=round_id)


def signed_part(start: bytes | memoryview, bulk_digest: bytes) -> bytes:
    """What a signature covers: a message's bytes before its bulk, and the bulk's hash if it has
    one.
    """
    digest = hashlib.sha256(start)
    digest.update(bulk_digest)
    return _SIGNED + digest.digest()


@dataclass(frozen=True, kw_only=True)
class Message(ABC):
    """The envelope of every message: who speaks, in which session and round.

    Args:
        sender: a silo's number on the roster, or `SERVER`.
    """

    kind: ClassVar[int]
    from_server: ClassVar[bool]
    has_bulk: ClassVar[bool] = False
    sender: int
    session: bytes
    round_id: bytes = NO_ROUND

    def encode(self, signer: Signer) -> bytes:
        """The canonical bytes, signed by whoever sends them."""
        start = self._start()
        signature = signer.sign(self.signed_bytes(start))
        return b"".join((start, self.bulk, signature))

    def signed_bytes(self, start: bytes | memoryview) -> bytes:
        """What the signature covers, from the message's bytes before its bulk."""
        return signed_part(start, self.bulk_digest if self.has_bulk else b"")

    @property
    def bulk(self) -> bytes | memoryview:
        """The field, the last one, that enters the signature as its hash."""
        return b""

    @cached_property
    def bulk_digest(self) -> bytes:
        """SHA-256 of `bulk`."""
        return hashlib.sha256(self.bulk).digest()

    def _start(self) -> bytes:
        head = _MAGIC + bytes((_VERSION, self.kind)) + self.sender.to_bytes(2, "little")
        return b"".join((head, self.session, self.round_id, *self._body()))

    @abstractmethod
    def _body(self) -> Iterable[bytes | memoryview]:
        """The fields behind the head, up to the bulk."""

    @classmethod
    @abstractmethod
    def _read(cls, reader: Reader, *, sender: int, session: bytes, round_id: bytes) -> Self:
        """The message from the fields behind the head."""
