"""Two data sets that break the accounting of several local steps with the noise of all silos
(Heikkilä 2025, theorem 4.5).

Both are ordinary regressions (regression.py), clipped per record, on the ordinary local-step code;
the adversary sees nothing but the sum over silos. Gradients count in clip norms, c is one clipped
record in grid steps, ξ one silo's noise in one step.

`threshold_attack` (A). The silo under attack holds D or D + 1 pushers, and B switches that turn
    when its weight crosses zero. The public start is chosen so that the weight comes near zero
    exactly before the last step:

        J_{s+1} = J_s + c·(D + [x]) + c·B·(quiet if J_s < T else −1) + ξ_s,     J_0 = 0,  released: Σ_s of the increments + other silos

    The last step writes the sign of J_{S−1} − T into the sum with amplitude B, far above all noise.
    J carries the noise of *one* silo: a unit normal score with separation √(S−1)·C/σ_local, i.e. μ²
    = N(S−1)/σ², against the claimed S/σ².

`forgetting_attack` (B). The silo under attack holds one pusher or none. Every other silo holds n
    forgetful records; with γ·n·curvature = 1 each of its steps undoes the noise of the step before
    (no clipping is active, every step is non-expansive), so that the sum carries (S + N −
    1)·σ_local² instead of S·N·σ_local²: μ² = S²N/(σ²(S + N − 1)).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, final

import numpy as np
import numpy.typing as npt

from sumus.guarantee import NoiseDesign
from sumus.paper.theorem.regression import Group, Integers, Regression
from sumus.randomness import RandomSource

__all__ = ["Attack", "Draws", "LocalStepsAttack", "forgetting_attack", "threshold_attack"]

_CROWDED_WIDTH = 32  # weights of a model whose silos hold hundreds of records for each
_LEGIBLE = 4.0  # standard deviations of the sum, at least, between "in" and the cut
# deviations beyond 5σ (3e-7) are ignored, which weakens the attack and not its bound
_FAR = 5.0


@final
@dataclass(frozen=True)
class Draws:
    """The noise of many trials, in grid steps.

    Args:
        sent: (steps, trials, silos) of the silos whose local states matter.
        unsent: the same for the state noise of split-noise, in all steps but the last, or None.
        rest: (trials,) everything else that reaches the sum.
    """

    sent: Integers
    unsent: Integers | None
    rest: Integers


class Attack(Protocol):
    """A pair of neighbouring data sets and a test fixed beforehand. Every coordinate of the model
    is a trial of its own.
    """

    @property
    def name(self) -> str: ...

    @property
    def regression(self) -> Regression: ...

    @property
    def design(self) -> NoiseDesign: ...

    @property
    def separation(self) -> float:
        """Distance of the two unit normal laws of the score, in the Gaussian limit: the attack's
        μ.
        """
        ...

    @property
    def first_weight(self) -> float:
        """The public start, a float32 like every model that is sent."""
        ...

    def groups(self, silo: int, *, with_record: bool) -> tuple[Group, ...]:
        """The records of one silo in the coordinate of one trial."""
        ...

    def seen(self, total_grid: Integers) -> Integers:
        """What the adversary looks at in a released sum: one number for each trial."""
        ...

    def says_in(self, totals: Integers) -> npt.NDArray[np.bool_]:
        """The adversary's verdict on what it looks at."""
        ...

    def draw(self, trials: int, source: RandomSource) -> Draws:
        """Noise for `totals`."""
        ...

    def totals(self, draws: Draws, *, with_record: bool) -> Integers:
        """What `seen` finds in many trials, by the same integer recursion as the silos' code."""
        ...


@final
@dataclass(frozen=True, kw_only=True)
class LocalStepsAttack:
    """An attack on noisy local steps (`dp-sgd`, `split-noise`).

    Args:
        attacked: what the first silo holds besides the record in question.
        others: what each other silo holds.
        follows_attacked: whether the first silo's state decides, or those of all others; the
            gradients of the rest never change.
        cut_grid: says "in" for sums below this if `in_is_below`, else above.
    """

    name: str
    regression: Regression
    design: NoiseDesign
    separation: float
    first_weight: float
    attacked: tuple[Group, ...]
    others: tuple[Group, ...]
    follows_attacked: bool
    cut_grid: float
    in_is_below: bool

    def groups(self, silo: int, *, with_record: bool) -> tuple[Group, ...]:
        if silo > 0:
            return self.others
        return (*self.attacked, self.regression.pusher) if with_record else self.attacked

    def seen(self, total_grid: Integers) -> Integers:
        return total_grid[: self.design.resolved.dimension]

    def says_in(self, totals: Integers) -> npt.NDArray[np.bool_]:
        return totals < self.cut_grid if self.in_is_below else totals > self.cut_grid

    @property
    def _followed(self) -> int:
        return 1 if self.follows_attacked else len(self.design.silos) - 1

    def draw(self, trials: int, source: RandomSource) -> Draws:
        share, unsent = self.design.share, self.design.state_noise
        shape = (_steps(self.design), trials, self._followed)
        sent = np.asarray(share.sample(shape, source), dtype=np.int64)
        before_the_last = (shape[0] - 1, *shape[1:])
        state = (
            None
            if unsent is None
            else np.asarray(unsent.sample(before_the_last, source), dtype=np.int64)
        )
        rest = share.sum_of((len(self.design.silos) - self._followed) * shape[0]).sample(
            trials, source
        )
        return Draws(sent, state, np.asarray(rest, dtype=np.int64))

    def totals(self, draws: Draws, *, with_record: bool) -> Integers:
        steps, trials, followed = draws.sent.shape
        step_length = self.design.plan.training.learning_rate * self.design.grid.granularity
        first = np.full((1, 1), self.first_weight)
        # the gradients that never change
        still = self._gradient(1 if self.follows_attacked else 0, first, with_record=with_record)[
            0, 0
        ]
        released = draws.rest + steps * (len(self.design.silos) - followed) * still
        weights = first  # alike in all trials before the first noise
        for step in range(steps):
            noisy = (
                self._gradient(0 if self.follows_attacked else 1, weights, with_record=with_record)
                + draws.sent[step]
            )
            released = released + noisy.sum(axis=1)
            if step + 1 < steps:
                weights = weights - step_length * (
                    noisy if draws.unsent is None else noisy + draws.unsent[step]
                )
        return np.asarray(released.reshape(trials), dtype=np.int64)

    def _gradient(
        self, silo: int, weights: npt.NDArray[np.float64], *, with_record: bool
    ) -> Integers:
        return self.regression.gradient_grid(
            self.groups(silo, with_record=with_record), weights, self.design.silos[silo].resolution
        )


