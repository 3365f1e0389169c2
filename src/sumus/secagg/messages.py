"""Every message of the protocol as bytes, and back.

    message = "SUMU" | version | kind | sender | session | round id | body

Encodings are canonical: a byte string that decodes encodes to itself, and every other byte string
    is refused with a
`PeerProtocolError`. Lengths are checked before anything is allocated, so decoding a hostile message
costs no more than its own size. Integers are little-endian. A *bitmap* has one bit per silo of the
roster; bits behind the last silo are zero.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from itertools import pairwise
from typing import ClassVar, Self, TypeVar, final

from sumus.errors import LocalProtocolError, PeerProtocolError
from sumus.secagg.schedule import SALT_BYTES

__all__ = [
    "SERVER",
    "DroppedSet",
    "Invitation",
    "KeyAdvert",
    "KeyDirectory",
    "MaskedInput",
    "Message",
    "RevealedShares",
    "RoundHeader",
    "SetCertificate",
    "SetSignature",
    "decode",
    "decode_any",
]

SERVER = 0xFFFF
VERSION = 1
_MAGIC = b"SUMU"  # four bytes make the envelope 72, so that a vector starts at a multiple of eight
_NO_ROUND = bytes(32)

M = TypeVar("M", bound="Message")


class _Reader:
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


def _bitmap(silos: int, members: Iterable[int]) -> bytes:
    """One bit per silo."""
    bits = bytearray((silos + 7) // 8)
    for silo in members:
        bits[silo >> 3] |= 1 << (silo & 7)
    return bytes(bits)


def _sized(field: bytes | memoryview) -> bytes:
    """A length in eight bytes; the field itself follows."""
    return len(field).to_bytes(8, "little")


@dataclass(frozen=True, kw_only=True)
class Message(ABC):
    """The envelope of every message: who speaks, in which session and round."""

    kind: ClassVar[int]
    sender: int
    session: bytes
    round_id: bytes = _NO_ROUND

    def encode(self) -> bytes:
        """The canonical bytes."""
        head = _MAGIC + bytes((VERSION, self.kind)) + self.sender.to_bytes(2, "little")
        return b"".join((head, self.session, self.round_id, *self._body()))

    @abstractmethod
    def _body(self) -> Iterable[bytes | memoryview]:
        """The fields behind the envelope."""

    @classmethod
    @abstractmethod
    def _read(cls, reader: _Reader, *, sender: int, session: bytes, round_id: bytes) -> Self:
        """The message from the fields behind the envelope."""


@final
@dataclass(frozen=True, kw_only=True)
class RoundHeader:
    """What fixes a round: all keys of the round hang on the hash of this.

    Args:
        session: hash of terms and roster.
        round_id: 32 bytes never used before in this session.
        payload_digest: SHA-256 of what the application sends along, for example the model.
        silos: N, the length of the roster.
        participants: the silos that are asked for an input.
    """

    session: bytes
    round_id: bytes
    payload_digest: bytes
    silos: int
    participants: frozenset[int]

    def __post_init__(self) -> None:
        if len(self.round_id) != 32 or self.round_id == _NO_ROUND:
            raise LocalProtocolError(
                "a round id is 32 bytes, not all zero. Hash run, round number and attempt."
            )

    @cached_property
    def body(self) -> bytes:
        """The header's own fields in every message of the server."""
        return (
            self.payload_digest
            + self.silos.to_bytes(2, "little")
            + _bitmap(self.silos, self.participants)
        )

    @classmethod
    def read(cls, reader: _Reader, *, session: bytes, round_id: bytes) -> RoundHeader:
        """A header from its `body`."""
        if round_id == _NO_ROUND:
            raise PeerProtocolError("a message of a round has no round id. Refuse the sender.")
        payload_digest = reader.take(32)
        silos = reader.number(2)
        return cls(
            session=session,
            round_id=round_id,
            payload_digest=payload_digest,
            silos=silos,
            participants=reader.bitmap(silos),
        )

    @cached_property
    def transcript(self) -> bytes:
        """SHA-256 of everything that all silos of the round have to agree on."""
        return hashlib.sha256(
            b"sumus transcript 1" + self.session + self.round_id + self.body
        ).digest()


@final
@dataclass(frozen=True, kw_only=True)
class KeyAdvert(Message):
    """Silo → server, once: its X25519 key of this session, signed with its roster key."""

    kind = 1
    agreement_key: bytes
    signature: bytes

    @staticmethod
    def signed_part(*, sender: int, session: bytes, agreement_key: bytes) -> bytes:
        """What the signature covers."""
        return b"sumus key advert 1" + session + sender.to_bytes(2, "little") + agreement_key

    def _body(self) -> Iterable[bytes]:
        return (self.agreement_key, self.signature)

    @classmethod
    def _read(cls, reader: _Reader, *, sender: int, session: bytes, round_id: bytes) -> KeyAdvert:
        return cls(
            sender=sender,
            session=session,
            round_id=round_id,
            agreement_key=reader.take(32),
            signature=reader.take(64),
        )


