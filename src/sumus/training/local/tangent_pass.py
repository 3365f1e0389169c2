"""The noiseless local pass of `tangent-pass`: a network's outputs linearised at the model θ of the
round, one step per bin in the move u away from it.

    u ← Π_W[(1 − γλ)·u − (γ/b)·min(1, cap/|bin|)·Σ_{x ∈ bin} ∇f_x(u)],   u = 0 first
    ∇f_x(u) = A_xᵀ·r(z_x + A_x·u),   r the capped residual of `convex-pass`

z_x and A_x are numbers of one record at θ, brought below public bounds (`gradients/tangents.py`);
behind a public map P of the round A_x is that of (P·J_xᵀ)ᵀ, and the server moves θ by Pᵀ of what is
released; they are computed chunk by chunk in the order of the bins, once a pass, and forgotten. What
layers in front of all trained ones make of a record is computed once (`gradients/frozen_front.py`).

Guarantee: f_x is convex and smooth with the constants of `tangent_bounds`, so one record moves u by
    at most γC/b per pass, or twice that if its own bin holds more than cap records, whatever the
    network is (docs/mathematics.md, theorem 17). The pass is float64 in any order of summation; what its
    rounding can add is part of the sensitivity. A record whose outputs or derivatives are no
    numbers adds nothing.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from sumus.data import Records
from sumus.errors import PlanError
from sumus.gradients import (
    StoredChunk,
    Tangents,
    Units,
    behind,
    split_at_training,
    to_capped_residuals,
)
from sumus.guarantee import NoiseDesign, SiloDesign, TangentBounds, tangent_bounds
from sumus.purity import InputKind
from sumus.randomness import RandomSource
from sumus.tasks import Link, Loss
from sumus.training.local.update import LocalUpdate, clamp, require_dimension, same_silo
from sumus.training.noise import draw_noise
from sumus.training.preconditioner import Preconditioner
from sumus.training.preparation import units_of

__all__ = ["UPDATER", "tangent_pass"]

Floats = npt.NDArray[np.float64]
Linearised = Callable[[npt.NDArray[np.int64]], StoredChunk]
"""What is stored of some rows."""


@final
class TangentPass:
    """`tangent-pass`: a noiseless pass on the linearised network, one draw for the whole update."""

    algorithms: ClassVar = ("tangent-pass",)
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
        self._design, self._silo, task = design, silo, design.plan.task
        self._bounds = tangent_bounds(design.resolved, silo.learning_rate)
        self._x = torch.from_numpy(records.x)
        self._units = units_of(design.plan, records)
        weighted = task.expand(np.zeros((len(records), 1), dtype=np.float32), records.y)
        if weighted is not None:  # class weights
            self._units = self._units.expanded(weighted)
        vocabulary = design.plan.training.vocabulary
        self._preconditioner = Preconditioner.of(design.plan, model, self._x.shape[1:])
        kind = InputKind.of(model, vocabulary)
        front, model = split_at_training(model)
        if len(front):  # computed once: the same in every round
            self._x, kind = behind(front, self._x, kind), InputKind.of(model)
        form = kind.form(self._x, torch.from_numpy(records.y))
        self._tangents = Tangents(model, task, kind, form)
        require_dimension(design, self._tangents.dimension)
        if self._tangents.outputs > self._tangents.dimension:  # the float slack rests on it
            rule = f"must name as many numbers as the model has outputs ({self._tangents.outputs})"
            value = design.plan.training.tangent_layers
            raise PlanError("training.tangent_layers", value, rule, "Name more layers.")
        link = task.link(self._tangents.outputs)
        if link is None:
            rule = f"has no tangent pass for {self._tangents.outputs} outputs"
            raise PlanError("training.task", task.name, rule, 'Use "split-noise".')
        self._link = link
        task.check(records.y, self._tangents.outputs)
        self._y = np.ascontiguousarray(
            records.y.reshape(len(records), records.y.size // max(len(records), 1))
        )

    def in_round(self, design: NoiseDesign) -> TangentPass:
        """See `ByRound.in_round`."""
        moved = copy.copy(self)
        moved._design, moved._silo = design, same_silo(design, self._silo)
        moved._bounds = tangent_bounds(design.resolved, moved._silo.learning_rate)
        return moved

    def __call__(
        self, parameters: npt.NDArray[np.float64], source: RandomSource, seeds: Sequence[bytes] = ()
    ) -> LocalUpdate:
        design, silo, training = self._design, self._silo, self._design.plan.training
        bounds = self._bounds
        if self._preconditioner is not None:
            self._tangents.behind(self._preconditioner.at(parameters))

        def linearised(rows: npt.NDArray[np.int64]) -> StoredChunk:
            outputs, parts = self._tangents.of(parameters, self._x[torch.from_numpy(rows)])
            return StoredChunk.within(
                outputs,
                parts,
                compared=self._link is Link.SOFTMAX,
                jacobian_norm=bounds.reach(self._link, self._tangents.outputs),
                whole_norm=bounds.whole_norm,
                outputs_norm=bounds.outputs_norm,
            )

        move = tangent_pass(
            linearised,
            self._y,
            dimension=len(parameters),
            chunk=self._tangents.chunk,
            units=self._units,
            link=self._link,
            bins=silo.local_steps,
            passes=training.passes,
            step=silo.learning_rate / design.resolved.divisor,
            decay=silo.learning_rate * training.l2_penalty,
            bounds=bounds,
            source=source,
        )
        update, clamped = clamp(design.grid.encode_summed(move), design.clamp_grid)
        begin = time.perf_counter()
        noise = draw_noise(design, silo, source=source, seeds=seeds)
        seconds = time.perf_counter() - begin
        return LocalUpdate(
            update + noise,
            records=training.passes * self._units.count,
            saturated=clamped,
            noise_seconds=seconds,
        )


UPDATER = TangentPass


def tangent_pass(
    linearised: Linearised,
    y: npt.NDArray[np.generic],
    *,
    dimension: int,
    chunk: int,
    units: Units,
    link: Link,
    bins: int,
    passes: int,
    step: float,
    decay: float,
    bounds: TangentBounds,
    source: RandomSource,
) -> Floats:
    """The move away from the round's model after `passes` passes, each with fresh independent
    uniform bins for every unit.

    Args:
        linearised: outputs and Jacobians of rows, below the bounds.
        y: the rows' labels, a row each.
        dimension: of the move.
        chunk: rows that are linearised at once.
        units: which rows make a unit.
        link: of the loss.
        bins: S.
        step: γ/b.
        decay: γλ.
        source: secret random bits for the bins.
    """
    move = np.zeros(dimension)
    for _ in range(passes):
        order, ends, counts = units.in_bins(source.below(bins, units.count), bins)
        gradient, place, stored = np.zeros(dimension), 0, None
        for end, count in zip(ends, counts, strict=True):
            while place < end:
                inside = place % chunk
                if inside == 0 or stored is None:
                    stored = linearised(order[place : place + chunk])
                rows = slice(inside, min(chunk, inside + int(end) - place))
                mine = order[place : place + rows.stop - inside]
                residuals = stored.moved(move, rows)
                weights = units.weights[mine] if units.weights.size else units.weights
                to_capped_residuals(residuals, y[mine], weights, link, bounds.convex.residual_cap)
                stored.add_pulled(residuals, rows, gradient)
                place += len(mine)
            scale = step * min(1.0, bounds.convex.bin_cap / count) if count else 0.0
            move = _within((1.0 - decay) * move - scale * gradient, bounds.move_norm)
            gradient[:] = 0.0
    return move


def _within(move: Floats, radius: float) -> Floats:
    """The nearest point of the ball."""
    norm = float(np.sqrt(move @ move))
    return move * (radius / norm) if norm > radius else move
