"""Rényi divergence between two sums of independent coins, by polynomial multiplication in 40
digits.
"""

from __future__ import annotations

from collections.abc import Sequence

import mpmath as mp


def sum_of_coins(probabilities: Sequence[float]) -> list[mp.mpf]:
    """Probabilities of 0, 1, … ones: the coefficients of Π (1 − p + p·z)."""
    law = [mp.mpf(1)]
    for p in map(mp.mpf, probabilities):
        law = [
            (1 - p) * a + p * b for a, b in zip([*law, mp.mpf(0)], [mp.mpf(0), *law], strict=True)
        ]
    return law


def renyi_divergence(order: int, first: Sequence[float], second: Sequence[float]) -> float:
    """D_α(P‖Q) of the two sums, α an integer above one."""
    with mp.workdps(40):
        pairs = zip(sum_of_coins(first), sum_of_coins(second), strict=True)
        return float(mp.log(sum(p**order / q ** (order - 1) for p, q in pairs)) / (order - 1))
