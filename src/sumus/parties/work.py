"""What a silo computes for a secure sum: its noised update, or the noisy counts of its test records
under a released model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np
import numpy.typing as npt

from sumus.data import FederatedData
from sumus.guarantee import padded, sum_length
from sumus.parties.agreement import Agreement
from sumus.randomness import RandomSource
from sumus.training import SecureMetrics, local_updater, prepare

__all__ = ["LocalWork"]


@final
class LocalWork:
    """One silo's records under one plan.

    Args:
        agreement: the plan that the silo has agreed to.
        name: of the silo.
        data: the silo's own records.
    """

    def __init__(self, agreement: Agreement, name: str, data: FederatedData) -> None:
        self._design = agreement.design
        bench = prepare(agreement.plan, data)
        records = next(silo for silo in bench.data.silos if silo.name == name)
        own = next(silo for silo in self._design.silos if silo.name == name)
        self._model, self._test = bench.model, records.test
        self._update = local_updater(self._design, own, records.train, bench.model)

    def vector(
        self, parameters: npt.NDArray[np.float64], source: RandomSource, seeds: Sequence[bytes]
    ) -> npt.NDArray[np.int64]:
        """The vector that goes into a round's sum, noise included, in grid steps; every call draws
        anew.
        """
        vector = np.asarray(self._update(parameters, source, seeds).vector, dtype=np.int64)
        return padded(vector, sum_length(self._design.resolved))

    def counts(
        self, parameters: npt.NDArray[np.float64], source: RandomSource
    ) -> npt.NDArray[np.int64]:
        """The vector that goes into a sum that measures the model, noise included, in grid steps;
        every call draws anew.
        """
        return SecureMetrics(self._design).encode(self._model, parameters, self._test, source)
