"""`describe`: in which cells a silo's records are, in whole numbers, one draw of noise."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt
from torch import nn

from sumus.data import Records
from sumus.errors import DataError
from sumus.guarantee import NoiseDesign, SiloDesign
from sumus.plan import cells_of
from sumus.randomness import RandomSource
from sumus.tasks import Loss
from sumus.training.local.update import LocalUpdate, clamp, require_dimension
from sumus.training.noise import draw_noise

__all__ = ["UPDATER"]


@final
class Describe:
    """`describe`: u steps for the cell of every value of every record, and noise.

    Guarantee: whatever a record holds, it adds u to at most one cell of each of m columns, L2 norm
        at most u·√m; a place that is no cell of its column adds nothing.
    """

    algorithms: ClassVar = ("describe",)
    per_record: ClassVar = False

    def __init__(
        self,
        design: NoiseDesign,
        silo: SiloDesign,
        records: Records,
        model: nn.Module,
        *,
        loss: Loss | None = None,
    ) -> None:
        self._design, self._silo, self._records = design, silo, records
        self._cells = cells_of(design.plan)
        require_dimension(design, sum(column.count for column in self._cells))
        if records.x.shape[1:] != (len(self._cells),):
            raise DataError(
                f"silo {silo.name} has records of shape {records.x.shape[1:]}, the plan describes "
                f"{len(self._cells)} columns. Load them by the plan."
            )

    def __call__(
        self, parameters: npt.NDArray[np.float64], source: RandomSource, seeds: Sequence[bytes] = ()
    ) -> LocalUpdate:
        design, silo = self._design, self._silo
        counts = np.zeros(design.resolved.coordinates, dtype=np.int64)
        for index, column in enumerate(self._cells):
            found = np.asarray(self._records.x[:, index])
            known = found[(found >= 0) & (found < column.count)].astype(np.int64)
            counts[column.place] = np.bincount(known, minlength=column.count)
        bounded, clamped = clamp(counts * silo.resolution, design.clamp_grid)
        begin = time.perf_counter()
        noise = draw_noise(design, silo, source=source, seeds=seeds)
        seconds = time.perf_counter() - begin
        return LocalUpdate(
            bounded + noise,
            records=len(self._records),
            saturated=clamped,
            noise_seconds=seconds,
        )


UPDATER = Describe
