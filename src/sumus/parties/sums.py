"""From the silos' vectors to their sum: the paper's trusted ideal, or the real protocol in this
process.

Both run the same silo code and give the same integers for the same noise. The secure sum is driven
through the very states that a distributed engine drives; here the "network" is a function call.
"""

from __future__ import annotations

import hashlib
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol, TypeVar, final

import numpy as np
import numpy.typing as npt

from sumus.errors import PeerProtocolError, RoundAborted
from sumus.guarantee import NoiseDesign, draws_are_exact
from sumus.noise import lift, to_ring
from sumus.plan import TrainingPlan
from sumus.randomness import RandomSource
from sumus.secagg import InProcessFederation, RoundSum, ServerSession, SiloInvited, Terms, answer
from sumus.training import lifted_sum

__all__ = [
    "PURPOSES",
    "Aggregated",
    "Aggregator",
    "Exchange",
    "SecureAggregation",
    "TrustedAggregation",
    "pack_model",
    "round_identifier",
    "secure_round",
    "terms_of",
    "unpack_model",
]

T = TypeVar("T")
Vector = npt.NDArray[np.int64] | npt.NDArray[np.float64]
Answer = Callable[[int, npt.NDArray[np.float64], Sequence[bytes]], Vector]
"""A silo's number, the global parameters and the seeds of removable noise to the silo's noisy
vector.
"""
PURPOSES = ("model", "metrics")
"""What a secure sum is for: to move the model, or to measure the model that a round released."""
Exchange = Callable[[Mapping[int, bytes]], Mapping[int, bytes]]
"""Send each silo its message and return the replies that arrived in time."""


@final
@dataclass(frozen=True)
class Aggregated:
    """The sum of one round, lifted to centred integers, and what it cost; bytes of all silos
    together.
    """

    total: Vector
    survivors: frozenset[int]
    bytes_up: int = 0
    bytes_down: int = 0
    protocol_seconds: float = 0.0


class Aggregator(Protocol):
    """One secure sum per call."""

    def __call__(
        self,
        number: int,
        parameters: npt.NDArray[np.float64],
        invited: frozenset[int],
        vanish: Mapping[str, frozenset[int]],
        purpose: str = "model",
    ) -> Aggregated: ...


@final
@dataclass(frozen=True)
class TrustedAggregation:
    """The paper's ideal: somebody everybody trusts adds the vectors up, in the same ring as the
    protocol would.
    """

    plan: TrainingPlan
    answer: Answer
    threads: int = 1

    def __call__(
        self,
        number: int,
        parameters: npt.NDArray[np.float64],
        invited: frozenset[int],
        vanish: Mapping[str, frozenset[int]],
        purpose: str = "model",
    ) -> Aggregated:
        gone = frozenset().union(
            *(vanish.get(stage, frozenset()) for stage in ("keys", "shares", "masked"))
        )
        survivors = invited - gone
        _require_enough(self.plan, len(survivors))
        vectors = _each(
            sorted(survivors), lambda silo: self.answer(silo, parameters, ()), self.threads
        )
        size = len(survivors) * len(parameters) * self.plan.aggregation.modulus_bits // 8
        if not draws_are_exact(self.plan):  # floats, for a simulation
            return Aggregated(
                np.stack(vectors).astype(np.float64).sum(axis=0), survivors, size, size
            )
        bits = self.plan.aggregation.modulus_bits
        residues = np.add.reduce(
            [to_ring(np.asarray(vector, dtype=np.int64), bits) for vector in vectors]
        )
        return Aggregated(lift(residues & np.uint64((1 << bits) - 1), bits), survivors, size, size)


@final
@dataclass
class SecureAggregation:
    """The real protocol, all parties in this process: keys once, then three exchanges per round.

    Args:
        design: what is drawn and what is accounted.
        length: of a silo's vector.
        answer: a silo's noisy vector.
        threads: silos that compute at the same time.
        round_source: the protocol's random bits of the current round, where noise hangs on them
            (`noise.removable`): a caller that may have to repeat a round gives the same ones again.
            Costs new keys every round.
    """

    design: NoiseDesign
    length: int
    answer: Answer
    threads: int = 1
    round_source: Callable[[], RandomSource] = RandomSource
    _sessions: dict[frozenset[int], InProcessFederation] = field(default_factory=dict, repr=False)

    def __call__(
        self,
        number: int,
        parameters: npt.NDArray[np.float64],
        invited: frozenset[int],
        vanish: Mapping[str, frozenset[int]],
        purpose: str = "model",
    ) -> Aggregated:
        plan, order, parties = self.design.plan, sorted(invited), self._session(invited)
        local_seconds = 0.0
        sent, received = dict.fromkeys(order, 0), dict.fromkeys(order, 0)
        stages = iter((("keys", "shares", "masked"), ("consistency",), ("unmask",)))
        gone: set[int] = set()

        def exchange(messages: Mapping[int, bytes]) -> Mapping[int, bytes]:
            nonlocal local_seconds
            for stage in next(stages):
                gone.update(
                    order.index(silo) for silo in vanish.get(stage, frozenset()) if silo in invited
                )

            def reply(position: int) -> tuple[bytes, float]:
                clock = [0.0]

                def vector_for(invitation: SiloInvited) -> npt.NDArray[np.uint64]:
                    begin = time.perf_counter()
                    _, _, model = unpack_model(invitation.payload)
                    vector = self.answer(order[position], model, invitation.removable_seeds)
                    clock[0] = time.perf_counter() - begin
                    return to_ring(
                        np.asarray(vector, dtype=np.int64), plan.aggregation.modulus_bits
                    )

                return answer(parties.silos[position], messages[position], vector_for), clock[0]

            alive = [position for position in sorted(messages) if position not in gone]
            replies = dict(zip(alive, _each(alive, reply, self.threads), strict=True))
            local_seconds += sum(seconds for _, seconds in replies.values()) / max(
                1, min(self.threads, len(alive))
            )
            for position, (message, _) in replies.items():
                sent[order[position]] += len(message)
                received[order[position]] += len(messages[position])
            return {position: message for position, (message, _) in replies.items()}

        begin = time.perf_counter()
        identifier = round_identifier(plan, number, invited, purpose)
        found = secure_round(
            parties.server,
            exchange,
            round_id=identifier,
            payload=pack_model(number, parameters, purpose),
        )
        seconds = time.perf_counter() - begin - local_seconds
        total = lifted_sum(
            self.design, found.total, found.removed_seeds if purpose == "model" else {}
        )
        survivors = frozenset(order[position] for position in found.survivors)
        return Aggregated(total, survivors, sum(sent.values()), sum(received.values()), seconds)

    def _session(self, invited: frozenset[int]) -> InProcessFederation:
        """Keys for one set of silos: agreed once and kept, or those of the round."""
        if invited in self._sessions:
            return self._sessions[invited]
        _require_enough(self.design.plan, len(invited))
        terms = terms_of(self.design.plan, silos=len(invited), length=self.length)
        if self.design.plan.noise.removable:
            return InProcessFederation(terms, random=self.round_source())
        self._sessions[invited] = InProcessFederation(terms, random=RandomSource())
        return self._sessions[invited]