def threshold_attack(
    design: NoiseDesign, regression: Regression, threshold: float
) -> LocalStepsAttack:
    """Attack A on this noise. `threshold` is the test on the unit normal score J_{S−1}, in standard
    deviations.
    """
    steps, silos, unit = (
        _steps(design),
        len(design.silos),
        regression.pusher_grid(design.silos[0].resolution),
    )
    spread = _state_std(design) * math.sqrt(steps - 1)
    noise = math.sqrt(silos * steps) * _local_std(design)
    # what is written must be misread far less often than the test errs
    switches = math.ceil(
        2.0 * (max(_LEGIBLE, abs(threshold) + 1.5) * noise + steps) / (1 + regression.quiet)
    )
    # one step before the last but one, the weight must still be above zero whatever the noise
    early = (
        steps - 2 + _FAR * _state_std(design) * math.sqrt(steps - 2) - min(threshold, 0.0) * spread
    )
    pushers = max(1, math.ceil(early + 1.0) - regression.quiet * switches)
    # and the pushers must push at every weight that is reached
    largest = regression.reach / ((_FAR + abs(threshold)) * spread + steps)
    # a power of two: the weights are exact
    tuned = _tuned(design, learning_rate=2.0 ** math.floor(math.log2(largest)))
    step_length = tuned.plan.training.learning_rate * tuned.grid.granularity
    drift = (pushers + regression.quiet * switches) * unit
    start = step_length * ((steps - 1) * drift + threshold * spread * design.grid.resolution)
    return LocalStepsAttack(
        name="threshold (A)",
        regression=regression,
        design=tuned,
        separation=math.sqrt(steps - 1) / _state_std(design),
        first_weight=float(np.float32(start)),
        attacked=(regression.pusher.times(pushers), regression.switch.times(switches)),
        others=(regression.pusher,),
        follows_attacked=True,
        cut_grid=steps * (drift + (silos - 1) * unit)
        - 0.5 * (1 + regression.quiet) * switches * unit,
        in_is_below=True,
    )


def forgetting_attack(
    design: NoiseDesign, regression: Regression, threshold: float
) -> LocalStepsAttack:
    """Attack B on this noise. `threshold` is the test on the sum itself, in its standard
    deviations.
    """
    steps, others, unit = (
        _steps(design),
        len(design.silos) - 1,
        regression.pusher_grid(design.silos[0].resolution),
    )
    largest = regression.reach / (_FAR * _state_std(design) * math.sqrt(steps) + steps)
    copies = math.ceil(1.0 / (largest * regression.curvature))
    # the gradient of step s + 1 is −(state noise of step s), so a silo releases Σ_s (g_s + ξ_s) =
    # ξ_S − Σ_{s<S} ζ_s
    unsent = design.state_noise.variance_grid if design.state_noise is not None else 0.0
    spread = math.sqrt(
        design.share.variance_grid * (steps + others) + others * (steps - 1) * unsent
    )
    return LocalStepsAttack(
        name="forgetting (B)",
        regression=regression,
        design=_tuned(
            design, learning_rate=1.0 / (copies * regression.curvature), width=_CROWDED_WIDTH
        ),
        separation=steps * unit / spread,
        first_weight=0.0,
        attacked=(),
        others=tuple(group.times(copies) for group in regression.forgetful),
        follows_attacked=False,
        cut_grid=threshold * spread,
        in_is_below=False,
    )


def _steps(design: NoiseDesign) -> int:
    return design.silos[0].local_steps


def _local_std(design: NoiseDesign) -> float:
    """σ_local: standard deviation of one silo's noise in one step, in clip norms."""
    return math.sqrt(design.share.variance_grid) / design.grid.resolution


def _state_std(design: NoiseDesign) -> float:
    """Standard deviation of one step's noise in a silo's state, in clip norms; more than
    `_local_std` under split noise.
    """
    unsent = design.state_noise.variance_grid if design.state_noise is not None else 0.0
    return math.sqrt(design.share.variance_grid + unsent) / design.grid.resolution


def _tuned(design: NoiseDesign, *, learning_rate: float, width: int | None = None) -> NoiseDesign:
    """The same noise with another public learning rate, and no more than `width` weights."""
    most = design.resolved.dimension
    return NoiseDesign.of(
        design.resolved.replace(
            "training", learning_rate=learning_rate, dimension=min(width or most, most)
        )
    )
