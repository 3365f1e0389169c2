"""The attacks' data in the form that noiseless passes allow: one draw of noise for all local steps.

Nothing local is noisy, so there is no state to write into the sum and no noise to forget; what is
left of both attacks is the shift that one pushing record makes, at most γC/b. The switching records
of attack A are there too. A convex pass takes both scaled to the norm bound; a tangent pass takes
records of any length, so they are as loud as the attack wants them, and what is stored of them has
to stay below the bounds. Passes know softmax and logistic regression here; least squares has no
bounded gradient without clipping and is not offered.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from sumus.guarantee import NoiseDesign
from sumus.paper.theorem.attacks import Draws
from sumus.paper.theorem.regression import LOGISTIC, Group, Integers, Regression
from sumus.randomness import RandomSource

__all__ = ["START", "ConvexAttack", "tangent_attack"]

START = 40.0  # here a pusher's residual is 1 − 4e-18: its gradient is as long as the bound allows
_PUSHERS, _SWITCHES = Group(1.0, 0, 4), Group(1.0, 1, 8)
_LOUD, _STEEP = 2.0**20, 2.0**60  # features of a tangent pass's pushers and switches


@final
@dataclass(frozen=True)
class ConvexAttack:
    """Attack A's records in a pass. `threshold` is the test on the sum, in standard deviations of
    its noise.

    The bins of a trial are not simulated one by one: at this start and step length a pass moves
        every residual by less than 2^-40, so
    that a pusher adds γC/b and a switch nothing, in whichever bin they fall (the tests compare with
    the silos' code).
    """

    design: NoiseDesign
    threshold: float
    name: str = "norm-bounded"
    regression: Regression = LOGISTIC
    first_weight: float = START
    pushers: Group = _PUSHERS
    switches: Group = _SWITCHES

    @property
    def _record_grid(self) -> float:
        """γC/b in grid steps: what one pusher adds, before the silo's one rounding."""
        silo, divisor = self.design.silos[0], self.design.resolved.divisor
        return silo.learning_rate * silo.clip_norm / divisor / self.design.grid.granularity

    @property
    def _total_std(self) -> float:
        return math.sqrt(self.design.share.variance_grid * len(self.design.silos))

    @property
    def separation(self) -> float:
        return self._record_grid / self._total_std

    def groups(self, silo: int, *, with_record: bool) -> tuple[Group, ...]:
        if silo > 0:
            return (self.pushers.times(1),)
        return (self.pushers.times(self.pushers.copies + int(with_record)), self.switches)

    def seen(self, total_grid: Integers) -> Integers:
        return total_grid[: self.design.resolved.dimension]

    def says_in(self, totals: Integers) -> npt.NDArray[np.bool_]:
        quiet = -self._record_grid * (self.pushers.copies + len(self.design.silos) - 1)
        return totals < quiet - self.threshold * self._total_std

    def draw(self, trials: int, source: RandomSource) -> Draws:
        rest = self.design.share.sum_of(len(self.design.silos)).sample(trials, source)
        return Draws(
            np.zeros((0, trials, 0), dtype=np.int64), None, np.asarray(rest, dtype=np.int64)
        )

    def totals(self, draws: Draws, *, with_record: bool) -> Integers:
        attacked = np.rint(-self._record_grid * (self.pushers.copies + int(with_record)))
        others = np.rint(-self._record_grid) * (len(self.design.silos) - 1)
        return np.asarray(draws.rest + int(attacked + others), dtype=np.int64)


def tangent_attack(design: NoiseDesign, threshold: float) -> ConvexAttack:
    """The same on a tangent pass, with pushers and switches far longer than its bound."""
    return ConvexAttack(
        design,
        threshold,
        name="norm-unbounded",
        pushers=Group(_LOUD, 0, _PUSHERS.copies),
        switches=Group(_STEEP, 1, _SWITCHES.copies),
    )
