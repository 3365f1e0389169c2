"""What secure metrics release and what they cost a test record: a task's counts, noisy, in integers.

Every measured model is one sum of what the plan's task counts of each test record
(`Task.count`, at most `CountShape.l2_grid` long), with noise of its own. Test records have no part
in training and training records none in the counts, so the two guarantees stand side by side.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from sumus.accounting import Release, noisy_queries
from sumus.errors import PlanError
from sumus.noise import Law, noise_law
from sumus.plan import ResolvedPlan, TrainingPlan
from sumus.tasks import Metrics

__all__ = [
    "check_room",
    "clamp_of",
    "count_noise",
    "count_release",
    "decoded_counts",
    "padded",
    "sum_length",
    "tests_per_training_record",
]

_NOISE_ROOM = 64.0  # standard deviations of a silo's noise that the ring holds besides its counts
# a silo's test records may be so many times more than expected before its counts are clamped
_SPARE_RECORDS = 4.0


def decoded_counts(
    plan: TrainingPlan, total_grid: npt.NDArray[Any], *, contributors: int
) -> Metrics:
    """The task's measures with what the noise of `contributors` silos and the choice of test
    records leave open.
    """
    noise_std = math.sqrt(contributors * count_noise(plan).variance_grid)
    told = plan.task.measured(total_grid.astype(np.float64), noise_std_grid=noise_std)
    between = plan.task.between_silos(
        total_grid.astype(np.float64), noise_std_grid=noise_std, silos=contributors
    )
    return replace(told, values={**told.values, **between})


def count_noise(plan: TrainingPlan) -> Law:
    """The law that one silo adds to each of its counts, for every measured model."""
    multiplier = plan.evaluation.noise_multiplier
    if multiplier is None:
        rule = "must be set where privacy.epsilon is not (nothing to calibrate it to)"
        raise PlanError(
            "evaluation.noise_multiplier", None, rule, "Set privacy.epsilon, or the multiplier."
        )
    return noise_law(plan.noise.mechanism, (multiplier * plan.task.counts.l2_grid) ** 2).share(
        plan.noise_contributors
    )


def count_release(plan: TrainingPlan, *, measurements: int, known: int = 0) -> Release:
    """What a test record (or person, in up to h silos) is protected by: one noisy query per measured
    model with the noise of all counted silos.

    Args:
        known: counted silos whose noise the adversary knows after all.
    """
    total, shape = count_noise(plan).sum_of(plan.noise_contributors - known), plan.task.counts
    step = noisy_queries(
        total,
        l2_grid=shape.l2_grid,
        dimension=shape.length,
        count=measurements,
        parts=plan.privacy.silos_per_person if plan.protects_persons else 1,
    )
    return Release((step,))


def clamp_of(plan: TrainingPlan) -> int:
    """The largest count that a silo sends, in grid steps: N of them and their noise fit into the
    ring.

    Clamping coordinates is 1-Lipschitz, so it adds nothing to Δ₂.
    """
    silos = plan.federation.silos or plan.least_invited
    share_of_ring = (1 << (plan.aggregation.modulus_bits - 1)) // silos
    return share_of_ring - 1 - math.ceil(_NOISE_ROOM * math.sqrt(count_noise(plan).variance_grid))


def tests_per_training_record(plan: TrainingPlan) -> Fraction:
    """How many test records the plan's fractions leave for each training record: t / ((1 − t)·(1 −
    v)), of the numbers as written.
    """
    tested, validated = (
        Fraction(repr(share)) for share in (plan.data.test_fraction, plan.data.validation_fraction)
    )
    return tested / ((1 - tested) * (1 - validated))


def check_room(plan: TrainingPlan) -> None:
    """Refuse a ring in which the counts of the expected test records would have to be clamped."""
    largest = max(plan.data.records_per_silo or (1,)) * max(
        1.0, float(tests_per_training_record(plan))
    )
    bits, most = plan.aggregation.modulus_bits, plan.task.counts.largest_grid
    needed = next(
        (
            wide
            for wide in range(bits, 65)
            if clamp_of(plan.replace("aggregation", modulus_bits=wide))
            >= most * _SPARE_RECORDS * largest
        ),
        None,
    )
    if needed != bits:
        rule = 'is too small a ring for evaluation.metrics = "secure" with so many records'
        fix = "Measure fewer records." if needed is None else f"Use {needed}."
        raise PlanError("aggregation.modulus_bits", bits, rule, fix)


def sum_length(resolved: ResolvedPlan) -> int:
    """Coordinates of a silo's vector: those of a round's sum, which leave room for the counts."""
    plan = resolved.plan
    counts = plan.task.counts.length if plan.evaluation.metrics == "secure" else 0
    return max(resolved.coordinates, counts)


def padded(vector: npt.NDArray[Any], length: int) -> npt.NDArray[Any]:
    """The vector with zeros behind it, where a model has fewer parameters than there are counts."""
    return (
        vector
        if len(vector) == length
        else np.concatenate([vector, np.zeros(length - len(vector), dtype=vector.dtype)])
    )
