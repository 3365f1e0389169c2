"""Real records as canaries: one training run on the plan's own data, some records of one silo
mislabelled and left out by fair coins.

Two views of the same run. *Released sums*: the server sees every model and every averaged update
u_t, and scores a record by how far the updates went along its own gradient, −Σ_t ⟨∇f_j(θ_{t−1}),
u_t⟩ (directional derivatives, so no gradient is stored). *Final model*: a user sees the released
model only, and scores a record by its loss. Either way the extreme scores are guessed and the bound
for one run holds whatever the canaries do to each other (Steinke, Nasr, Jagielski 2023,
arXiv:2305.08846).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import numpy.typing as npt
import torch
from torch.func import functional_call, jvp

from sumus.audit.confidence import bound_by_extremes
from sumus.books import NoLedger
from sumus.data import FederatedData, Records
from sumus.errors import GuaranteeError
from sumus.gradients import Units, one_torch_thread
from sumus.guarantee import NoiseDesign
from sumus.parties import RunSecret, federation_in_process
from sumus.randomness import RandomSource
from sumus.tasks import Task
from sumus.training import Prepared, prepare, units_of

__all__ = ["RealRecordView", "audit_real_records"]

Floats = npt.NDArray[np.float64]

_GUESSED = 0.1  # of the canaries are called in, as many out


@final
@dataclass(frozen=True, kw_only=True)
class RealRecordView:
    """What mislabelled real records show in one view."""

    canaries: int
    guesses: int
    correct: int
    lower_bound: float


def audit_real_records(
    design: NoiseDesign,
    data: FederatedData,
    *,
    canaries: int,
    confidence: float,
    source: RandomSource | None = None,
) -> tuple[RealRecordView, RealRecordView]:
    """(released sums, final model): train once on the plan's data and guess which canaries were in.

    Args:
        canaries: of the first silo; at most half of its records (or persons).
        confidence: of each of the two bounds.
        source: random bits; from the operating system if omitted.
    """
    bench = prepare(design.plan, data)
    source = source or RandomSource()
    own = bench.data.silos[0].train
    units = units_of(design.plan, own)
    count = min(canaries, units.count // 2)
    if count < 2:
        raise GuaranteeError(
            f"the first silo has {units.count} records; an audit with real records needs at least "
            "4."
        )
    chosen = np.sort(source.permutation(units.count)[:count])
    rows, canaried = units.take(chosen)
    wrong = own.y.copy()
    wrong[rows] = design.plan.task.farthest(own.y[rows], data.labels, source.below)
    included = source.coins(0.5, count)
    kept = np.setdiff1d(np.arange(units.count), chosen[~included])
    first = replace(bench.data.silos[0], train=Records(own.x, wrong, units.of_row).take(kept))
    ready = Prepared(
        replace(bench.data, silos=(first, *bench.data.silos[1:])),
        bench.model,
        bench.first_parameters,
        bench.loss,
    )
    held = Records(own.x[rows], wrong[rows])
    losses = _CanaryLosses(design.plan.task, ready, held, canaried)
    resolved = design.resolved.replace("evaluation", metrics="none")
    federation = federation_in_process(
        replace(design, resolved=resolved),
        ready,
        RunSecret(source.bytes(32), resolved.plan.hash),
        releases=NoLedger("audit: nothing leaves this process"),
        threads=os.cpu_count() or 1,
    )
    followed = np.zeros(count)
    with one_torch_thread():
        for number in range(resolved.plan.federation.rounds):
            sent = federation.server.parameters
            followed -= losses.slopes(sent, federation.round(number).update)
    guesses = 2 * max(1, round(count * _GUESSED))

    def view(scores: Floats) -> RealRecordView:
        correct, bound = bound_by_extremes(
            scores, included, guesses, delta=design.plan.privacy.delta, confidence=confidence
        )
        return RealRecordView(canaries=count, guesses=guesses, correct=correct, lower_bound=bound)

    return view(followed), view(-losses.at(federation.server.released))


@final
class _CanaryLosses:
    """The canaries' losses as a function of the model's parameters; a person's is that of all its
    rows.
    """

    def __init__(
        self, task: Task, bench: Prepared, records: Records, units: Units | None = None
    ) -> None:
        self._task, self._model, self._units = (
            task,
            bench.model,
            units or Units.single(len(records)),
        )
        self._shapes = [
            (name, value.shape)
            for name, value in bench.model.named_parameters()
            if value.requires_grad
        ]
        self._dtype = next(bench.model.parameters()).dtype
        self._x, self._y = torch.from_numpy(records.x).to(self._dtype), torch.from_numpy(records.y)

    def at(self, parameters: Floats) -> Floats:
        """The loss of every canary."""
        with torch.no_grad():
            return np.asarray(self._losses(self._split(parameters)).numpy(), dtype=np.float64)

    def slopes(self, parameters: Floats, direction: Floats) -> Floats:
        """⟨∇f_j, direction⟩ of every canary."""
        with torch.no_grad():
            slopes: torch.Tensor = jvp(
                self._losses, (self._split(parameters),), (self._split(direction),)
            )[1]
        return np.asarray(slopes.numpy(), dtype=np.float64)

    def _split(self, flat: Floats) -> dict[str, torch.Tensor]:
        vector, start, pieces = torch.from_numpy(np.array(flat)).to(self._dtype), 0, {}
        for name, shape in self._shapes:
            pieces[name] = vector[start : start + shape.numel()].reshape(shape)
            start += shape.numel()
        return pieces

    def _losses(self, pieces: dict[str, torch.Tensor]) -> torch.Tensor:
        losses = self._task.loss(functional_call(self._model, pieces, (self._x,)), self._y)
        if self._units.of_row is None:
            return losses
        weighed = losses * torch.from_numpy(self._units.weights).to(losses.dtype)
        of_row = torch.from_numpy(self._units.of_row)
        return losses.new_zeros(self._units.count).index_add(0, of_row, weighed)
