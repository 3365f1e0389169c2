"""`dp-sgd` and `single-step`: every local step is a noisy sum of clipped gradients, and their
integers are added up (algorithm 2 of Heikkilä 2025).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, final

from sumus.accounting import Release
from sumus.errors import PlanError
from sumus.guarantee.algorithms.algorithm import Algorithm, Work, clipped_silo, clipped_unit
from sumus.guarantee.claims import (
    LOCAL_STEPS_ALONE,
    PER_STEP,
    Setting,
    Statement,
    but_the_last,
    each_alone,
    noisy,
)
from sumus.guarantee.layout import Layout, SiloDesign
from sumus.noise import Grid
from sumus.plan import RULES, ResolvedPlan, ResolvedSilo, TrainingPlan

__all__ = ["ALGORITHMS", "NoisySteps"]

_WEIGHT_BITS = 8

_ONE_STEP = Statement(
    name="single-step",
    compose=lambda s: Release((noisy(s, s.total, s.rounds),)),
    text="one noisy sum per round; the noise of all counted silos protects every record",
    brief="one step per round",
)
_LAST_STEP = Statement(
    name="last-step",
    compose=lambda s: but_the_last(s, lambda count: each_alone(s, s.own, count)),
    text="the last step of a round with the noise of all counted silos, the steps before it with "
    "the silo's own",
    brief="the last step of a round with the noise of all silos",
    counts="both",
    remark="any model",
)


class NoisySteps(Algorithm):
    """Local steps on clipped gradients with noise in each."""

    def layout(self, resolved: ResolvedPlan) -> Layout:
        training = resolved.plan.training
        weighted = training.learning_rates is not None or training.local_momentum > 0.0
        weight_unit = float(1 << _WEIGHT_BITS) if weighted else 1.0
        scale = 1.0 / resolved.invited
        scale *= -training.learning_rate / (resolved.divisor * weight_unit)
        return Layout(
            unit=clipped_unit(resolved), step_weights=_step_weights(resolved), update_scale=scale
        )

    def silo(self, resolved: ResolvedPlan, silo: ResolvedSilo, grid: Grid) -> SiloDesign:
        return clipped_silo(resolved, silo, grid)

    def queries(self, local_steps: int) -> int:
        return local_steps

    def noisy_coordinates(self, resolved: ResolvedPlan) -> int:
        """Local parameters move by noisy gradients too: the proof shows them as if they were sent."""
        return resolved.coordinates + resolved.local_dimension

    def longest_update_grid(
        self,
        resolved: ResolvedPlan,
        silo: SiloDesign,
        *,
        step_weights: Sequence[int],
        batch: int,
        weight_norm: float,
    ) -> float:
        """Σ_s w_s·b·Δ₂: an empty batch sums to zero, and each record moves a sum by at most Δ₂."""
        return sum(step_weights[: silo.local_steps]) * batch * silo.l2_grid

    @abstractmethod
    def proved(self, setting: Setting) -> Mapping[str, bool]:
        """As `Algorithm.proved`."""


class _NoisySums(NoisySteps):
    def proved(self, setting: Setting) -> Mapping[str, bool]:
        one_step = setting.local_steps == 1
        # with nobody else's noise it is `local`, which is not claimed for several silos
        together = setting.contributors > 1 or setting.silos_per_unit > 1
        shared = {"last-step": True} if together else {}
        first = {"single-step": True} if one_step else shared
        return first | {"local": True, "per-step": one_step}


@final
class DpSgd(_NoisySums):
    """Several noisy steps a round."""

    rules = RULES["dp-sgd"]
    statements: ClassVar = (_ONE_STEP, _LAST_STEP, LOCAL_STEPS_ALONE, PER_STEP)


@final
class SingleStep(_NoisySums):
    """One noisy step a round."""

    rules = RULES["single-step"]
    statements: ClassVar = (
        replace(_ONE_STEP, remark="one noisy step per round"),
        replace(_LAST_STEP, remark=None),
        replace(LOCAL_STEPS_ALONE, remark=None),
        replace(PER_STEP, remark=None),
    )

    def compared(self, base: Setting, plan: TrainingPlan, work: Work) -> Setting:
        return replace(base, algorithm=self.rules.name, local_steps=1, slots=1)


ALGORITHMS = (DpSgd, SingleStep)


def _step_weights(resolved: ResolvedPlan) -> tuple[int, ...]:
    """Integer weights of the local steps: the momentum sum (1 − m^(S−s+1))/(1 − m), or the
    learning-rate schedule over its largest.
    """
    training, momentum = resolved.plan.training, resolved.plan.training.local_momentum
    steps = max(resolved.local_steps, *(silo.local_steps for silo in resolved.silos))
    if training.learning_rates is not None:
        return tuple(
            max(1, round((1 << _WEIGHT_BITS) * rate / training.learning_rate))
            for rate in training.learning_rates
        )
    if momentum == 0.0:
        return (1,) * steps
    if any(own.local_steps for own in resolved.plan.silo.values()):
        rule = "must be 0 where silos take unequal steps"
        raise PlanError("training.local_momentum", momentum, rule, "Set it to 0.")
    return tuple(
        round((1 << _WEIGHT_BITS) * (1.0 - momentum ** (steps - s)) / (1.0 - momentum))
        for s in range(steps)
    )
