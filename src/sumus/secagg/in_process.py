"""All parties of a federation in one process, passing the real messages from hand to hand.

The states are those of a distributed run; only the wires are missing. Every silo does its own work:
a pairwise mask is expanded at both ends, a signature is verified by everyone who would. Silos mask
long vectors side by side, on all cores: ciphers, hashes and additions let go of the interpreter's
lock.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Set
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, Literal, TypeVar, final

import numpy.typing as npt

from sumus.errors import PlanError
from sumus.randomness import RandomSource
from sumus.secagg.guard import MemoryRoundGuard
from sumus.secagg.keyring import MemoryKeyStore
from sumus.secagg.keys import SERVER_NAME, Identity, Roster
from sumus.secagg.server import RoundSum, ServerSession
from sumus.secagg.server_setup import ServerSetup
from sumus.secagg.silo import SiloInvited, SiloSession, SiloSubmitted
from sumus.secagg.silo_setup import SiloSetup
from sumus.secagg.terms import Terms

__all__ = ["STAGES", "Drop", "InProcessFederation", "Stage", "Traffic", "check_drop", "vanished"]

S = TypeVar("S")
Sent = tuple[int, SiloSubmitted, bytes]
_Masking = tuple[int, Future[tuple[SiloSubmitted, bytes]]]
_LONG = 1 << 16  # words; below that a silo's work is mostly the interpreter's, which has one lock

Stage = Literal["keys", "shares", "masked", "consistency", "unmask"]
STAGES: Final[tuple[Stage, ...]] = ("keys", "shares", "masked", "consistency", "unmask")
Drop = Mapping[Stage, Set[int]]


def vanished(drop: Drop, stage: Stage) -> frozenset[int]:
    """The silos that are gone when this stage is due: whoever vanished at it or before it."""
    gone = STAGES[: STAGES.index(stage) + 1]
    return frozenset(silo for name in gone for silo in drop.get(name, ()))


def check_drop(drop: Drop, silos: int) -> None:
    """Refuse stages and silos that do not exist."""
    for stage, gone in drop.items():
        if stage not in STAGES:
            raise PlanError(
                "drop", stage, f"must name stages among {', '.join(STAGES)}", "Correct the stage."
            )
        if any(not 0 <= silo < silos for silo in gone):
            raise PlanError(
                "drop",
                sorted(gone),
                f"must name silos from 0 to {silos - 1}",
                "Correct the silo numbers.",
            )


@final
@dataclass(frozen=True)
class Traffic:
    """Bytes per silo, as counted on the messages themselves."""

    up: Counter[int] = field(default_factory=Counter)
    down: Counter[int] = field(default_factory=Counter)


@final
class InProcessFederation:
    """A server and its silos after key set-up; each call of `run_round` is one secure sum.

    Args:
        terms: the public numbers.
        random: where identities and every silo's own random source come from.
        absent: silos that never send a key.
        post_quantum: whether silos advertise ML-KEM keys, which come from the library alone and are
            not repeated by `random`.
    """

    def __init__(
        self,
        terms: Terms,
        *,
        random: RandomSource,
        absent: Set[int] = frozenset(),
        post_quantum: bool = False,
    ) -> None:
        identities = [
            Identity.generate(f"silo-{number:05d}", random) for number in range(terms.silos)
        ]
        own = Identity.generate(SERVER_NAME, random)
        roster = Roster.of(own, identities)
        self.traffic = Traffic()
        setup = ServerSetup(own, roster, terms)
        sources = {number: random.child() for number in range(terms.silos) if number not in absent}
        started: dict[int, SiloSetup] = {}
        for number, source in sources.items():
            started[number], advert = SiloSetup.start(
                identities[number], roster, terms=terms, random=source, post_quantum=post_quantum
            )
            self._send_up(number, advert)
            setup.receive(advert, sender=number)
        carrying, directories = setup.close()
        waiting = {}
        for number, state in self._alive(started, frozenset(), directories):
            waiting[number], reply = state.receive(directories[number])
            self._send_up(number, reply)
            carrying.receive(reply, sender=number)
        self.server: ServerSession
        self.server, ciphertexts = carrying.close()
        self.silos: dict[int, SiloSession] = {}
        for number, agreeing in self._alive(waiting, frozenset(), ciphertexts):
            self.silos[number], reply = agreeing.receive(
                ciphertexts[number], MemoryRoundGuard(), MemoryKeyStore(), random=sources[number]
            )
            self._send_up(number, reply)

    def _send_up(self, silo: int, message: bytes) -> None:
        self.traffic.up[silo] += len(message)

    def run_round(
        self,
        round_id: bytes,
        vector_for: Callable[[int, SiloInvited], npt.ArrayLike],
        *,
        payload: bytes = b"",
        drop: Drop | None = None,
    ) -> RoundSum:
        """One secure sum in three exchanges.

        Args:
            round_id: 32 bytes, new in every round.
            vector_for: a silo's vector from its number and its invitation (payload, removable
                seeds); called in this thread.
            payload: what the application tells every silo, for example the model.
            drop: silos that vanish before they send at a stage. Shares and masked input travel in
                one message.
        """
        gone = drop or {}
        check_drop(gone, self.server.terms.silos)
        collecting, invitation = self.server.invite(round_id, payload=payload)
        submitted = {}
        answering = self._alive(self.silos, vanished(gone, "masked"), invitation)
        for number, state, reply in self._masked(answering, invitation, vector_for):
            submitted[number] = state
            self._send_up(number, reply)
            collecting.receive(reply, sender=number)
        certifying, proposal = collecting.close()
        signed = {}
        for number, waiting in self._alive(submitted, vanished(gone, "consistency"), proposal):
            signed[number], reply = waiting.sign(proposal)
            self._send_up(number, reply)
            certifying.receive(reply, sender=number)
        unmasking, certificate = certifying.close()
        for number, ready in self._alive(signed, vanished(gone, "unmask"), certificate):
            _, reply = ready.reveal(certificate)
            self._send_up(number, reply)
            unmasking.receive(reply, sender=number)
        return unmasking.close()

    def _masked(
        self,
        silos: list[tuple[int, SiloSession]],
        invitation: bytes,
        vector_for: Callable[[int, SiloInvited], npt.ArrayLike],
    ) -> Iterator[Sent]:
        """Every silo's answer in turn; few at a time, because each holds a vector."""
        cores, masking = os.cpu_count() or 1, deque[_Masking]()
        if cores == 1 or self.server.terms.length < _LONG:
            for number, silo in silos:
                invited = silo.receive(invitation)
                yield number, *invited.submit(vector_for(number, invited))
            return
        with ThreadPoolExecutor(cores, thread_name_prefix="silo") as pool:
            for number, silo in silos:
                invited = silo.receive(invitation)
                vector = vector_for(number, invited)
                masking.append((number, pool.submit(invited.submit, vector)))
                if len(masking) > cores:
                    earliest, answer = masking.popleft()
                    yield earliest, *answer.result()
            for number, answer in masking:
                yield number, *answer.result()

    def _alive(
        self, states: Mapping[int, S], gone: frozenset[int], message: bytes | Mapping[int, bytes]
    ) -> list[tuple[int, S]]:
        """Hand the server's message, or each its own, to every silo that is still there."""
        alive = [(number, state) for number, state in states.items() if number not in gone]
        for number, _ in alive:
            self.traffic.down[number] += len(
                message if isinstance(message, bytes) else message[number]
            )
        return alive
