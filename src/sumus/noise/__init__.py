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
    from sumus.noise.coins import PoissonBinomial as PoissonBinomial
    from sumus.noise.grid import (
        Grid as Grid,
        Rounding as Rounding,
        lift as lift,
        summation_slack_grid as summation_slack_grid,
        to_ring as to_ring,
    )
    from sumus.noise.laws import (
        DiscreteGaussian as DiscreteGaussian,
        DiscreteGaussianSum as DiscreteGaussianSum,
        Gaussian as Gaussian,
        IntegerNoise as IntegerNoise,
        Skellam as Skellam,
        noise_law as noise_law,
    )
    from sumus.noise.removable import component_shares as component_shares

__getattr__, __dir__, __all__ = door(
    __name__,
    coins="PoissonBinomial",
    grid="Grid Rounding lift summation_slack_grid to_ring",
    laws="DiscreteGaussian DiscreteGaussianSum Gaussian IntegerNoise Skellam noise_law",
    removable="component_shares",
)
