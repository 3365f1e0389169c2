"""The noise laws: what a silo draws, what the sum of all silos has, and the probability of every
outcome.

A law is a frozen value. The trainer draws from it and the accountant reads the same object, so the
noise that is accounted is the noise that is drawn. Integer laws are laws of one coordinate, in grid
steps; coordinates are independent copies.

    total = noise_law("skellam", variance_grid)     the noise the released sum must have
    drawn = total.share(k)                          what one of k silos draws
    summed = drawn.sum_of(k)                        the exact law of the sum of k draws: what to account for
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import final

import numpy as np
import numpy.typing as npt

from sumus.errors import PlanError
from sumus.noise.coins import PoissonBinomial
from sumus.noise.discrete_gaussian import (
    SMOOTH_SCALE2_GRID,
    convolved_log_pmf,
    discrete_gaussian_log_pmf,
    discrete_gaussian_scale2,
    discrete_gaussian_variance,
    sum_log_ratio,
)
from sumus.noise.sampler import SAMPLER_LOG_RATIO, SAMPLER_TAIL_MASS, draw_blocks
from sumus.noise.skellam import skellam_log_pmf
from sumus.randomness import RandomSource

__all__ = [
    "LARGEST_VARIANCE_GRID",
    "SMALLEST_VARIANCE_GRID",
    "DiscreteGaussian",
    "DiscreteGaussianSum",
    "Gaussian",
    "IntegerNoise",
    "PoissonBinomial",
    "Skellam",
    "noise_law",
]

SMALLEST_VARIANCE_GRID = 0.25
LARGEST_VARIANCE_GRID = 2.0**46
_LARGEST_CONVOLUTION = 1 << 13


class IntegerNoise(ABC):
    """The law of one coordinate of integer noise: symmetric about zero, log-concave, in grid steps.

    Guarantee: for every law X and the law X̂ that `sample` really draws from (given ideal random
        words) there is an event of probability at most `tail_mass` under both, outside which |log
        P[X̂ = k]/P[X = k]| ≤ `log_ratio_slack`. Both numbers are per coordinate and draw: they add
        up over coordinates and over the draws that are summed.
    """

    variance_grid: float

    @abstractmethod
    def share(self, contributors: int) -> IntegerNoise:
        """What one of `contributors` silos draws so that all of them together have this law's
        variance.
        """

    @abstractmethod
    def sum_of(self, count: int) -> IntegerNoise:
        """The law of the sum of `count` independent draws, up to the `log_ratio_slack` of the law
        returned.
        """

    @abstractmethod
    def log_pmf(self, points: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """log P[X = k] at every point k."""

    @abstractmethod
    def log_mgf_bound(self, rate: float) -> float:
        """A bound on log E[e^(rate·X)], for Chernoff bounds on sums: the bounds of independent
        draws add up.
        """

    @abstractmethod
    def log_tail_bound(self, threshold_grid: float, draws: int = 1) -> float:
        """Chernoff: a bound on log P[X_1 + … + X_draws ≥ threshold] for independent draws and a
        threshold ≥ 0.
        """

    @property
    def log_ratio_slack(self) -> float:
        """sup |log(drawn/declared probability)| of one coordinate outside the tail event."""
        return SAMPLER_LOG_RATIO

    @property
    def tail_mass(self) -> float:
        """Probability of the event outside which `log_ratio_slack` holds."""
        return SAMPLER_TAIL_MASS

    def sample(self, size: int | tuple[int, ...], source: RandomSource) -> npt.NDArray[np.int64]:
        """Independent draws, from the words of `source` and nothing else."""
        shape = (size,) if isinstance(size, int) else tuple(size)
        return draw_blocks(self, math.prod(shape), source).reshape(shape)


@final
@dataclass(frozen=True)
class Skellam(IntegerNoise):
    """The difference of two Poisson variables of rate v/2: P[X = k] = e^(−v) I_|k|(v).

    Infinitely divisible: the sum of k draws of variance v/k has exactly this law.

    Args:
        variance_grid: v, grid steps squared, from 0.25 to 2^46.

    Reference: Agarwal, Kairouz, Liu 2021 (arXiv:2110.04995).
    """

    variance_grid: float

    def __post_init__(self) -> None:
        _check_variance("variance_grid", self.variance_grid)

    def share(self, contributors: int) -> Skellam:
        return Skellam(self.variance_grid / _check_count("contributors", contributors))

    def sum_of(self, count: int) -> Skellam:
        return Skellam(self.variance_grid * _check_count("count", count))

    def log_pmf(self, points: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        return skellam_log_pmf(points, self.variance_grid)

    def log_mgf_bound(self, rate: float) -> float:
        """v·(cosh(rate) − 1), exact."""
        return (
            2.0 * self.variance_grid * math.sinh(rate / 2.0) ** 2 if abs(rate) < 700.0 else math.inf
        )

    def log_tail_bound(self, threshold_grid: float, draws: int = 1) -> float:
        """r − v − t·asinh(t/v), r = √(t² + v²), for the summed variance v: Chernoff at its best
        rate.
        """
        variance = self.variance_grid * _check_count("draws", draws)
        radius = math.hypot(threshold_grid, variance)
        return threshold_grid**2 / (radius + variance) - threshold_grid * math.asinh(
            threshold_grid / variance
        )


@final
@dataclass(frozen=True)
class DiscreteGaussian(IntegerNoise):
    """P[X = k] ∝ exp(−k²/2σ²) on the integers.

    Not divisible: `share(k).sum_of(k)` is a `DiscreteGaussianSum`, close to this law but not equal
        to it. Account for the sum.

    Args:
        scale2_grid: the parameter σ², grid steps squared.
        variance_grid: its exact variance, computed.

    Reference: Canonne, Kamath, Steinke 2020 (arXiv:2004.00010).
    """

    scale2_grid: float
    variance_grid: float = field(init=False, compare=False)

    def __post_init__(self) -> None:
        _check_variance("scale2_grid", self.scale2_grid)
        object.__setattr__(self, "variance_grid", discrete_gaussian_variance(self.scale2_grid))

    def share(self, contributors: int) -> DiscreteGaussian:
        return DiscreteGaussian(
            discrete_gaussian_scale2(
                self.variance_grid / _check_count("contributors", contributors)
            )
        )

    def sum_of(self, count: int) -> DiscreteGaussian | DiscreteGaussianSum:
        return (
            self
            if _check_count("count", count) == 1
            else DiscreteGaussianSum(self.scale2_grid, count)
        )

    def log_pmf(self, points: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        return discrete_gaussian_log_pmf(points, self.scale2_grid)

    def log_mgf_bound(self, rate: float) -> float:
        """rate²·σ²/2: the discrete Gaussian is sub-Gaussian with its own parameter (Canonne et al.
        2020).
        """
        return 0.5 * rate**2 * self.scale2_grid

    def log_tail_bound(self, threshold_grid: float, draws: int = 1) -> float:
        """−t²/(2·draws·σ²)."""
        return -(threshold_grid**2) / (2.0 * self.scale2_grid * _check_count("draws", draws))


@final
@dataclass(frozen=True)
class DiscreteGaussianSum(IntegerNoise):
    """The sum of `count` independent discrete Gaussians of parameter σ² each.

    From σ² = 4 on its probabilities are those of DiscreteGaussian(count·σ²), and the distance 10
    Σ_{j<count} e^(−2π²σ² j/(j+1)) is part of `log_ratio_slack`; below, they are convolved directly,
    within ±26 standard deviations (probability below 1e-146 lies outside and has log-probability −∞
    here).

    Args:
        scale2_grid: σ² of one summand, grid steps squared.
        count: number of summands; at most 8192 when σ² < 4.

    Reference: Kairouz, Liu, Steinke 2021 (arXiv:2102.06387).
    """

    scale2_grid: float
    count: int
    variance_grid: float = field(init=False, compare=False)

    def __post_init__(self) -> None:
        _check_variance("scale2_grid", self.scale2_grid)
        _check_count("count", self.count)
        object.__setattr__(
            self, "variance_grid", self.count * discrete_gaussian_variance(self.scale2_grid)
        )
        _check_variance("variance_grid", self.variance_grid)
        if not self._smooth and self.count > _LARGEST_CONVOLUTION:
            raise PlanError(
                "count",
                self.count,
                f"of summed discrete Gaussians with σ² < {SMOOTH_SCALE2_GRID:g} must be at most "
                f"{_LARGEST_CONVOLUTION}",
                "Raise resolution_bits so that each silo's σ² grows.",
            )

    @property
    def _smooth(self) -> bool:
        return self.scale2_grid >= SMOOTH_SCALE2_GRID

    def share(self, contributors: int) -> DiscreteGaussian | DiscreteGaussianSum:
        if self.count % _check_count("contributors", contributors):
            rule = f"must divide the {self.count} summands of this law"
            raise PlanError(
                "contributors", contributors, rule, "Share a single discrete Gaussian instead."
            )
        return DiscreteGaussian(self.scale2_grid).sum_of(self.count // contributors)

    def sum_of(self, count: int) -> DiscreteGaussianSum:
        return DiscreteGaussianSum(self.scale2_grid, self.count * _check_count("count", count))

    def log_pmf(self, points: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        if self._smooth:
            return discrete_gaussian_log_pmf(points, self.scale2_grid * self.count)
        table = convolved_log_pmf(self.scale2_grid, self.count)
        reach = len(table) // 2
        inside = np.abs(points) <= reach
        log_pmf = np.full(np.shape(points), -np.inf)
        log_pmf[inside] = table[np.asarray(points)[inside] + reach]
        return log_pmf

    def log_mgf_bound(self, rate: float) -> float:
        return 0.5 * rate**2 * self.scale2_grid * self.count

    def log_tail_bound(self, threshold_grid: float, draws: int = 1) -> float:
        return DiscreteGaussian(self.scale2_grid).log_tail_bound(
            threshold_grid, _check_count("draws", draws) * self.count
        )

    @property
    def log_ratio_slack(self) -> float:
        declared = sum_log_ratio(self.scale2_grid, self.count) if self._smooth else 0.0
        return SAMPLER_LOG_RATIO + declared


@final
@dataclass(frozen=True)
class Gaussian:
    """The continuous normal law, for comparisons and simulations: floating-point draws carry no
    guarantee.

    Args:
        std: standard deviation, grid steps (or any unit the caller keeps to).
    """

    std: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.std) and self.std > 0.0):
            raise PlanError(
                "std",
                self.std,
                "must be a positive number",
                "Give the standard deviation of the noise.",
            )

    @property
    def variance_grid(self) -> float:
        return self.std**2

    def share(self, contributors: int) -> Gaussian:
        return Gaussian(self.std / math.sqrt(_check_count("contributors", contributors)))

    def sum_of(self, count: int) -> Gaussian:
        return Gaussian(self.std * math.sqrt(_check_count("count", count)))

    def log_pdf(self, points: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Log-density at every point."""
        return np.asarray(
            -0.5 * np.square(points / self.std) - math.log(self.std * math.sqrt(2.0 * math.pi))
        )

    def log_mgf_bound(self, rate: float) -> float:
        """rate²·std²/2, exact."""
        return 0.5 * (rate * self.std) ** 2

    def log_tail_bound(self, threshold_grid: float, draws: int = 1) -> float:
        """−t²/(2·draws·std²)."""
        return -(threshold_grid**2) / (2.0 * self.variance_grid * _check_count("draws", draws))

    def sample(self, size: int | tuple[int, ...], source: RandomSource) -> npt.NDArray[np.float64]:
        """Independent draws in double precision."""
        shape = (size,) if isinstance(size, int) else tuple(size)
        return self.std * source.normals(math.prod(shape)).reshape(shape)


