"""The task's measures: in the clear for simulations, or through a secure sum with noise of its own.

Secure metrics are of the model that a round released. They are a secure sum by themselves, after
the round's: every silo counts over its test records and adds its share of noise. What that costs a
test record is in `sumus.guarantee.counts` and in the account.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, final

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from sumus.data import Records
from sumus.errors import GuaranteeError
from sumus.gradients import one_thread_each, record_loss
from sumus.guarantee import (
    NoiseDesign,
    NormGate,
    clamp_of,
    count_noise,
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
from sumus.tasks import Metrics, Task
from sumus.training.models import flat_parameters
from sumus.training.preparation import require_persons

__all__ = ["SecureMetrics", "evaluate", "evaluate_each", "outputs_of"]

_COUNTED = 4096  # records whose counts are in memory at once
_TOGETHER = 4096  # records whose outputs are computed at once, where no guarantee covers them


def evaluate(
    model: nn.Module,
    parameters: npt.NDArray[np.float64],
    records: Records,
    *,
    task: Task,
    chunk: int = _TOGETHER,
    vocabulary: int | None = None,
) -> Metrics:
    """The task's measures of a model on records, in the clear; a person's rows weigh 1 together."""
    if not len(records):
        return Metrics({}, 0)
    scores = _scores(task, model, parameters, records, vocabulary=vocabulary, chunk=chunk)
    weights = None if records.persons is None else records.weights("mean")
    return task.metrics(*scores, weights=weights)


def evaluate_each(
    asked: Sequence[tuple[nn.Module, Records]],
    parameters: npt.NDArray[np.float64],
    *,
    task: Task,
    vocabulary: int | None = None,
) -> list[Metrics]:
    """`evaluate` for each model and its records; chains of torch's own layers on every core."""
    work = [
        partial(evaluate, model, parameters, records, task=task, vocabulary=vocabulary)
        for model, records in asked
    ]
    if all(is_chain(model) for model, _ in asked):
        return one_thread_each(work)
    return [piece() for piece in work]  # examined first, which takes every core by itself


def outputs_of(
    model: nn.Module,
    x: npt.NDArray[np.float32 | np.int64],
    *,
    task: Task,
    vocabulary: int | None = None,
) -> torch.Tensor:
    """The outputs of a model for one record or more, as `evaluate` computes them.

    Args:
        x: records behind the plan's features.
        task: whose loss a module of one's own is examined with.
    """
    blank = np.zeros((len(x), *task.label_shape), dtype=task.label_type)
    parameters = flat_parameters(model).double().numpy()

    def told(outputs: _Outputs, part: torch.Tensor, _: torch.Tensor) -> list[torch.Tensor]:
        return [outputs.outputs(part)]

    (outputs,) = _in_chunks(
        told, task, model, parameters, Records(x, blank), vocabulary=vocabulary, chunk=_TOGETHER
    )
    return outputs


def one_row_each(records: Records, source: RandomSource) -> Records:
    """One row of every person, drawn uniformly with secret coins; records of nobody as they are.

    What is counted of the drawn row is on average the mean over the person's rows, and no longer
    than what is counted of one record.
    """
    if records.persons is None:
        return records
    counts, place = records.rows_per_unit, np.zeros(records.units, dtype=np.int64)
    for count in np.unique(counts).tolist():
        with_so_many = np.flatnonzero(counts == count)
        place[with_so_many] = source.below(count, len(with_so_many))
    rows = records.edges[:-1] + place
    return Records(records.x[rows], records.y[rows])


