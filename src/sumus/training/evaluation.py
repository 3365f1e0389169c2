"""Accuracy and loss: in the clear for simulations, or through the secure sum with noise of their own.

Secure metrics ride on the model's vector: three more coordinates (correct records, records, clipped loss of the silo's test records under
the model that the round started from), with their own noise. What they cost a test record is in `sumus.secure_counts` and in the account.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

from sumus.data.silos import Records
from sumus.design import NoiseDesign
from sumus.errors import DataError
from sumus.mechanism.noise import Gaussian, IntegerNoise
from sumus.randomness import RandomSource
from sumus.secure_counts import COUNT_RESOLUTION, METRIC_COORDINATES, count_noise
from sumus.training.isolation import is_isolated
from sumus.training.plain_steps import named_parameters
from sumus.training.stateless import call_with

__all__ = ["LOSS_CAP", "Metrics", "SecureMetrics", "evaluate"]

LOSS_CAP = 4.0
"""A record's loss is counted up to this many nats in secure metrics."""
_ISOLATED_CHUNK = 64


@final
@dataclass(frozen=True)
class Metrics:
    """Accuracy and mean loss over some test records."""

    accuracy: float
    loss: float
    records: int


def evaluate(model: nn.Module, parameters: npt.NDArray[np.float64], records: Records, *, chunk: int = 4096) -> Metrics:
    """Accuracy and mean cross-entropy of a model on records, in the clear."""
    if not len(records):
        return Metrics(math.nan, math.nan, 0)
    correct, loss = _per_record(model, parameters, records, chunk)
    return Metrics(float(correct.mean()), float(loss.mean()), len(records))


def _per_record(
    model: nn.Module, parameters: npt.NDArray[np.float64], records: Records, chunk: int, *, isolated: bool = False
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.float64]]:
    """Whether each record is classified rightly, and its loss.

    Args:
        isolated: compute in chunks of one size in which a record gives the same bits in any place and company (verified on this
            machine, else one by one): then adding a record changes nothing about the others.
    """
    named = named_parameters(model, torch.tensor(parameters, dtype=next(model.parameters()).dtype))
    x, y = torch.from_numpy(records.x), torch.from_numpy(records.y)

    def measure(chunk_x: torch.Tensor, chunk_y: torch.Tensor) -> list[torch.Tensor]:
        logits = call_with(model, named, chunk_x)
        if logits.shape[1] == 1:
            losses = functional.binary_cross_entropy_with_logits(logits[:, 0], chunk_y.to(logits.dtype), reduction="none")
            return [(logits[:, 0] > 0).long() == chunk_y, losses]
        if int(y.max()) >= logits.shape[1]:
            raise DataError(f"labels must lie in 0 … {logits.shape[1] - 1}, got {int(y.max())}. Recode them.")
        return [logits.argmax(1) == chunk_y, functional.cross_entropy(logits, chunk_y, reduction="none")]

    with torch.no_grad():
        if isolated:
            made_up = torch.randn(_ISOLATED_CHUNK, *x.shape[1:], generator=torch.Generator().manual_seed(0), dtype=x.dtype)
            chunk = _ISOLATED_CHUNK if is_isolated(measure, made_up, torch.zeros(_ISOLATED_CHUNK, dtype=torch.long)) else 1
            padding = -len(x) % chunk
            x, y = torch.cat([x, x.new_zeros(padding, *x.shape[1:])]), torch.cat([y, y.new_zeros(padding)])
        found = [measure(x[start : start + chunk], y[start : start + chunk]) for start in range(0, len(x), chunk)]
    correct, losses = (torch.cat(column)[: len(records)].numpy() for column in zip(*found, strict=True))
    return correct, losses.astype(np.float64)


@final
@dataclass(frozen=True)
class SecureMetrics:
    """Three noisy coordinates per silo and round."""

    design: NoiseDesign

    @property
    def share(self) -> IntegerNoise | Gaussian:
        """The law that one silo adds to each of its metric coordinates."""
        return count_noise(self.design.plan)

    def encode(
        self, model: nn.Module, parameters: npt.NDArray[np.float64], records: Records, source: RandomSource
    ) -> npt.NDArray[np.int64]:
        """One silo's noisy counts: correct, records, and clipped loss in units of LOSS_CAP."""
        totals = np.zeros(METRIC_COORDINATES, dtype=np.int64)
        if len(records):
            correct, loss = _per_record(model, parameters, records, 4096, isolated=True)
            capped = np.floor(np.clip(np.nan_to_num(loss, nan=LOSS_CAP), 0.0, LOSS_CAP) / LOSS_CAP * COUNT_RESOLUTION)
            totals[:] = correct.sum() * COUNT_RESOLUTION, len(records) * COUNT_RESOLUTION, int(capped.sum())
        return np.asarray(totals + self.share.sample(METRIC_COORDINATES, source).astype(np.int64))

    def decode(self, total_grid: Sequence[int] | npt.NDArray[np.int64]) -> Metrics:
        """Accuracy and capped mean loss from the summed counts."""
        correct, records, loss = (float(value) / COUNT_RESOLUTION for value in total_grid)
        records = max(records, 1.0)
        return Metrics(min(max(correct / records, 0.0), 1.0), max(loss * LOSS_CAP / records, 0.0), round(records))
