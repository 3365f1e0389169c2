"""The clipped integer sum over persons, in rational numbers: a person's gradient is the weighted sum
of its rows', clipped once, truncated once. Slow and obvious.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import isqrt

import numpy as np


def person_gradient(rows: Sequence[np.ndarray], weights: Sequence[float]) -> list[Fraction] | None:
    """Σ_j w_j·g_j exactly; None if a row is not finite."""
    if not all(np.isfinite(row).all() for row in rows):
        return None
    total = [Fraction(0)] * len(rows[0])
    for row, weight in zip(rows, weights, strict=True):
        for i, value in enumerate(row):
            total[i] += Fraction(float(weight)) * Fraction(float(value))
    return total


def clipped_integers(gradient: list[Fraction], clip_norm: float, resolution: int) -> list[int]:
    """trunc(r·g/max(‖g‖, C)), the root to 60 bits beyond the point."""
    squared = sum(g * g for g in gradient)
    scaled = squared * 4**200
    norm = Fraction(isqrt(scaled.numerator // scaled.denominator), 2**200)
    longest = max(norm, Fraction(clip_norm))
    return [int(Fraction(resolution) * g / longest) for g in gradient]  # int() truncates


def person_sum(
    rows: np.ndarray,
    persons: np.ndarray,
    weights: np.ndarray,
    *,
    clip_norm: float,
    resolution: int,
) -> tuple[list[int], int]:
    """The integer sum, and how many persons contributed nothing."""
    total, nonfinite = [0] * rows.shape[1], 0
    for person in sorted(set(persons.tolist())):
        mine = [j for j in range(len(persons)) if persons[j] == person]
        gradient = person_gradient([rows[j] for j in mine], [weights[j] for j in mine])
        if gradient is None:
            nonfinite += 1
            continue
        for i, value in enumerate(clipped_integers(gradient, clip_norm, resolution)):
            total[i] += value
    return total, nonfinite
