"""Which records take part in a step, and which silos in a round. Secret random bits where privacy
is amplified by them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sumus.plan import ResolvedPlan
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


def select_silos(resolved: ResolvedPlan, source: RandomSource) -> frozenset[int]:
    """Silos invited to a round: all, a fixed number drawn at random, or each on its own with the
    plan's probability.

    Selection does not amplify privacy: the server knows whom it invites, and who is not invited
        adds no noise. Every round counts.
    """
    silos, selection = len(resolved.silos), resolved.plan.federation.selection
    if selection == "fixed":
        return frozenset(source.permutation(silos)[: resolved.invited].tolist())
    if selection == "poisson":
        return frozenset(np.flatnonzero(source.coins(resolved.selection_rate, silos)).tolist())
    return frozenset(range(silos))