def noise_law(mechanism: str, variance_grid: float) -> IntegerNoise | Gaussian:
    """The law of the plan's `noise.mechanism` with a given variance (grid steps squared), never
    less.
    """
    if mechanism == "skellam":
        return Skellam(variance_grid)
    if mechanism == "discrete-gaussian":
        _check_variance("variance_grid", variance_grid)
        return DiscreteGaussian(discrete_gaussian_scale2(variance_grid))
    if mechanism == "gaussian":
        _check_positive("variance_grid", variance_grid)
        return Gaussian(math.sqrt(variance_grid))
    raise PlanError(
        "noise.mechanism",
        mechanism,
        "must name an additive noise law",
        "Choose skellam, discrete-gaussian or gaussian.",
    )


def _check_positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0.0):
        raise PlanError(
            name,
            value,
            "must be a positive number",
            "Give the variance of the noise in grid steps squared.",
        )


def _check_variance(name: str, value: float) -> None:
    if SMALLEST_VARIANCE_GRID <= value <= LARGEST_VARIANCE_GRID:
        return
    rule = f"must lie in [{SMALLEST_VARIANCE_GRID}, 2^46], where the sampler is proved exact"
    if value > LARGEST_VARIANCE_GRID and math.isfinite(value):
        bits = math.ceil(math.log2(value / LARGEST_VARIANCE_GRID) / 2.0)
        raise PlanError(
            name,
            value,
            rule,
            f"Lower noise.resolution_bits by {bits}: a grid that coarse is fine for so much noise.",
        )
    raise PlanError(name, value, rule, "Raise noise.resolution_bits, or the noise.")


def _check_count(name: str, count: int) -> int:
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
        raise PlanError(
            name,
            count,
            "must be a whole number of at least 1",
            "Count the silos whose noise is summed.",
        )
    return int(count)
