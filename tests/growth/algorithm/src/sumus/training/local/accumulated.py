"""`accumulated`: noisy sums over several batches at the global model, added up."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, ClassVar, final

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from sumus.data import Records
from sumus.gradients import PerRecordGradients
from sumus.guarantee import NoiseDesign, SiloDesign
from sumus.randomness import RandomSource
from sumus.tasks import Loss
from sumus.training.local.update import LocalUpdate, clamp, require_dimension
from sumus.training.noise import draw_noise
from sumus.training.sampling import poisson_batch

__all__ = ["UPDATER"]


@final
class Accumulated:
    """Σ_s (g_s + ξ_s), every g_s at the global model."""

    algorithms: ClassVar = ("accumulated",)
    per_record: ClassVar = True

    def __init__(
        self,
        design: NoiseDesign,
        silo: SiloDesign,
        records: Records,
        model: nn.Module,
        *,
        loss: Loss | None = None,
    ) -> None:
        self._design, self._silo = design, silo
        self._x, self._y = torch.from_numpy(records.x), torch.from_numpy(records.y)
        self._gradients = PerRecordGradients(
            model, loss=loss or design.plan.task, vocabulary=design.plan.training.vocabulary
        )
        require_dimension(design, self._gradients.dimension)

    def __call__(
        self, parameters: npt.NDArray[np.float64], source: RandomSource, seeds: Sequence[bytes] = ()
    ) -> LocalUpdate:
        design, silo = self._design, self._silo
        model = torch.from_numpy(np.array(parameters, dtype=np.float64))
        released: npt.NDArray[Any] = np.zeros(
            len(parameters), dtype=np.int64 if design.share.discrete else np.float64
        )
        taken = clipped = nonfinite = saturated = 0
        noise_seconds = 0.0
        for _ in range(silo.local_steps):
            batch = torch.from_numpy(poisson_batch(len(self._y), silo.sampling_rate, source))
            batch_sum = self._gradients.clipped_sum(
                model,
                self._x[batch],
                self._y[batch],
                clip_norm=silo.clip_norm,
                resolution=silo.resolution,
                rounding=design.plan.noise.rounding,
                source=source,
            )
            gradient, clamped = clamp(batch_sum.integers.numpy(), design.clamp_grid)
            begin = time.perf_counter()
            released += gradient + draw_noise(design, silo, source=source, seeds=seeds)
            noise_seconds += time.perf_counter() - begin
            taken, clipped = taken + batch_sum.records, clipped + batch_sum.clipped
            nonfinite, saturated = nonfinite + batch_sum.nonfinite, saturated + clamped
        return LocalUpdate(
            released,
            records=taken,
            clipped=clipped,
            nonfinite=nonfinite,
            saturated=saturated,
            noise_seconds=noise_seconds,
        )


UPDATER = Accumulated
