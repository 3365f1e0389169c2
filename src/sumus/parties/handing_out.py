"""The server hands a run to its silos: offers it, sends the pieces that each asks for, and tells
everybody who else has signed for it.

Whoever is away is left out, and has it at the next request: a silo says how much it has, so nothing
is sent twice that arrived.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from sumus.books import EVIDENCE, MODEL_FACTS, RunFolder
from sumus.errors import PeerProtocolError, ProtocolError, StorageError
from sumus.files import read_bytes
from sumus.parties.agreement import Agreement
from sumus.parties.delivery_messages import DELIVERY, Offer, Piece, Receipt, Receipts
from sumus.parties.driver import Driver
from sumus.parties.parcel import Parcel, most_parcel_bytes, piece_bytes
from sumus.parties.secure_sum import Patience
from sumus.parties.wire import readable
from sumus.secagg import (
    SERVER,
    Identity,
    Message,
    Refusal,
    Roster,
    decode,
    head_of,
    request_digest,
    session_digest,
)

__all__ = ["HandedOut", "hand_out", "parcel_of"]

_ABSENT_SECONDS = 5.0
_SPARE_EXCHANGES = 3


@final
@dataclass(frozen=True, kw_only=True)
class HandedOut:
    """What became of it.

    Args:
        receipts: signed for the whole run, by the silo's name.
        missing: the others, with the reason.
    """

    parcel: bytes
    receipts: Mapping[str, bytes] = field(repr=False)
    missing: Mapping[str, str]


def parcel_of(run: RunFolder, weights: bytes) -> Parcel:
    """A run as it is sent.

    Args:
        weights: of the model that it has released last.
    """
    folder = run.path
    return Parcel(
        journal=b"".join(link.line for link in run.links),
        evidence=_content(folder / EVIDENCE),
        facts=_content(folder / MODEL_FACTS),
        weights=weights,
    )


def _content(path: Path) -> bytes:
    return read_bytes(path) if path.exists() else b""


def hand_out(
    parcel: Parcel,
    agreement: Agreement,
    roster: Roster,
    driver: Driver,
    *,
    identity: Identity,
    patience: Patience,
    likely: Iterable[str] = (),
) -> HandedOut:
    """Send a run to every silo that is there.

    Guarantee: ends after a bounded number of exchanges whatever silos answer, and nothing that a
        silo answers stops it for the others.

    Args:
        identity: the server's.
        likely: silos that were there just now; the others are not waited for.
    """
    content = parcel.encode()
    if len(content) > most_parcel_bytes(agreement):
        raise StorageError(
            f"this run takes {len(content)} bytes, a silo takes {most_parcel_bytes(agreement)} of "
            "this plan. Send its folder by other means."
        )
    sending = _Sending(parcel.digest, content, agreement, roster, driver, identity)
    there = {roster.number(name) for name in likely if name in roster.names}
    sending.offer(there, patience.stage)
    sending.offer(set(range(len(roster))) - there, min(_ABSENT_SECONDS, patience.stage))
    sending.pieces(patience.update)
    if sending.interrupted:  # a vault that was started again on the way has forgotten the offer
        sending.offer(set(sending.interrupted), patience.stage)
        sending.pieces(patience.update)
    sending.confirm(patience.stage)
    missing = {
        name: sending.reasons.get(number, "was not there")
        for number, name in enumerate(roster.names)
        if number not in sending.whole
    }
    return HandedOut(
        parcel=parcel.digest,
        receipts={roster.names[number]: each for number, each in sorted(sending.whole.items())},
        missing=missing,
    )


class _Sending:
    """How far everybody is."""

    def __init__(
        self,
        digest: bytes,
        content: bytes,
        agreement: Agreement,
        roster: Roster,
        driver: Driver,
        identity: Identity,
    ) -> None:
        self._digest, self._content = digest, content
        self._agreement, self._roster, self._driver = agreement, roster, driver
        self._identity = identity
        self._session = session_digest(agreement.terms_for(len(roster)), roster)
        self._have: dict[int, int] = {}
        self._began: set[int] = set()
        self.whole: dict[int, bytes] = {}
        self.reasons: dict[int, str] = {}

    @property
    def interrupted(self) -> frozenset[int]:
        """Silos that began to take it, and have not all of it."""
        return frozenset(self._began - set(self.whole))

    def offer(self, silos: set[int], seconds: float) -> None:
        """Say what is to be had."""
        offer = Offer(
            sender=SERVER,
            session=self._session,
            plan_hash=bytes.fromhex(self._agreement.plan.hash),
            parcel=self._digest,
            size=len(self._content),
        )
        self._exchange(dict.fromkeys(silos, self._signed(offer)), seconds)

    def pieces(self, seconds: float) -> None:
        """Send what is missing until everybody has all of it, or gets no further."""
        size = piece_bytes(self._agreement)
        for _ in range(-(-len(self._content) // size) + _SPARE_EXCHANGES):
            behind = {silo: at for silo, at in self._have.items() if silo not in self.whole}
            if not behind:
                return
            pieces = {at: self._piece(at, size) for at in set(behind.values())}
            self._exchange({silo: pieces[at] for silo, at in behind.items()}, seconds)

    def confirm(self, seconds: float) -> None:
        """Tell everybody who has all of it who else has."""
        signed = tuple(self.whole[silo] for silo in sorted(self.whole))
        if not signed:
            return
        message = self._signed(
            Receipts(sender=SERVER, session=self._session, parcel=self._digest, signed=signed)
        )
        self._driver.exchange(dict.fromkeys(self.whole, message), deadline_seconds=seconds)

    def _piece(self, at: int, size: int) -> bytes:
        content = self._content[at : at + size]
        return self._signed(
            Piece(
                sender=SERVER,
                session=self._session,
                parcel=self._digest,
                offset=at,
                content=content,
            )
        )

    def _signed(self, message: Message) -> bytes:
        return message.encode(self._identity)

    def _exchange(self, messages: Mapping[int, bytes], seconds: float) -> None:
        if not messages:
            return
        replies = self._driver.exchange(messages, deadline_seconds=seconds)
        for silo, message in messages.items():
            self._have.pop(silo, None)
            if silo not in replies:
                self.reasons[silo] = "was not there"
                continue
            try:
                receipt = self._read(silo, replies[silo], message)
            except ProtocolError as error:
                self.reasons[silo] = str(error)
                continue
            if receipt.whole:
                self.whole[silo] = replies[silo]
                self.reasons.pop(silo, None)
            elif receipt.have < len(self._content):
                self._have[silo] = receipt.have
                self._began.add(silo)
                self.reasons[silo] = f"has {receipt.have} of {len(self._content)} bytes"

    def _read(self, silo: int, reply: bytes, request: bytes) -> Receipt:
        """A silo's signed receipt for a request; its refusal is raised as an error."""
        asked = request_digest(request)
        if head_of(reply).kind == Refusal.kind:
            refusal = decode(reply, Refusal, roster=self._roster)
            if (refusal.sender, refusal.answers) != (silo, asked):
                raise PeerProtocolError("refuses another message than this one.")
            raise PeerProtocolError(readable(refusal.reason))
        receipt = decode(reply, Receipt, roster=self._roster, kinds=DELIVERY)
        said = receipt.sender, receipt.session, receipt.answers, receipt.parcel
        if said != (silo, self._session, asked, self._digest):
            raise PeerProtocolError("answers another message than this one.")
        return receipt
