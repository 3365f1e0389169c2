"""How much accuracy differs between silos, without telling any silo's.

With n records of a silo and S = right − wrong ones, the silo adds

    u = ¼·(S²/n + n)        0 without records

A record more, right (x = 1) or wrong (x = −1), changes it by ¼·((S + x)²/(n + 1) − S²/n + 1). At
x = ±1 this lies in [−½, ½], because |S| ≤ n: u has the sensitivity of half a record (theorem 15 of
docs/mathematics.md). Over all silos

    Σ n_i·(a_i − a)² = Σ u_i − N_all/4 − S_all²/(4·N_all)

is the spread of their accuracies a_i about that of all records. What chance alone would make of it
in silos that are all alike, (silos − 1)·a·(1 − a), is taken off.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from sumus.tasks.score_tree import RECORD, SPREAD
from sumus.tasks.uncertainty import NORMAL_95, Measured

__all__ = ["exact_spread", "noisy_spread", "spread_of_silo"]

_FACTOR = 2 * SPREAD  # grid steps per unit of u, of which a record moves half


def spread_of_silo(records_grid: int, signed_grid: int) -> int:
    """u of a silo, rounded down, from the sums of its records.

    Guarantee: a record more or less moves it by at most SPREAD: numbers that are no further apart
        than a whole number of steps stay so when both are rounded down.
    """
    if records_grid <= 0:
        return 0
    numerator = _FACTOR * (signed_grid**2 + records_grid**2)
    return numerator // (4 * RECORD * records_grid)


def exact_spread(accuracies: npt.NDArray[np.float64], records: npt.NDArray[np.float64]) -> float:
    """The standard deviation over silos beyond chance, in the clear."""
    whole = float(records.sum())
    mean = float(accuracies @ records) / whole
    between = float(records @ (accuracies - mean) ** 2)
    chance = max(len(records) - 1, 0) * mean * (1.0 - mean)
    return math.sqrt(max(between - chance, 0.0) / whole)


def noisy_spread(
    total_grid: npt.NDArray[np.float64], place: int, *, noise_std_grid: float, silos: int
) -> Measured:
    """The standard deviation of accuracy over silos beyond chance, each weighing as its test records
    do.

    Args:
        place: of the sum of u.
        silos: in the sum.
    """
    records, signed = float(total_grid[0]) / RECORD, float(total_grid[1]) / RECORD
    std = noise_std_grid / RECORD
    if records < max(3.0 * std, 1.0):
        return Measured(0.25, 0.25)
    mean = min(max(signed / records, -1.0), 1.0)
    chance = (1.0 - mean**2) / 4.0  # a·(1 − a)
    between = float(total_grid[place]) / _FACTOR - records / 4.0 - records * mean**2 / 4.0
    noise = (
        (noise_std_grid / _FACTOR) ** 2
        + (mean * std / 2.0) ** 2
        + ((1.0 - mean**2) * std / 4.0) ** 2
    )
    beyond = between - (silos - 1) * chance
    choice = 2.0 * (silos - 1) * chance**2 + 4.0 * chance * max(beyond, 0.0)
    reach = NORMAL_95 * math.sqrt(noise + choice) + silos / _FACTOR  # and rounding
    low, value, high = (
        min(math.sqrt(max(each, 0.0) / records), 0.5)
        for each in (beyond - reach, beyond, beyond + reach)
    )
    return Measured(value, max(high - value, value - low))
