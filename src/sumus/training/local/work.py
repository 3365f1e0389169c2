"""What a silo computes for a secure sum: its noised update, or the noisy counts of its test records
under a released model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np
import numpy.typing as npt
from torch import nn

from sumus.data import FederatedData, SiloRecords
from sumus.guarantee import NoiseDesign, SiloDesign
from sumus.purity import RecordLoss
from sumus.randomness import RandomSource
from sumus.training.evaluation import SecureMetrics
from sumus.training.local import local_updater
from sumus.training.local.update import LocalUpdate, in_round
from sumus.training.own_loss import own_loss
from sumus.training.preparation import prepare

__all__ = ["LocalWork"]


@final
class LocalWork:
    """One silo's records under one plan.

    Args:
        design: what is drawn.
        silo: the silo in the plan.
        records: the silo's own, behind the plan's feature map.
        model: as the plan names it.
        loss: given in Python, which the plan names.
    """

    def __init__(
        self,
        design: NoiseDesign,
        silo: SiloDesign,
        records: SiloRecords,
        model: nn.Module,
        loss: RecordLoss | None = None,
    ) -> None:
        self._design, self._model, self._test = design, model, records.test
        own = own_loss(design.plan, loss)
        self._update = local_updater(design, silo, records.train, model, loss=own)

    @classmethod
    def of_silo(cls, design: NoiseDesign, name: str, data: FederatedData) -> LocalWork:
        """The work of the silo of this name, from its own records."""
        prepared = prepare(design.plan, data)
        records = next(silo for silo in prepared.data.silos if silo.name == name)
        silo = next(silo for silo in design.silos if silo.name == name)
        return cls(design, silo, records, prepared.model)

    def update(
        self,
        parameters: npt.NDArray[np.float64],
        source: RandomSource,
        seeds: Sequence[bytes],
        number: int,
    ) -> LocalUpdate:
        """The update whose vector goes into the sum of round `number` (from 0), noise included, in
        grid steps; every call draws anew.
        """
        drawn = self._design.in_round(number)
        return in_round(self._update, self._design, drawn)(parameters, source, seeds)

    def counts(
        self, parameters: npt.NDArray[np.float64], source: RandomSource
    ) -> npt.NDArray[np.int64]:
        """The vector that goes into a sum that measures the model, noise included, in grid steps;
        every call draws anew.
        """
        return SecureMetrics(self._design).encode(self._model, parameters, self._test, source)
