"""What secure metrics release and what they cost a test record: three noisy counts per measured
model, in integers.

    a test record adds    (±2, 2, t)      + where the model is right, − where it is wrong;  t = 2·loss/LOSS_CAP − 1 in [−1, 1]
    accuracy = ½ + S₁ / (2·S₂),           mean loss = LOSS_CAP·(½ + S₃ / S₂)

Centred like this a record moves the counts by at most Δ₂ = |(2, 2, 1)| = 3, exactly, and on a grid
that divides 1 no rounding adds to it. The counts of right and of all records weigh twice as much as
the loss, because that makes the accuracy most accurate for a given Δ₂. Test records have no part in
training and training records none in the counts, so the two guarantees stand side by side.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, final

import numpy as np
import numpy.typing as npt

from sumus.accounting import Release, noisy_queries
from sumus.errors import PlanError
from sumus.noise import Law, noise_law
from sumus.plan import ResolvedPlan, TrainingPlan
from sumus.tasks import Measured, noisy_share

__all__ = [
    "COUNT_SENSITIVITY",
    "LOSS_CAP",
    "METRIC_COORDINATES",
    "Counted",
    "check_room",
    "clamp_of",
    "count_noise",
    "count_release",
    "counts_of",
    "decoded_counts",
    "padded",
    "sum_length",
    "tests_per_training_record",
]

METRIC_COORDINATES = 3
LOSS_CAP = 4.0
"""A record's loss is counted up to this many nats."""
_GRID = 1 << 8  # grid steps per unit of a count
_RIGHT, _RECORD = 2 * _GRID, 2 * _GRID
COUNT_SENSITIVITY = 3 * _GRID
"""Δ₂ of the three counts in grid steps: the length of (2, 2, 1), the largest vector that one record
adds.
"""
_NOISE_ROOM = 64.0  # standard deviations of a silo's noise that the ring holds besides its counts
# a silo's test records may be so many times more than expected before its counts are clamped
_SPARE_RECORDS = 4.0


@final
@dataclass(frozen=True)
class Counted:
    """What noisy counts say about a model on test records.

    Args:
        accuracy: with its half-width, noise and sampling error included.
        loss: mean of the losses, each counted up to `LOSS_CAP`.
        records: test records, as far as the noise lets one tell.
    """

    accuracy: Measured
    loss: Measured
    records: float


def counts_of(
    correct: npt.NDArray[np.bool_], losses: npt.NDArray[np.float64]
) -> npt.NDArray[np.int64]:
    """The exact counts of some records, in grid steps; a loss that is not a number counts as wrong
    and as the cap.

    Guarantee: one record more or less moves the result by at most `COUNT_SENSITIVITY` in L2 norm,
        whatever the others are.
    """
    known = ~np.isnan(losses)
    capped = np.clip(np.where(known, losses, LOSS_CAP), 0.0, LOSS_CAP)
    # in [−_GRID, _GRID]
    steps = np.rint(capped * (2.0 / LOSS_CAP) * _GRID).astype(np.int64) - _GRID
    right = int(np.count_nonzero(correct & known))
    return np.array(
        [_RIGHT * (2 * right - len(losses)), _RECORD * len(losses), int(steps.sum())],
        dtype=np.int64,
    )


def decoded_counts(
    plan: TrainingPlan, total_grid: Sequence[int] | npt.NDArray[np.generic], *, contributors: int
) -> Counted:
    """Accuracy and loss with what the noise of `contributors` silos and the choice of test records
    leave open.
    """
    right, records, loss = (float(value) / _GRID for value in total_grid)
    std = math.sqrt(contributors * count_noise(plan).variance_grid) / _GRID
    accuracy = noisy_share(
        right / 4.0, records / 2.0, numerator_std=std / 4.0, denominator_std=std / 2.0
    )
    share = noisy_share(
        loss / 2.0, records / 2.0, numerator_std=std / 2.0, denominator_std=std / 2.0
    )
    rounding = 0.25 / _GRID  # of a loss, in units of the cap
    capped = Measured(LOSS_CAP * share.value, LOSS_CAP * min(share.plus_minus + rounding, 1.0))
    return Counted(accuracy, capped, max(records / 2.0, 0.0))


def count_noise(plan: TrainingPlan) -> Law:
    """The law that one silo adds to each of its counts, for every measured model."""
    multiplier = plan.evaluation.noise_multiplier
    if multiplier is None:
        rule = "must be set where privacy.epsilon is not (nothing to calibrate it to)"
        raise PlanError(
            "evaluation.noise_multiplier", None, rule, "Set privacy.epsilon, or the multiplier."
        )
    return noise_law(plan.noise.mechanism, (multiplier * COUNT_SENSITIVITY) ** 2).share(
        plan.noise_contributors
    )


def count_release(plan: TrainingPlan, *, measurements: int, known: int = 0) -> Release:
    """What a test record is protected by: one noisy query per measured model with the noise of all
    counted silos.

    Args:
        known: counted silos whose noise the adversary knows after all.
    """
    total = count_noise(plan).sum_of(plan.noise_contributors - known)
    step = noisy_queries(
        total, l2_grid=COUNT_SENSITIVITY, dimension=METRIC_COORDINATES, count=measurements
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
    bits = plan.aggregation.modulus_bits
    wide = range(bits, 65)
    fitting = (
        each
        for each in wide
        if clamp_of(plan.replace("aggregation", modulus_bits=each))
        >= _RECORD * _SPARE_RECORDS * largest
    )
    needed = next(fitting, None)
    if needed != bits:
        rule = 'is too small a ring for evaluation.metrics = "secure" with so many records'
        fix = "Measure less records." if needed is None else f"Use {needed}."
        raise PlanError("aggregation.modulus_bits", bits, rule, fix)


def sum_length(resolved: ResolvedPlan) -> int:
    """Coordinates of a silo's vector: those of the model, which leave room for the counts."""
    counts = METRIC_COORDINATES if resolved.plan.evaluation.metrics == "secure" else 0
    return max(resolved.dimension, counts)


def padded(vector: npt.NDArray[Any], length: int) -> npt.NDArray[Any]:
    """The vector with zeros behind it, where a model has fewer parameters than there are counts."""
    return (
        vector
        if len(vector) == length
        else np.concatenate([vector, np.zeros(length - len(vector), dtype=vector.dtype)])
    )
