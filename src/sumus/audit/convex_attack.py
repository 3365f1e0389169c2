"""The attacks' data in the form that a convex pass allows: records of bounded norm, noiseless local steps, one draw of noise.

Nothing local is noisy, so there is no state to write into the sum and no noise to forget; what is left of both attacks is the shift that
one pushing record makes, at most γC/b. The switching records of attack A are there too, scaled to the norm bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from sumus.audit.attacks import Draws
from sumus.data.silos import Records
from sumus.design import NoiseDesign
from sumus.randomness import RandomSource

__all__ = ["ConvexAttack"]

_PUSHERS, _SWITCHES = 4, 8
_START = 40.0  # here a pusher's residual is 1 − 4e-18: its gradient is as long as the bound allows


@final
@dataclass(frozen=True)
class ConvexAttack:
    """Attack A's records at the norm bound. `threshold` is the test on the sum, in standard deviations of its noise.

    The bins of a trial are not simulated one by one: at this start and step length a pass moves every residual by less than 2^-40, so
    that a pusher adds γ/b and a switch nothing, in whichever bin they fall (the tests compare with the silos' code).
    """

    design: NoiseDesign
    threshold: float
    name: str = "both, within the norm bound"

    @property
    def _record_grid(self) -> float:
        """γC/b in grid steps: what one pusher adds, before the silo's one rounding."""
        training = self.design.plan.training
        return self.design.silos[0].learning_rate * training.feature_bound / (training.divisor or 1.0) / self.design.grid.granularity

    @property
    def _total_std(self) -> float:
        return math.sqrt(self.design.share.variance_grid * len(self.design.silos))

    @property
    def separation(self) -> float:
        return self._record_grid / self._total_std

    @property
    def first_parameters(self) -> npt.NDArray[np.float64]:
        return np.array([_START])

    def records(self, *, with_record: bool) -> list[Records]:
        pushers = _PUSHERS + int(with_record)
        x = np.ones((pushers + _SWITCHES, 1), dtype=np.float32)
        y = np.concatenate([np.zeros(pushers, dtype=np.int64), np.ones(_SWITCHES, dtype=np.int64)])
        other = Records(np.ones((1, 1), dtype=np.float32), np.zeros(1, dtype=np.int64))
        return [Records(x, y)] + [other] * (len(self.design.silos) - 1)

    def _quiet(self) -> float:
        return -self._record_grid * (_PUSHERS + len(self.design.silos) - 1)

    def says_in(self, totals: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        return totals < self._quiet() - self.threshold * self._total_std

    def draw(self, trials: int, source: RandomSource) -> Draws:
        rest = self.design.share.sum_of(len(self.design.silos)).sample(trials, source)
        return Draws(np.zeros((0, trials, 0), dtype=np.int64), None, np.asarray(rest, dtype=np.int64))

    def totals(self, draws: Draws, *, with_record: bool) -> npt.NDArray[np.int64]:
        attacked = np.rint(-self._record_grid * (_PUSHERS + int(with_record)))
        others = np.rint(-self._record_grid) * (len(self.design.silos) - 1)
        return np.asarray(draws.rest + int(attacked + others), dtype=np.int64)
