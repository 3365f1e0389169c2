"""The attacks' data in the form that `newton` allows: one sum of second moments and gradients.

A round has one step at a public model, so no state carries noise and none is forgotten; what is left
of both attacks is the shift that one pushing record makes in moments and gradient together. A record
of coordinate j shows in the j-th diagonal entry of the moments by r_m and in the j-th gradient by
c ≤ r_g, so the best that an adversary can look at is, in each coordinate,

    r_m·(diagonal) + c·(gradient)      separation √(r_m² + c²)/σ ≤ r/σ

Records are far longer than the bound and the clip norm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from sumus.guarantee import NoiseDesign, newton_parts
from sumus.paper.theorem.attacks import Draws
from sumus.paper.theorem.convex_attack import START
from sumus.paper.theorem.regression import LOGISTIC, Group, Integers, Regression
from sumus.randomness import RandomSource

__all__ = ["NewtonAttack"]

_PUSHERS, _SWITCHES = Group(2.0**20, 0, 4), Group(2.0**30, 1, 8)


@final
@dataclass(frozen=True)
class NewtonAttack:
    """Attack A's records in one sum. `threshold` is the test on what is seen, in standard
    deviations of its noise.
    """

    design: NoiseDesign
    threshold: float
    name: str = "moments and gradient"
    regression: Regression = LOGISTIC
    first_weight: float = START

    @property
    def _matrix_grid(self) -> int:
        """r_m: what any record adds to its diagonal entry."""
        return newton_parts(self.design.resolved, self.design.grid.resolution).matrix

    @property
    def _gradient_grid(self) -> int:
        """c: what a pusher adds to its gradient; a switch adds nothing at this model."""
        parts = newton_parts(self.design.resolved, self.design.grid.resolution)
        found = self.regression.gradient_grid(
            [_PUSHERS.times(1)], np.full(1, self.first_weight), parts.gradient
        )
        return int(found[0])

    @property
    def _record(self) -> int:
        """What one pusher adds to what is seen."""
        return self._matrix_grid**2 + self._gradient_grid**2

    @property
    def _total_std(self) -> float:
        """Of the noise in what is seen."""
        variance = self.design.share.variance_grid * len(self.design.silos)
        return math.sqrt(variance * self._record)

    @property
    def separation(self) -> float:
        return self._record / self._total_std

    def groups(self, silo: int, *, with_record: bool) -> tuple[Group, ...]:
        if silo > 0:
            return (_PUSHERS.times(1),)
        return (_PUSHERS.times(_PUSHERS.copies + int(with_record)), _SWITCHES)

    def seen(self, total_grid: Integers) -> Integers:
        moments = self.design.resolved.moments
        places = np.arange(moments.features)
        diagonal = total_grid[places * moments.features - places * (places - 1) // 2]
        gradient = total_grid[moments.triangle :][: moments.features]
        return np.asarray(self._matrix_grid * diagonal + self._gradient_grid * gradient)

    def says_in(self, totals: Integers) -> npt.NDArray[np.bool_]:
        return totals > self._quiet + self.threshold * self._total_std

    @property
    def _quiet(self) -> int:
        """What is seen without the record and without noise."""
        pushers = _PUSHERS.copies + len(self.design.silos) - 1
        return self._record * pushers + self._matrix_grid**2 * _SWITCHES.copies

    def draw(self, trials: int, source: RandomSource) -> Draws:
        law = self.design.share.sum_of(len(self.design.silos))
        diagonal, gradient = (
            np.asarray(law.sample(trials, source), dtype=np.int64) for _ in range(2)
        )
        rest = self._matrix_grid * diagonal + self._gradient_grid * gradient
        return Draws(np.zeros((0, trials, 0), dtype=np.int64), None, rest)

    def totals(self, draws: Draws, *, with_record: bool) -> Integers:
        record = self._record if with_record else 0
        return np.asarray(draws.rest + (self._quiet + record), dtype=np.int64)
