"""What every sum of vectors has in common: its name, the model that goes out with it, and the terms
of the secure protocol.
"""

from __future__ import annotations

import hashlib
import struct

import numpy as np
import numpy.typing as npt

from sumus.errors import PeerProtocolError
from sumus.plan import PLAN_START, TrainingPlan
from sumus.secagg import Terms

__all__ = [
    "PURPOSES",
    "last_sequence",
    "model_bytes",
    "model_hash",
    "pack_model",
    "require_start",
    "round_identifier",
    "sequence_of",
    "terms_of",
    "unpack_model",
]

PURPOSES = ("model", "metrics")
"""What a secure sum is for: to move the model, or to measure the model that a round released."""


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


def sequence_of(number: int, purpose: str) -> int:
    """The place of a sum among all of the plan: a round's model comes before its measurement."""
    return 2 * number + PURPOSES.index(purpose)


def last_sequence(plan: TrainingPlan) -> int:
    """The place of the last sum of a plan: nothing of it is left to release after that one."""
    number = plan.federation.rounds - 1
    measured = plan.evaluation.metrics == "secure" and plan.measures_after(number)
    return sequence_of(number, "metrics" if measured else "model")


def model_bytes(dimension: int) -> int:
    """The length of what `pack_model` makes of so many parameters."""
    return 12 + 4 * dimension


def pack_model(number: int, parameters: npt.NDArray[np.float64], purpose: str = "model") -> bytes:
    """Round number, purpose and parameters as the payload of an invitation (float32: what the
    server broadcasts and keeps).
    """
    sent = np.ascontiguousarray(parameters, dtype="<f4")
    return b"".join((struct.pack("<QL", number, PURPOSES.index(purpose)), sent.data.cast("B")))


def unpack_model(payload: bytes | memoryview) -> tuple[int, str, npt.NDArray[np.float64]]:
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


def model_hash(parameters: npt.NDArray[np.float64]) -> str:
    """A model's name in plans: SHA-256 over its parameters as silos receive them, little-endian
    float32 in the order of the flat vector.
    """
    sent = np.ascontiguousarray(parameters, dtype="<f4")
    return f"sha256:{hashlib.sha256(sent.data.cast('B')).hexdigest()}"


def require_start(plan: TrainingPlan, parameters: npt.NDArray[np.float64]) -> None:
    """Refuse a first model that is not the one which the plan starts from, where it names one by its
    hash; which one the run of another plan has released is the server's word, as it is of every
    later round's model.
    """
    named = plan.training.start_from
    if named is None or named.startswith(PLAN_START):
        return
    if (sent := model_hash(parameters)) != named:
        raise PeerProtocolError(
            f"the plan starts from the model {named[:15]}…, the model of round 1 is {sent[:15]}…. "
            "Give the server that model with --start-from."
        )


def round_identifier(
    plan: TrainingPlan, number: int, invited: frozenset[int], purpose: str = "model"
) -> bytes:
    """A sum's public name in protocol, journal and ledger: plan, number, purpose and the places of
    the invited silos in the plan, hashed.
    """
    members = ",".join(map(str, sorted(invited)))
    kind = "round" if purpose == "model" else purpose
    return hashlib.sha256(f"sumus {kind}/{plan.hash}/{number}/{members}".encode()).digest()
