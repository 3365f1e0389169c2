"""How many numbers second moments have, and how they lie in a round's sum.

    one matrix         (x·xᵀ, x·yᵀ) of all records       f(f + 1)/2 + f·K numbers
    a matrix a class   x·xᵀ of the records of each        2·f(f + 1)/2 numbers, for two classes

A symmetric matrix is its upper triangle, row by row; the last feature is the bias feature.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self, final

from sumus.errors import PlanError

__all__ = ["LARGEST_MOMENTS", "MomentShape"]

LARGEST_MOMENTS = 1 << 25
"""Numbers of a sum of moments: a quarter of a gigabyte a silo, 8,000 features."""


@final
@dataclass(frozen=True)
class MomentShape:
    """What a sum of moments holds.

    Args:
        features: f, bias included.
        outputs: K, rows of weights of the linear model.
        matrices: one for all records, or one for the records of each class.
    """

    features: int
    outputs: int
    matrices: int = 1

    def __post_init__(self) -> None:
        if self.count > LARGEST_MOMENTS:
            rule = (
                f"must fit {self.features:,} features: a sum of {self.count:,} numbers is more "
                f"than {LARGEST_MOMENTS:,} (normal-equations)"
            )
            fix = 'Use "convex-pass", or fewer columns.'
            raise PlanError("training.algorithm", "normal-equations", rule, fix)

    @classmethod
    def of(cls, coordinates: int, dimension: int, matrices: int) -> Self:
        """The shape of so many moments for a linear model with so many parameters; one that cannot
        be is refused.

        Args:
            matrices: as the task has them (`Task.moment_matrices`).
        """
        if matrices > 1:
            features, outputs = dimension, 1
        else:  # f(f + 1)/2 = D − d and K = d/f
            features = (math.isqrt(8 * max(coordinates - dimension, 0) + 1) - 1) // 2
            outputs = dimension // max(features, 1)
        if features < 1 or outputs < 1 or cls(features, outputs, matrices).count != coordinates:
            numbers = "f(f + 1)" if matrices > 1 else "f(f + 1)/2 + f·K"
            rule = f"must be {numbers} for a model of f·K = {dimension} parameters"
            raise PlanError(
                "training.coordinates", coordinates, rule, "Omit it to have it counted."
            )
        if features * outputs != dimension:
            rule = f"must be f·K for f(f + 1)/2 + f·K = {coordinates} moments"
            raise PlanError("training.dimension", dimension, rule, "Omit it to have it counted.")
        return cls(features, outputs, matrices)

    @property
    def triangle(self) -> int:
        """Numbers of one symmetric matrix."""
        return self.features * (self.features + 1) // 2

    @property
    def targets(self) -> int:
        """Rows of Σ y·xᵀ; none where every class has a matrix, whose bias column says the same."""
        return self.outputs if self.matrices == 1 else 0

    @property
    def count(self) -> int:
        """D: numbers of the sum."""
        return self.matrices * self.triangle + self.targets * self.features
