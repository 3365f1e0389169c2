"""The ideal that Heikkilä 2025 compares with: somebody whom everybody trusts adds the vectors up,
in the same ring as the protocol would. Simulation only: across machines a silo refuses.
"""

from __future__ import annotations

from typing import final

import numpy as np
import numpy.typing as npt

from sumus.errors import RoundAborted
from sumus.noise import lift, to_ring
from sumus.parties.agreement import Agreement
from sumus.parties.driver import Driver
from sumus.parties.round import Invited, Stages, Summed, nobody
from sumus.parties.sums import pack_model, round_identifier
from sumus.parties.wire import plain, plain_body, unpack_vector

__all__ = ["TrustedSum", "too_few"]

_ENDLESS = float("inf")


@final
class TrustedSum:
    """Sums of plain vectors over the in-process driver."""

    def __init__(self, agreement: Agreement, driver: Driver, *, stages: Stages = nobody) -> None:
        self._agreement, self._driver, self._stages = agreement, driver, stages

    def sum(
        self,
        number: int,
        invited: Invited,
        parameters: npt.NDArray[np.float64],
        purpose: str = "model",
    ) -> Summed:
        """See `Summing.sum`."""
        plan = self._agreement.plan
        identifier = round_identifier(plan, number, invited.silos, purpose)
        message = plain(
            bytes.fromhex(plan.hash) + identifier + pack_model(number, parameters, purpose)
        )
        self._stages("local" if purpose == "model" else "measuring")
        answers = self._driver.exchange(
            dict.fromkeys(sorted(invited.silos), message), deadline_seconds=_ENDLESS
        )
        survivors = frozenset(answers)
        reason = too_few(self._agreement, len(survivors))
        if reason is not None:
            raise RoundAborted(reason)
        vectors = [unpack_vector(plain_body(answers[silo]) or b"") for silo in sorted(survivors)]
        bits = plan.aggregation.modulus_bits
        size = len(survivors) * len(parameters) * bits // 8
        return Summed(identifier, _total(vectors, bits), survivors, bytes_up=size, bytes_down=size)


def too_few(agreement: Agreement, present: int) -> str | None:
    """Why a round cannot end with so many silos; None if it can."""
    needed = agreement.plan.noise_contributors + agreement.plan.colluding
    if present >= needed:
        return None
    return (
        f"{present} silos are present, the noise of {needed} is accounted for. Wait for more silos "
        "or plan more drop-outs."
    )


def _total(
    vectors: list[npt.NDArray[np.int64] | npt.NDArray[np.float64]], bits: int
) -> npt.NDArray[np.int64] | npt.NDArray[np.float64]:
    """The sum in the ring, lifted; of a continuous Gaussian, the sum of floats."""
    if vectors[0].dtype == np.float64:
        return np.asarray(np.stack(vectors).astype(np.float64).sum(axis=0))
    residues = np.add.reduce(
        [to_ring(np.asarray(vector, dtype=np.int64), bits) for vector in vectors]
    )
    return lift(residues & np.uint64((1 << bits) - 1), bits)
