"""How a vector is hidden: noise is added to it (`AdditiveNoise`), or coins are tossed (`Coins`)."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, final

import numpy as np
import numpy.typing as npt

from sumus.guarantee.claims import Claim
from sumus.guarantee.coins import coin_log_ratio, coin_release
from sumus.guarantee.exactness import Inexactness, breach_of, inexactness_of_draws
from sumus.guarantee.layout import SiloDesign
from sumus.noise import LAWS, Law, PoissonBinomial
from sumus.plan import TrainingPlan

if TYPE_CHECKING:
    from sumus.guarantee.design import NoiseDesign

__all__ = ["AdditiveNoise", "Coins", "Mechanism", "draws_are_exact"]


def draws_are_exact(plan: TrainingPlan) -> bool:
    """Whether what is drawn is proved to have its declared law: floating-point draws are not."""
    law = LAWS.get(plan.noise.mechanism)
    return law is None or law.discrete


class Mechanism(Protocol):
    """What becomes of a silo's vector, and what is proved for it."""

    @property
    def can_wrap(self) -> bool:
        """Whether noise may carry a sum over the ring's end, with a probability that is bounded."""
        ...

    @property
    def composes_in_searches(self) -> bool:
        """Whether the best of several runs can be accounted for."""
        ...

    @property
    def share_std_grid(self) -> float | None:
        """Standard deviation of an equal share of noise, grid steps; None where none is added."""
        ...

    @property
    def local_multiplier(self) -> float:
        """Noise of one silo with an equal share, in clip norms."""
        ...

    def noise_norm(self, survivors: int) -> float:
        """√(d·Var) of the noise in the decoded sum of so many silos."""
        ...

    def decode(self, total_grid: npt.NDArray[Any], survivors: int) -> npt.NDArray[np.float64]:
        """The sum of so many silos in real units."""
        ...

    def claims(self, silo: SiloDesign, *, known: int = 0) -> tuple[Claim, ...]:
        """What can be claimed for a record of one silo.

        Args:
            known: counted silos whose noise the adversary knows after all.
        """
        ...

    def inexactness(self) -> Inexactness:
        """Of all that is drawn in all rounds and protects a record."""
        ...


@final
class AdditiveNoise:
    """Every silo adds a draw of its share of a law."""

    composes_in_searches = True

    def __init__(self, design: NoiseDesign) -> None:
        self._design = design

    @property
    def can_wrap(self) -> bool:
        return self._typical_share.discrete

    @property
    def _typical_share(self) -> Law:
        """An equal share of the plan's own noise, whatever the ratios of its rounds."""
        return self._design.share_at(1.0)

    @property
    def share_std_grid(self) -> float:
        return math.sqrt(self._typical_share.variance_grid)

    @property
    def local_multiplier(self) -> float:
        return self.share_std_grid / self._design.grid.resolution

    def noise_norm(self, survivors: int) -> float:
        design = self._design
        weights2 = sum(weight**2 for weight in design.step_weights[: design.queries_per_round])
        variance = survivors * design.share.variance_grid * weights2
        return math.sqrt(design.resolved.coordinates * variance) * design.grid.granularity

    def decode(self, total_grid: npt.NDArray[Any], survivors: int) -> npt.NDArray[np.float64]:
        granularity = self._design.grid.granularity
        decoded: npt.NDArray[np.float64] = np.multiply(total_grid, granularity, dtype=np.float64)
        return decoded

    def claims(self, silo: SiloDesign, *, known: int = 0) -> tuple[Claim, ...]:
        return self._design.algorithm.claims(self._design.setting(silo, known=known))

    def inexactness(self) -> Inexactness:
        design, plan = self._design, self._design.plan
        contributors = design.resolved.contributors
        shown = design.algorithm.noisy_coordinates(design.resolved)
        # of each silo of a person the earlier steps are seen by themselves
        silos = plan.privacy.silos_per_person if plan.protects_persons else 1
        draws = max(contributors, silos)
        if plan.noise.removable:  # with j silos missing every honest one keeps j + 1 components
            honest, dropouts = plan.least_invited - plan.colluding, plan.federation.dropouts
            kept = max((honest - missing) * (missing + 1) for missing in range(dropouts + 1))
            draws = max(draws, kept)
        drawn = Inexactness(breach=breach_of(plan))
        for share, rounds in design.shares_of_rounds:
            coordinates = float(rounds * shown)
            drawn += inexactness_of_draws(
                share,
                contributors,
                sums=coordinates * design.queries_per_round,
                draws_per_sum=draws,
            )
            unsent = design.state_noise_beside(share)
            if unsent is not None:  # the last step of a round draws none
                drawn += inexactness_of_draws(
                    unsent,
                    1,
                    sums=coordinates * (design.queries_per_round - 1),
                    draws_per_sum=max(contributors, silos),
                )
        return drawn


@final
class Coins:
    """Every silo sends numbers of tossed coins in place of its clipped coordinates."""

    can_wrap = False  # the ring holds all coins that there are
    composes_in_searches = False
    share_std_grid = None

    def __init__(self, design: NoiseDesign, coins: PoissonBinomial) -> None:
        self._design, self._coins = design, coins

    @property
    def local_multiplier(self) -> float:
        return self._coins.std_of_sum(1) / self._design.plan.training.clip_norm

    def noise_norm(self, survivors: int) -> float:
        return math.sqrt(self._design.resolved.dimension) * self._coins.std_of_sum(survivors)

    def decode(self, total_grid: npt.NDArray[Any], survivors: int) -> npt.NDArray[np.float64]:
        return self._coins.decode(np.asarray(total_grid, dtype=np.int64), survivors)

    def claims(self, silo: SiloDesign, *, known: int = 0) -> tuple[Claim, ...]:
        everybody, alone = self._design.algorithm.statements
        counted = {everybody: self._design.resolved.contributors - known, alone: 1}
        return tuple(
            Claim(
                name=statement.name,
                release=partial(coin_release, self._design.resolved, contributors=silos),
                proved=True,
                statement=statement.text,
            )
            for statement, silos in counted.items()
        )

    def inexactness(self) -> Inexactness:
        resolved = self._design.resolved
        return Inexactness(log_ratio=coin_log_ratio(resolved), breach=breach_of(resolved.plan))
