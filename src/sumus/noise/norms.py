"""How long a vector of noise can be: a bound on its L2 norm that fails with a stated probability.

Let Z have d independent coordinates, each Σ_i w_i X_i with independent draws X_i of known laws; let
K(λ) ≥ log E[e^(λZ_k)] be the sum of the laws' bounds, with K(λ)/λ² not falling in |λ| (so it is of
every law here), V = Var[Z_k], x = b·ln 2 + ln 3, and

    T with 2d·e^(min_λ K(λ) − λT) ≤ e^(−x),     y = √(T²/V + 2(x + ln d)),
    λ₀ = (T/√V + y)/√V,                         V₀ = 2K(λ₀)/λ₀² ≥ V.

Theorem. P[‖Z‖² > V₀·(d + 2√(d·x) + 2x)] ≤ 2^−b, and P[‖Z‖ > √d·T] ≤ 2^−b.
Proof. Outside an event of probability e^(−x) all |Z_k| ≤ T, hence the second bound. For 0 < s <
    1/(2V₀) and a standard normal g, e^(sz²) = E[e^(√(2s)·g·z)]. Cut at |g| ≤ G = T/√V + y: there
    |√(2s)·g| ≤ λ₀, so E_Z ≤ e^(s·g²·V₀), and E_g of that is at most (1 − 2sV₀)^(−1/2). Beyond, for
    |z| ≤ T, E[e^(√(2s)·g·z); |g| > G] = e^(sz²)·P[|g + √(2s)·z| > G] ≤ e^(T²/2V)·e^(−y²/2) ≤
    e^(−x)/d. So E[e^(sZ_k²); |Z_k| ≤ T] ≤ (1 − 2sV₀)^(−1/2) + e^(−x)/d, and the product over the
    coordinates is at most (1 − 2sV₀)^(−d/2)·e^(e^(−x)): but for the last factor that of V₀·χ²_d,
    whose Chernoff bound at d + 2√(d·x) + 2x is e^(−x) (Laurent, Massart 2000, lemma 1). Together
    e^(−x)·(1 + e^(e^(−x))) < 3e^(−x) = 2^−b. ∎

Skellam variables are not sub-Gaussian, which is what T and λ₀ are for; with variances from a few
thousand on, V₀ is V to four digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache

from sumus.noise.laws import Law

__all__ = ["noise_norm_bound"]

_Draws = Mapping[tuple[Law, float], int]
"""(law, weight) → number of independent draws that are added up in every coordinate."""


def noise_norm_bound(draws: _Draws, dimension: int, *, bits: int) -> float:
    """What the L2 norm of summed noise exceeds with probability at most 2^−bits, grid steps.

    Args:
        draws: what every coordinate is the sum of.
        dimension: d.
        bits: b.
    """
    return _bound(tuple(sorted(draws.items(), key=repr)), dimension, bits) if draws else 0.0


@lru_cache(maxsize=256)
def _bound(draws: tuple[tuple[tuple[Law, float], int], ...], dimension: int, bits: int) -> float:
    def log_mgf(rate: float) -> float:
        return math.fsum(count * law.log_mgf_bound(rate * weight) for (law, weight), count in draws)

    variance = math.fsum(count * weight**2 * law.variance_grid for (law, weight), count in draws)
    excess = bits * math.log(2.0) + math.log(3.0)
    largest = _largest_coordinate(log_mgf, variance, excess + math.log(2.0 * dimension))
    beyond = math.sqrt(largest**2 / variance + 2.0 * (excess + math.log(dimension)))
    rate = (largest / math.sqrt(variance) + beyond) / math.sqrt(variance)
    inflated = max(variance, 2.0 * log_mgf(rate) / rate**2)
    squared = inflated * (dimension + 2.0 * math.sqrt(dimension * excess) + 2.0 * excess)
    return min(math.sqrt(squared), math.sqrt(dimension) * largest)


def _largest_coordinate(log_mgf: Callable[[float], float], variance: float, excess: float) -> float:
    """T with min_λ K(λ) − λT ≤ −excess, found from below in steps of two per cent."""
    threshold = math.sqrt(2.0 * variance * excess)
    while _chernoff(log_mgf, threshold, threshold / variance) > -excess:
        threshold *= 1.02
    return threshold


def _chernoff(log_mgf: Callable[[float], float], threshold: float, highest: float) -> float:
    """min K(λ) − λ·threshold over λ of [0, highest], which is convex; any λ gives a bound."""
    low, high = 0.0, highest
    for _ in range(60):
        left, right = low + (high - low) / 3.0, high - (high - low) / 3.0
        if log_mgf(left) - left * threshold <= log_mgf(right) - right * threshold:
            high = right
        else:
            low = left
    middle = 0.5 * (low + high)
    return log_mgf(middle) - middle * threshold
