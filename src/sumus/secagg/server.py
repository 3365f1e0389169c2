"""The server's side of a round: one class per state, no I/O. States collect the silos' replies;
`close` returns (next state, broadcast).

    ServerSession ──invite──► ServerCollecting ──close──► ServerCertifying
                                        ──close──► ServerUnmasking ──close──► RoundSum

`receive` takes replies in any order, any number of times; a second reply of the same silo changes
nothing, and one that the silo's key on the roster did not sign is refused before it changes
anything. `waiting_for` says who has not answered yet, so a driver closes a state when it is empty or
when its patience ends. A `RoundAborted` loses the round only. The server's only
secret is the key that signs its messages. Nothing here is trusted by a silo.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from sumus.errors import LocalProtocolError, PeerProtocolError, RoundAborted
from sumus.secagg.accusation import Accusation, without_vector
from sumus.secagg.graph import Topology
from sumus.secagg.keys import Identity, Roster
from sumus.secagg.masking import Words, add_masks, packed_bytes, reduce_words, unpack, word_type
from sumus.secagg.messages import (
    SERVER,
    DroppedSet,
    Invitation,
    MaskedInput,
    RevealedShares,
    RoundHeader,
    SetCertificate,
    SetSignature,
    decode,
)
from sumus.secagg.recovery import (
    Disagreements,
    Recovery,
    Sealed,
    UnopenedError,
    pads_by_owner,
)
from sumus.secagg.schedule import TAG_BYTES
from sumus.secagg.secrets import SecretLayout, pair_sign
from sumus.secagg.sharing import ELEMENT_BYTES
from sumus.secagg.terms import Terms

__all__ = [
    "RoundSum",
    "ServerCertifying",
    "ServerCollecting",
    "ServerSession",
    "ServerUnmasking",
    "require_sender",
]

_MASKS_AT_ONCE = 256  # cipher states kept alive together


@final
@dataclass(frozen=True, eq=False)
class RoundSum:
    """What a round leaves behind.

    Args:
        total: Σ of the survivors' vectors mod 2^modulus_bits.
        survivors: numbers of the silos whose vectors are in it.
        removed_seeds: of each survivor, the removable seeds that were not needed, by index; expand
            and subtract them.
        certificate: the signed `SetCertificate` by which the silos opened it.
        disagreements: whose shares did not fit; the sum is right all the same.
        accusation: the signed messages that prove them (`Accusation`).
    """

    total: Words
    survivors: frozenset[int]
    removed_seeds: Mapping[int, Mapping[int, bytes]]
    certificate: bytes
    disagreements: Disagreements = field(default_factory=Disagreements)
    accusation: Mapping[str, Any] | None = None


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class ServerSession:
    """Keys are exchanged; rounds may begin."""

    identity: Identity
    roster: Roster
    terms: Terms
    session: bytes
    topology: Topology
    members: frozenset[int]
    keys_digest: bytes
    _sums: Iterator[int] = field(default_factory=itertools.count, repr=False)

    def invite(
        self,
        round_id: bytes,
        *,
        payload: bytes = b"",
        participants: frozenset[int] | None = None,
        sequence: int | None = None,
        keys_digest: bytes | None = None,
    ) -> tuple[ServerCollecting, bytes]:
        """Open a round; the invitation is the same for all participants.

        Args:
            round_id: 32 bytes, new in every round.
            payload: what the application tells every silo.
            participants: by default everyone who sent a key.
            sequence: of the sum, larger than that of any sum before it; by default this session's
                sums are counted from 0.
            keys_digest: of the key set under which this very round was asked for before; by
                default the newest.
        """
        chosen = self.members if participants is None else participants
        if not chosen <= self.members:
            raise LocalProtocolError(
                f"participants {sorted(chosen - self.members)} sent no keys. Repeat the set-up "
                "with them."
            )
        header = RoundHeader(
            session=self.session,
            round_id=round_id,
            keys_digest=self.keys_digest if keys_digest is None else keys_digest,
            sequence=next(self._sums) if sequence is None else sequence,
            payload_digest=hashlib.sha256(payload).digest(),
            silos=self.terms.silos,
            participants=chosen,
        )
        invitation = Invitation(
            sender=SERVER, session=self.session, round_id=round_id, header=header, payload=payload
        )
        return ServerCollecting(self, header), invitation.encode(self.identity)

    def _layout(self, header: RoundHeader, owner: int) -> SecretLayout:
        return SecretLayout.of(
            self.topology,
            owner=owner,
            participants=header.participants,
            removable=self.terms.removable,
        )


@final
@dataclass(frozen=True, eq=False)
class _Inputs:
    """What exchange 1 leaves for the states after it.

    Args:
        session: the federation's keys and terms.
        header: the round.
        dropped: participants whose input is missing.
        masked_sum: Σ of the masked vectors.
        sealed: of every survivor, what its unmasking takes.
    """

    session: ServerSession
    header: RoundHeader
    dropped: frozenset[int]
    masked_sum: Words
    sealed: Mapping[int, Sealed]


@final
class ServerCollecting:
    """Exchange 1: adds the masked vectors up as they come in."""

    def __init__(self, session: ServerSession, header: RoundHeader) -> None:
        self._session, self._header = session, header
        self._transcript = header.transcript
        self._sum: Words = np.zeros(
            session.terms.length, dtype=word_type(session.terms.modulus_bits)
        )
        self._sealed: dict[int, Sealed] = {}

    @property
    def waiting_for(self) -> frozenset[int]:
        """Participants whose vector is missing."""
        return self._header.participants - set(self._sealed)

    def receive(self, message: bytes, *, sender: int | None = None) -> None:
        """Take one silo's masked input."""
        given = decode(message, MaskedInput, roster=self._session.roster)
        silo = _member(
            given,
            self._session,
            transcript=self._transcript,
            among=self._header.participants,
            claimed=sender,
        )
        if silo in self._sealed:
            return
        layout, terms = self._session._layout(self._header, silo), self._session.terms
        per_secret = len(layout.holders) - self._session.topology.threshold + 1
        expected = (
            layout.count * per_secret * ELEMENT_BYTES,
            layout.count * TAG_BYTES,
            packed_bytes(terms.length, terms.modulus_bits),
        )
        if (len(given.corrections), len(given.tags), len(given.vector)) != expected:
            raise PeerProtocolError(
                f"a field of silo {silo}'s masked input has the wrong length. It runs another plan "
                "or release."
            )
        np.add(
            self._sum,
            unpack(given.vector, modulus_bits=terms.modulus_bits, length=terms.length),
            out=self._sum,
        )
        self._sealed[silo] = Sealed(
            given.salt,
            bytes(given.corrections),
            bytes(given.tags),
            signed=without_vector(given, message),
        )

    def close(self) -> tuple[ServerCertifying, bytes]:
        """Whoever has not delivered has dropped out; have that signed."""
        dropped = self._header.participants - set(self._sealed)
        least = self._session.terms.minimum_survivors
        if len(self._sealed) < least:
            raise RoundAborted(
                f"{len(self._sealed)} inputs arrived, a sum needs {least}. Start a new round."
            )
        proposal = DroppedSet(
            sender=SERVER,
            session=self._session.session,
            round_id=self._header.round_id,
            header=self._header,
            dropped=dropped,
        )
        inputs = _Inputs(
            self._session, self._header, dropped, masked_sum=self._sum, sealed=self._sealed
        )
        return ServerCertifying(inputs), proposal.encode(self._session.identity)


