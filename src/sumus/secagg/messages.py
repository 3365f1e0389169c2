"""Every message of the protocol as bytes, and back.

Encodings are canonical: a byte string that decodes encodes to itself, and every other byte string
is refused with a `PeerProtocolError`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from itertools import pairwise
from typing import TypeVar, final

from sumus.errors import LocalProtocolError, PeerProtocolError
from sumus.secagg.envelope import (
    MAGIC,
    NO_ROUND,
    SERVER,
    VERSION,
    Message,
    Reader,
    encode_bitmap,
    size_of,
)
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

M = TypeVar("M", bound=Message)


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
        if len(self.round_id) != 32 or self.round_id == NO_ROUND:
            raise LocalProtocolError(
                "a round id is 32 bytes, not all zero. Hash run, round number and attempt."
            )

    @cached_property
    def body(self) -> bytes:
        """The header's own fields in every message of the server."""
        return (
            self.payload_digest
            + self.silos.to_bytes(2, "little")
            + encode_bitmap(self.silos, self.participants)
        )

    @classmethod
    def read(cls, reader: Reader, *, session: bytes, round_id: bytes) -> RoundHeader:
        """A header from its `body`."""
        if round_id == NO_ROUND:
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
    def _read(cls, reader: Reader, *, sender: int, session: bytes, round_id: bytes) -> KeyAdvert:
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
    def _read(cls, reader: Reader, *, sender: int, session: bytes, round_id: bytes) -> KeyDirectory:
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
        return (self.header.body, size_of(self.payload), self.payload)

    @classmethod
    def _read(cls, reader: Reader, *, sender: int, session: bytes, round_id: bytes) -> Invitation:
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
            *(part for field in fields for part in (size_of(field), field)),
        )

    def encode_with(self, write: Callable[[memoryview], None], *, size: int) -> bytes:
        """The canonical bytes of this message with a vector of `size` bytes in place of its empty
        one, written where it is sent from.
        """
        head = self.encode()[: -len(size_of(b""))] + size.to_bytes(8, "little")
        # whose memory becomes the message: a vector of megabytes is not copied again
        message = BytesIO(bytes(len(head) + size))
        with message.getbuffer() as view, view[len(head) :] as room:
            view[: len(head)] = head
            write(room)
        return message.getvalue()

    @classmethod
    def _read(cls, reader: Reader, *, sender: int, session: bytes, round_id: bytes) -> MaskedInput:
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
        return b"sumus dropped set 1" + header.transcript + encode_bitmap(header.silos, dropped)

    def _body(self) -> Iterable[bytes]:
        return (self.header.body, encode_bitmap(self.header.silos, self.dropped))

    @classmethod
    def _read(cls, reader: Reader, *, sender: int, session: bytes, round_id: bytes) -> DroppedSet:
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
    def _read(cls, reader: Reader, *, sender: int, session: bytes, round_id: bytes) -> SetSignature:
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
        yield self.header.body + encode_bitmap(self.header.silos, self.dropped)
        yield from (self.salts[silo] for silo in sorted(self.header.participants - self.dropped))
        yield len(self.signatures).to_bytes(2, "little")
        for silo, signature in sorted(self.signatures.items()):
            yield silo.to_bytes(2, "little") + signature

    @classmethod
    def _read(
        cls, reader: Reader, *, sender: int, session: bytes, round_id: bytes
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
        return (self.transcript, size_of(self.shares), self.shares)

    @classmethod
    def _read(
        cls, reader: Reader, *, sender: int, session: bytes, round_id: bytes
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
    reader = Reader(data)
    if reader.take(len(MAGIC)) != MAGIC:
        raise PeerProtocolError(
            "these bytes are not a message of this protocol. Check what is connected to this port."
        )
    if (version := reader.number(1)) != VERSION:
        raise PeerProtocolError(
            f"protocol version must be {VERSION}, got {version}. Run the same version of Sumus everywhere."
        )
    kind = _KINDS.get(reader.number(1))
    if kind is None:
        raise PeerProtocolError(
            "a message is of no known kind. Run the same version of Sumus everywhere."
        )
    sender, session, round_id = reader.number(2), reader.take(32), reader.take(32)
    if (kind in _SET_UP) != (round_id == NO_ROUND):
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