def terms_of(plan: TrainingPlan, *, silos: int, length: int) -> Terms:
    """What every silo of a plan agrees to before the first message; each side builds it from its
    own copy of the plan.
    """
    return Terms(
        plan_hash=bytes.fromhex(plan.hash),
        silos=silos,
        length=length,
        modulus_bits=plan.aggregation.modulus_bits,
        dropouts=plan.federation.dropouts,
        colluding=plan.colluding,
        noise_contributors=plan.noise_contributors,
        removable=plan.federation.dropouts if plan.noise.removable else 0,
    )


def secure_round(
    session: ServerSession,
    exchange: Exchange,
    *,
    round_id: bytes,
    payload: bytes,
    participants: frozenset[int] | None = None,
) -> RoundSum:
    """One round of the protocol over any transport: three exchanges, each ending when the replies
    that will come have come.

    Guarantee: returns the sum of exactly the survivors that a quorum of silos signed for, or
        raises; a reply that does not fit counts as no reply.
    """
    collecting, invitation = session.invite(round_id, payload=payload, participants=participants)
    _collect(collecting, exchange(dict.fromkeys(collecting.waiting_for, invitation)))
    certifying, proposal = collecting.close()
    _collect(certifying, exchange(dict.fromkeys(certifying.waiting_for, proposal)))
    unmasking, certificate = certifying.close()
    _collect(unmasking, exchange(dict.fromkeys(unmasking.waiting_for, certificate)))
    return unmasking.close()


class _Receiving(Protocol):
    def receive(self, message: bytes, *, sender: int | None = None) -> None: ...


def _collect(state: _Receiving, replies: Mapping[int, bytes]) -> None:
    for silo, message in replies.items():
        try:
            state.receive(message, sender=silo)
        except PeerProtocolError:
            continue  # a broken reply is a drop-out, not the end of the round


def pack_model(number: int, parameters: npt.NDArray[np.float64], purpose: str = "model") -> bytes:
    """Round number, purpose and parameters as the payload of an invitation (float32: what the
    server broadcasts and keeps).
    """
    return (
        struct.pack("<QL", number, PURPOSES.index(purpose))
        + np.asarray(parameters, dtype="<f4").tobytes()
    )


def unpack_model(payload: bytes) -> tuple[int, str, npt.NDArray[np.float64]]:
    """The inverse of `pack_model`: number, purpose and parameters; refuses bytes that are no finite
    vector.
    """
    if len(payload) < 16 or len(payload) % 4:
        raise PeerProtocolError(
            f"a model payload of {len(payload)} bytes is not a round number and float32 values. "
            "Refuse the server."
        )
    number, purpose = struct.unpack_from("<QL", payload)
    if purpose >= len(PURPOSES):
        raise PeerProtocolError(
            f"a secure sum has no purpose {purpose}. Run the same version everywhere."
        )
    parameters = np.frombuffer(payload, dtype="<f4", offset=12).astype(np.float64)
    if not np.isfinite(parameters).all():
        raise PeerProtocolError("the model that arrived holds NaN or infinity. Refuse the server.")
    return number, PURPOSES[purpose], parameters


def round_identifier(
    plan: TrainingPlan, number: int, invited: frozenset[int], purpose: str = "model"
) -> bytes:
    """A sum's public name: plan, number, purpose and invited silos, hashed."""
    members = ",".join(map(str, sorted(invited)))
    kind = "round" if purpose == "model" else purpose
    return hashlib.sha256(f"sumus {kind}/{plan.hash}/{number}/{members}".encode()).digest()


def _require_enough(plan: TrainingPlan, present: int) -> None:
    needed = plan.noise_contributors + plan.colluding
    if present < needed:
        raise RoundAborted(
            f"{present} silos are present, the noise of {needed} is accounted for. Wait for more "
            "silos or plan more drop-outs."
        )


def _each(items: list[int], work: Callable[[int], T], threads: int) -> list[T]:
    if threads <= 1 or len(items) <= 1:
        return [work(item) for item in items]
    with ThreadPoolExecutor(max_workers=threads) as pool:
        return list(pool.map(work, items))
