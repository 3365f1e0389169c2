"""`dp-sgd`, `single-step` and `split-noise`: private local steps, their integers added up."""

from __future__ import annotations

import copy
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
from sumus.training.local.update import LocalUpdate, clamp, require_dimension, same_silo
from sumus.training.local_parameters import LocalPart
from sumus.training.noise import draw_noise
from sumus.training.preconditioner import Preconditioner
from sumus.training.preparation import units_of
from sumus.training.sampling import poisson_batch

__all__ = ["UPDATER"]


@final
class NoisySteps:
    """`dp-sgd`, `single-step` and `split-noise`: S private steps, their integers added up
    (algorithm 2 of Heikkilä 2025).
    """

    algorithms: ClassVar = ("dp-sgd", "single-step", "split-noise")
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
        self._units = units_of(design.plan, records)
        self._local = LocalPart.of(design.plan, model)
        self._gradients = PerRecordGradients(
            self._local.model if self._local else model,
            loss=loss or design.plan.task,
            vocabulary=design.plan.training.vocabulary,
            device=design.plan.training.device,
        )
        self._preconditioner = Preconditioner.of(design.plan, model, self._x.shape[1:], loss=loss)
        kept = len(self._local.first) if self._local else 0
        require_dimension(design, self._gradients.dimension - kept, kept)

    def in_round(self, design: NoiseDesign) -> NoisySteps:
        """See `ByRound.in_round`."""
        moved = copy.copy(self)
        moved._design, moved._silo = design, same_silo(design, self._silo)
        return moved

    def __call__(
        self, parameters: npt.NDArray[np.float64], source: RandomSource, seeds: Sequence[bytes] = ()
    ) -> LocalUpdate:
        design, silo, training = self._design, self._silo, self._design.plan.training
        share, unsent = design.drawn_by(silo), design.state_noise
        step_length = training.learning_rate / design.resolved.divisor * design.grid.granularity
        state = np.asarray(parameters, dtype=np.float64)
        if self._local:  # from their public value, whatever the rounds before made of them
            state = self._local.joined(state)
        # a function of the released model, computed in front of the first record of the round
        mapped = None if self._preconditioner is None else self._preconditioner.at(parameters)
        velocity = np.zeros(len(state) if silo.local_steps > 1 else 1)
        released: npt.NDArray[Any] = np.zeros(0, dtype=np.int64)
        taken = clipped = nonfinite = saturated = 0
        noise_seconds = 0.0
        for step in range(silo.local_steps):
            # coins are the units': all rows of a person come along, or none
            chosen = poisson_batch(self._units.count, silo.sampling_rate, source)
            rows, units = self._units.take(chosen)
            batch = torch.from_numpy(rows)
            batch_sum = self._gradients.clipped_sum(
                torch.from_numpy(state),
                self._x[batch],
                self._y[batch],
                clip_norm=silo.clip_norm,
                resolution=silo.resolution,
                rounding=design.plan.noise.rounding,
                source=source,
                units=units,
                mapped=mapped,
            )
            gradient, clamped = clamp(batch_sum.integers.numpy(), design.clamp_grid)
            # no gradient is taken at the state after the last step
            another = step + 1 < silo.local_steps
            begin = time.perf_counter()
            noise = draw_noise(design, silo, source=source, seeds=seeds)
            if self._local:  # the state is noisy in all its numbers, sent or not
                whole = share.sample(len(gradient), source)
                whole[self._local.sent] = noise
                noise = whole
            noise += gradient
            noisy = noise
            hidden = unsent.sample(len(gradient), source) if another and unsent is not None else 0
            noise_seconds += time.perf_counter() - begin
            sent = noisy[self._local.sent] if self._local else noisy
            weight = design.step_weights[step]
            weighted = sent if weight == 1 else weight * sent
            if step == 0:
                released = weighted
            else:
                released += weighted
            if another:
                velocity = training.local_momentum * velocity + (noisy + hidden)
                rate = (
                    training.learning_rates[step] / training.learning_rate
                    if training.learning_rates
                    else 1.0
                )
                moved = velocity if mapped is None else mapped.transpose(velocity)
                state = state - step_length * rate * moved
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


UPDATER = NoisySteps
