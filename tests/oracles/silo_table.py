"""What one real silo answers to every message that a server could send it in one round, in every
state that it can be in: a table that is read off the real code, not written down.

The server may call one round id several things (`Form`: participants and payload), propose every
dropped set, and show every certificate for which it holds a quorum of signatures, with wrong salts
for any of the silo's fellows. What a silo remembers of a round are the claims of its guard, so they
are its state here: a path of messages leads a fresh silo into each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain, combinations
from typing import Any

import numpy as np

from oracles.secagg_federation import Federation, read, round_id
from sumus.errors import ProtocolError
from sumus.secagg import DroppedSet, Invitation, MemoryKeyStore, RoundGuard, SiloSession
from sumus.secagg.messages import (
    SERVER,
    MaskedInput,
    Message as WireMessage,
    RevealedShares,
    RoundHeader,
    SetCertificate,
    SetSignature,
)
from sumus.secagg.schedule import OwnKey, PairKey
from sumus.secagg.secrets import SecretLayout
from sumus.secagg.sharing import ELEMENT_BYTES

Silos = frozenset[int]
ROUND = round_id("every schedule")


@dataclass(frozen=True)
class Form:
    """One thing that the server calls the round: who takes part, and a payload."""

    participants: Silos
    payload: bytes = b""


@dataclass(frozen=True)
class Invite:
    form: Form


@dataclass(frozen=True)
class Propose:
    form: Form
    dropped: Silos


@dataclass(frozen=True)
class Certify:
    """A certificate with a quorum of true signatures; `false_salts` are survivors whose salt it
    gets wrong, on purpose or because they have sent none.
    """

    form: Form
    dropped: Silos
    false_salts: Silos


Message = Invite | Propose | Certify
Claims = frozenset[tuple[str, object]]
"""Step of the round and what it is bound to, by a name that does not change from run to run."""


@dataclass(frozen=True)
class Revealed:
    """Pads of true salts that left: (owner, index of its secret)."""

    form: Form
    pads: frozenset[tuple[int, int]]


Output = Propose | Revealed | Form
"""A signature on a dropped set; pads; a masked input."""


def subsets(silos: Iterable[int]) -> Iterator[Silos]:
    """All of them."""
    pool = sorted(silos)
    return map(
        frozenset,
        chain.from_iterable(combinations(pool, size) for size in range(len(pool) + 1)),
    )


@dataclass
class _Guard:
    """A guard that says what it holds, and forgets the steps that a control tells it to."""

    forgets: frozenset[str]
    claims: dict[str, bytes] = field(default_factory=dict)

    def claim(self, given: bytes, step: str, digest: bytes) -> None:
        assert given == ROUND
        if step not in self.forgets and self.claims.setdefault(step, digest) != digest:
            raise ProtocolError(f"another {step}")

    def claimed(self, given: bytes, step: str) -> bytes | None:
        return self.claims.get(step) if given == ROUND else None


class SiloTable:
    """The transitions of one silo of a federation.

    Args:
        world: identities, keys and terms.
        number: of the silo.
        forms: what the server may call the round.
        forgets: steps that its guard forgets, for controls.
    """

    def __init__(
        self,
        world: Federation,
        number: int,
        forms: tuple[Form, ...],
        *,
        forgets: frozenset[str] = frozenset(),
    ) -> None:
        self.world, self.number, self.forms, self._forgets = world, number, forms, forgets
        self._paths: dict[Claims, tuple[Message, ...]] = {frozenset(): ()}
        self._live: dict[Claims, _LiveSilo] = {}
        self.answer = cache(self._answer)
        self.header = cache(self._header)

    def _header(self, form: Form) -> RoundHeader:
        """The round as the server calls it."""
        invitation = self.world.server.invite(
            ROUND, payload=form.payload, participants=form.participants, sequence=0
        )[1]
        return read(invitation, Invitation).header

    def _answer(self, claims: Claims, message: Message) -> tuple[Claims, Output | None]:
        """The silo's next state and what leaves it, None if it refuses."""
        silo = self._live.pop(claims, None) or _LiveSilo(self, self._paths[claims])
        output = silo.answer(message)
        after = silo.claims
        if output is None:
            assert after == claims, "a refused message left a trace"
        else:
            assert silo.answer(message) in (output, None), "one message, two answers"
            assert silo.claims == after
        self._paths.setdefault(after, (*self._paths[claims], message))
        self._live[after] = silo
        return after, output


