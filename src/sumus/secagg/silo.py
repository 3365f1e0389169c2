"""The silo's side of a round: one class per state, no I/O. A method takes the server's bytes and
returns (next state, reply). A message that the server's key on the roster did not sign changes
nothing.

    SiloSession ──invitation──► SiloInvited ──vector──► SiloSubmitted ──dropped set──► SiloSigned
                                                              └────────certificate────────┴──► SiloDone

A session holds no secret: its keys are in a `KeyStore` (filled by `silo_setup`), from which a round
takes its own when it is claimed, and all roots move on. The states after the input read the keys of
the round in flight from there, and what must never happen twice is asked of the `RoundGuard`. A
silo that was restarted therefore picks a round up where it left it (`SiloSession.resume`), also if
the keys went round again meanwhile.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import final

import numpy.typing as npt

from sumus.errors import LocalProtocolError, PeerProtocolError, RoundAborted
from sumus.randomness import RandomSource
from sumus.secagg.envelope import head_of
from sumus.secagg.graph import Topology, topology_of
from sumus.secagg.guard import RoundGuard, require_same
from sumus.secagg.keyring import KeyStore, RoundInFlight
from sumus.secagg.keys import Identity, Roster, session_digest
from sumus.secagg.masking import as_integers, packed_bytes, write_masked
from sumus.secagg.messages import (
    DroppedSet,
    Invitation,
    MaskedInput,
    RevealedShares,
    RoundHeader,
    SetCertificate,
    SetSignature,
    decode,
    decode_any,
    verify,
)
from sumus.secagg.schedule import SALT_BYTES, OwnKey, PairKey, seed_tag
from sumus.secagg.secrets import SecretLayout, pair_sign
from sumus.secagg.sharing import ELEMENT_BYTES, corrections
from sumus.secagg.terms import Terms

__all__ = [
    "SiloDone",
    "SiloInvited",
    "SiloSession",
    "SiloSigned",
    "SiloSubmitted",
    "answer",
    "require_session",
]


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class SiloSession:
    """Keys are agreed; rounds may begin.

    Args:
        guard: what the silo has committed to.
        keys: pair roots, and the keys of the round in flight.
        random: of own keys and salts in a simulation; None: the operating system, asked anew for
            every round, so that a process that was copied or restored does not repeat them.
    """

    identity: Identity
    roster: Roster
    terms: Terms
    number: int
    session: bytes
    topology: Topology
    guard: RoundGuard = field(repr=False)
    keys: KeyStore = field(repr=False)
    random: RandomSource | None = field(default=None, repr=False)

    @classmethod
    def open(
        cls,
        identity: Identity,
        roster: Roster,
        *,
        terms: Terms,
        guard: RoundGuard,
        keys: KeyStore,
        random: RandomSource | None = None,
    ) -> SiloSession:
        """The session of a silo with what it keeps, whichever process put it there."""
        session = session_digest(terms, roster)
        return cls(
            identity=identity,
            roster=roster,
            terms=terms,
            number=roster.number(identity.name),
            session=session,
            topology=topology_of(terms, session),
            guard=guard,
            keys=keys,
            random=random,
        )

    def receive(self, message: bytes, *, payload_bytes: int | None = None) -> SiloInvited:
        """Accept an invitation to a round that is new to this silo, or to the one in flight.

        Nothing is claimed yet: an invitation that the application then refuses leaves no trace,
            however many of them a server sends.

        Args:
            payload_bytes: the only length that a payload may have, compared before it is copied.
        """
        invitation = decode(message, Invitation, roster=self.roster)
        header = invitation.header
        require_session(self.session, given=invitation.session)
        if payload_bytes not in (None, len(invitation.payload)):
            raise PeerProtocolError(
                f"the payload of the invitation has {len(invitation.payload)} bytes, the plan's "
                f"model has {payload_bytes}. Refuse the server."
            )
        if invitation.bulk_digest != header.payload_digest:
            raise PeerProtocolError(
                "the payload of the invitation is not the one its header names. Ask the server to "
                "send it again."
            )
        known = self.guard.claimed(header.round_id, "transcript")
        require_same(known, header.transcript, round_id=header.round_id, step="transcript")
        payload, flight = invitation.payload, self.keys.ring.round
        if flight is not None and header.transcript == flight.transcript:
            if not flight.reply:  # whether its noise was drawn is not known
                raise PeerProtocolError(
                    f"silo {self.number} has claimed this round already and kept no answer, and a "
                    "round is answered once. Go on with the next."
                )
            return SiloInvited(self, header, payload, flight.salt, flight.own_key, flight.reply)
        if flight is not None and header.sequence <= flight.sequence:
            raise PeerProtocolError(
                f"silo {self.number} has answered sum {flight.sequence} already, and every sum up "
                f"to it is answered once (asked for: {header.sequence}). Go on with the next round."
            )
        self._check_participants(header, self.keys.ring.key_set(header.keys_digest).roots)
        return SiloInvited(self, header, payload, self._draw(SALT_BYTES), self._draw(32))

    def _draw(self, count: int) -> bytes:
        return os.urandom(count) if self.random is None else self.random.bytes(count)

    def resume(self, message: bytes) -> SiloSubmitted:
        """Pick up a round after a restart from a dropped set or a certificate, if this silo's input
        is in it.
        """
        received = decode_any(message)
        if not isinstance(received, DroppedSet | SetCertificate):
            raise PeerProtocolError(
                f"a round cannot be resumed from {type(received).__name__}. Wait for the dropped "
                "set."
            )
        verify(received, message, self.roster)
        header = received.header
        require_session(self.session, given=received.session)
        flight = self._in_flight(header)
        if self.guard.claimed(header.round_id, "input") is None:
            raise PeerProtocolError(
                f"silo {self.number} has no input in this round, so it has dropped out. Wait for "
                "the next round."
            )
        self._check_participants(header, flight.pair_keys)
        return SiloSubmitted(self, header)

    def keep_answer(self, reply: bytes) -> None:
        """Remember the masked input of the round in flight: the same invitation gets the very same
        bytes again.
        """
        self.keys.keep(self.keys.ring.answered(reply))

    def _in_flight(self, header: RoundHeader) -> RoundInFlight:
        """The round in flight, which must be this one: the keys of earlier ones are gone."""
        flight = self.keys.ring.round
        if flight is None or flight.transcript != header.transcript:
            raise PeerProtocolError(
                f"silo {self.number} was never invited to this round, or to another form of it, or "
                "has gone on to a later one. Refuse the server."
            )
        return flight

    def released(self, round_id: bytes) -> bool:
        """Whether the round counts as a release of this silo's records, whatever the server
        reports.

        It does from the moment its input may have left. Whether anybody opened the sum cannot be
        told from here: a threshold of the others can do it without ever asking this silo to sign or
        to reveal. Before that the server has learnt nothing.
        """
        return self.guard.claimed(round_id, "input") is not None

    def _check_participants(self, header: RoundHeader, agreed: Mapping[int, bytes]) -> None:
        """The participants must include this silo, have agreed on a key with it, and be enough to
        finish.
        """
        if header.silos != self.terms.silos:
            raise PeerProtocolError(
                f"the roster has {self.terms.silos} silos, the round counts {header.silos}. Use "
                "the same roster."
            )
        if self.number not in header.participants:
            raise PeerProtocolError(
                f"silo {self.number} is not among the participants it was sent. Wait for another "
                "round."
            )
        taking_part, least = len(header.participants), self.terms.minimum_survivors
        if taking_part < least:
            raise RoundAborted(
                f"{taking_part} silos take part, a sum needs {least}. Wait for more silos."
            )
        unknown = (
            (self.topology.circle(self.number) & header.participants) - {self.number} - set(agreed)
        )
        if unknown:
            raise PeerProtocolError(
                f"participants {sorted(unknown)} have no agreed key with silo {self.number}. "
                "Repeat the set-up."
            )
        holders = len(self.topology.holders(self.number, header.participants))
        if holders < self.topology.threshold:
            raise RoundAborted(
                f"{holders} holders are too few for a threshold of {self.topology.threshold}. Wait "
                "for more silos."
            )

    def _layout(self, header: RoundHeader, owner: int) -> SecretLayout:
        return SecretLayout.of(
            self.topology,
            owner=owner,
            participants=header.participants,
            removable=self.terms.removable,
        )


@final
@dataclass(frozen=True, eq=False)
class SiloInvited:
    """The silo knows the round and its payload and owes an input."""

    session: SiloSession
    header: RoundHeader
    payload: bytes | memoryview = field(repr=False)
    _salt: bytes = field(repr=False)
    _own_key: bytes = field(repr=False)
    reply: bytes = field(default=b"", repr=False)
    """The stored answer, if this very invitation was answered before: send it again."""

    @property
    def removable_seeds(self) -> tuple[bytes, ...]:
        """Secret seeds, one per removable noise component; the application expands them and adds
        the result to its vector.
        """
        return OwnKey(self._own_key).removable_seeds(self.session.terms.removable)

    def claim(self) -> RoundInFlight:
        """From here on this sum counts as answered, and no earlier one can be opened or asked for.

        Guarantee: when this returns, the store holds the keys of this round and roots that are
            behind it. A second claim of the same invitation changes nothing.
        """
        keys, header = self.session.keys, self.header
        flight = keys.ring.round
        if flight is not None and (flight.transcript, flight.salt) == (
            header.transcript,
            self._salt,
        ):
            return flight
        ring = keys.ring.claimed(
            header.keys_digest,
            sequence=header.sequence,
            transcript=header.transcript,
            salt=self._salt,
            own_key=self._own_key,
            partners=self.session._layout(header, self.session.number).partners,
        )
        keys.keep(ring)
        return self.session._in_flight(header)

    def submit(self, vector: npt.ArrayLike) -> tuple[SiloSubmitted, bytes]:
        """Mask the vector and hand over all that unmasking may ever need.

        y_u = x_u + PRG(b_u) + Σ_{v>u} PRG(s_uv) − Σ_{v<u} PRG(s_uv)  mod 2^modulus_bits.

        Guarantee: a round id is used for one submission and never again, whatever the vector; keep
            the returned bytes to send them a second time.
        """
        session, terms, transcript = self.session, self.session.terms, self.header.transcript
        values = as_integers(vector, terms.length)
        flight = self.claim()
        # the same masks on a second vector give the difference
        if session.guard.claimed(self.header.round_id, "input") == self._salt:
            raise LocalProtocolError(
                "this invitation was answered already, and masks are used once. Send the stored "
                "answer again."
            )
        session.guard.claim(self.header.round_id, "transcript", transcript)
        session.guard.claim(self.header.round_id, "input", self._salt)
        layout = session._layout(self.header, session.number)
        pair_keys = {v: PairKey(flight.pair_keys[v]) for v in layout.partners}
        self_seed = OwnKey(self._own_key).self_seed()
        seeds = [
            self_seed,
            *(pair_keys[v].mask_seed() for v in layout.partners),
            *self.removable_seeds,
        ]
        signs = (pair_sign(session.number, partner) for partner in layout.partners)
        masks = [(self_seed, 1), *zip(seeds[1:], signs, strict=False)]
        reply = MaskedInput(
            sender=session.number,
            session=session.session,
            round_id=self.header.round_id,
            transcript=transcript,
            salt=self._salt,
            corrections=self._corrections(layout, seeds=seeds, pair_keys=pair_keys),
            tags=b"".join(map(seed_tag, seeds)),
            vector=b"",
        )
        size = packed_bytes(terms.length, terms.modulus_bits)
        message = reply.encode_with(
            lambda room: write_masked(room, values, masks, modulus_bits=terms.modulus_bits),
            session.identity,
            size=size,
        )
        return SiloSubmitted(session, self.header), message

    def _corrections(
        self, layout: SecretLayout, *, seeds: list[bytes], pair_keys: Mapping[int, PairKey]
    ) -> bytes:
        """Secret by secret, what makes t of the derived pads determine it."""
        number = self.session.number
        pads = [
            OwnKey(self._own_key).pads(layout.count)
            if holder == number
            else pair_keys[holder].pads(number, salt=self._salt, count=layout.count)
            for holder in layout.holders
        ]
        return corrections(seeds, pads, threshold=self.session.topology.threshold)


@dataclass(frozen=True, eq=False)
class _InRound:
    """What the states after the input have in common: they can check a survivor set and reveal
    under a certificate.
    """

    session: SiloSession
    header: RoundHeader

    def reveal(self, message: bytes) -> tuple[SiloDone, bytes]:
        """Reveal this silo's shares of what the certified survivor set opens, and nothing else.

        Guarantee: a quorum of the committee signed exactly this set for exactly this round. Since
            2·quorum exceeds the committee and its corrupt members together, and an honest silo
            signs one set a round, no other set can be certified.
        """
        session, topology = self.session, self.session.topology
        certificate = decode(message, SetCertificate, roster=session.roster)
        self._check_round(certificate.session, certificate.header)
        signers = set(certificate.signatures)
        if len(signers) != topology.quorum or not signers <= topology.committee & (
            self.header.participants - certificate.dropped
        ):
            raise PeerProtocolError(
                f"a certificate needs {topology.quorum} signatures of surviving committee members, "
                f"got {len(signers)}. Refuse it."
            )
        self._check_dropped(certificate.dropped)
        signed = DroppedSet.signed_part(self.header, certificate.dropped)
        for silo, signature in certificate.signatures.items():
            session.roster.verify(silo, signature=signature, message=signed)
        if certificate.salts[session.number] != session.guard.claimed(
            self.header.round_id, "input"
        ):
            raise PeerProtocolError(
                f"the certificate speaks of another input than silo {session.number} sent. Refuse "
                "the server."
            )
        self._bind(certificate.dropped)
        salts = b"".join(salt for _, salt in sorted(certificate.salts.items()))
        session.guard.claim(
            self.header.round_id, "release", hashlib.sha256(signed + salts).digest()
        )
        reply = RevealedShares(
            sender=session.number,
            session=session.session,
            round_id=self.header.round_id,
            transcript=self.header.transcript,
            shares=self._shares(certificate.dropped, certificate.salts),
        )
        return SiloDone(self.header.round_id), reply.encode(session.identity)

    def _shares(self, dropped: frozenset[int], salts: Mapping[int, bytes]) -> bytes:
        """Owner by owner, the pads of the opened secrets, derived again."""
        session, flight = self.session, self.session._in_flight(self.header)
        missing = session.terms.silos - len(self.header.participants - dropped)
        revealed: list[bytes] = []
        for owner in session.topology.holders(session.number, self.header.participants - dropped):
            layout = session._layout(self.header, owner)
            if owner == session.number:
                pads = OwnKey(flight.own_key).pads(layout.count)
            else:
                pair_key = PairKey(flight.pair_keys[owner])
                pads = pair_key.pads(owner, salt=salts[owner], count=layout.count)
            for index in layout.opened(dropped, missing=missing):
                revealed.append(pads[index * ELEMENT_BYTES : (index + 1) * ELEMENT_BYTES])
        return b"".join(revealed)

    def _check_round(self, given: bytes, header: RoundHeader) -> None:
        """The message must belong to this session and to this round as this silo knows it."""
        require_session(self.session.session, given=given)
        if header.transcript != self.header.transcript:
            raise PeerProtocolError(
                "the server speaks of another round, payload or set of participants than before. "
                "Refuse it."
            )

    def _check_dropped(self, dropped: frozenset[int]) -> None:
        """Fewer survivors than promised would mean less noise than accounted."""
        if not dropped <= self.header.participants:
            raise PeerProtocolError(
                "the dropped set names silos that never took part. Refuse the server."
            )
        if self.session.number in dropped:
            raise PeerProtocolError(
                f"silo {self.session.number} is itself declared dropped, so it has no part in "
                "unmasking. Wait for the next round."
            )
        survivors, least = (
            len(self.header.participants - dropped),
            self.session.terms.minimum_survivors,
        )
        if survivors < least:
            raise RoundAborted(
                f"{survivors} survivors are fewer than the {least} that threshold, noise and "
                "colluders ask for. Start a new round."
            )

    def _bind(self, dropped: frozenset[int]) -> None:
        """From here on this round has one survivor set."""
        digest = hashlib.sha256(DroppedSet.signed_part(self.header, dropped)).digest()
        self.session.guard.claim(self.header.round_id, "survivor-set", digest)


@final
class SiloSubmitted(_InRound):
    """The input is with the server; the survivor set is open."""

    def sign(self, message: bytes) -> tuple[SiloSigned, bytes]:
        """Sign the one dropped set of this round that this silo will ever sign."""
        proposal = decode(message, DroppedSet, roster=self.session.roster)
        self._check_round(proposal.session, proposal.header)
        self._check_dropped(proposal.dropped)
        self._bind(proposal.dropped)
        reply = SetSignature(
            sender=self.session.number,
            session=self.session.session,
            round_id=self.header.round_id,
            transcript=self.header.transcript,
            signature=self.session.identity.sign(
                DroppedSet.signed_part(self.header, proposal.dropped)
            ),
        )
        return SiloSigned(self.session, self.header), reply.encode(self.session.identity)


@final
class SiloSigned(_InRound):
    """The silo has signed a survivor set and waits for the proof that a quorum did."""


@final
@dataclass(frozen=True)
class SiloDone:
    """The round is over for this silo."""

    round_id: bytes


def answer(
    session: SiloSession, message: bytes, vector_for: Callable[[SiloInvited], npt.ArrayLike]
) -> bytes:
    """The reply to any message of a round, from a process that may have started a moment ago.

    The engines' whole silo side: `vector_for` computes the silo's vector from the invitation's
    payload.
    """
    kind = head_of(message).kind
    if kind == Invitation.kind:
        invited = session.receive(message)
        if invited.reply:
            return invited.reply
        invited.claim()
        reply = invited.submit(vector_for(invited))[1]
        session.keep_answer(reply)
        return reply
    submitted = session.resume(message)
    return submitted.sign(message)[1] if kind == DroppedSet.kind else submitted.reveal(message)[1]


def require_session(session: bytes, *, given: bytes) -> None:
    """A message belongs to the session of whoever reads it."""
    if given != session:
        raise PeerProtocolError(
            "the message belongs to a session with other terms or another roster. Compare plan and "
            "roster."
        )
