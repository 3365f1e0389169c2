"""A silo's memory where one process plays all silos: everything derives from the run's secret, so
that a round which was interrupted is repeated bit for bit instead of being noised twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import final

from sumus.errors import PeerProtocolError
from sumus.parties.agreement import Agreement
from sumus.parties.memory import SessionNotes, path_of
from sumus.plan import TrainingPlan
from sumus.randomness import RandomSource
from sumus.secagg import SERVER_NAME, Identity, KeyRing, KeyStore, MemoryRoundGuard, Roster

__all__ = ["Bits", "KeyedMemory", "RunSecret", "Simulation", "enrol"]


@final
@dataclass(frozen=True)
class RunSecret:
    """The random bits of all parties of a run, from 32 bytes of the operating system.

    Guarantee: two paths give independent bits; one path gives the same bits in every process that
        holds the secret.
    """

    key: bytes = field(repr=False)
    plan_hash: str
    public = False

    def source(self, number: int, *path: str | int) -> RandomSource:
        """The bits of one party in round `number` (from 0)."""
        label = "/".join(["sumus round randomness", self.plan_hash, str(number), *map(str, path)])
        return RandomSource.from_key(hashlib.sha256(self.key + label.encode()).digest())


@final
@dataclass(frozen=True)
class Simulation:
    """Random bits that anybody can repeat: they void the guarantee, and the journal says so.

    Args:
        seed: public.
    """

    seed: int
    public = True

    def source(self, number: int, *path: str | int) -> RandomSource:
        """The bits of one party in round `number` (from 0)."""
        return RandomSource.simulation(self.seed, number, *path)


Bits = RunSecret | Simulation
"""Where all random bits of a run come from."""


@final
class _SessionNotes:
    """One session, in memory; a reply is not kept, because a repetition computes it again."""

    def __init__(self, random: RandomSource) -> None:
        self.guard = MemoryRoundGuard()
        self.random = random
        self.ring = KeyRing()

    @property
    def keys(self) -> KeyStore:
        """See `SessionNotes.keys`."""
        return self

    def keep_certificate(self, round_id: bytes, message: bytes) -> None:
        """See `SessionNotes.keep_certificate`: who plays all silos needs no proof."""

    def keep(self, ring: KeyRing) -> None:
        """See `KeyStore.keep`."""
        self.ring = ring if ring.round is None or not ring.round.reply else ring.answered(b"")


@final
class KeyedMemory:
    """One silo of a process that plays them all, in the sums of one roster.

    Args:
        agreement: shared by all silos.
        place: of the silo in the plan.
        bits: of the run.
        enrolment: identity and roster in the secure protocol, and its random bits; None where sums
            are trusted.
    """

    def __init__(
        self,
        agreement: Agreement,
        place: int,
        bits: Bits,
        enrolment: tuple[Identity, Roster, RandomSource] | None = None,
    ) -> None:
        self._agreement, self._bits, self._enrolment = agreement, bits, enrolment
        self._notes = None if enrolment is None else _SessionNotes(enrolment[2])
        self.name = agreement.names[place]

    @property
    def simulated(self) -> bool:
        """See `Memory.simulated`."""
        return self._bits.public

    @property
    def identity(self) -> Identity:
        """See `Memory.identity`."""
        return self._keys[0]

    @property
    def roster(self) -> Roster:
        """See `Memory.roster`."""
        return self._keys[1]

    def enrolled(self, session: bytes, names: Sequence[str]) -> tuple[Identity, Roster]:
        """See `Memory.enrolled`."""
        return self._keys

    @property
    def _keys(self) -> tuple[Identity, Roster]:
        if self._enrolment is None:
            raise PeerProtocolError(f"silo {self.name!r} has no keys: its plan trusts the sum.")
        return self._enrolment[:2]

    def source(self, number: int, purpose: str, place: int) -> RandomSource:
        """See `Memory.source`: the same again if the round is repeated."""
        return self._bits.source(number, *path_of(purpose, place))

    def plan(self, plan_hash: bytes) -> TrainingPlan:
        """See `Memory.plan`."""
        if bytes.fromhex(self._agreement.plan.hash) != plan_hash:
            raise PeerProtocolError(f"plan {plan_hash.hex()[:8]} is not the one that runs here.")
        return self._agreement.plan

    def plans(self) -> Iterator[TrainingPlan]:
        """See `Memory.plans`."""
        yield self._agreement.plan

    def approves(self, plan_hash: str) -> bool:
        """See `Memory.approves`: who plays all silos has chosen the plan."""
        return plan_hash == self._agreement.plan.hash

    def last_answered(self, plan_hash: bytes) -> int | None:
        """See `Memory.last_answered`: a repetition is the same again, bit for bit."""
        return None

    def session(self, digest: bytes, plan_hash: bytes) -> SessionNotes:
        """See `Memory.session`."""
        if self._notes is None:
            raise PeerProtocolError(f"silo {self.name!r} has no part in this session.")
        return self._notes

    def leave(self, digest: bytes) -> None:
        """See `Memory.leave`: it is nowhere else, and ends with the run."""

    def require_runnable(self, plan: TrainingPlan) -> None:
        """See `Memory.require_runnable`: nothing is forgotten that the secret does not repeat."""

    def log_refusal(self, reason: str) -> str | None:
        """See `Memory.log_refusal`: in one process a refusal is an exception."""

    def close(self) -> None:
        """See `Memory.close`."""


def enrol(
    agreement: Agreement, places: Sequence[int], bits: Bits, random: RandomSource
) -> tuple[Identity, Roster, dict[int, KeyedMemory]]:
    """The server's identity, a roster of some silos in the order of their places, and the memory of
    each.

    Their names on it are made up: a silo of a simulation may be called anything.
    """
    identities = [Identity.generate(f"silo-{number:05d}", random) for number in range(len(places))]
    server = Identity.generate(SERVER_NAME, random)
    roster = Roster.of(server, identities)
    return (
        server,
        roster,
        {
            place: KeyedMemory(agreement, place, bits, (identity, roster, random.child()))
            for place, identity in zip(places, identities, strict=True)
        },
    )