@final
@dataclass(frozen=True, kw_only=True)
class KeyDirectory(Message):
    """Server → silo, once: the adverts of the silos it will mask with, in order of their
    numbers.
    """

    kind = 2
    adverts: tuple[tuple[int, bytes, bytes], ...]

    def _body(self) -> Iterable[bytes]:
        yield len(self.adverts).to_bytes(2, "little")
        for silo, key, signature in self.adverts:
            yield silo.to_bytes(2, "little") + key + signature

    @classmethod
    def _read(
        cls, reader: _Reader, *, sender: int, session: bytes, round_id: bytes
    ) -> KeyDirectory:
        adverts = tuple(
            (reader.number(2), reader.take(32), reader.take(64)) for _ in range(reader.number(2))
        )
        _require_ascending([silo for silo, _, _ in adverts])
        return cls(sender=sender, session=session, round_id=round_id, adverts=adverts)


@final
@dataclass(frozen=True, kw_only=True)
class Invitation(Message):
    """Server → silo, exchange 1: the round, who takes part, and the application's payload."""

    kind = 3
    header: RoundHeader
    payload: bytes | memoryview

    def _body(self) -> Iterable[bytes | memoryview]:
        return (self.header.body, _sized(self.payload), self.payload)

    @classmethod
    def _read(cls, reader: _Reader, *, sender: int, session: bytes, round_id: bytes) -> Invitation:
        header = RoundHeader.read(reader, session=session, round_id=round_id)
        return cls(
            sender=sender, session=session, round_id=round_id, header=header, payload=reader.sized()
        )


@final
@dataclass(frozen=True, kw_only=True)
class MaskedInput(Message):
    """Silo → server, exchange 1: the masked vector and all that it takes to unmask it without the
    silo.

    Args:
        salt: eight random bytes of this submission, from which the pads of its secrets are derived.
        corrections: of each of the silo's secrets, what makes t derived shares determine it.
        tags: of each secret, 16 bytes by which its recovery is checked.
        vector: the masked words, packed.
    """

    kind = 4
    transcript: bytes
    salt: bytes
    corrections: bytes | memoryview
    tags: bytes | memoryview
    vector: bytes | memoryview

    def _body(self) -> Iterable[bytes | memoryview]:
        fields = (self.corrections, self.tags, self.vector)
        return (
            self.transcript,
            self.salt,
            *(part for field in fields for part in (_sized(field), field)),
        )

    def encode_with(self, write: Callable[[memoryview], None], *, size: int) -> bytes:
        """The canonical bytes of this message with a vector of `size` bytes in place of its empty
        one, written where it is sent from.
        """
        head = self.encode()[: -len(_sized(b""))] + size.to_bytes(8, "little")
        # whose memory becomes the message: a vector of megabytes is not copied again
        message = BytesIO(bytes(len(head) + size))
        with message.getbuffer() as view, view[len(head) :] as room:
            view[: len(head)] = head
            write(room)
        return message.getvalue()

    @classmethod
    def _read(cls, reader: _Reader, *, sender: int, session: bytes, round_id: bytes) -> MaskedInput:
        return cls(
            sender=sender,
            session=session,
            round_id=round_id,
            transcript=reader.take(32),
            salt=reader.take(SALT_BYTES),
            corrections=reader.sized(),
            tags=reader.sized(),
            vector=reader.sized(),
        )


@final
@dataclass(frozen=True, kw_only=True)
class DroppedSet(Message):
    """Server → silo, exchange 2: the participants without an input. The one list; everybody else
    survives.
    """

    kind = 5
    header: RoundHeader
    dropped: frozenset[int]

    @staticmethod
    def signed_part(header: RoundHeader, dropped: frozenset[int]) -> bytes:
        """What a silo signs to fix the survivor set."""
        return b"sumus dropped set 1" + header.transcript + _bitmap(header.silos, dropped)

    def _body(self) -> Iterable[bytes]:
        return (self.header.body, _bitmap(self.header.silos, self.dropped))

    @classmethod
    def _read(cls, reader: _Reader, *, sender: int, session: bytes, round_id: bytes) -> DroppedSet:
        header = RoundHeader.read(reader, session=session, round_id=round_id)
        return cls(
            sender=sender,
            session=session,
            round_id=round_id,
            header=header,
            dropped=reader.bitmap(header.silos),
        )


