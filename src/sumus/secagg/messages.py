"""Every message of the protocol as bytes, and back; those of a round are defined here.

Encodings are canonical: a byte string that decodes encodes to itself, and every other byte string
is refused with a `PeerProtocolError`. `decode` also checks the signature against the roster, and
every state calls it before it acts; `decode_any` only reads.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from io import BytesIO
from typing import TypeVar, final

from sumus.errors import LocalProtocolError, PeerProtocolError
from sumus.secagg.envelope import (
    HEAD_BYTES,
    NO_ROUND,
    SERVER,
    SIGNATURE_BYTES,
    Message,
    Reader,
    Signer,
    encode_bitmap,
    head_of,
    require_ascending,
    size_of,
)
from sumus.secagg.keys import Roster
from sumus.secagg.schedule import SALT_BYTES
from sumus.secagg.setup_messages import (
    CipherTexts,
    Encapsulation,
    Encapsulations,
    Greeting,
    KeyAdvert,
    KeyDirectory,
    Ready,
    Refusal,
    Welcome,
)

__all__ = [
    "SERVER",
    "CipherTexts",
    "DroppedSet",
    "Encapsulation",
    "Encapsulations",
    "Greeting",
    "Invitation",
    "KeyAdvert",
    "KeyDirectory",
    "MaskedInput",
    "Message",
    "Ready",
    "Refusal",
    "RevealedShares",
    "RoundHeader",
    "SetCertificate",
    "SetSignature",
    "Welcome",
    "decode",
    "decode_any",
    "verify",
]

M = TypeVar("M", bound=Message)


@final
@dataclass(frozen=True, kw_only=True)
class RoundHeader:
    """What fixes a round: all keys of the round hang on the hash of this.

    Args:
        session: hash of terms and roster.
        round_id: 32 bytes never used before in this session.
        keys_digest: names the key set whose roots mask this round.
        sequence: of the sum in this session; everybody's roots move on to it, and none comes back.
        payload_digest: SHA-256 of what the application sends along, for example the model.
        silos: N, the length of the roster.
        participants: the silos that are asked for an input.
    """

    session: bytes
    round_id: bytes
    keys_digest: bytes
    sequence: int
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
            self.keys_digest
            + self.sequence.to_bytes(8, "little")
            + self.payload_digest
            + self.silos.to_bytes(2, "little")
            + encode_bitmap(self.silos, self.participants)
        )

    @classmethod
    def read(cls, reader: Reader, *, session: bytes, round_id: bytes) -> RoundHeader:
        """A header from its `body`."""
        if round_id == NO_ROUND:
            raise PeerProtocolError("a message of a round has no round id. Refuse the sender.")
        keys_digest, sequence = reader.take(32), reader.number(8)
        payload_digest = reader.take(32)
        silos = reader.number(2)
        return cls(
            session=session,
            round_id=round_id,
            keys_digest=keys_digest,
            sequence=sequence,
            payload_digest=payload_digest,
            silos=silos,
            participants=reader.bitmap(silos),
        )

    @cached_property
    def transcript(self) -> bytes:
        """SHA-256 of everything that all silos of the round have to agree on."""
        return hashlib.sha256(
            b"sumus transcript 2" + self.session + self.round_id + self.body
        ).digest()


@final
@dataclass(frozen=True, kw_only=True)
class Invitation(Message):
    """Server → silo, exchange 1: the round, who takes part, and the application's payload.

    Args:
        header: of the round.
        payload: what the application tells every silo, for example the model.
    """

    kind = 3
    from_server = True
    has_bulk = True
    header: RoundHeader
    payload: bytes | memoryview

    @property
    def bulk(self) -> bytes | memoryview:
        """The payload."""
        return self.payload

    def _body(self) -> Iterable[bytes]:
        return (self.header.body, size_of(self.payload))

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
        transcript: of the round.
        salt: eight random bytes of this submission, from which the pads of its secrets are derived.
        corrections: of each of the silo's secrets, what makes t derived shares determine it.
        tags: of each secret, 16 bytes by which its recovery is checked.
        vector: the masked words, packed.
    """

    kind = 4
    from_server = False
    has_bulk = True
    transcript: bytes
    salt: bytes
    corrections: bytes | memoryview
    tags: bytes | memoryview
    vector: bytes | memoryview

    @property
    def bulk(self) -> bytes | memoryview:
        """The vector."""
        return self.vector

    def _body(self) -> Iterable[bytes | memoryview]:
        yield self.transcript
        yield self.salt
        for field in (self.corrections, self.tags):
            yield size_of(field)
            yield field
        yield size_of(self.vector)

    def encode_with(
        self, write: Callable[[memoryview], None], signer: Signer, *, size: int
    ) -> bytes:
        """The canonical bytes of this message with a vector of `size` bytes in place of its empty
        one, written where it is sent from.
        """
        start = self._start()[: -len(size_of(b""))] + size.to_bytes(8, "little")
        end = len(start) + size
        # whose memory becomes the message: a vector of megabytes is not copied again
        message = BytesIO(bytes(end + SIGNATURE_BYTES))
        with message.getbuffer() as view, view[len(start) : end] as room:
            view[: len(start)] = start
            write(room)
            view[end:] = signer.sign(replace(self, vector=room).signed_bytes(start))
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

    Args:
        header: of the round.
        dropped: bitmap of the participants without an input.
    """

    kind = 5
    from_server = True
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
    """Silo → server, exchange 2: its signature on the dropped set.

    Args:
        transcript: of the round.
        signature: on `DroppedSet.signed_part`, which the certificate collects.
    """

    kind = 6
    from_server = False
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

    Args:
        header: of the round.
        dropped: bitmap of the participants without an input.
        salts: of every survivor's submission.
        signatures: a committee member's number and its signature on the dropped set.
    """

    kind = 7
    from_server = True
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
        require_ascending([silo for silo, _ in signatures])
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
    """Silo → server, exchange 3: its shares of what the certificate entitles the server to.

    Args:
        transcript: of the round.
        shares: its pads of the opened secrets, owner by owner.
    """

    kind = 8
    from_server = False
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


