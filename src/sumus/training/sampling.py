"""Which records take part in a step, and which silos in a round. Secret random bits where privacy
is amplified by them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sumus.plan import TrainingPlan
from sumus.randomness import RandomSource

__all__ = ["poisson_batch", "select_silos"]


def poisson_batch(
    records: int, sampling_rate: float, source: RandomSource
) -> npt.NDArray[np.int64]:
    """Positions of a Poisson sample: every record joins on its own with probability q. May be
    empty.

    Guarantee: the realised probability is at most q and within 2^-64 of it; the sample is secret as
        long as `source` is.
    """
    return np.flatnonzero(source.coins(sampling_rate, records))


def select_silos(plan: TrainingPlan, source: RandomSource) -> frozenset[int]:
    """Silos invited to a round: all, a fixed number drawn at random, or each on its own with the
    plan's probability.

    Selection does not amplify privacy: the server knows whom it invites, and who is not invited
        adds no noise. Every round counts.
    """
    silos = plan.federation.silos or 0
    if plan.federation.selection == "fixed":
        return frozenset(source.permutation(silos)[: plan.federation.selected or silos].tolist())
    if plan.federation.selection == "poisson":
        return frozenset(
            np.flatnonzero(source.coins(plan.federation.selection_rate or 1.0, silos)).tolist()
        )
    return frozenset(range(silos))
