"""Two data sets that break the accounting of several local steps with the noise of all silos (theorem 4.5 of the paper).

Both are logistic regressions with one weight, clipped per record, on the ordinary local-step code; the adversary sees nothing but the
sum over silos. Gradients count in clip norms, c is one clipped record in grid steps, ξ one silo's noise in one step.

`ThresholdAttack` (A). The silo under attack holds D or D + 1 records that always push the weight down, and B records that say nothing
    until the weight crosses zero. The public start is chosen so that the weight comes near zero exactly before the last step:

        J_{s+1} = J_s + c·(D + [x]) − c·B·[J_s ≥ T] + ξ_s,      J_0 = 0,  released: Σ_s of the increments, plus the other silos

    The last step writes the sign of J_{S−1} − T into the sum with amplitude B, far above all noise. J carries the noise of *one* silo:
    a unit normal score with separation √(S−1)·C/σ_local, i.e. μ² = N(S−1)/σ², against the claimed S/σ².

`ForgettingAttack` (B). The silo under attack holds one record or none. Every other silo holds n pairs of identical records with opposite
    labels; with γn/2 = 1 each of its steps undoes the noise of the step before (no clipping is active, every step is non-expansive),
    so that the sum carries (S + N − 1)·σ_local² instead of S·N·σ_local²: μ² = S²N/(σ²(S + N − 1)).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, final

import numpy as np
import numpy.typing as npt
import torch

from sumus.data.silos import Records
from sumus.design import NoiseDesign
from sumus.randomness import RandomSource
from sumus.training.clipping import add_outer_truncated, outer_norms2, scales

__all__ = ["Attack", "Draws", "ForgettingAttack", "ThresholdAttack"]

Integers = npt.NDArray[np.int64]

_FAR = 12.0  # standard deviations that count as never: below 2e-33
_PUSHER = 16.0  # feature of the records whose gradient is always clipped
_SWITCH = 2.0**60  # feature of the silent records: one grid step away from zero they are certain


@final
@dataclass(frozen=True)
class Draws:
    """The noise of many trials, in grid steps.

    Args:
        sent: (steps, trials, silos) of the silos whose state matters, or of the one under attack.
        unsent: the same for the state noise of split-noise, or None.
        rest: (trials,) everything else that reaches the sum.
    """

    sent: Integers
    unsent: Integers | None
    rest: Integers


class Attack(Protocol):
    """A pair of neighbouring data sets and a test fixed beforehand."""

    @property
    def name(self) -> str: ...

    @property
    def design(self) -> NoiseDesign: ...

    @property
    def separation(self) -> float:
        """Distance of the two unit normal laws of the score, in the Gaussian limit: the attack's μ."""
        ...

    @property
    def first_parameters(self) -> npt.NDArray[np.float64]: ...

    def records(self, *, with_record: bool) -> list[Records]:
        """The records of every silo."""
        ...

    def says_in(self, totals: Integers) -> npt.NDArray[np.bool_]:
        """The adversary's verdict on released sums."""
        ...

    def draw(self, trials: int, source: RandomSource) -> Draws: ...

    def totals(self, draws: Draws, *, with_record: bool) -> Integers:
        """The released sums of many trials, by the same integer recursion as the silos' code."""
        ...


def clipped_grid(feature: float, residual: npt.NDArray[np.float64], *, clip_norm: float, resolution: int) -> Integers:
    """What a record with one feature adds to the integer sum, through the very functions that silos clip with."""
    deltas, inputs = np.ascontiguousarray(residual.reshape(-1, 1)), np.full((residual.size, 1), feature)
    norms2, scale = np.zeros(residual.size), np.empty(residual.size)
    outer_norms2(deltas, inputs, False, norms2)
    scales(norms2, clip_norm, float(resolution), scale)
    out = np.empty(residual.size, dtype=np.int64)
    narrow = (deltas[:, 0] * scale * abs(feature)).astype(np.float32)
    out[:] = np.trunc(narrow * np.float32(math.copysign(1.0, feature)))
    return out.reshape(residual.shape)


def one_record_grid(feature: float, residual: float, *, clip_norm: float, resolution: int) -> int:
    """The same for one record, added by the silos' compiled loop."""
    norms2, scale, total = np.zeros(1), np.empty(1), np.zeros((1, 1), dtype=np.int32)
    deltas, inputs = np.array([[residual]]), np.array([[feature]])
    outer_norms2(deltas, inputs, False, norms2)
    scales(norms2, clip_norm, float(resolution), scale)
    add_outer_truncated(deltas, inputs, scale, total, np.zeros(0, dtype=np.int32))
    return int(total[0, 0])