@final
@dataclass(frozen=True, kw_only=True)
class SetSignature(Message):
    """Silo → server, exchange 2: its signature on the dropped set."""

    kind = 6
    transcript: bytes
    signature: bytes

    def _body(self) -> Iterable[bytes]:
        return (self.transcript, self.signature)

    @classmethod
    def _read(
        cls, reader: _Reader, *, sender: int, session: bytes, round_id: bytes
    ) -> SetSignature:
        return cls(
            sender=sender,
            session=session,
            round_id=round_id,
            transcript=reader.take(32),
            signature=reader.take(64),
        )


@final
@dataclass(frozen=True, kw_only=True)
class SetCertificate(Message):
    """Server → silo, exchange 3: the dropped set with a quorum of signatures, and the survivors'
    salts.
    """

    kind = 7
    header: RoundHeader
    dropped: frozenset[int]
    salts: Mapping[int, bytes]
    signatures: Mapping[int, bytes]

    def _body(self) -> Iterable[bytes]:
        yield self.header.body + _bitmap(self.header.silos, self.dropped)
        yield from (self.salts[silo] for silo in sorted(self.header.participants - self.dropped))
        yield len(self.signatures).to_bytes(2, "little")
        for silo, signature in sorted(self.signatures.items()):
            yield silo.to_bytes(2, "little") + signature

    @classmethod
    def _read(
        cls, reader: _Reader, *, sender: int, session: bytes, round_id: bytes
    ) -> SetCertificate:
        header = RoundHeader.read(reader, session=session, round_id=round_id)
        dropped = reader.bitmap(header.silos)
        salts = {silo: reader.take(SALT_BYTES) for silo in sorted(header.participants - dropped)}
        signatures = [(reader.number(2), reader.take(64)) for _ in range(reader.number(2))]
        _require_ascending([silo for silo, _ in signatures])
        return cls(
            sender=sender,
            session=session,
            round_id=round_id,
            header=header,
            dropped=dropped,
            salts=salts,
            signatures=dict(signatures),
        )


@final
@dataclass(frozen=True, kw_only=True)
class RevealedShares(Message):
    """Silo → server, exchange 3: its shares of what the certificate entitles the server to."""

    kind = 8
    transcript: bytes
    shares: bytes | memoryview

    def _body(self) -> Iterable[bytes | memoryview]:
        return (self.transcript, _sized(self.shares), self.shares)

    @classmethod
    def _read(
        cls, reader: _Reader, *, sender: int, session: bytes, round_id: bytes
    ) -> RevealedShares:
        return cls(
            sender=sender,
            session=session,
            round_id=round_id,
            transcript=reader.take(32),
            shares=reader.sized(),
        )


_SET_UP = (KeyAdvert, KeyDirectory)
_KINDS: dict[int, type[Message]] = {
    kind.kind: kind
    for kind in (
        *_SET_UP,
        Invitation,
        MaskedInput,
        DroppedSet,
        SetSignature,
        SetCertificate,
        RevealedShares,
    )
}


def decode(data: bytes | memoryview, expected: type[M]) -> M:
    """The message that these bytes canonically encode; anything else is a `PeerProtocolError`."""
    message = decode_any(data)
    if not isinstance(message, expected):
        raise PeerProtocolError(
            f"expected {expected.__name__}, got {type(message).__name__}. The sender is in another "
            "state."
        )
    return message


def decode_any(data: bytes | memoryview) -> Message:
    """A message of whatever kind."""
    reader = _Reader(data)
    if reader.take(len(_MAGIC)) != _MAGIC:
        raise PeerProtocolError(
            "these bytes are not a message of this protocol. Check what is connected to this port."
        )
    if (version := reader.number(1)) != VERSION:
        raise PeerProtocolError(
            f"protocol version must be {VERSION}, got {version}. Run the same release everywhere."
        )
    kind = _KINDS.get(reader.number(1))
    if kind is None:
        raise PeerProtocolError("a message is of no known kind. Run the same release everywhere.")
    sender, session, round_id = reader.number(2), reader.take(32), reader.take(32)
    if (kind in _SET_UP) != (round_id == _NO_ROUND):
        raise PeerProtocolError(
            "a message of the set-up names a round, or one of a round does not. Refuse the sender."
        )
    message = kind._read(reader, sender=sender, session=session, round_id=round_id)
    reader.finish()
    return message


def _require_ascending(silos: list[int]) -> None:
    """Lists are in strictly ascending order, so no silo appears twice and the encoding is
    canonical.
    """
    if any(left >= right for left, right in pairwise(silos)):
        raise PeerProtocolError(
            "a list of silos is not in ascending order, or names one twice. Refuse the sender."
        )
