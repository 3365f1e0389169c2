"""`normal-equations`: a silo's second moments in exact integers, one draw of noise."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt
from torch import nn

from sumus.data import Records
from sumus.errors import PlanError
from sumus.gradients import add_moments
from sumus.guarantee import NoiseDesign, SiloDesign
from sumus.plan import moment_shape
from sumus.randomness import RandomSource
from sumus.tasks import Loss
from sumus.training.local.update import LocalUpdate, clamp
from sumus.training.noise import draw_noise

__all__ = ["UPDATER"]


@final
class NormalEquations:
    """`normal-equations`: Σ trunc(r/C·(x·xᵀ, x·yᵀ)) over the silo's records, and noise."""

    algorithms: ClassVar = ("normal-equations",)
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
        self._design, self._silo = design, silo
        resolved, task = design.resolved, design.plan.task
        flat = records.x.reshape(len(records), math.prod(records.x.shape[1:]))
        self._x = np.ascontiguousarray(flat, dtype=np.float32)
        features, outputs = moment_shape(resolved.coordinates, resolved.dimension)
        if self._x.shape[1] != features:
            rule = f"must be that of {self._x.shape[1]} features, bias included"
            raise PlanError(
                "training.coordinates", resolved.coordinates, rule, "Omit it to have it counted."
            )
        task.check(records.y, outputs)
        self._targets = np.ascontiguousarray(task.targets(records.y, outputs), dtype=np.float64)

    def __call__(
        self, parameters: npt.NDArray[np.float64], source: RandomSource, seeds: Sequence[bytes] = ()
    ) -> LocalUpdate:
        design, silo = self._design, self._silo
        moments = np.zeros(design.resolved.coordinates, dtype=np.int64)
        shortened, nonfinite = add_moments(
            self._x, self._targets, silo.clip_norm, silo.resolution, moments
        )
        bounded, clamped = clamp(moments, design.clamp_grid)
        begin = time.perf_counter()
        noise = draw_noise(design, silo, source=source, seeds=seeds)
        seconds = time.perf_counter() - begin
        return LocalUpdate(
            bounded + noise,
            records=len(self._x),
            clipped=shortened,
            nonfinite=nonfinite,
            saturated=clamped,
            noise_seconds=seconds,
        )


UPDATER = NormalEquations