@dataclass(frozen=True)
class _Outputs:
    """A model at its parameters, for chunks of records; `fixed`: for chunks of exactly that
    many.
    """

    task: Task
    outputs: Callable[[torch.Tensor], torch.Tensor]
    chunk: int
    fixed: bool

    def measure(self, x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        """What the task measures of each record."""
        outputs = self.outputs(x)
        self.task.check(y.numpy(), outputs.shape[1])
        return list(self.task.scores(outputs, y))


@dataclass(frozen=True)
class _Model:
    """A model at its parameters and the kind of records that it takes."""

    task: Task
    model: nn.Module
    weights: Mapping[str, torch.Tensor]
    kind: InputKind
    form: Form

    def outputs(self, chunk: int) -> _Outputs:
        """Of chunks of so many records; a user's own module is measured as it is trained: by what
        was recorded of it.
        """
        if is_chain(self.model):
            return _Outputs(self.task, self._direct, chunk, fixed=False)
        examine(self.model, self.kind, self.form, record_loss(self.task))
        recorded = certified_logits(self.model, self.kind, self.form, chunk=min(chunk, CHUNK))
        return _Outputs(
            self.task, lambda x: recorded(self.weights, x)["logits"], recorded.chunk, fixed=True
        )

    def isolated_outputs(self) -> _Outputs:
        """In chunks of one size in which a record gives the same bits in any place and company
        (verified on this machine, else one by one): then adding a record changes nothing about the
        others.
        """
        outputs = replace(self.outputs(CHUNK), fixed=True)
        made_up = self.kind.records(outputs.chunk, self.form)
        labels = torch.zeros(
            outputs.chunk, *self.form.labels, dtype=getattr(torch, self.task.label_type)
        )
        isolated = is_isolated(outputs.measure, made_up, labels, company=self.kind.company())
        return outputs if isolated else self.outputs(1)

    def plain_outputs(self, chunk: int) -> _Outputs:
        """For numbers that no guarantee covers: without privacy any module may be trained, and is
        then measured in batches.
        """
        try:
            return self.outputs(chunk)
        except GuaranteeError:
            return _Outputs(self.task, self._direct, chunk, fixed=False)

    def _direct(self, x: torch.Tensor) -> torch.Tensor:
        return call_with(self.model, self.weights, x)


def _scores(
    task: Task,
    model: nn.Module,
    parameters: npt.NDArray[np.float64],
    records: Records,
    *,
    vocabulary: int | None = None,
    chunk: int | None = None,
) -> list[npt.NDArray[Any]]:
    """What the task measures of each record.

    Args:
        chunk: records at once, where a record may see its company in the last bits; None: where it
            must not.
    """
    columns = _in_chunks(
        _Outputs.measure, task, model, parameters, records, vocabulary=vocabulary, chunk=chunk
    )
    return [column.numpy() for column in columns]


def _in_chunks(
    told: Callable[[_Outputs, torch.Tensor, torch.Tensor], list[torch.Tensor]],
    task: Task,
    model: nn.Module,
    parameters: npt.NDArray[np.float64],
    records: Records,
    *,
    vocabulary: int | None,
    chunk: int | None,
) -> list[torch.Tensor]:
    """What is told of each record, given a chunk of them and their labels; `chunk`: see
    `_scores`.
    """
    kind = InputKind.of(model, vocabulary)
    stored, y = torch.from_numpy(records.x), torch.from_numpy(records.y)
    weights = named_parameters(model, torch.tensor(parameters, dtype=kind.dtype))
    measured = _Model(task, model, weights, kind, kind.form(stored, y))
    with torch.no_grad():
        outputs = measured.isolated_outputs() if chunk is None else measured.plain_outputs(chunk)
        padding = -len(y) % outputs.chunk if outputs.fixed else 0
        x = kind.cast(stored)
        if padding:
            x = torch.cat([x, x.new_zeros(padding, *x.shape[1:])])
            y = torch.cat([y, y.new_zeros(padding, *y.shape[1:])])
        starts = range(0, len(x), outputs.chunk)
        parts = [
            told(outputs, x[start : start + outputs.chunk], y[start : start + outputs.chunk])
            for start in starts
        ]
    return [torch.cat(column)[: len(records)] for column in zip(*parts, strict=True)]


@final
@dataclass(frozen=True)
class SecureMetrics:
    """A task's counts with noise, per silo and measured model."""

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
        """One silo's vector of a measuring sum: its noisy counts in front, zeros behind.

        Guarantee: one record, or one person with all rows where persons are the unit, adds a vector
            of at most `CountShape.l2_grid`, for whichever row of a person is drawn.
        """
        plan, length, most = self.design.plan, self._length, clamp_of(self.design.plan)
        totals = np.zeros(length, dtype=np.int64)
        if len(records) and plan.protects_persons:
            require_persons(records)
            records = one_row_each(records, source)
        if len(records):
            scores = _scores(
                plan.task, model, parameters, records, vocabulary=plan.training.vocabulary
            )
            for start in range(0, len(records), _COUNTED):
                part = (score[start : start + _COUNTED] for score in scores)
                totals += plan.task.count(*part).sum(axis=0)
        totals = plan.task.of_silo(totals)
        noise = self.share.sample(length, source).astype(np.int64)
        vector = np.zeros(sum_length(self.design.resolved), dtype=np.int64)
        vector[:length] = np.clip(totals, -most, most) + noise
        return vector

    def refusal(
        self, total_grid: npt.NDArray[np.int64] | npt.NDArray[np.float64], survivors: int
    ) -> str | None:
        """Why the sum of `survivors` silos' vectors cannot be honest ones'; None if it can."""
        return NormGate(self.design).counts_refusal(total_grid, survivors)

    def decode(
        self, total_grid: npt.NDArray[np.int64] | npt.NDArray[np.float64], survivors: int
    ) -> Metrics:
        """The task's measures from the sum of `survivors` silos' vectors."""
        return decoded_counts(self.design.plan, total_grid[: self._length], contributors=survivors)

    @property
    def _length(self) -> int:
        return self.design.plan.task.counts.length
