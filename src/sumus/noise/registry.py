"""The laws that a plan can name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from sumus.errors import PlanError
from sumus.files import closest
from sumus.noise.discrete_gaussian import DiscreteGaussian
from sumus.noise.gaussian import Gaussian
from sumus.noise.laws import Law
from sumus.noise.skellam import Skellam

__all__ = ["LAWS", "noise_law"]

_LAWS: tuple[type[Law], ...] = (Skellam, DiscreteGaussian, Gaussian)

LAWS: Mapping[str, type[Law]] = MappingProxyType({law.name: law for law in _LAWS})
"""By `noise.mechanism`. Nothing outside this file adds to it, because ε rests on what a law says."""


def noise_law(name: str, variance_grid: float) -> Law:
    """The law of this name with a given variance (grid steps squared), never less."""
    if name not in LAWS:
        raise PlanError(
            "noise.mechanism", name, "must name an additive noise law", closest(name, tuple(LAWS))
        )
    return LAWS[name].of_variance(variance_grid)
