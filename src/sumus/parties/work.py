"""What a silo computes when it is asked, bound to its records and opened when it is first needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from sumus.data import FeaturesFor, FederatedData
from sumus.parties.agreement import Agreement
from sumus.plan import TrainingPlan
from sumus.randomness import RandomSource

if TYPE_CHECKING:
    from sumus.training import LocalUpdate

__all__ = ["LoadData", "OpenWork", "WatchUpdate", "Work", "work_on"]


class Work(Protocol):
    """What one silo computes, bound to its records."""

    def update(
        self,
        parameters: npt.NDArray[np.float64],
        source: RandomSource,
        seeds: Sequence[bytes],
        number: int,
    ) -> LocalUpdate:
        """The answer to the model of round `number` (from 0); only its vector may leave, and only
        through a sum.
        """
        ...

    def counts(
        self, parameters: npt.NDArray[np.float64], source: RandomSource
    ) -> npt.NDArray[np.int64]:
        """Noisy counts of test records under a released model."""
        ...


class LoadData(Protocol):
    """A plan and the silo's name to the silo's own records, or to features that are kept instead of
    them; the plan's paths are ignored.
    """

    def __call__(
        self, plan: TrainingPlan, silo: str, *, features: FeaturesFor | None = None
    ) -> FederatedData: ...


OpenWork = Callable[[Agreement, str], Work]
"""An agreement and the silo's name to what it computes; loads its records."""
WatchUpdate = Callable[[int, "LocalUpdate", float], None]
"""Told a silo's place, its update and the seconds it took; simulation only."""


def work_on(load: LoadData) -> OpenWork:
    """Work on the records that `load` finds; torch is loaded with them."""

    def open_work(agreement: Agreement, name: str) -> Work:
        from sumus.training import LocalWork, kept_features

        data = load(agreement.plan, name, features=kept_features(agreement.plan))
        return LocalWork.of_silo(agreement.design, name, data)

    return open_work
