"""The continuous normal law, for comparisons and simulations: no guarantee holds for its draws."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt

from sumus.errors import GuaranteeError, PlanError
from sumus.noise.laws import Law, check_count, check_positive
from sumus.randomness import RandomSource

__all__ = ["Gaussian"]


@final
@dataclass(frozen=True)
class Gaussian(Law):
    """The normal law, drawn in floating point.

    Args:
        std: standard deviation, grid steps (or any unit the caller keeps to).
    """

    name: ClassVar[str] = "gaussian"
    discrete: ClassVar[bool] = False
    divisible: ClassVar[bool] = True

    std: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.std) and self.std > 0.0):
            raise PlanError(
                "std",
                self.std,
                "must be a positive number",
                "Give the standard deviation of the noise.",
            )

    @classmethod
    def of_variance(cls, variance_grid: float) -> Gaussian:
        check_positive("variance_grid", variance_grid)
        return cls(math.sqrt(variance_grid))

    @property
    def variance_grid(self) -> float:  # type: ignore[override]
        """std²."""
        return self.std**2

    @property
    def std_grid(self) -> float:
        return self.std

    def share(self, contributors: int) -> Gaussian:
        return Gaussian(self.std / math.sqrt(check_count("contributors", contributors)))

    def sum_of(self, count: int) -> Gaussian:
        return Gaussian(self.std * math.sqrt(check_count("count", count)))

    def log_pmf(self, points: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        raise GuaranteeError("continuous Gaussian noise has no probabilities on the grid.")

    def log_mgf_bound(self, rate: float) -> float:
        """rate²·std²/2, exact."""
        return 0.5 * (rate * self.std) ** 2

    def log_tail_bound(self, threshold_grid: float, draws: int = 1) -> float:
        """−t²/(2·draws·std²)."""
        return -(threshold_grid**2) / (2.0 * self.variance_grid * check_count("draws", draws))

    @property
    def log_ratio_slack(self) -> float:
        """∞: nothing is proved of floating-point draws."""
        return math.inf

    @property
    def tail_mass(self) -> float:
        return 1.0

    def sample(self, size: int | tuple[int, ...], source: RandomSource) -> npt.NDArray[np.float64]:
        """Independent draws in double precision."""
        shape = (size,) if isinstance(size, int) else tuple(size)
        return self.std * source.normals(math.prod(shape)).reshape(shape)