@final
class ServerCertifying:
    """Exchange 2: collects signatures on the dropped set."""

    def __init__(self, inputs: _Inputs) -> None:
        self._inputs = inputs
        self._signatures: dict[int, bytes] = {}

    @property
    def waiting_for(self) -> frozenset[int]:
        """Survivors on the committee whose signature is missing."""
        return (self._inputs.session.topology.committee & set(self._inputs.sealed)) - set(
            self._signatures
        )

    def receive(self, message: bytes, *, sender: int | None = None) -> None:
        """Take one silo's signature."""
        given = decode(message, SetSignature, roster=self._inputs.session.roster)
        silo = _member(
            given,
            self._inputs.session,
            transcript=self._inputs.header.transcript,
            among=frozenset(self._inputs.sealed),
            claimed=sender,
        )
        signed = DroppedSet.signed_part(self._inputs.header, self._inputs.dropped)
        self._inputs.session.roster.verify(silo, signature=given.signature, message=signed)
        if silo in self._inputs.session.topology.committee:
            self._signatures[silo] = given.signature

    def close(self) -> tuple[ServerUnmasking, bytes]:
        """A quorum of signatures, proof for every silo that no other set can be signed."""
        quorum = self._inputs.session.topology.quorum
        if len(self._signatures) < quorum:
            raise RoundAborted(
                f"{len(self._signatures)} silos signed the survivor set, {quorum} must. Start a "
                "new round."
            )
        certificate = SetCertificate(
            sender=SERVER,
            session=self._inputs.session.session,
            round_id=self._inputs.header.round_id,
            header=self._inputs.header,
            dropped=self._inputs.dropped,
            salts={silo: sealed.salt for silo, sealed in self._inputs.sealed.items()},
            signatures=dict(sorted(self._signatures.items())[:quorum]),
        )
        encoded = certificate.encode(self._inputs.session.identity)
        return ServerUnmasking(self._inputs, encoded), encoded


