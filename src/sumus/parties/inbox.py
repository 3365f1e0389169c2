"""A silo's letter box for runs: takes what a server hands out piece by piece, and keeps what it
believes.

A parcel is held in memory while it arrives, never more than its plan allows and one at a time; what
a process that ends had of it is sent again. What the silo answers depends on what it was sent, and
on nothing else of the silo.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import final

from sumus.errors import PeerProtocolError
from sumus.parties.agreement import Agreement
from sumus.parties.delivery_messages import DELIVERY, Offer, Piece, Receipt, Receipts
from sumus.parties.memory import SiloState
from sumus.parties.own_memory import OwnMemory
from sumus.parties.parcel import UnbelievedError, most_parcel_bytes, piece_bytes
from sumus.parties.receipts import RECEIPTS, keep_receipts, read_receipt
from sumus.parties.received import DeliveryNote, Shelf
from sumus.parties.rosters import read_rosters
from sumus.plan import TrainingPlan
from sumus.secagg import Identity, Roster, decode_any, request_digest, session_digest, verify

__all__ = ["Inbox", "Kept"]

Kept = Callable[[DeliveryNote, Path], None]
"""Told of a run that was put on the shelf; must not raise."""
_MOST_REMEMBERED = 64


@final
class Inbox:
    """Answers offers, pieces and receipts.

    Guarantee: takes nothing that the server's key on the silo's own roster did not sign, of no plan
        that the silo has not approved, and no more than the plan allows; writes nothing before all
        of it is checked.

    Args:
        state: the silo's folder.
        shelf: where it keeps what it believes.
        kept: told of every run that is new there.
    """

    def __init__(self, state: SiloState, shelf: Shelf, *, kept: Kept) -> None:
        self._state, self._shelf, self._kept = state, shelf, kept
        self._offer: Offer | None = None
        self._content = bytearray()
        self._unbelieved: list[bytes] = []

    def answer(self, message: bytes, agree: Callable[[TrainingPlan], Agreement]) -> bytes:
        """A signed receipt; raises for what is not to be had."""
        identity, roster = self._state.identity, self._state.roster
        request = decode_any(message, DELIVERY)
        verify(request, message, roster)
        if isinstance(request, Offer):
            have, whole = self._offered(request, agree, roster)
        elif isinstance(request, Piece):
            have, whole = self._taken(request, agree)
        elif isinstance(request, Receipts):
            have, whole = self._confirmed(request)
        else:
            raise PeerProtocolError("a receipt is for a server. Refuse the sender.")
        return self._receipt(identity, roster, request, message, have=have, whole=whole)

    def _receipt(
        self,
        identity: Identity,
        roster: Roster,
        request: Offer | Piece | Receipts,
        message: bytes,
        *,
        have: int,
        whole: bool,
    ) -> bytes:
        return Receipt(
            sender=roster.number(identity.name),
            session=request.session,
            answers=request_digest(message),
            parcel=request.parcel,
            have=have,
            whole=whole,
        ).encode(identity)

    def _offered(
        self, offer: Offer, agree: Callable[[TrainingPlan], Agreement], roster: Roster
    ) -> tuple[int, bool]:
        agreement = agree(self._state.plan(offer.plan_hash))
        if session_digest(agreement.terms_for(len(roster)), roster) != offer.session:
            raise PeerProtocolError(
                "a run is offered under other terms or another roster. Compare plan and roster "
                "fingerprints."
            )
        if self._holds(offer):
            return offer.size, True
        if offer.parcel in self._unbelieved:
            raise UnbelievedError("this run was refused before, and is still the same.")
        most = most_parcel_bytes(agreement)
        if not 0 < offer.size <= most:
            raise PeerProtocolError(
                f"a run of {offer.size} bytes is offered, one of this plan has at most {most}. "
                "Refuse the server."
            )
        if self._offer is None or (self._offer.parcel, self._offer.size) != (
            offer.parcel,
            offer.size,
        ):
            self._content = bytearray()
        self._offer = offer
        return len(self._content), False

    def _taken(self, piece: Piece, agree: Callable[[TrainingPlan], Agreement]) -> tuple[int, bool]:
        offer = self._offer
        if offer is None or offer.parcel != piece.parcel:
            held = self._held_parcel(piece.parcel)
            if held:
                return piece.offset + len(piece.content), True
            raise PeerProtocolError("a piece is of nothing that was offered. Offer the run first.")
        agreement = agree(self._state.plan(offer.plan_hash))
        have, size = len(self._content), len(piece.content)
        if not 0 < size <= min(piece_bytes(agreement), offer.size - piece.offset):
            raise PeerProtocolError(
                f"a piece of {size} bytes at {piece.offset} is too long or lies beyond the run. "
                "Refuse the server."
            )
        if piece.offset != have:  # sent twice, or of another sending: where to go on is said
            return have, False
        self._content += piece.content
        if len(self._content) < offer.size:
            return len(self._content), False
        return offer.size, self._keep(offer, agreement)

    def _keep(self, offer: Offer, agreement: Agreement) -> bool:
        """Everything has arrived: check it, and put it on the shelf."""
        from sumus.parties.checked_run import Recipient, keep_run  # torch is loaded with it

        content, self._content, self._offer = self._content, bytearray(), None
        if hashlib.sha256(content).digest() != offer.parcel:
            raise PeerProtocolError(
                "what was delivered is not what was offered: its hash differs. Offer it again."
            )
        folder = self._state.folder
        recipient = Recipient(
            silo=self._state.name,
            agreement=agreement,
            rosters=read_rosters(folder),
            memory=OwnMemory.of_folder(folder, agreement.plan.hash),
            shelf=self._shelf,
        )
        try:
            note = keep_run(content, recipient, parcel=offer.parcel)
        except UnbelievedError:
            self._unbelieved = [*self._unbelieved[1 - _MOST_REMEMBERED :], offer.parcel]
            raise
        held = self._shelf.held(note.plan_hash)
        if held is not None:
            self._kept(note, held)
        return True

    def _confirmed(self, receipts: Receipts) -> tuple[int, bool]:
        """Keep what other silos have signed of the run that is here."""
        folder = self._held_parcel(receipts.parcel)
        if folder is None:
            raise PeerProtocolError("receipts are of a run that is not here. Offer it first.")
        rosters = [epoch.roster for epoch in read_rosters(self._state.folder).epochs]
        signed = {
            read_receipt(each, rosters, parcel=receipts.parcel): each for each in receipts.signed
        }
        keep_receipts(folder, receipts.parcel, signed)
        with contextlib.suppress(OSError):  # as open as the rest of the folder
            (folder / RECEIPTS).chmod(folder.stat().st_mode & 0o666)
        return 0, True

    def _holds(self, offer: Offer) -> bool:
        return self._held_parcel(offer.parcel) is not None

    def _held_parcel(self, parcel: bytes) -> Path | None:
        """The folder of a parcel that is on the shelf, whole."""
        for folder, note in self._shelf.runs():
            if note.parcel == parcel.hex() and note.is_whole(folder):
                return folder
        return None
