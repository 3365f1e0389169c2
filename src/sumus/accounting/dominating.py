"""Integer noise as a Gaussian: the exact Gaussian-DP parameter of a unit shift, and what follows
for vectors.

For symmetric log-concave integer noise with distribution function F, shifting by one grid step is
m-GDP with

    m = sup_j Φ⁻¹(F(j)) − Φ⁻¹(F(j−1)),

because the likelihood ratio of the shifted pair is monotone, so the vertices of its trade-off curve
are (1 − F(j), F(j−1)), and a convex piecewise-linear curve lies above a convex curve once its
vertices do. Shifting by n steps is n-fold group privacy (n·m), and independent coordinates add in
squares: a query with L2 sensitivity Δ₂ grid steps is (m·Δ₂)-GDP. A Gaussian with noise multiplier
1/(m·Δ₂) therefore dominates the integer mechanism, also under Poisson subsampling and adaptive
composition. Proof in docs/mathematics.md.

Reference: Dong, Roth, Su 2019 (arXiv 1905.02383), group privacy (thm 2.14) and composition (thm
    3.2).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.special import erfinv, ndtri_exp

from sumus.errors import GuaranteeError, PlanError
from sumus.noise import LogConcaveNoise

__all__ = ["TAIL_LOG_MASS", "gaussian_multiplier", "unit_shift"]

TAIL_LOG_MASS = -70.0
"""The supremum runs up to the first point whose tail holds at most e^-70 ≈ 4e-31; what lies beyond
is added to δ by the account.
"""

# points are summed until here, so that every tail used is exact to a factor 1 ± e^-50
_REACH_LOG_PMF = -125.0
_EXACT_POINTS = 1 << 15  # below this many points the supremum is evaluated point by point
_BLOCKS = 1 << 14
# relative; covers float64 in ndtri_exp, in the tail sums and in slopes times block widths
_ROUNDING = 1e-8


@lru_cache(maxsize=256)
def unit_shift(noise: LogConcaveNoise) -> float:
    """m: a safe upper bound on the Gaussian-DP parameter of shifting `noise` by one grid step.

    Guarantee: for a symmetric log-concave law and every integer n, (X, X + n) is a post-processing
        of a pair that is within e^-70 in total variation, on each side, of (N(0, 1), N(n·m, 1)); m
        is at most 1 + 1e-8 (small variance) or 1 + 1e-6 (large variance) times the supremum over
        that range.

    Args:
        noise: symmetric log-concave integer law; hashable.
    """
    reach = _reach(noise)
    shift = (
        _supremum_by_points(noise, reach)
        if reach <= _EXACT_POINTS
        else _supremum_by_blocks(noise, reach)
    )
    if not (math.isfinite(shift) and shift > 0.0):
        raise GuaranteeError(
            f"the Gaussian that dominates {noise} could not be evaluated, so no ε is certified for "
            "it."
        )
    return shift * (1.0 + _ROUNDING)


def gaussian_multiplier(noise: LogConcaveNoise, l2_grid: float) -> float:
    """1/(m·Δ₂): the noise multiplier of the Gaussian mechanism that dominates `noise` on a query of
    L2 sensitivity Δ₂ grid steps.
    """
    if not l2_grid > 0.0:
        raise PlanError(
            "l2_grid", l2_grid, "must be positive", "A query that no record changes needs no noise."
        )
    return 1.0 / (unit_shift(noise) * l2_grid)


def _reach(noise: LogConcaveNoise) -> int:
    """A point beyond which the law's mass is negligible even against the tail mass that is added to
    δ.
    """
    point = max(8, math.ceil(4.0 * math.sqrt(noise.variance_grid)))
    while float(noise.log_pmf(np.array([point], dtype=np.int64))[0]) > _REACH_LOG_PMF:
        point = math.ceil(point * 1.25)
    return point


def _supremum_by_points(noise: LogConcaveNoise, reach: int) -> float:
    log_pmf = noise.log_pmf(np.arange(reach + 1, dtype=np.int64))
    log_tail = np.logaddexp.accumulate(log_pmf[::-1])[::-1]  # log P(X ≥ j)
    # the first point beyond belongs to the range
    used = 1 + int(np.count_nonzero(log_tail[1:] > TAIL_LOG_MASS))
    quantile = -ndtri_exp(log_tail[1:][:used])  # Φ⁻¹(F(j)) for j = 0, 1, …
    return float(max(_centre(log_pmf[0]), np.diff(quantile).max(initial=0.0)))


def _supremum_by_blocks(noise: LogConcaveNoise, reach: int) -> float:
    """The supremum bounded block by block, for laws with too many points to visit.

    With u_j the middle of [z_{j−1}, z_j], p_j = ∫φ ≥ t_j·φ(u_j)·(1 − t_j²/24), because φ(u+s) +
    φ(u−s) ≥ 2φ(u)·e^{−s²/2}. So log t_j ≤ log p_j + u_j²/2 + ½·log 2π + t_j²/11. In a block (a, b]
    right of zero, log-concavity bounds log p_j by the tangent at a and the tail mass (hence z_a) by
    geometric interpolation from below; and u_j ≤ z_a + (j − a − ½)·t̄ for any bound t̄ of the
    block. The result is convex in j, so its maximum is at an end. A crude t̄ from p_j ≥ t_j·φ(z_j)
    and three refinements leave less than 1e-6.
    """
    width = -(-reach // _BLOCKS)
    ends = np.arange(0, reach + width, width, dtype=np.int64)
    log_pmf = noise.log_pmf(ends)
    slope = log_pmf - noise.log_pmf(ends - 1)
    slope[0] = 0.0
    step = np.diff(log_pmf) / width  # log ratio of neighbouring points on the chord; negative
    # mass of (a, b] from below
    log_block = log_pmf[:-1] + step + np.log(np.expm1(width * step) / np.expm1(step))
    # log P(X > a) from below; all terms are far above underflow
    log_tail = np.log(np.cumsum(np.exp(log_block[::-1]))[::-1])
    # the first block end beyond belongs to the range
    used = 1 + int(np.count_nonzero(log_tail > TAIL_LOG_MASS))
    quantile = -ndtri_exp(log_tail[:used])
    left, right = quantile[:-1], quantile[1:]
    log_left, tangent = log_pmf[: len(left)], slope[: len(left)]
    half_log_2pi = 0.5 * math.log(2.0 * math.pi)
    bound = np.exp(log_left + right**2 / 2.0 + half_log_2pi)
    for _ in range(3):
        at_left = log_left + tangent + (left + 0.5 * bound) ** 2 / 2.0
        at_right = log_left + width * tangent + (left + (width - 0.5) * bound) ** 2 / 2.0
        bound = np.minimum(
            bound, np.exp(np.maximum(at_left, at_right) + half_log_2pi + bound**2 / 11.0)
        )
    return float(max(_centre(log_pmf[0]), bound.max()))


def _centre(log_p0: float) -> float:
    """z_0 − z_{−1} = 2Φ⁻¹((1 + p₀)/2) = √8·erf⁻¹(p₀), without the cancellation at ½ that a large
    variance would suffer from.
    """
    return math.sqrt(8.0) * float(erfinv(math.exp(log_p0)))
