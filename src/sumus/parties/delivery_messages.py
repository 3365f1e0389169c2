"""The messages by which a server hands a run to its silos, in the envelope of the secure sum.

    server ──Offer(plan hash, digest and size of the parcel)──► silo ──Receipt(bytes it has)──► server
    server ──Piece(digest, offset, bytes)─────────────────────► silo ──Receipt(bytes it has)──► server
    server ──Receipts(what the others signed)─────────────────► silo ──Receipt──────────────► server

They open no round and carry no key; a silo that does not keep runs answers with a Refusal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import final

from sumus.errors import PeerProtocolError
from sumus.secagg import Message, Reader, head_of, size_of

__all__ = ["DELIVERY", "Offer", "Piece", "Receipt", "Receipts"]


@final
@dataclass(frozen=True, kw_only=True)
class Offer(Message):
    """Server → silo: a run is to be had.

    Args:
        plan_hash: of a plan that the silo has approved.
        parcel: SHA-256 of everything that will be sent.
        size: of it, bytes.
    """

    kind = 32
    from_server = True
    plan_hash: bytes
    parcel: bytes
    size: int

    def _body(self) -> Iterable[bytes]:
        return (self.plan_hash, self.parcel, self.size.to_bytes(8, "little"))

    @classmethod
    def _read(cls, reader: Reader, *, sender: int, session: bytes, round_id: bytes) -> Offer:
        return cls(
            sender=sender,
            session=session,
            round_id=round_id,
            plan_hash=reader.take(32),
            parcel=reader.take(32),
            size=reader.number(8),
        )


@final
@dataclass(frozen=True, kw_only=True)
class Piece(Message):
    """Server → silo: some bytes of what was offered.

    Args:
        parcel: which.
        offset: of the first byte.
        content: the bytes.
    """

    kind = 33
    from_server = True
    has_bulk = True
    parcel: bytes
    offset: int
    content: bytes | memoryview

    @property
    def bulk(self) -> bytes | memoryview:
        """The bytes."""
        return self.content

    def _body(self) -> Iterable[bytes]:
        return (self.parcel, self.offset.to_bytes(8, "little"), size_of(self.content))

    @classmethod
    def _read(cls, reader: Reader, *, sender: int, session: bytes, round_id: bytes) -> Piece:
        return cls(
            sender=sender,
            session=session,
            round_id=round_id,
            parcel=reader.take(32),
            offset=reader.number(8),
            content=reader.sized(),
        )


@final
@dataclass(frozen=True, kw_only=True)
class Receipt(Message):
    """Silo → server: how much of a parcel it has.

    Args:
        answers: `request_digest` of the message that it answers.
        parcel: which.
        have: bytes; the next piece begins there.
        whole: it has all of it, believes it and keeps it.
    """

    kind = 34
    from_server = False
    answers: bytes
    parcel: bytes
    have: int
    whole: bool

    def _body(self) -> Iterable[bytes]:
        return (self.answers, self.parcel, self.have.to_bytes(8, "little"), bytes((self.whole,)))

    @classmethod
    def _read(cls, reader: Reader, *, sender: int, session: bytes, round_id: bytes) -> Receipt:
        answers, parcel = reader.take(32), reader.take(32)
        have, whole = reader.number(8), reader.number(1)
        if whole > 1:
            raise PeerProtocolError(
                "a receipt does not say whether it is of the whole parcel. Run the same version "
                "everywhere."
            )
        return cls(
            sender=sender,
            session=session,
            round_id=round_id,
            answers=answers,
            parcel=parcel,
            have=have,
            whole=bool(whole),
        )


@final
@dataclass(frozen=True, kw_only=True)
class Receipts(Message):
    """Server → silo: who else has the same parcel, by their own signatures.

    Args:
        parcel: which.
        signed: `Receipt`s of whole parcels, in ascending order of their senders.
    """

    kind = 35
    from_server = True
    parcel: bytes
    signed: tuple[bytes, ...]

    def _body(self) -> Iterable[bytes]:
        yield self.parcel
        yield len(self.signed).to_bytes(2, "little")
        for each in self.signed:
            yield size_of(each)
            yield each

    @classmethod
    def _read(cls, reader: Reader, *, sender: int, session: bytes, round_id: bytes) -> Receipts:
        parcel = reader.take(32)
        signed = tuple(bytes(reader.sized()) for _ in range(reader.number(2)))
        senders = [head_of(each).sender for each in signed]
        if senders != sorted(set(senders)):
            raise PeerProtocolError(
                "receipts are not in ascending order, or one silo signs twice. Refuse the sender."
            )
        return cls(sender=sender, session=session, round_id=round_id, parcel=parcel, signed=signed)


DELIVERY: Mapping[int, type[Message]] = {
    kind.kind: kind for kind in (Offer, Piece, Receipt, Receipts)
}
