"""What secure metrics release and what they cost a test record: three noisy counts a round, in integers.

    correct records, records, loss up to LOSS_CAP in units of it           each scaled to COUNT_RESOLUTION grid steps per record

A test record moves each count by at most one unit, so Δ₂ = √3·COUNT_RESOLUTION, in every round. Test records have no part in
training and training records none in the counts, so the two guarantees stand side by side.
"""

from __future__ import annotations

import math

from sumus.accounting.release import Release, noisy_step
from sumus.mechanism.noise import Gaussian, IntegerNoise, noise_law
from sumus.plan import TrainingPlan

__all__ = ["COUNT_RESOLUTION", "METRIC_COORDINATES", "count_noise", "count_release"]

METRIC_COORDINATES = 3
COUNT_RESOLUTION = 1 << 8


def count_noise(plan: TrainingPlan) -> IntegerNoise | Gaussian:
    """The law that one silo adds to each of its counts, in every round."""
    std_grid = plan.evaluation.noise_multiplier * COUNT_RESOLUTION
    return noise_law(plan.noise.mechanism, std_grid**2).share(plan.noise_contributors)


def count_release(plan: TrainingPlan) -> Release:
    """What a test record is protected by: one noisy query per round with the noise of all counted silos."""
    total = count_noise(plan).sum_of(plan.noise_contributors)
    l2_grid = math.sqrt(METRIC_COORDINATES) * COUNT_RESOLUTION
    return Release((noisy_step(total, l2_grid=l2_grid, dimension=METRIC_COORDINATES, count=plan.federation.rounds),))
