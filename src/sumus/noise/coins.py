"""The Poisson-binomial mechanism: a silo's update leaves the silo as coin tosses, and the coins are
the noise.

A coordinate x of [−c, c] becomes Z ~ Binomial(trials, ½ + θx/c). The sum over silos is unbiased
    after decode: (c/(θ·trials))·(ΣZ − silos·trials/2),
its range {0, …, silos·trials} is known beforehand (a ring that holds it never wraps), and a silo
that sends the zero update still tosses fair coins. Guarantees are for `unit = "silo"`:
`sumus.accounting.poisson_binomial`.

Reference: Chen, Özgür, Kairouz 2022 (arXiv:2207.09916).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sumus.errors import PlanError
from sumus.randomness import RandomSource

__all__ = ["LARGEST_TRIALS", "PoissonBinomial"]

LARGEST_TRIALS = 1 << 12
_WORDS = 1 << 16  # coordinates per call of the source: a buffer that stays in the cache


@dataclass(frozen=True)
class PoissonBinomial:
    """Encoder and decoder of one coordinate, the same for all coordinates.

    Args:
        coordinate_clip: c, bound on |x| for every coordinate, gradient units.
        trials: coins per coordinate and silo.
        theta: θ of (0, ½), how far a coin may lean; less is more private and noisier.
    """

    coordinate_clip: float
    trials: int
    theta: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.coordinate_clip) and self.coordinate_clip > 0.0):
            raise PlanError(
                "coordinate_clip",
                self.coordinate_clip,
                "must be a positive number",
                "Bound every coordinate.",
            )
        if (
            isinstance(self.trials, bool)
            or not isinstance(self.trials, int)
            or not 1 <= self.trials <= LARGEST_TRIALS
        ):
            raise PlanError(
                "trials", self.trials, f"must be an integer in [1, {LARGEST_TRIALS}]", "Use 8 … 64."
            )
        if not 0.0 < self.theta < 0.5:
            raise PlanError(
                "theta", self.theta, "must lie strictly between 0 and 1/2", "Use 0.25 or less."
            )

    def encode(
        self, update: npt.NDArray[np.floating], source: RandomSource
    ) -> npt.NDArray[np.int64]:
        """Z ~ Binomial(trials, ½ + θx/c) for every coordinate.

        Guarantee: whatever the input, every coin leans by at most θ: values beyond ±c count as ±c,
            NaN counts as zero. Coins compare 64-bit words with ½ + θx/c rounded to a double, so
            their probability is exact to 2^-53.
        """
        values = np.nan_to_num(
            np.asarray(update, dtype=np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf
        )
        clipped = np.clip(values.ravel(), -self.coordinate_clip, self.coordinate_clip)
        lean = self.theta * (clipped / self.coordinate_clip)
        thresholds = ((0.5 + lean) * 2.0**64).astype(np.uint64)
        counts = np.zeros(thresholds.size, dtype=np.int64)
        for start in range(0, thresholds.size, _WORDS):
            part = slice(start, min(start + _WORDS, thresholds.size))
            for _ in range(self.trials):
                counts[part] += source.words(part.stop - part.start) < thresholds[part]
        return counts.reshape(values.shape)

    def decode(self, total_grid: npt.NDArray[np.int64], silos: int) -> npt.NDArray[np.float64]:
        """Unbiased estimate of the sum of the clipped updates of `silos` silos."""
        centred = np.asarray(total_grid, dtype=np.float64) - silos * self.trials / 2.0
        return np.asarray(centred * (self.coordinate_clip / (self.theta * self.trials)))

    def std_of_sum(self, silos: int) -> float:
        """The largest standard deviation of a decoded coordinate of the sum, gradient units (all
        updates zero).
        """
        return math.sqrt(silos / self.trials) * self.coordinate_clip / (2.0 * self.theta)

    def modulus_bits(self, silos: int) -> int:
        """The smallest ring that holds every possible sum of `silos` silos."""
        return (silos * self.trials).bit_length()
