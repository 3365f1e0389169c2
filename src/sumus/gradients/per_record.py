"""Clipped integer sums of per-record gradients, for any module that keeps its records apart.

    gradients = PerRecordGradients(model)
    step = gradients.clipped_sum(parameters, x, y, clip_norm=1.0, resolution=1 << 16)
    step.integers                                   # Σ_j trunc(r/C · clip_C(∇f_j)), int64

A batch is cut into chunks of a fixed number of records, which keep memory under a cap and give
every record the same kernels whatever its batch is; the last chunk is padded. `examination` chooses
the path and the size of a chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Final, final

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from sumus.errors import DataError, PlanError
from sumus.gradients.devices import PROCESSOR, require_device
from sumus.gradients.examination import ExaminedModel, made_up_parameters
from sumus.gradients.kernels import LARGEST_DIMENSION, SMALLEST_CLIP_NORM
from sumus.gradients.losses import OwnLoss
from sumus.gradients.parts import ChunkGradients, Outer, Part, Rows
from sumus.gradients.preconditioning import PublicMap
from sumus.gradients.totals import Totals
from sumus.gradients.unit_sums import UnitSums
from sumus.gradients.units import Units
from sumus.gradients.vmapped import VmapPath
from sumus.noise import Grid
from sumus.purity import (
    Form,
    InputKind,
    RecordLoss,
    bits_of,
    refuse_mixing_layers,
    require_precision,
)
from sumus.randomness import RandomSource
from sumus.tasks import TASKS, Loss

__all__ = ["GradientSum", "PerRecordGradients"]

_WORTH_A_THREAD: Final = 1 << 22  # coordinates a batch must have, about a millisecond of work
# bytes; what torch gives its own tensors, so that slices are read by the same instructions
_ALIGNMENT: Final = 64


@final
@dataclass(frozen=True)
class GradientSum:
    """The integer sum over one batch and what happened on the way. Only `integers` plus noise may
    leave the silo.

    Args:
        integers: Σ of clipped gradients in grid steps, flat, int64; C is `resolution` steps.
        clipped: records (units) whose gradient was longer than C.
        nonfinite: records (units) whose gradient held a NaN or an infinity and contributed zero.
        records: records (units) in the batch.
    """

    integers: torch.Tensor
    clipped: int
    nonfinite: int
    records: int


@final
class PerRecordGradients:
    """Per-record gradients of one model and loss, clipped, on the grid, summed.

    Guarantee: with rounding "record" adding or removing one record changes `integers` by an L2 norm
        of at most `resolution`, with "stochastic" by at most `Grid.sensitivity_grid(STOCHASTIC,
        d)`, with "sum" by at most resolution + √d +
        `summation_slack_grid(terms=float_sum_terms(records))`; and so one unit with all its rows
        where a batch is given in units. What a record (a unit) contributes never depends on others: a
        user's code is run on made-up records only and must be a pure
        function (`certified`), what was recorded of it runs on real ones, and its bits are verified
        on the machine at the first use for a record shape, or else computed one record at a time.

    Args:
        model: any module whose forward pass is a pure function of one record; parameters with
            `requires_grad` are the flat vector, in `parameters()` order.
        loss: a task, whose loss it is, or a function (outputs, y) → scalar that is called with one
            record.
        memory_cap_bytes: bounds what a chunk may hold.
        vocabulary: whole-numbered records lie in 0 … vocabulary − 1; omitted: read off the model's
            embeddings.
        device: that computes gradients; what becomes of them is computed on the processor.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        loss: Loss | RecordLoss = TASKS["classification"],
        memory_cap_bytes: int = 512 << 20,
        vocabulary: int | None = None,
        device: str = "cpu",
    ) -> None:
        refuse_mixing_layers(model)
        self._kind = InputKind.of(model, vocabulary)
        trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.dimension = sum(parameter.numel() for parameter in trainable)
        if self.dimension > LARGEST_DIMENSION:
            raise PlanError(
                "model",
                self.dimension,
                f"must have at most {LARGEST_DIMENSION} parameters",
                "Freeze some of them.",
            )
        self._dtype, self._model = require_precision(model), model
        self._loss = loss if isinstance(loss, Loss) else OwnLoss(loss)
        self._examined = ExaminedModel(
            model,
            self._loss,
            self._kind,
            memory_cap_bytes=memory_cap_bytes,
            device=require_device(device),
        )
        self._path = self._examined.path
        self.path = self._path.name

    def clipped_sum(
        self,
        parameters: torch.Tensor,
        x: torch.Tensor,
        y: torch.Tensor,
        *,
        clip_norm: float,
        resolution: int,
        rounding: str = "record",
        source: RandomSource | None = None,
        units: Units | None = None,
        mapped: PublicMap | None = None,
    ) -> GradientSum:
        """Σ_j round(r/C · clip_C(∇f_j)) over a batch, which may be empty; where units are made of
        several rows, Σ_p round(r/C · clip_C(Σ_j w_j·∇f_{p,j})) (`unit_sums`).

        Args:
            parameters: θ, flat, length `dimension`.
            x: records, first axis the batch.
            y: labels, as the loss stores them.
            clip_norm: C, gradient units.
            resolution: r, grid steps per clip norm.
            rounding: "record" truncates each record towards zero, "stochastic" rounds each record
                at random without bias, "sum" adds in float64 and truncates once.
            source: random bits for "stochastic".
            units: of the batch's rows; omitted: each is one.
            mapped: a public map P: clip_C(P·∇f_j) instead, and integers in the order of P.
        """
        grid = Grid(clip_norm, resolution)
        if clip_norm < SMALLEST_CLIP_NORM:
            raise PlanError(
                "clip_norm",
                clip_norm,
                f"must be at least {SMALLEST_CLIP_NORM:g}",
                "Measure gradients in a smaller unit.",
            )
        if rounding not in ("record", "stochastic", "sum"):
            raise PlanError(
                "rounding",
                rounding,
                'must be "record", "stochastic" or "sum"',
                "Check the spelling.",
            )
        if rounding == "stochastic" and source is None:
            raise PlanError(
                "source", None, 'must be given for rounding "stochastic"', "Pass a RandomSource."
            )
        if parameters.shape != (self.dimension,):
            rule = f"must be one vector of {self.dimension} numbers"
            raise PlanError(
                "parameters", tuple(parameters.shape), rule, "Use flat_parameters(model)."
            )
        if len(x) != len(y):
            raise DataError(
                f"x and y must have the same length, got {len(x)} and {len(y)}. Check the data set."
            )
        units = units or Units.single(len(x))
        if units.rows != len(x):
            raise DataError(f"units must group {len(x)} rows, got {units.rows}. Check the batch.")
        totals = Totals(self.dimension, grid=grid, rounding=rounding, source=source)
        if len(x):
            rows = self._cast(x.detach(), y)
            self._add_batch(parameters.detach().to(self._dtype), *rows, units, totals, mapped)
        integers = totals.integers()
        integers = integers if mapped is not None else self._path.restore(integers)
        return GradientSum(
            integers, clipped=totals.clipped, nonfinite=totals.nonfinite, records=units.count
        )

    def mean(self, parameters: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """The mean of the records' gradients as they are, for whole updates: by what runs in
        `clipped_sum`, no code of a user's.
        """
        chunk, _ = self._examined.chunk_for(self._kind.form(x, y))
        bound = self._path.bind(parameters.detach().to(self._dtype))
        x, y = self._cast(x.detach(), y)
        total, weights = (
            torch.zeros(self.dimension, dtype=torch.float64),
            np.full(chunk, 1.0 / max(len(x), 1)),
        )

        def add_all() -> None:
            for start in range(0, len(x), chunk):
                chunk_x, chunk_y = (_filled(rows[start : start + chunk], chunk) for rows in (x, y))
                place = 0
                for part in bound(chunk_x, chunk_y, ghost=False):
                    part.add_weighted(weights[: len(x) - start], total[place : place + part.size])
                    place += part.size

        self._examined.run([add_all])
        return self._path.restore(total).to(self._dtype)

    def parts_of(
        self, parameters: torch.Tensor, x: torch.Tensor, y: torch.Tensor
    ) -> list[tuple[int, Outer | Rows]]:
        """Stretches of made-up records' gradients with their places in the flat vector, for second
        moments; never called with a silo's records.
        """
        x, y = self._cast(x.detach(), y)
        chunk, _ = self._examined.chunk_for(self._kind.form(x, y))
        again = torch.arange(-(-len(x) // chunk) * chunk) % len(x)  # whole chunks of them
        x, y = x[again], y[again]
        caught = _Caught()
        bound = self._path.bind(parameters.detach().to(self._dtype), caught)

        def catch_all() -> None:
            for start in range(0, len(x), chunk):
                bound(x[start : start + chunk].clone(), y[start : start + chunk], ghost=False)

        self._examined.run([catch_all])
        return caught.parts

    def examine(self, form: Form) -> int:
        """The number of outputs for records of this form, after everything that could be refused
        about the model was looked at.
        """
        return self._examined.chunk_for(form)[1]

    def digest(self, x: torch.Tensor, y: torch.Tensor) -> bytes:
        """Of the function that gives records like these their gradients, and of the gradients' bits
        at made-up parameters.
        """
        x, y = self._cast(x.detach(), y)
        chunk = self._examined.chunk_for(self._kind.form(x, y))[0]
        rows = _filled(x[:chunk], chunk), _filled(y[:chunk], chunk)
        with torch.no_grad():
            compute = self._examined.computed_at(made_up_parameters(self._model))
            tensors = self._examined.run([lambda: compute(*rows)])[0]
        operators = self._path.digests() if isinstance(self._path, VmapPath) else []
        return b"".join([*operators, bits_of(tensors)])

    def _cast(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Records as the model takes them, labels as the loss does."""
        return self._kind.cast(x), y.to(getattr(torch, self._loss.label_type))

    def _add_batch(
        self,
        parameters: torch.Tensor,
        x: torch.Tensor,
        y: torch.Tensor,
        units: Units,
        totals: Totals,
        mapped: PublicMap | None,
    ) -> None:
        """Go through a batch on as many threads as pay."""
        self._loss.check(y.numpy()[:0], 1)  # their shape, before a model is tried with such labels
        chunk, outputs = self._examined.chunk_for(self._kind.form(x, y), mapped)
        self._loss.check(y.numpy(), outputs)
        large = (
            len(x) * self.dimension >= _WORTH_A_THREAD
            and totals.rounding == "record"
            and self.path != "vmap"
            and self._examined.device == PROCESSOR  # a device takes one chunk after the other
        )
        threads = torch.get_num_threads() if large else 1
        model, grouped = self._examined.linear, units.of_row is not None
        plain = not grouped and mapped is None
        in_one_pass = model and totals.rounding == "record" and chunk > 1 and plain
        linear = model.at(parameters) if model and in_one_pass else None
        if linear and threads == 1:
            # no tensors in between: nothing to record gradients of or to keep on one thread
            totals.add_linear(linear, x, y)
            return
        sums = [totals, *(totals.fresh() for _ in range(1, threads))]
        work: Sequence[Callable[[], None]]
        if linear:
            portions = zip(x.tensor_split(threads), y.tensor_split(threads), strict=True)
            work = [
                partial(thread_sum.add_linear, linear, *portion)
                for thread_sum, portion in zip(sums, portions, strict=True)
            ]
        else:
            bound = self._path.bind(
                parameters.clone() if parameters.data_ptr() % _ALIGNMENT else parameters, mapped
            )
            batch = _Batch(bound, x, y, units, chunk)
            work = batch.in_units(sums) if grouped else batch.in_rows(sums)
        self._examined.run(work)
        for thread_sum in sums[1:]:
            totals.merge(thread_sum)


@dataclass(frozen=True, eq=False)
class _Batch:
    """The rows of a batch in chunks of one size, for several threads."""

    gradients: ChunkGradients
    x: torch.Tensor
    y: torch.Tensor
    units: Units
    chunk: int

    def in_rows(self, sums: Sequence[Totals]) -> list[Callable[[], None]]:
        """Every row a record of its own: chunks in turn to each thread's sum."""
        starts = range(0, len(self.x), self.chunk)
        return [
            partial(self._add_rows, starts[first :: len(sums)], thread_sum)
            for first, thread_sum in enumerate(sums)
        ]

    def in_units(self, sums: Sequence[Totals]) -> list[Callable[[], None]]:
        """A thread has whole units."""
        portions = pairwise(self.units.portions(len(sums)))
        return [
            partial(self._add_units, begin, end, thread_sum)
            for (begin, end), thread_sum in zip(portions, sums, strict=True)
        ]

    def _add_rows(self, starts: Sequence[int], totals: Totals) -> None:
        ghost = totals.rounding == "sum"
        for start in starts:
            totals.add(self._parts(start, ghost=ghost), min(self.chunk, len(self.x) - start))

    def _add_units(self, begin: int, end: int, totals: Totals) -> None:
        sums = UnitSums(totals, self.units)
        for start in range(begin, end, self.chunk):
            sums.add(self._parts(start, ghost=False), start, min(self.chunk, end - start))
        sums.finish()

    def _parts(self, start: int, *, ghost: bool) -> list[Part]:
        """Of the chunk that begins there; the last one of a batch is filled up with zero records
        that are not counted.
        """
        rows = slice(start, start + self.chunk)
        chunk_x, chunk_y = _filled(self.x[rows], self.chunk), _filled(self.y[rows], self.chunk)
        return self.gradients(chunk_x, chunk_y, ghost=ghost)


@final
class _Caught:
    """A map that changes nothing and keeps what it is given."""

    def __init__(self) -> None:
        self.parts: list[tuple[int, Outer | Rows]] = []

    def part(self, start: int, part: Outer | Rows) -> Outer | Rows:
        self.parts.append((start, part))
        return part

    def transpose(self, released: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return released


def _filled(part: torch.Tensor, chunk: int) -> torch.Tensor:
    """A chunk of full length (zero records are added and not counted) that begins where kernels
    like it to.
    """
    if len(part) < chunk:
        return torch.cat([part, part.new_zeros(chunk - len(part), *part.shape[1:])])
    return part.clone() if part.data_ptr() % _ALIGNMENT else part
