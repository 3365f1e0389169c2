"""What every sum of vectors has in common: its name, the model that goes out with it, the terms of
the secure protocol and its three exchanges.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
import numpy.typing as npt

from sumus.errors import PeerProtocolError
from sumus.plan import TrainingPlan
from sumus.secagg import RoundSum, ServerSession, Terms

__all__ = [
    "PURPOSES",
    "Exchange",
    "pack_model",
    "round_identifier",
    "secure_round",
    "terms_of",
    "unpack_model",
]

PURPOSES = ("model", "metrics")
"""What a secure sum is for: to move the model, or to measure the model that a round released."""
Exchange = Callable[[Mapping[int, bytes]], Mapping[int, bytes]]
"""Send each silo its message and return the replies that arrived in time."""


def terms_of(plan: TrainingPlan, *, silos: int, length: int) -> Terms:
    """What every silo of a plan agrees to before the first message; each side computes it from its
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
    """A sum's public name in protocol, journal and ledger: plan, number, purpose and the places of
    the invited silos in the plan, hashed.
    """
    members = ",".join(map(str, sorted(invited)))
    kind = "round" if purpose == "model" else purpose
    return hashlib.sha256(f"sumus {kind}/{plan.hash}/{number}/{members}".encode()).digest()