def _records(*groups: tuple[float, int, int]) -> Records:
    """Records from (feature, label, copies)."""
    x = np.concatenate([np.full((copies, 1), feature, dtype=np.float32) for feature, _, copies in groups])
    y = np.concatenate([np.full(copies, label, dtype=np.int64) for _, label, copies in groups])
    return Records(x, y)


def local_std(design: NoiseDesign) -> float:
    """σ_local: standard deviation of one silo's noise in one step, in clip norms."""
    return math.sqrt(design.share.variance_grid) / design.grid.resolution


def state_std(design: NoiseDesign) -> float:
    """Standard deviation of one step's noise in a silo's state, in clip norms; more than `local_std` under split noise."""
    unsent = design.state_noise.variance_grid if design.state_noise is not None else 0.0
    return math.sqrt(design.share.variance_grid + unsent) / design.grid.resolution


def _silos(design: NoiseDesign) -> int:
    return len(design.silos)


def _power_of_two_below(value: float) -> float:
    return 2.0 ** math.floor(math.log2(value))


@final
@dataclass(frozen=True)
class ThresholdAttack:
    """Attack A. `threshold` is the test on the unit normal score J_{S−1}.

    Args:
        design: with any learning rate; `tuned` gives the design whose learning rate fits the attack.
        threshold: in standard deviations of the score.
    """

    design: NoiseDesign
    threshold: float
    name: str = "threshold (A)"

    @staticmethod
    def learning_rate(design: NoiseDesign) -> float:
        """A step so short that the pushing records stay misclassified: 16·γ·12σ√S ≤ 2."""
        steps = design.silos[0].local_steps
        return _power_of_two_below(2.0 / (_PUSHER * _FAR * (state_std(design) * math.sqrt(steps) + 1.0)))

    @property
    def _steps(self) -> int:
        return self.design.silos[0].local_steps

    @property
    def _step_grid(self) -> float:
        return self.design.plan.training.learning_rate * self.design.grid.granularity

    @property
    def separation(self) -> float:
        return math.sqrt(self._steps - 1) / state_std(self.design)

    @property
    def pushers(self) -> int:
        """D: one step of them is further than the state's noise ever gets."""
        reach = (_FAR + abs(self.threshold)) * state_std(self.design) * math.sqrt(self._steps)
        return math.ceil(reach + self._steps)

    @property
    def switches(self) -> int:
        """B: twice further than the noise of the whole sum ever gets."""
        noise = math.sqrt(_silos(self.design) * self._steps) * local_std(self.design)
        return math.ceil(2.0 * (_FAR * noise + self._steps))

    @property
    def record_grid(self) -> int:
        """c: one clipped record."""
        return one_record_grid(_PUSHER, 1.0, clip_norm=1.0, resolution=self.design.silos[0].resolution)

    @property
    def first_parameters(self) -> npt.NDArray[np.float64]:
        """θ₀ = γ·(the sum of S − 1 steps at the threshold), as a float32 like every model that is sent."""
        score = self.threshold * state_std(self.design) * math.sqrt(self._steps - 1) * self.design.grid.resolution
        drifted = (self._steps - 1) * self.pushers * self.record_grid
        return np.array([self._step_grid * (drifted + score)]).astype(np.float32).astype(np.float64)

    def records(self, *, with_record: bool) -> list[Records]:
        attacked = _records((_PUSHER, 0, self.pushers + int(with_record)), (_SWITCH, 1, self.switches))
        return [attacked] + [_records((_PUSHER, 0, 1))] * (_silos(self.design) - 1)

    def says_in(self, totals: Integers) -> npt.NDArray[np.bool_]:
        others = _silos(self.design) - 1
        quiet = self._steps * (self.pushers + others) * self.record_grid
        return totals < quiet - self.switches * self.record_grid // 2

    def draw(self, trials: int, source: RandomSource) -> Draws:
        share, unsent = self.design.share, self.design.state_noise
        sent = np.asarray(share.sample((self._steps, trials, 1), source), dtype=np.int64)
        state = None if unsent is None else np.asarray(unsent.sample((self._steps, trials, 1), source), dtype=np.int64)
        others = (_silos(self.design) - 1) * self._steps
        rest = share.sum_of(others).sample(trials, source) if others else np.zeros(trials)
        return Draws(sent, state, np.asarray(rest, dtype=np.int64))

    def totals(self, draws: Draws, *, with_record: bool) -> Integers:
        trials = draws.sent.shape[1]
        limit = math.ceil(float(self.first_parameters[0]) / self._step_grid)
        push, pull = self.record_grid * (self.pushers + int(with_record)), self.record_grid * self.switches
        state, released = np.zeros(trials, dtype=np.int64), np.zeros(trials, dtype=np.int64)
        for step in range(self._steps):
            moved = push - pull * (state >= limit) + draws.sent[step, :, 0]
            released += moved
            state += moved if draws.unsent is None else moved + draws.unsent[step, :, 0]
        others = (_silos(self.design) - 1) * self._steps * self.record_grid
        return released + draws.rest + others