_SET_UP = (
    Greeting,
    Welcome,
    KeyAdvert,
    KeyDirectory,
    Encapsulation,
    Encapsulations,
    CipherTexts,
    Ready,
)
_OF_A_ROUND = (
    Invitation,
    MaskedInput,
    DroppedSet,
    SetSignature,
    SetCertificate,
    RevealedShares,
)
_KINDS: dict[int, type[Message]] = {  # in the order in which they are sent
    kind.kind: kind for kind in (*_SET_UP, *_OF_A_ROUND, Refusal)
}


def decode(
    data: bytes | memoryview,
    expected: type[M],
    *,
    roster: Roster,
    kinds: Mapping[int, type[Message]] = _KINDS,
) -> M:
    """The message that these bytes canonically encode, if its sender signed it; anything else is a
    `PeerProtocolError`.

    Args:
        kinds: by number, where it is not of the secure sum.
    """
    message = decode_any(data, kinds)
    if not isinstance(message, expected):
        raise PeerProtocolError(
            f"expected {expected.__name__}, got {type(message).__name__}. The sender is in another "
            "state."
        )
    verify(message, data, roster)
    return message


def verify(message: Message, data: bytes | memoryview, roster: Roster) -> None:
    """Refuse a message, decoded from these bytes, that its sender on the roster did not sign."""
    end = len(data) - SIGNATURE_BYTES
    start = memoryview(data)[: end - len(message.bulk)]
    roster.verify(message.sender, signature=bytes(data[end:]), message=message.signed_bytes(start))


def decode_any(data: bytes | memoryview, kinds: Mapping[int, type[Message]] = _KINDS) -> Message:
    """A message of whatever kind; who sent it is not checked."""
    head = head_of(data)
    kind = kinds.get(head.kind)
    if kind is None:
        raise PeerProtocolError(
            "a message is of no known kind. Run the same version of Sumus everywhere."
        )
    if kind.from_server != (head.sender == SERVER):
        raise PeerProtocolError(
            f"only {'the server' if kind.from_server else 'a silo'} sends {kind.__name__}, got sender "
            f"{head.sender}. Refuse it."
        )
    if kind is not Refusal and (kind in _OF_A_ROUND) != (head.round_id != NO_ROUND):
        raise PeerProtocolError(
            "a message of the set-up names a round, or one of a round does not. Refuse the sender."
        )
    if len(data) < HEAD_BYTES + SIGNATURE_BYTES:
        raise PeerProtocolError("a message is not signed. Refuse the sender.")
    reader = Reader(memoryview(data)[:-SIGNATURE_BYTES])
    reader.view(HEAD_BYTES)
    message = kind._read(reader, sender=head.sender, session=head.session, round_id=head.round_id)
    reader.finish()
    return message
