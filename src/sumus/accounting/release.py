"""What is released, described apart from who computes with it.

A `Release` is a list of steps that are composed adaptively. Each step is a Poisson-subsampled query
whose noise is dominated by a Gaussian with the given multiplier; the same value serves the Rényi
accountant, the privacy-loss accountant and the calibration.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from sumus.accounting.dominating import gaussian_multiplier
from sumus.accounting.renyi import (
    gaussian_curve,
    minimum,
    surging_curve,
)
from sumus.errors import PlanError
from sumus.noise import Law, RenyiCurve

__all__ = ["Release", "Step", "noisy_step"]

# keeps every exponent of the accountants far from overflow; protects nobody anyway
_SMALLEST_MULTIPLIER = 1e-9


@final
@dataclass(frozen=True)
class Step:
    """`count` adaptive repetitions of one Poisson-subsampled Gaussian-dominated query.

    Args:
        gaussian_multiplier: standard deviation of the dominating Gaussian over the L2 sensitivity.
        sampling_rate: q, probability that a record joins the query; 1 means always.
        count: repetitions.
        curve: Rényi curve of the query before subsampling; by default that of the dominating
            Gaussian.
        surge_rate: probability in (0, 1), independent in every repetition and known to the
            adversary, that the sensitivity doubles.
    """

    gaussian_multiplier: float
    sampling_rate: float = 1.0
    count: int = 1
    curve: RenyiCurve | None = None
    surge_rate: float = 0.0

    def __post_init__(self) -> None:
        if not _SMALLEST_MULTIPLIER <= self.gaussian_multiplier < math.inf:  # NaN fails too
            raise PlanError(
                "noise_multiplier",
                self.gaussian_multiplier,
                "must be a finite number of at least 1e-9",
                "Add noise.",
            )
        if not 0.0 < self.sampling_rate <= 1.0:
            raise PlanError(
                "sampling_rate",
                self.sampling_rate,
                "must be a number in (0, 1]",
                "Give a probability.",
            )
        if not (isinstance(self.count, int) and self.count >= 1):
            raise PlanError(
                "steps", self.count, "must be a whole number at least 1", "Count every noisy query."
            )
        if not 0.0 <= self.surge_rate < 1.0:
            raise PlanError(
                "surge_rate",
                self.surge_rate,
                "must be a number in [0, 1)",
                "Double the sensitivity instead.",
            )
        if self.surge_rate > 0.0 and self.sampling_rate < 1.0:
            raise PlanError(
                "surge_rate",
                self.surge_rate,
                "must be 0 for a subsampled query",
                "Double the sensitivity instead.",
            )

    @property
    def renyi(self) -> RenyiCurve:
        """The Rényi curve of one unsubsampled query."""
        if self.surge_rate > 0.0:
            return surging_curve(self.gaussian_multiplier, self.surge_rate)
        return self.curve if self.curve is not None else gaussian_curve(self.gaussian_multiplier)


@final
@dataclass(frozen=True)
class Release:
    """Steps that are composed adaptively: the adversary sees all of them and may choose each after
    the last.
    """

    steps: tuple[Step, ...]

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)


def noisy_step(
    noise: Law,
    *,
    l2_grid: float,
    dimension: int,
    sampling_rate: float = 1.0,
    count: int = 1,
    surge_rate: float = 0.0,
) -> Step:
    """A step whose query has L2 sensitivity `l2_grid` (in the units of the noise) and whose noise
    is drawn from `noise`.

    Guarantee: the step's Gaussian and its Rényi curve are both upper bounds on the privacy loss of
        the drawn law, for every integer query of `dimension` coordinates with that sensitivity
        (docs/mathematics.md, "integer noise as a Gaussian").
    """
    if not noise.discrete:
        return Step(noise.std_grid / l2_grid, sampling_rate, count, None, surge_rate)
    multiplier = gaussian_multiplier(noise, l2_grid)
    published = noise.renyi(l2_grid, dimension)
    curve = None if published is None else minimum(gaussian_curve(multiplier), published)
    return Step(multiplier, sampling_rate, count, curve, surge_rate)
