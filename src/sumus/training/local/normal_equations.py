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
from sumus.gradients import ONE, add_moments, centred_moments
from sumus.guarantee import NoiseDesign, SiloDesign, centred_bounds
from sumus.randomness import RandomSource
from sumus.tasks import Loss
from sumus.training.local.update import LocalUpdate, clamp
from sumus.training.noise import draw_noise

__all__ = ["UPDATER"]


@final
class NormalEquations:
    """`normal-equations`: Σ trunc(r/C·(x·xᵀ, x·yᵀ)) over the silo's records or persons, and noise.

    Guarantee: labels are those of the task (checked), so that a row adds to a matrix that is there.
    """

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
        shape, task, data = design.resolved.moments, design.plan.task, design.plan.data
        flat = records.x.reshape(len(records), math.prod(records.x.shape[1:]))
        self._centred = bool(design.resolved.local_dimension)
        flat = flat[:, :-1] if self._centred else flat  # about the silo's mean there is no bias
        self._x = np.ascontiguousarray(flat, dtype=np.float32)
        if self._x.shape[1] != shape.features:
            rule = f"must be that of {self._x.shape[1]} features, bias included"
            raise PlanError(
                "training.coordinates", shape.count, rule, "Omit it to have it counted."
            )
        task.check(records.y, shape.outputs)
        self._edges = records.edges
        self._weights = records.weights(data.person_weighting, design.plan.rows_per_person)
        if task.class_weights:  # at most 1, so lengths only shrink
            self._weights = self._weights * np.array(task.class_weights)[records.y]
        if shape.matrices > 1:
            self._matrix = np.ascontiguousarray(records.y, dtype=np.int64)
            self._targets = np.zeros((len(records), 0))
        else:
            self._matrix = np.zeros(len(records), dtype=np.int64)
            targets = task.targets(records.y, shape.outputs)
            self._targets = np.ascontiguousarray(targets, dtype=np.float64)
        self._shape = shape

    def __call__(
        self, parameters: npt.NDArray[np.float64], source: RandomSource, seeds: Sequence[bytes] = ()
    ) -> LocalUpdate:
        design, silo = self._design, self._silo
        moments, shortened, nonfinite = self._about_the_mean() if self._centred else self._added()

        bounded, clamped = clamp(moments, design.clamp_grid)
        begin = time.perf_counter()
        noise = draw_noise(design, silo, source=source, seeds=seeds)
        seconds = time.perf_counter() - begin
        return LocalUpdate(
            bounded + noise,
            records=len(self._edges) - 1,
            clipped=shortened,
            nonfinite=nonfinite,
            saturated=clamped,
            noise_seconds=seconds,
        )

    def _added(self) -> tuple[npt.NDArray[np.int64], int, int]:
        """The moments of all units, and how many rows were shortened or not finite."""
        moments = np.zeros(self._shape.count, dtype=np.int64)
        shortened, nonfinite = add_moments(
            self._x,
            self._targets,
            self._matrix,
            self._edges,
            self._weights,
            self._shape.matrices,
            self._silo.clip_norm,
            self._silo.resolution,
            moments,
        )
        return moments, shortened, nonfinite

    def _about_the_mean(self) -> tuple[npt.NDArray[np.int64], int, int]:
        """The moments about the silo's own mean."""
        radius, target = centred_bounds(self._design.resolved)
        moments = centred_moments(
            self._x,
            self._targets,
            np.floor(self._weights * ONE).astype(np.int64),
            radius=radius,
            target_bound=target,
            per_unit=self._silo.resolution / self._silo.clip_norm,
        )
        return moments, 0, 0


UPDATER = NormalEquations
