"""`silo` and `fedavg`: plain local steps, of which the whole update is sent."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from sumus.data import Records
from sumus.gradients import PerRecordGradients
from sumus.guarantee import NoiseDesign, SiloDesign
from sumus.noise import Grid
from sumus.purity import InputKind, is_chain
from sumus.randomness import RandomSource
from sumus.tasks import Loss
from sumus.training.local.plain_steps import plain_steps
from sumus.training.local.update import LocalUpdate, clamp, require_dimension, same_silo
from sumus.training.models import flat_parameters
from sumus.training.noise import draw_noise

__all__ = ["UPDATER"]


@final
class WholeUpdate:
    """`silo` (algorithm 3 of Heikkilä 2025: noiseless SGD, the whole update clipped) and `fedavg` (the
    same without clip and noise).
    """

    algorithms: ClassVar = ("silo", "fedavg")
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
        require_dimension(design, len(flat_parameters(model)))
        self._design, self._silo, self._model = design, silo, model
        kind = InputKind.of(model, design.plan.training.vocabulary)
        self._x, self._y = kind.cast(torch.from_numpy(records.x)), torch.from_numpy(records.y)
        # a user's code that saw one silo's records could carry them to the next silo of this
        # process
        recorded = design.resolved.rules.private and not is_chain(model)
        vocabulary = design.plan.training.vocabulary
        self._recorded = (
            PerRecordGradients(model, loss=design.plan.task, vocabulary=vocabulary)
            if recorded
            else None
        )

    def in_round(self, design: NoiseDesign) -> WholeUpdate:
        """See `ByRound.in_round`."""
        moved = copy.copy(self)
        moved._design, moved._silo = design, same_silo(design, self._silo)
        return moved

    def __call__(
        self, parameters: npt.NDArray[np.float64], source: RandomSource, seeds: Sequence[bytes] = ()
    ) -> LocalUpdate:
        design, silo, training = self._design, self._silo, self._design.plan.training
        update = plain_steps(
            self._model,
            design.plan.task,
            parameters,
            self._x,
            self._y,
            steps=silo.local_steps,
            sampling_rate=silo.sampling_rate,
            learning_rate=silo.learning_rate,
            momentum=training.local_momentum,
            l2_penalty=training.l2_penalty,
            source=source,
            mean_gradient=self._recorded and self._recorded.mean,
        )
        taken = round(silo.local_steps * silo.sampling_rate * len(self._y))
        if not design.resolved.rules.private:
            return LocalUpdate(design.grid.encode_summed(update), records=taken)
        length = float(np.linalg.norm(update))
        if design.coins is not None:
            return LocalUpdate(
                design.coins.encode(update, source),
                records=taken,
                nonfinite=0 if np.isfinite(length) else taken,
            )
        if not np.isfinite(length):
            return LocalUpdate(
                draw_noise(design, silo, source=source, seeds=seeds), nonfinite=taken
            )
        integers = Grid(silo.clip_norm, silo.resolution).encode_truncated(update)
        bounded, clamped = clamp(integers, design.clamp_grid)
        noisy = bounded + draw_noise(design, silo, source=source, seeds=seeds)
        return LocalUpdate(
            noisy, records=taken, clipped=taken if length > silo.clip_norm else 0, saturated=clamped
        )


UPDATER = WholeUpdate