class _LiveSilo:
    """A real silo that has lived through a path of messages."""

    def __init__(self, table: SiloTable, path: Iterable[Message]) -> None:
        self._table, self._world = table, table.world
        self._guard = _Guard(table._forgets)
        fresh, keys = table.world.silos[table.number], MemoryKeyStore()
        keys.keep(fresh.keys.ring)
        self._session: SiloSession = replace(fresh, guard=_as_guard(self._guard), keys=keys)
        self._names: dict[bytes, object] = {}
        self._salt = bytes(8)
        for message in path:
            assert self.answer(message) is not None

    @property
    def claims(self) -> Claims:
        """What the guard holds, by name."""
        return frozenset((step, self._names[digest]) for step, digest in self._guard.claims.items())

    def answer(self, message: Message) -> Output | None:
        known = set(self._guard.claims.values())
        try:
            output = self._deliver(message)
        except ProtocolError:
            output = None
        for step, digest in self._guard.claims.items():
            if digest not in known:
                # a proposal and a certificate bind to the same set
                bound = (message.form, getattr(message, "dropped", None))
                self._names[digest] = message if step == "release" else bound
        return output

    def _deliver(self, message: Message) -> Output:
        header = self._table.header(message.form)
        if isinstance(message, Invite):
            return self._invited(message, header)
        if isinstance(message, Propose):
            proposal = _encoded(
                self._world, DroppedSet(**_envelope(header), header=header, dropped=message.dropped)
            )
            reply = read(self._session.resume(proposal).sign(proposal)[1], SetSignature)
            signed = DroppedSet.signed_part(header, message.dropped)
            self._session.roster.verify(
                self._table.number, signature=reply.signature, message=signed
            )
            return message
        return self._certified(message, header)

    def _invited(self, message: Invite, header: RoundHeader) -> Form:
        invitation = _encoded(
            self._world,
            Invitation(**_envelope(header), header=header, payload=message.form.payload),
        )
        vector = np.zeros(self._world.terms.length, dtype=np.uint64)
        reply = self._session.receive(invitation).submit(vector)[1]
        self._salt = read(reply, MaskedInput).salt
        return message.form

    def _certified(self, message: Certify, header: RoundHeader) -> Revealed:
        survivors = header.participants - message.dropped
        salts = {
            silo: self._salt if silo == self._table.number else bytes([silo]) * 8
            for silo in survivors
        }
        shown = {
            silo: b"another!" if silo in message.false_salts else salts[silo] for silo in salts
        }
        signed = DroppedSet.signed_part(header, message.dropped)
        signers = sorted(survivors)[: self._session.topology.quorum]
        certificate = _encoded(
            self._world,
            SetCertificate(
                **_envelope(header),
                header=header,
                dropped=message.dropped,
                salts=shown,
                signatures={silo: self._world.identities[silo].sign(signed) for silo in signers},
            ),
        )
        reply = read(self._session.resume(certificate).reveal(certificate)[1], RevealedShares)
        true = {
            pad: (owner, index)
            for owner in salts
            for index, pad in enumerate(
                pads_that_a_silo_holds(self._session, header, owner=owner, salt=salts[owner])
            )
        }
        starts = range(0, len(reply.shares), ELEMENT_BYTES)
        shares = {bytes(reply.shares[start : start + ELEMENT_BYTES]) for start in starts}
        return Revealed(message.form, frozenset(true[pad] for pad in shares & set(true)))


def _envelope(header: RoundHeader) -> dict[str, Any]:
    return {"sender": SERVER, "session": header.session, "round_id": header.round_id}


def _encoded(world: Federation, message: WireMessage) -> bytes:
    """As the server sends it."""
    return message.encode(world.server.identity)


def _as_guard(guard: _Guard) -> RoundGuard:
    return guard


def pads_that_a_silo_holds(
    session: SiloSession, header: RoundHeader, *, owner: int, salt: bytes
) -> list[bytes]:
    """All pads of the owner's secrets that a silo could reveal, whether it may or not."""
    layout = layout_of(session, header, owner)
    flight = session.keys.ring.round
    assert flight is not None
    assert flight.transcript == header.transcript
    if owner == session.number:
        stream = OwnKey(flight.own_key).pads(layout.count)
    else:
        stream = PairKey(flight.pair_keys[owner]).pads(owner, salt=salt, count=layout.count)
    return [stream[start : start + ELEMENT_BYTES] for start in range(0, len(stream), ELEMENT_BYTES)]


def layout_of(session: SiloSession, header: RoundHeader, owner: int) -> SecretLayout:
    """The owner's secrets in this round."""
    return SecretLayout.of(
        session.topology,
        owner=owner,
        participants=header.participants,
        removable=session.terms.removable,
    )
