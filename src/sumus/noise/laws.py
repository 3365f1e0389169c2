"""What a noise law is: what a silo draws, what the sum of all silos has, how likely each outcome is.

A law is a frozen value. The trainer draws from it and the accountant reads the same object, so the
noise that is accounted is the noise that is drawn. A law is that of one coordinate, in grid steps;
coordinates are independent copies.

    total = noise_law("skellam", variance_grid)     the noise the released sum must have
    drawn = total.share(k)                          what one of k silos draws
    summed = drawn.sum_of(k)                        the law of the sum of k draws: to be accounted

A new law is a file of this room and an entry of `registry.LAWS`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from sumus.errors import PlanError
from sumus.noise.sampler import SAMPLER_LOG_RATIO, SAMPLER_TAIL_MASS, draw_blocks
from sumus.randomness import RandomSource

__all__ = [
    "LARGEST_VARIANCE_GRID",
    "SMALLEST_VARIANCE_GRID",
    "Draws",
    "Law",
    "Orders",
    "RenyiCurve",
    "Values",
    "check_count",
    "check_positive",
    "check_variance",
]

SMALLEST_VARIANCE_GRID = 0.25
LARGEST_VARIANCE_GRID = 2.0**46

Draws = npt.NDArray[np.int64] | npt.NDArray[np.float64]
Orders = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]
RenyiCurve = Callable[[Orders], Values]
"""Integer orders α ≥ 2 to an upper bound ε(α) on the Rényi divergence of neighbouring outputs, in
both directions.
"""


class Law(ABC):
    """The law of one coordinate of noise: symmetric about zero, in grid steps.

    A discrete law is log-concave on the integers; `sample` then needs nothing but its `log_pmf`.

    Guarantee: for every discrete law X and the law X̂ that `sample` really draws from (given ideal
        random words) there is an event of probability at most `tail_mass` under both, outside which
        |log P[X̂ = k]/P[X = k]| ≤ `log_ratio_slack`. Both numbers are per coordinate and draw: they
        add up over coordinates and over the draws that are summed.

    Attributes:
        name: the plan's `noise.mechanism`.
        discrete: draws are integers and may be added in the ring. False: floating-point draws, a
            simulation for which nothing is proved.
        divisible: draws of unequal variances add up within the law, so silos may have unequal
            shares and parts of a share may be taken back.
    """

    name: ClassVar[str]
    discrete: ClassVar[bool]
    divisible: ClassVar[bool]
    variance_grid: float

    @classmethod
    @abstractmethod
    def of_variance(cls, variance_grid: float) -> Self:
        """The law with this variance (grid steps squared), never less."""

    @abstractmethod
    def share(self, contributors: int) -> Self:
        """What one of `contributors` silos draws so that all of them together have this law's
        variance.
        """

    @abstractmethod
    def sum_of(self, count: int) -> Self:
        """The law of the sum of `count` independent draws, up to the `log_ratio_slack` of the law
        returned.
        """

    @abstractmethod
    def log_pmf(self, points: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """log P[X = k] at every point k of a discrete law."""

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

    def renyi(self, l2_grid: float, dimension: int) -> RenyiCurve | None:
        """The published Rényi curve of a query of L2 sensitivity `l2_grid` in `dimension`
        coordinates, if there is one: the accountant takes the lower of it and its own at any order.
        """
        return None

    @property
    def std_grid(self) -> float:
        """The standard deviation, grid steps."""
        return math.sqrt(self.variance_grid)

    @property
    def log_ratio_slack(self) -> float:
        """sup |log(drawn/declared probability)| of one coordinate outside the tail event."""
        return SAMPLER_LOG_RATIO

    @property
    def tail_mass(self) -> float:
        """Probability of the event outside which `log_ratio_slack` holds."""
        return SAMPLER_TAIL_MASS

    def sample(self, size: int | tuple[int, ...], source: RandomSource) -> Draws:
        """Independent draws, from the words of `source` and nothing else."""
        shape = (size,) if isinstance(size, int) else tuple(size)
        return draw_blocks(self, math.prod(shape), source).reshape(shape)


def check_positive(name: str, value: float) -> None:
    """Refuses a variance that is none."""
    if not (math.isfinite(value) and value > 0.0):
        raise PlanError(
            name,
            value,
            "must be a positive number",
            "Give the variance of the noise in grid steps squared.",
        )


def check_variance(name: str, value: float) -> None:
    """Refuses a variance for which the sampler is not proved exact."""
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


def check_count(name: str, count: int) -> int:
    """The count as an int, if it is a whole number of at least 1."""
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
        raise PlanError(
            name,
            count,
            "must be a whole number of at least 1",
            "Count the silos whose noise is summed.",
        )
    return int(count)