@final
class ServerUnmasking:
    """Exchange 3: collects shares and takes the masks off."""

    def __init__(self, inputs: _Inputs, certificate: bytes) -> None:
        self._inputs, self._certificate = inputs, certificate
        self._survivors = inputs.header.participants - inputs.dropped
        self._missing = inputs.session.terms.silos - len(self._survivors)
        self._layouts = {
            owner: inputs.session._layout(inputs.header, owner) for owner in sorted(self._survivors)
        }
        self._opened = {
            owner: layout.opened(inputs.dropped, missing=self._missing)
            for owner, layout in self._layouts.items()
        }
        self._counts = {owner: len(opened) for owner, opened in self._opened.items()}
        self._pads: dict[int, dict[int, bytes]] = {owner: {} for owner in self._layouts}
        self._answered: dict[int, bytes] = {}  # signed, should somebody have lied

    @property
    def waiting_for(self) -> frozenset[int]:
        """Survivors whose shares are missing."""
        return self._survivors - set(self._answered)

    def receive(self, message: bytes, *, sender: int | None = None) -> None:
        """Take one silo's shares of everything that is to be opened."""
        given = decode(message, RevealedShares, roster=self._inputs.session.roster)
        silo = _member(
            given,
            self._inputs.session,
            transcript=self._inputs.header.transcript,
            among=self._survivors,
            claimed=sender,
        )
        if silo in self._answered:
            return
        topology = self._inputs.session.topology
        for owner, pads in pads_by_owner(topology, self._counts, silo, given.shares):
            self._pads[owner][silo] = pads
        self._answered[silo] = bytes(message)

    def close(self) -> RoundSum:
        """Open what the certificate allows and take it off the sum."""
        masks: list[tuple[bytes, int]] = []
        removed: dict[int, dict[int, bytes]] = {}
        seeds_of, disagreements = self._open_all()
        for owner, layout in self._layouts.items():
            seeds = seeds_of[owner]
            pairs = layout.opened_pairs(self._inputs.dropped)
            masks += [
                (seeds[0], -1),
                *((seeds[index], -pair_sign(owner, partner)) for index, partner in pairs),
            ]
            first = len(layout.holders)
            removed[owner] = {
                index - first: seeds[index] for index in layout.opened_removable(self._missing)
            }
        for start in range(0, len(masks), _MASKS_AT_ONCE):
            add_masks(self._inputs.masked_sum, masks[start : start + _MASKS_AT_ONCE])
        reduce_words(self._inputs.masked_sum, self._inputs.session.terms.modulus_bits)
        return RoundSum(
            total=self._inputs.masked_sum,
            survivors=self._survivors,
            removed_seeds=removed,
            certificate=self._certificate,
            disagreements=disagreements,
            accusation=self._accusation(disagreements).as_json() if disagreements else None,
        )

    def _open_all(self) -> tuple[dict[int, dict[int, bytes]], Disagreements]:
        """All survivors' opened seeds, and who disagreed with whom about them."""
        session = self._inputs.session
        recovery = Recovery(threshold=session.topology.threshold, liars=session.terms.colluding)
        recovery.bind(part for pads in self._pads.values() for part in pads.values())
        seeds_of: dict[int, dict[int, bytes]] = {}
        for owner in self._layouts:
            seeds = self._open(recovery, owner)
            if seeds is not None:
                seeds_of[owner] = seeds
        closed = sorted(set(self._layouts) - set(seeds_of))
        if closed:
            raise UnopenedError(
                f"the secrets of silos {closed} cannot be opened: wrong tags or too many wrong "
                "shares. Start a new round without them.",
                recovery.disagreements,
                self._accusation(recovery.disagreements).as_json(),
            )
        return seeds_of, recovery.disagreements

    def _accusation(self, noticed: Disagreements) -> Accusation:
        return Accusation(
            certificate=self._certificate,
            inputs=tuple(self._inputs.sealed[owner].signed for owner in sorted(noticed.owners)),
            shares=tuple(self._answered[silo] for silo in sorted(self._answered)),
        )

    def _open(self, recovery: Recovery, owner: int) -> dict[int, bytes] | None:
        """One survivor's opened seeds by index, each checked against its tag; None if that fails."""
        pads, threshold = self._pads[owner], self._inputs.session.topology.threshold
        if len(pads) < threshold:
            raise RoundAborted(
                f"{len(pads)} silos helped to unmask silo {owner}, {threshold} must. Start a "
                "new round; no input is lost."
            )
        return recovery.open(
            owner,
            self._layouts[owner].holders,
            pads,
            sealed=self._inputs.sealed[owner],
            opened=self._opened[owner],
        )


def _member(
    message: MaskedInput | SetSignature | RevealedShares,
    session: ServerSession,
    *,
    transcript: bytes,
    among: frozenset[int],
    claimed: int | None,
) -> int:
    """The sender, if it may speak in this state."""
    require_sender(
        message.sender,
        session=session.session,
        given=message.session,
        claimed=claimed,
    )
    if message.transcript != transcript:
        raise PeerProtocolError(
            f"silo {message.sender} speaks of another round, payload or set of participants. "
            "Ignore it."
        )
    if message.sender not in among:
        raise PeerProtocolError(
            f"silo {message.sender} has no part in this stage of the round. Ignore it."
        )
    return message.sender


def require_sender(sender: int, *, session: bytes, given: bytes, claimed: int | None) -> None:
    """A message belongs to this session, and comes from the silo the transport says it comes
    from.
    """
    if given != session:
        raise PeerProtocolError(
            "the message belongs to a session with other terms or another roster. Compare plan and "
            "roster."
        )
    if claimed is not None and claimed != sender:
        raise PeerProtocolError(
            f"silo {claimed} sent a message in the name of silo {sender}. Refuse it."
        )
