"""`describe`: in which cells a silo's records are, in whole numbers, one draw of noise."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, ClassVar, final

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

    A person's rows share its u steps: c of m rows in one cell are trunc(u·c/m) steps there, under
    "sum" trunc(u·c/M).

    Guarantee: whatever a record or a person's rows hold, they add at most u to the cells of each of
        m columns together, L2 norm at most u·√m; a place that is no cell of its column adds nothing.
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
        data = design.plan.data
        # refuses a person with more rows than count
        records.weights(data.person_weighting, design.plan.rows_per_person)
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
            counts[column.place] = self._counted(self._records.x[:, index], column.count)
        bounded, clamped = clamp(counts, design.clamp_grid)
        begin = time.perf_counter()
        noise = draw_noise(design, silo, source=source, seeds=seeds)
        seconds = time.perf_counter() - begin
        return LocalUpdate(
            bounded + noise,
            records=len(self._records),
            saturated=clamped,
            noise_seconds=seconds,
        )

    def _counted(self, found: npt.NDArray[Any], cells: int) -> npt.NDArray[np.int64]:
        """Grid steps of every cell of one column."""
        records, unit = self._records, self._silo.resolution
        places = np.asarray(found)
        known = (places >= 0) & (places < cells)
        if records.persons is None:
            return unit * np.bincount(places[known].astype(np.int64), minlength=cells)
        pairs = records.persons[known] * cells + places[known].astype(np.int64)
        of_person, rows = np.unique(pairs, return_counts=True)
        plan = self._design.plan
        among = (
            np.full(len(rows), plan.rows_per_person)
            if plan.data.person_weighting == "sum"
            else records.rows_per_unit[of_person // cells]
        )
        out = np.zeros(cells, dtype=np.int64)
        np.add.at(out, of_person % cells, unit * rows // among)
        return out


UPDATER = Describe
