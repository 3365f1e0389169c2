"""Noise that is exact in a ring of integers: laws, samplers, the grid and the ring.

`laws` has one object per law; the object that is accounted is the object that is drawn from.
Laws: `skellam`, `discrete_gaussian` (and the continuous Gaussian of simulations); `coins` is the
Poisson-binomial mechanism; `sampler` and `kernel` draw; `grid` is the only place where real numbers
become grid steps; `removable` splits a share into parts that can be taken back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.noise.coins import PoissonBinomial
    from sumus.noise.grid import Grid, Rounding, lift, summation_slack_grid, to_ring
    from sumus.noise.laws import (
        DiscreteGaussian,
        DiscreteGaussianSum,
        Gaussian,
        IntegerNoise,
        Skellam,
        noise_law,
    )
    from sumus.noise.removable import component_shares

__all__ = [
    "DiscreteGaussian",
    "DiscreteGaussianSum",
    "Gaussian",
    "Grid",
    "IntegerNoise",
    "PoissonBinomial",
    "Rounding",
    "Skellam",
    "component_shares",
    "lift",
    "noise_law",
    "summation_slack_grid",
    "to_ring",
]

__getattr__, __dir__ = door(
    __name__,
    coins="PoissonBinomial",
    grid="Grid Rounding lift summation_slack_grid to_ring",
    laws="DiscreteGaussian DiscreteGaussianSum Gaussian IntegerNoise Skellam noise_law",
    removable="component_shares",
)
