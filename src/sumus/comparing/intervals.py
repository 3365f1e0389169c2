"""What the choice of test records leaves open, of measures and of their differences alike.

Test units (persons with all their rows) fall into G groups by a public draw. A measure θ is
computed without each group, and

    Var θ ≈ (G − 1)/G·Σ_g (θ_(−g) − mean)²        the grouped jackknife (Quenouille 1956)

holds for smooth measures: shares, R², mean errors, ranks (AUROC, c-index). The groups are the same
for every model, so that the interval of a difference is a paired one: what makes a test record hard
for all models drops out. A share is given at least the width of Wilson's interval, which a
jackknife without a single error does not see.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, final

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from sumus.data import Records
from sumus.randomness import RandomSource
from sumus.tasks import Measure, Measured, noisy_share

__all__ = ["Groups", "Replicates"]

_GROUPS: Final = 50
Floats = npt.NDArray[np.float64]


@final
@dataclass(frozen=True, eq=False)
class Replicates:
    """A measure of one model on all test units, and without each group of them."""

    value: float
    without: Floats

    def __sub__(self, other: Replicates) -> Replicates:
        return Replicates(self.value - other.value, self.without - other.without)

    @classmethod
    def mean(cls, several: Sequence[Replicates]) -> Self:
        """Of several models."""
        value = float(np.mean([each.value for each in several]))
        return cls(value, np.mean([each.without for each in several], axis=0))


@final
@dataclass(frozen=True, eq=False)
class Groups:
    """Test rows by group.

    Args:
        rows: of each group, what is left without it.
        units: test records, or persons.
    """

    rows: tuple[npt.NDArray[np.int64], ...]
    units: int

    @classmethod
    def of(cls, records: Records, source: RandomSource) -> Self:
        """Whole units, by a public draw."""
        groups = min(_GROUPS, records.units)
        order = np.argsort(source.uniforms(records.units), kind="stable")
        group = np.empty(records.units, dtype=np.int64)
        group[order] = np.arange(records.units) % max(groups, 1)
        of_row = np.repeat(group, records.rows_per_unit)
        return cls(tuple(np.flatnonzero(of_row != each) for each in range(groups)), records.units)

    def replicates(self, measured: Callable[[Any], float]) -> Replicates:
        """A measure as a function of rows: `slice(None)` is all of them."""
        whole = measured(slice(None))
        if len(self.rows) < 2:
            return Replicates(whole, np.full(1, whole))
        return Replicates(whole, np.array([measured(rows) for rows in self.rows]))

    def interval(self, found: Replicates, measure: Measure) -> Measured:
        """A measure with its half-width."""
        width = self._jackknife(found)
        if measure.is_share:
            wilson = noisy_share(
                (found.value - 0.5) * self.units, self.units, numerator_std=0.0, denominator_std=0.0
            )
            width = max(width, wilson.plus_minus or 0.0)
        return Measured(found.value, width)

    def difference(self, one: Replicates, other: Replicates, measure: Measure) -> Measured:
        """One model's measure minus another's, paired; shares that agree on every record still
        leave open what one more would do.
        """
        found = one - other
        width = self._jackknife(found)
        if measure.is_share:
            nothing = noisy_share(
                -0.5 * self.units, self.units, numerator_std=0.0, denominator_std=0.0
            )
            width = max(width, nothing.plus_minus or 0.0)
        return Measured(found.value, width)

    def _jackknife(self, found: Replicates) -> float:
        groups = len(found.without)
        if groups < 2:
            return math.inf
        spread = found.without - found.without.mean()
        variance = (groups - 1) / groups * float(spread @ spread)
        return float(stdtrit(groups - 1, 0.975)) * math.sqrt(variance)
