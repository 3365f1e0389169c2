"""Noise that is exact in a ring of integers: laws, samplers, the grid and the ring.

`laws` says what a law is, and a file has one law each: `skellam`, `discrete_gaussian`, and
`gaussian`, continuous, for simulations. `registry` names them. The object that is accounted is the
object that is drawn from. `coins` is the Poisson-binomial mechanism; `sampler` and `kernel` draw;
`grid` is the only place where real numbers become grid steps; `removable` splits a share into parts
that can be taken back; `norms` bounds how long a vector of noise is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.noise.coins import PoissonBinomial as PoissonBinomial
    from sumus.noise.discrete_gaussian import DiscreteGaussian as DiscreteGaussian
    from sumus.noise.gaussian import Gaussian as Gaussian
    from sumus.noise.grid import (
        Grid as Grid,
        Rounding as Rounding,
        lift as lift,
        summation_slack_grid as summation_slack_grid,
        to_ring as to_ring,
    )
    from sumus.noise.laws import (
        Draws as Draws,
        Law as Law,
        Orders as Orders,
        RenyiCurve as RenyiCurve,
        Values as Values,
    )
    from sumus.noise.norms import noise_norm_bound as noise_norm_bound
    from sumus.noise.registry import LAWS as LAWS, noise_law as noise_law
    from sumus.noise.removable import component_shares as component_shares
    from sumus.noise.sampler import LogConcaveNoise as LogConcaveNoise
    from sumus.noise.skellam import Skellam as Skellam

__getattr__, __dir__, __all__ = door(
    __name__,
    coins="PoissonBinomial",
    discrete_gaussian="DiscreteGaussian",
    gaussian="Gaussian",
    grid="Grid Rounding lift summation_slack_grid to_ring",
    laws="Draws Law Orders RenyiCurve Values",
    norms="noise_norm_bound",
    registry="LAWS noise_law",
    removable="component_shares",
    sampler="LogConcaveNoise",
    skellam="Skellam",
)
