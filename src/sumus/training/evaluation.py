"""Accuracy and loss: in the clear for simulations, or through a secure sum with noise of their own.

Secure metrics are of the model that a round released. They are a secure sum by themselves, after
the round's: every silo counts over its test records and adds its share of noise. What that costs a
test record is in `sumus.guarantee.counts` and in the account.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

from sumus.data import Records
from sumus.errors import DataError, GuaranteeError
from sumus.gradients import cross_entropy
from sumus.guarantee import (
    METRIC_COORDINATES,
    NoiseDesign,
    clamp_of,
    count_noise,
    counts_of,
    decoded_counts,
    sum_length,
)
from sumus.noise import Law
from sumus.purity import (
    CHUNK,
    Form,
    InputKind,
    call_with,
    certified_logits,
    examine,
    is_chain,
    is_isolated,
    named_parameters,
)
from sumus.randomness import RandomSource

__all__ = ["Metrics", "SecureMetrics", "evaluate"]


@final
@dataclass(frozen=True)
class Metrics:
    """Accuracy and mean loss over some test records.

    Args:
        accuracy_plus_minus: half-width of its 95 % interval, noise and sampling error included;
            None where accuracy is exact.
        loss_plus_minus: likewise.
    """

    accuracy: float
    loss: float
    records: int
    accuracy_plus_minus: float | None = None
    loss_plus_minus: float | None = None


def evaluate(
    model: nn.Module,
    parameters: npt.NDArray[np.float64],
    records: Records,
    *,
    chunk: int = 4096,
    vocabulary: int | None = None,
) -> Metrics:
    """Accuracy and mean cross-entropy of a model on records, in the clear."""
    if not len(records):
        return Metrics(math.nan, math.nan, 0)
    correct, loss = _per_record(model, parameters, records, vocabulary=vocabulary, chunk=chunk)
    return Metrics(float(correct.mean()), float(loss.mean()), len(records))


@dataclass(frozen=True)
class _Outputs:
    """A model at its parameters, for chunks of records; `fixed`: for chunks of exactly that
    many.
    """

    logits: Callable[[torch.Tensor], torch.Tensor]
    chunk: int
    fixed: bool

    def measure(self, x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        """Whether each record is classified rightly, and its loss."""
        logits = self.logits(x)
        if logits.shape[1] == 1:
            losses = functional.binary_cross_entropy_with_logits(
                logits[:, 0], y.to(logits.dtype), reduction="none"
            )
            return [(logits[:, 0] > 0).long() == y, losses]
        if len(y) and int(y.max()) >= logits.shape[1]:
            raise DataError(
                f"labels must lie in 0 … {logits.shape[1] - 1}, got {int(y.max())}. Recode them."
            )
        return [logits.argmax(1) == y, functional.cross_entropy(logits, y, reduction="none")]


@dataclass(frozen=True)
class _Model:
    """A model at its parameters and the kind of records that it takes."""

    model: nn.Module
    weights: Mapping[str, torch.Tensor]
    kind: InputKind
    form: Form

    def outputs(self, chunk: int) -> _Outputs:
        """Of chunks of so many records; a user's own module is measured as it is trained: by what
        was recorded of it.
        """
        if is_chain(self.model):
            return _Outputs(self._direct, chunk, fixed=False)
        examine(self.model, self.kind, self.form, cross_entropy)
        recorded = certified_logits(self.model, self.kind, self.form, chunk=min(chunk, CHUNK))
        return _Outputs(lambda x: recorded(self.weights, x)["logits"], recorded.chunk, fixed=True)

    def isolated_outputs(self) -> _Outputs:
        """In chunks of one size in which a record gives the same bits in any place and company
        (verified on this machine, else one by one): then adding a record changes nothing about the
        others.
        """
        outputs = replace(self.outputs(CHUNK), fixed=True)
        made_up = self.kind.records(outputs.chunk, self.form)
        labels = torch.zeros(outputs.chunk, dtype=torch.long)
        isolated = is_isolated(outputs.measure, made_up, labels, company=self.kind.company())
        return outputs if isolated else self.outputs(1)

    def plain_outputs(self, chunk: int) -> _Outputs:
        """For numbers that no guarantee covers: without privacy any module may be trained, and is
        then measured in batches.
        """
        try:
            return self.outputs(chunk)
        except GuaranteeError:
            return _Outputs(self._direct, chunk, fixed=False)

    def _direct(self, x: torch.Tensor) -> torch.Tensor:
        return call_with(self.model, self.weights, x)


def _per_record(
    model: nn.Module,
    parameters: npt.NDArray[np.float64],
    records: Records,
    *,
    vocabulary: int | None = None,
    chunk: int | None = None,
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.float64]]:
    """Whether each record is classified rightly, and its loss.

    Args:
        chunk: records at once, where a record may see its company in the last bits; None: where it
            must not.
    """
    kind = InputKind.of(model, vocabulary)
    stored, y = torch.from_numpy(records.x), torch.from_numpy(records.y)
    weights = named_parameters(model, torch.tensor(parameters, dtype=kind.dtype))
    measured = _Model(model, weights, kind, kind.form(stored))
    with torch.no_grad():
        outputs = measured.isolated_outputs() if chunk is None else measured.plain_outputs(chunk)
        padding = -len(y) % outputs.chunk if outputs.fixed else 0
        x = kind.cast(stored)
        x = torch.cat([x, x.new_zeros(padding, *x.shape[1:])])
        y = torch.cat([y, y.new_zeros(padding)])
        starts = range(0, len(x), outputs.chunk)
        parts = [
            outputs.measure(x[start : start + outputs.chunk], y[start : start + outputs.chunk])
            for start in starts
        ]
    correct, losses = (
        torch.cat(column)[: len(records)].numpy() for column in zip(*parts, strict=True)
    )
    return correct & ~np.isnan(losses), losses.astype(np.float64)


@final
@dataclass(frozen=True)
class SecureMetrics:
    """Three noisy counts per silo and measured model."""

    design: NoiseDesign

    @property
    def share(self) -> Law:
        """The law that one silo adds to each of its counts."""
        return count_noise(self.design.plan)

    def encode(
        self,
        model: nn.Module,
        parameters: npt.NDArray[np.float64],
        records: Records,
        source: RandomSource,
    ) -> npt.NDArray[np.int64]:
        """One silo's vector of a measuring sum: its noisy counts in front, zeros behind."""
        plan = self.design.plan
        totals = np.zeros(METRIC_COORDINATES, dtype=np.int64)
        if len(records):
            totals = counts_of(
                *_per_record(model, parameters, records, vocabulary=plan.training.vocabulary)
            )
        most = clamp_of(plan)
        vector = np.zeros(sum_length(self.design.resolved), dtype=np.int64)
        vector[:METRIC_COORDINATES] = np.clip(totals, -most, most) + self.share.sample(
            METRIC_COORDINATES, source
        ).astype(np.int64)
        return vector

    def decode(
        self, total_grid: npt.NDArray[np.int64] | npt.NDArray[np.float64], survivors: int
    ) -> Metrics:
        """Accuracy and capped mean loss from the sum of `survivors` silos' vectors."""
        counted = decoded_counts(
            self.design.plan, total_grid[:METRIC_COORDINATES], contributors=survivors
        )
        accuracy, loss = counted.accuracy, counted.loss
        return Metrics(
            accuracy.value, loss.value, round(counted.records), accuracy.plus_minus, loss.plus_minus
        )
