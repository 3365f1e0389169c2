"""The discrete Gaussian exp(−k²/2σ²)/Z and the sums of its independent copies, as one law.

Poisson summation gives Z = √(2πσ²)·(1 + 2 Σ_n e^(−2π²σ²n²)); from σ² = 4 on the correction is below
1e-34, so that Z = √(2πσ²) and the variance is σ² to the last bit. Below, the defining sums have a
few dozen positive terms.

References: Canonne, Kamath, Steinke 2020 (arXiv:2004.00010), Fact 19; Kairouz, Liu, Steinke 2021
    (arXiv:2102.06387), convolution of discrete Gaussians.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt

from sumus.errors import PlanError
from sumus.noise.laws import Law, RenyiCurve, check_count, check_variance

__all__ = [
    "SMOOTH_SCALE2_GRID",
    "DiscreteGaussian",
    "convolved_log_pmf",
    "discrete_gaussian_log_pmf",
    "discrete_gaussian_scale2",
    "discrete_gaussian_variance",
    "sum_log_ratio",
]

# from here on a sum of discrete Gaussians is one, up to 10·count·e^(−4π²) < count·8e-17
SMOOTH_SCALE2_GRID = 4.0
_CONVOLUTION_STDS = 26.0  # P[|X| > 26 std] < 1e-146
_LARGEST_CONVOLUTION = 1 << 13


@final
@dataclass(frozen=True)
class DiscreteGaussian(Law):
    """The sum of `count` independent copies of P[X = k] ∝ exp(−k²/2σ²) on the integers.

    Not divisible: `share(k).sum_of(k)` is a sum of k copies, close to one copy but not equal to it.
    Account for the sum. From σ² = 4 on its probabilities are those of one copy of parameter
    count·σ², and the distance 10 Σ_{j<count} e^(−2π²σ² j/(j+1)) is part of `log_ratio_slack`;
    below, they are convolved directly, within ±26 standard deviations (probability below 1e-146
    lies outside and has log-probability −∞ here).

    Args:
        scale2_grid: the parameter σ² of one copy, grid steps squared.
        count: number of copies; at most 8192 when σ² < 4.
        variance_grid: the exact variance of the sum, computed.
    """

    name: ClassVar[str] = "discrete-gaussian"
    discrete: ClassVar[bool] = True
    divisible: ClassVar[bool] = False

    scale2_grid: float
    count: int = 1
    variance_grid: float = field(init=False, compare=False)

    def __post_init__(self) -> None:
        check_variance("scale2_grid", self.scale2_grid)
        variance = check_count("count", self.count) * discrete_gaussian_variance(self.scale2_grid)
        object.__setattr__(self, "variance_grid", variance)
        if self.count > 1:
            check_variance("variance_grid", variance)
        if not self._smooth and self.count > _LARGEST_CONVOLUTION:
            raise PlanError(
                "count",
                self.count,
                f"of summed discrete Gaussians with σ² < {SMOOTH_SCALE2_GRID:g} must be at most "
                f"{_LARGEST_CONVOLUTION}",
                "Raise resolution_bits so that each silo's σ² grows.",
            )

    @classmethod
    def of_variance(cls, variance_grid: float) -> DiscreteGaussian:
        check_variance("variance_grid", variance_grid)
        return cls(discrete_gaussian_scale2(variance_grid))

    @property
    def _smooth(self) -> bool:
        return self.scale2_grid >= SMOOTH_SCALE2_GRID

    def share(self, contributors: int) -> DiscreteGaussian:
        check_count("contributors", contributors)
        if self.count == 1:
            return DiscreteGaussian(discrete_gaussian_scale2(self.variance_grid / contributors))
        if self.count % contributors:
            rule = f"must divide the {self.count} summands of this law"
            raise PlanError(
                "contributors", contributors, rule, "Share a single discrete Gaussian instead."
            )
        return DiscreteGaussian(self.scale2_grid, self.count // contributors)

    def sum_of(self, count: int) -> DiscreteGaussian:
        return DiscreteGaussian(self.scale2_grid, self.count * check_count("count", count))

    def log_pmf(self, points: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        if self.count == 1 or self._smooth:
            return discrete_gaussian_log_pmf(points, self.scale2_grid * self.count)
        table = convolved_log_pmf(self.scale2_grid, self.count)
        reach = len(table) // 2
        inside = np.abs(points) <= reach
        log_pmf = np.full(np.shape(points), -np.inf)
        log_pmf[inside] = table[np.asarray(points)[inside] + reach]
        return log_pmf

    def log_mgf_bound(self, rate: float) -> float:
        """rate²·count·σ²/2: the discrete Gaussian is sub-Gaussian with its own parameter (Canonne
        et al. 2020).
        """
        return 0.5 * rate**2 * self.scale2_grid * self.count

    def log_tail_bound(self, threshold_grid: float, draws: int = 1) -> float:
        """−t²/(2·draws·count·σ²)."""
        copies = check_count("draws", draws) * self.count
        return -(threshold_grid**2) / (2.0 * self.scale2_grid * copies)

    @property
    def log_ratio_slack(self) -> float:
        declared = sum_log_ratio(self.scale2_grid, self.count) if self._smooth else 0.0
        return super().log_ratio_slack + declared

    def renyi(self, l2_grid: float, dimension: int) -> RenyiCurve:
        """α·ε²/2 with the ε of Kairouz, Liu, Steinke 2021, theorem 1, for n = count copies.

            ε = min{ √(Δ₂²/(nσ²) + τd/2), Δ₂/(√n·σ) + τ√d },   τ = 10 Σ_{k<n} e^{−2π²σ²k/(k+1)}

        Guarantee: σ² ≥ 1/2 (below, the curve is infinite). A single copy has τ = 0.
        """
        if self.scale2_grid < 0.5:
            return lambda orders: np.full(len(orders), math.inf)
        terms = np.arange(1, self.count)
        exponents = -2.0 * math.pi**2 * self.scale2_grid * terms / (terms + 1)
        tau = 10.0 * float(np.exp(exponents).sum())
        total2 = self.count * self.scale2_grid
        root = min(
            math.sqrt(l2_grid**2 / total2 + tau * dimension / 2.0),
            l2_grid / math.sqrt(total2) + tau * math.sqrt(dimension),
        )
        return lambda orders: np.asarray(orders * (root**2 / 2.0), dtype=np.float64)


def discrete_gaussian_log_pmf(
    points: npt.NDArray[np.int64], scale2_grid: float
) -> npt.NDArray[np.float64]:
    """log P[X = k] = −k²/2σ² − log Z."""
    squares = np.square(np.asarray(points).astype(np.float64))
    return np.asarray(-squares / (2.0 * scale2_grid) - _log_normaliser(scale2_grid))


def discrete_gaussian_variance(scale2_grid: float) -> float:
    """The variance, which is below the parameter σ² (visibly so only for σ² < 1)."""
    if scale2_grid >= SMOOTH_SCALE2_GRID:
        return scale2_grid
    squares, weights = _defining_sum(scale2_grid)
    return float(2.0 * (squares * weights).sum() / (1.0 + 2.0 * weights.sum()))


def discrete_gaussian_scale2(variance_grid: float) -> float:
    """The parameter σ² whose discrete Gaussian has at least the given variance and at most 1e-14 of
    it more.
    """
    low, high = variance_grid, variance_grid + 1.0
    if discrete_gaussian_variance(low) >= variance_grid:
        return low
    while high - low > 1e-15 * high:
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        if discrete_gaussian_variance(middle) >= variance_grid:
            high = middle
        else:
            low = middle
    return high


def sum_log_ratio(scale2_grid: float, count: int) -> float:
    """sup_k |log P[ΣX_i = k] / P[Y = k]| for `count` copies X_i of DG(σ²) and Y of DG(count·σ²).

    Bounded by 10 Σ_{j<count} e^(−2π²σ² j/(j+1)), for σ² ≥ ½ (Kairouz, Liu, Steinke 2021).
    """
    if count == 1:
        return 0.0
    exponents = [-2.0 * math.pi**2 * scale2_grid * j / (j + 1) for j in range(1, min(count, 64))]
    tail = max(0, count - 64) * math.exp(-2.0 * math.pi**2 * scale2_grid * 64 / 65)
    return 10.0 * (math.fsum(map(math.exp, exponents)) + tail)


@lru_cache(maxsize=16)
def convolved_log_pmf(scale2_grid: float, count: int) -> npt.NDArray[np.float64]:
    """log P[ΣX_i = k] for k = −K … K, K = 26 standard deviations, by direct convolution (binary
    powers of the law).

    Every term is positive, so the relative error stays near (2K + 1)·2^-53 in the far tail too.
    Cutting every factor at ±K loses less than 1e-140 of any kept probability.
    """
    std = math.sqrt(discrete_gaussian_variance(scale2_grid) * count)
    reach = math.ceil(_CONVOLUTION_STDS * std) + 2
    power = np.exp(discrete_gaussian_log_pmf(np.arange(-reach, reach + 1), scale2_grid))
    total = (np.arange(-reach, reach + 1) == 0).astype(np.float64)
    remaining = count
    while remaining:
        if remaining & 1:
            total = np.convolve(total, power)[reach : 3 * reach + 1]
        remaining >>= 1
        if remaining:
            power = np.convolve(power, power)[reach : 3 * reach + 1]
    with np.errstate(divide="ignore"):  # −∞ where even the product underflows
        return np.asarray(np.log(0.5 * (total + total[::-1])))


def _log_normaliser(scale2_grid: float) -> float:
    if scale2_grid >= SMOOTH_SCALE2_GRID:
        return 0.5 * math.log(2.0 * math.pi * scale2_grid)
    _, weights = _defining_sum(scale2_grid)
    return math.log1p(2.0 * float(weights.sum()))


def _defining_sum(scale2_grid: float) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """k² and e^(−k²/2σ²) for k ≥ 1 until the terms vanish (e^-128 at σ² = 4, k = 32)."""
    squares = np.square(np.arange(1.0, 33.0))
    return squares, np.exp(-squares / (2.0 * scale2_grid))
