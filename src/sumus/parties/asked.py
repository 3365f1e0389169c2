"""What an invitation asks of a silo, and whether the plan asks for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from sumus.errors import PeerProtocolError
from sumus.parties.agreement import Agreement
from sumus.parties.sums import sequence_of, unpack_model

__all__ = ["Asked"]


@final
@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the server asks for: a round's update, or counts under the model of a round.

    Args:
        order: of the sum among all of the plan: a round's model comes before its measurement.
    """

    number: int
    purpose: str
    parameters: npt.NDArray[np.float64]
    order: int

    @classmethod
    def read(cls, payload: bytes | memoryview, agreement: Agreement) -> Asked:
        """Refuse whatever the plan does not ask for: what is accounted are its rounds and its
        measurements, and no others.
        """
        plan, (number, purpose, parameters) = agreement.plan, unpack_model(payload)
        dimension = agreement.design.resolved.dimension
        if len(parameters) != dimension:
            rule = f"the model that arrived has {len(parameters)} parameters, the plan {dimension}"
            raise PeerProtocolError(f"{rule}. Refuse the server.")
        if number >= agreement.rounds:
            raise PeerProtocolError(
                f"round {number + 1} is beyond the {agreement.rounds} rounds of the plan. Agree on "
                "a new plan."
            )
        if purpose == "metrics" and not (
            plan.evaluation.metrics == "secure" and plan.measures_after(number)
        ):
            raise PeerProtocolError(
                f"the plan does not measure the model of round {number + 1}. Agree on a new plan."
            )
        return cls(
            number=number,
            purpose=purpose,
            parameters=parameters,
            order=sequence_of(number, purpose),
        )