@final
@dataclass(frozen=True)
class ForgettingAttack:
    """Attack B. `threshold` is the test on the sum itself, in standard deviations.

    Args:
        design: whose learning rate is 2/n for the n of `pairs`.
        threshold: in standard deviations of the sum.
    """

    design: NoiseDesign
    threshold: float
    name: str = "forgetting (B)"

    @staticmethod
    def learning_rate(design: NoiseDesign) -> float:
        """2/n: then the pairs' curvature n/2 makes a step undo its own displacement; n keeps every state near zero."""
        steps = design.silos[0].local_steps
        return _power_of_two_below(2.0 / (_PUSHER * _FAR * (state_std(design) * math.sqrt(steps) + steps)))

    @property
    def _steps(self) -> int:
        return self.design.silos[0].local_steps

    @property
    def pairs(self) -> int:
        """n: pairs of opposite records in every other silo."""
        return round(2.0 / self.design.plan.training.learning_rate)

    @property
    def record_grid(self) -> int:
        """c: one clipped record."""
        return one_record_grid(_PUSHER, 1.0, clip_norm=1.0, resolution=self.design.silos[0].resolution)

    @property
    def _total_std(self) -> float:
        """√(S + N − 1)·σ_local in grid steps; state noise of split-noise comes back once per step that forgets it."""
        others, share = _silos(self.design) - 1, self.design.share.variance_grid
        unsent = self.design.state_noise.variance_grid if self.design.state_noise is not None else 0.0
        # gradient of step s + 1 is −(noise of step s) of the state, so Σ_s (g_s + ξ_s) = ξ_S − Σ_{s<S} ζ_s
        return math.sqrt(share * (self._steps + others) + others * (self._steps - 1) * unsent)

    @property
    def separation(self) -> float:
        return self._steps * self.record_grid / self._total_std

    @property
    def first_parameters(self) -> npt.NDArray[np.float64]:
        return np.zeros(1)

    def records(self, *, with_record: bool) -> list[Records]:
        attacked = _records((_PUSHER, 0, int(with_record)))
        return [attacked] + [_records((1.0, 0, self.pairs), (1.0, 1, self.pairs))] * (_silos(self.design) - 1)

    def says_in(self, totals: Integers) -> npt.NDArray[np.bool_]:
        return totals > self.threshold * self._total_std

    def draw(self, trials: int, source: RandomSource) -> Draws:
        share, unsent = self.design.share, self.design.state_noise
        shape = (self._steps, trials, _silos(self.design) - 1)
        sent = np.asarray(share.sample(shape, source), dtype=np.int64)
        state = None if unsent is None else np.asarray(unsent.sample(shape, source), dtype=np.int64)
        return Draws(sent, state, np.asarray(share.sum_of(self._steps).sample(trials, source), dtype=np.int64))

    def totals(self, draws: Draws, *, with_record: bool) -> Integers:
        _, trials, others = draws.sent.shape
        step_length = self.design.plan.training.learning_rate * self.design.grid.granularity
        released = draws.rest + self._steps * self.record_grid * int(with_record)
        state = np.zeros((trials, others))
        for step in range(self._steps):
            noisy = self._pair_gradient(state) + draws.sent[step]
            released = released + noisy.sum(axis=1)
            state = state - step_length * (noisy if draws.unsent is None else noisy + draws.unsent[step])
        return released

    def _pair_gradient(self, state: npt.NDArray[np.float64]) -> Integers:
        """n·(trunc(r·p) + trunc(r·(p − 1))) for p = sigmoid(state)."""
        likely = torch.sigmoid(torch.from_numpy(state)).numpy()
        resolution = self.design.silos[0].resolution
        each = [clipped_grid(1.0, residual, clip_norm=1.0, resolution=resolution) for residual in (likely, likely - 1.0)]
        return np.asarray(self.pairs * (each[0] + each[1]))
