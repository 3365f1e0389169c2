"""`newton`: a silo's second moments and clipped gradients in exact integers, one draw of noise."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from sumus.data import Records
from sumus.errors import PlanError
from sumus.gradients import PerRecordGradients, add_moments
from sumus.guarantee import NoiseDesign, SiloDesign, newton_parts
from sumus.randomness import RandomSource
from sumus.tasks import Loss
from sumus.training.local.update import LocalUpdate, clamp, require_dimension
from sumus.training.noise import draw_noise
from sumus.training.preparation import units_of

__all__ = ["UPDATER"]


@final
class Newton:
    """`newton`: (Σ trunc(r_m·x·xᵀ/R²), Σ trunc(r_g·clip_C(∇f)/C)) over the silo's records or
    persons, and noise.

    The moments are the same in every round, so they are added up once; noise is drawn anew.
    """

    algorithms: ClassVar = ("newton",)
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
        self._shape = design.resolved.moments
        self._parts = newton_parts(design.resolved, silo.resolution)
        flat = records.x.reshape(len(records), math.prod(records.x.shape[1:]))
        x = np.ascontiguousarray(flat, dtype=np.float32)
        if x.shape[1] != self._shape.features:
            rule = f"must be that of {x.shape[1]} features, bias included"
            fix = "Omit it to have it counted."
            raise PlanError("training.coordinates", self._shape.count, rule, fix)
        design.plan.task.check(records.y, self._shape.outputs)
        self._x, self._y = torch.from_numpy(x), torch.from_numpy(records.y)
        self._units = units_of(design.plan, records)
        self._gradients = PerRecordGradients(model, loss=loss or design.plan.task)
        require_dimension(design, self._gradients.dimension)
        self._moments = self._added(records, x)

    def __call__(
        self, parameters: npt.NDArray[np.float64], source: RandomSource, seeds: Sequence[bytes] = ()
    ) -> LocalUpdate:
        design, silo = self._design, self._silo
        everybody = np.arange(self._units.count)
        rows, units = self._units.take(everybody)
        batch = torch.from_numpy(rows)
        step = self._gradients.clipped_sum(
            torch.from_numpy(np.array(parameters, dtype=np.float64)),
            self._x[batch],
            self._y[batch],
            clip_norm=design.plan.training.clip_norm,
            resolution=self._parts.gradient,
            rounding="record",
            source=source,
            units=units,
        )
        whole = np.concatenate([self._moments, step.integers.numpy()])
        bounded, clamped = clamp(whole, design.clamp_grid)
        begin = time.perf_counter()
        noise = draw_noise(design, silo, source=source, seeds=seeds)
        seconds = time.perf_counter() - begin
        return LocalUpdate(
            bounded + noise,
            records=step.records,
            clipped=step.clipped,
            nonfinite=step.nonfinite,
            saturated=clamped,
            noise_seconds=seconds,
        )

    def _added(self, records: Records, x: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
        """Σ trunc(r_m·x·xᵀ/R²) over all units."""
        plan = self._design.plan
        moments = np.zeros(self._shape.triangle, dtype=np.int64)
        add_moments(
            x,
            np.zeros((len(x), 0)),
            np.zeros(len(x), dtype=np.int64),
            records.edges,
            records.weights(plan.data.person_weighting, plan.rows_per_person),
            1,
            plan.training.feature_bound**2,
            self._parts.matrix,
            moments,
        )
        return moments


UPDATER = Newton
