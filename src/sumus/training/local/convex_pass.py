"""The noiseless local pass of `convex-pass`: softmax, logistic or Huber regression on records of
bounded norm, one step per bin.

    θ ← Π_W[(1 − γλ)·θ − (γ/b)·min(1, cap/|bin|)·Σ_{j ∈ bin} ∇f_j(θ)],   Π_W the projection onto the ball of radius W
    ∇f_p = Σ_j w_j·∇f_{p,j}, Σ_j w_j ≤ 1, where a unit p has several rows (`Units`); |bin| counts units
    ∇f_j = (p − y_j) ⊗ x_j,   p maximises ⟨p, logits⟩ + entropy(p) over all p with p_{y_j} ≥ 1 − t

With t = 1 (no cap) p is the softmax. A cap t below 1 bounds the gradient by C = √2·t·R as clipping
would, and unlike clipping it leaves the loss convex and as smooth as it was: a record's loss grows
no faster than t times its margin. Huber's residual is x·θ − y_j cut off at ±t: C = t·R, β = R².

Guarantee: every ‖x_j‖ ≤ R (checked) and cap = ⌊(2/γ − λ)·b/β⌋ make each step non-expansive, so one
    record moves the result by at most γC/b per pass, or twice that if its own bin holds more than
    cap records (co-coercivity; docs/mathematics.md). All arithmetic is float64; what its rounding
    can add is part of the sensitivity (`guarantee/algorithms/convex_pass.py`). Records within the public
    bounds never stop a pass, however large the weights would grow without the projection. An
    intercept that stays with the silo (`training.local_parameters`) is the column of the bias
    feature: the pass moves it with the others, from zero in every round, and leaves it out of what
    is sent; a part of a vector moves no further than the whole.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Sequence
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt
from torch import nn

from sumus.data import Records
from sumus.errors import DataError, GuaranteeError, PlanError
from sumus.gradients import Units, row_norms2, run_pass
from sumus.guarantee import LARGEST_WEIGHT_NORM, NoiseDesign, SiloDesign, convex_bounds
from sumus.randomness import RandomSource
from sumus.tasks import Link, Loss, Task
from sumus.training.local.update import LocalUpdate, clamp, require_dimension, same_silo
from sumus.training.noise import draw_noise
from sumus.training.preparation import units_of

__all__ = ["UPDATER", "convex_pass"]


@final
class ConvexPass:
    """`convex-pass`: a noiseless non-expansive pass, one draw of noise for the whole update."""

    algorithms: ClassVar = ("convex-pass",)
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
        self._bounds = convex_bounds(design.resolved, silo.learning_rate)
        flat = records.x.reshape(len(records), math.prod(records.x.shape[1:]))
        self._x = np.ascontiguousarray(flat, dtype=np.float32)
        self._y, self._units = records.y, units_of(design.plan, records)
        self._link: Link | None = None
        task = design.plan.task
        rows = task.expand(self._x, self._y)
        if rows is not None:
            self._units, self._link = self._units.expanded(rows), rows.link
            self._x, self._y = np.ascontiguousarray(rows.x, dtype=np.float32), rows.y
        width = self._x.shape[1]
        numbers = design.resolved.dimension + design.resolved.local_dimension
        outputs = task.linear_outputs(design.plan.training.model, round(numbers / width))
        # the column of the bias feature
        kept = 0 if design.plan.training.local_parameters is None else 1
        self._sent = width - kept
        require_dimension(design, outputs * self._sent, outputs * kept)

    def in_round(self, design: NoiseDesign) -> ConvexPass:
        """See `ByRound.in_round`."""
        moved = copy.copy(self)
        moved._design, moved._silo = design, same_silo(design, self._silo)
        moved._bounds = convex_bounds(design.resolved, moved._silo.learning_rate)
        return moved

    def __call__(
        self, parameters: npt.NDArray[np.float64], source: RandomSource, seeds: Sequence[bytes] = ()
    ) -> LocalUpdate:
        design, silo, training = self._design, self._silo, self._design.plan.training
        sent = np.asarray(parameters, dtype=np.float64).reshape(-1, self._sent)
        # what stays here starts from zero, whatever the rounds before made of it
        kept = np.zeros((len(sent), self._x.shape[1] - self._sent))
        before = np.concatenate([sent, kept], axis=1)
        after = convex_pass(
            before,
            self._x,
            self._y,
            task=design.plan.task,
            units=self._units,
            link=self._link,
            bins=silo.local_steps,
            passes=training.passes,
            step=silo.learning_rate / design.resolved.divisor,
            decay=silo.learning_rate * training.l2_penalty,
            bin_cap=self._bounds.bin_cap,
            feature_bound=training.feature_bound,
            residual_cap=self._bounds.residual_cap,
            source=source,
        )
        update, clamped = clamp(
            design.grid.encode_summed((after - before)[:, : self._sent].reshape(-1)),
            design.clamp_grid,
        )
        begin = time.perf_counter()
        noise = draw_noise(design, silo, source=source, seeds=seeds)
        seconds = time.perf_counter() - begin
        return LocalUpdate(
            update + noise,
            records=training.passes * self._units.count,
            saturated=clamped,
            noise_seconds=seconds,
        )


UPDATER = ConvexPass


def convex_pass(
    weights: npt.NDArray[np.float64],
    x: npt.NDArray[np.float32],
    y: npt.NDArray[np.int64],
    *,
    task: Task,
    units: Units | None = None,
    link: Link | None = None,
    bins: int,
    passes: int,
    step: float,
    decay: float,
    bin_cap: int,
    feature_bound: float,
    residual_cap: float,
    source: RandomSource,
) -> npt.NDArray[np.float64]:
    """The weights after `passes` passes, each with fresh independent uniform bins for every unit.

    Args:
        weights: (outputs, features).
        x: rows with the bias feature included, norm at most `feature_bound`.
        y: their labels.
        task: whose loss it is.
        units: which rows make a unit; omitted: each is one.
        link: of the rows' loss where a task made them of its records; omitted: the task's.
        bins: S.
        step: γ/b.
        decay: γλ.
        bin_cap: the most units a bin may hold for a step of full length.
        residual_cap: t, the most of a record's probability that may count as wrong.
        source: secret random bits for the bins.
    """
    units = units or Units.single(len(x))
    if link is None:
        link = task.link(len(weights))
        task.check(y, len(weights))
    if link not in (Link.SOFTMAX, Link.LOGISTIC, Link.HUBER, Link.EXPONENTIAL):
        raise PlanError("training.task", task.name, "has no convex pass", 'Use "split-noise".')
    _check(weights, x, feature_bound)
    trained = np.array(weights, dtype=np.float64, order="C")
    for _ in range(passes):
        order, ends, counts = units.in_bins(source.below(bins, units.count), bins)
        run_pass(
            trained,
            np.ascontiguousarray(x),
            np.ascontiguousarray(y.reshape(len(x), y.size // max(len(x), 1))),
            units.weights,
            order,
            ends,
            counts,
            link,
            step,
            decay,
            float(bin_cap),
            LARGEST_WEIGHT_NORM,
            residual_cap,
        )
    return trained


def _check(
    weights: npt.NDArray[np.float64],
    x: npt.NDArray[np.float32],
    feature_bound: float,
) -> None:
    norms2 = np.zeros(len(x))
    row_norms2(np.ascontiguousarray(x), norms2)
    if not (norms2 <= (feature_bound * (1.0 + 1e-6)) ** 2).all():  # float32 features; NaN fails too
        largest = math.sqrt(float(np.nan_to_num(norms2, nan=math.inf).max()))
        raise DataError(
            f"records must have norm at most feature_bound = {feature_bound:g}, got {largest:g}. "
            "Normalise them first."
        )
    # of the model that was sent, so refusing it tells nothing; NaN fails too
    if not np.linalg.norm(weights) <= LARGEST_WEIGHT_NORM:
        raise GuaranteeError(
            f"weights must have norm at most {LARGEST_WEIGHT_NORM:g}. The model that arrived is "
            "not usable."
        )
