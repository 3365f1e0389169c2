"""What passes over bins have in common: a noiseless non-expansive pass, one draw of noise a round.

A record's loss is convex with public constants: how long its gradient can be, how smooth it is, and
so how many records a bin may hold for a step to be non-expansive (docs/mathematics.md, theorem 5).
Algorithms differ in what the loss is a function of, and in what floats can add.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

from scipy.special import betainc

from sumus.errors import PlanError
from sumus.guarantee.algorithms.algorithm import Algorithm, Work
from sumus.guarantee.claims import Setting
from sumus.guarantee.layout import Layout, SiloDesign
from sumus.noise import Grid, Rounding
from sumus.plan import ResolvedPlan, ResolvedSilo, TrainingPlan
from sumus.tasks import Curvature

__all__ = ["NORM_TOLERANCE", "ConvexBounds", "NonExpansivePass", "bounds_of", "residual_cap_of"]

NORM_TOLERANCE = 2.0**-19
"""Relative: stored records are floats, so their norm may exceed the bound by this much."""

# the most noisy steps that one pass is compared with
_STEPS_PER_PASS = 16


@final
@dataclass(frozen=True, kw_only=True)
class ConvexBounds:
    """Constants of a generalised linear loss on records of norm at most R (bias included),
    residuals capped at t (1: not capped); C and β are the task's (`Task.curvature`).

    Args:
        gradient_norm: C.
        smoothness: β.
        residual_cap: t, which the pass takes from here, so that it caps what is accounted.
        bin_cap: the most records a bin may hold for a step of full length, ⌊(2/γ − λ)·b/β⌋, with β
            of records a float32 too long.
    """

    gradient_norm: float
    smoothness: float
    residual_cap: float
    bin_cap: int


class NonExpansivePass(Algorithm):
    """One noisy sum of whole updates a round, each a function of which one record moves little."""

    @abstractmethod
    def bounds(self, resolved: ResolvedPlan, learning_rate: float) -> ConvexBounds:
        """The constants of a record's loss for one learning rate, or a refusal."""

    @abstractmethod
    def float_slack_grid(
        self,
        resolved: ResolvedPlan,
        *,
        learning_rate: float,
        steps: int,
        records: int,
        resolution: float,
    ) -> float:
        """Grid steps that floats can add to what one record does to a pass.

        Args:
            records: n, public bound on the silo's records.
            resolution: grid steps that γC/b stands for.
        """

    def layout(self, resolved: ResolvedPlan) -> Layout:
        unit = max(
            self.bounds(resolved, silo.learning_rate).gradient_norm
            * silo.learning_rate
            / resolved.divisor
            for silo in resolved.silos
        )
        return Layout(unit=unit, step_weights=(1,), update_scale=1.0 / resolved.invited)

    def silo(self, resolved: ResolvedPlan, silo: ResolvedSilo, grid: Grid) -> SiloDesign:
        passes, bounds = resolved.plan.training.passes, self.bounds(resolved, silo.learning_rate)
        # of this silo, over the grid's unit
        reach = silo.learning_rate * bounds.gradient_norm / resolved.divisor / grid.clip_norm
        others = max(silo.records - 1, 0)
        overfull = min(
            1.0, passes * _overfull(bounds.bin_cap, others=others, bins=silo.local_steps)
        )
        slack = self.float_slack_grid(
            resolved,
            learning_rate=silo.learning_rate,
            steps=silo.local_steps,
            records=silo.records,
            resolution=grid.resolution * reach,
        )
        l2_grid = grid.sensitivity_grid(Rounding.SUMMED, resolved.dimension, float_slack_grid=slack)
        # P·γC/b of this silo in place of the grid's unit
        l2_grid += (reach * passes - 1.0) * grid.resolution
        if overfull > 0.5:  # almost every bin is overfull: count the double influence always
            overfull, l2_grid = 0.0, 2.0 * l2_grid
        return SiloDesign(
            name=silo.name,
            learning_rate=silo.learning_rate,
            clip_norm=bounds.gradient_norm,
            resolution=grid.resolution,
            l2_grid=l2_grid,
            sampling_rate=silo.sampling_rate,
            local_steps=silo.local_steps,
            records=silo.records,
            variance_ratio=silo.std_factor**2,
            overfull_rate=overfull,
        )

    def queries(self, local_steps: int) -> int:
        return 1

    def longest_update_grid(
        self,
        resolved: ResolvedPlan,
        silo: SiloDesign,
        *,
        step_weights: Sequence[int],
        batch: int,
        weight_norm: float,
    ) -> float:
        """P·(γC/b)·min(n, S·cap) + |1 − (1 − γλ)^(P·S)|·‖θ‖, in grid steps, and Δ₂ for rounding.

        With a = 1 − γλ and steps u_k of length (γC/b)·min(|bin|, cap) at most, θ_{k+1} = Π_W(aθ_k −
        u_k). aᵏθ₀ lies in the ball, and the projection is non-expansive, so ‖θ_{k+1} − aᵏ⁺¹θ₀‖ ≤
        ‖θ_k − aᵏθ₀‖ + ‖u_k‖ (|a| ≤ 1): after K steps ‖θ_K − θ₀‖ ≤ |1 − aᴷ|·‖θ₀‖ + Σ_k ‖u_k‖.
        """
        training, bounds = resolved.plan.training, self.bounds(resolved, silo.learning_rate)
        unit = silo.learning_rate * bounds.gradient_norm / resolved.divisor
        kept = (1.0 - silo.learning_rate * training.l2_penalty) ** (
            training.passes * silo.local_steps
        )
        taken = min(silo.records, silo.local_steps * bounds.bin_cap)
        moved = training.passes * unit * taken * (1.0 + NORM_TOLERANCE)
        granularity = self.layout(resolved).unit / resolved.plan.resolution
        return (moved + abs(1.0 - kept) * weight_norm) / granularity + silo.l2_grid

    def proved(self, setting: Setting) -> Mapping[str, bool]:
        return {self.rules.name: True, "local": True}

    def work(self, plan: TrainingPlan, silo: SiloDesign) -> Work:
        passes = plan.training.passes
        steps = passes * min(silo.local_steps, _STEPS_PER_PASS)
        return Work(passes, steps, passes / steps)

    def compared(self, base: Setting, plan: TrainingPlan, work: Work) -> Setting:
        l2_grid = work.passes * base.resolution + math.sqrt(base.dimension)
        return replace(base, algorithm=self.rules.name, sampling_rate=1.0, l2_grid=l2_grid)


def bounds_of(resolved: ResolvedPlan, learning_rate: float, curvature: Curvature) -> ConvexBounds:
    """The constants for one learning rate of a loss with this curvature; refuses a rate at which a
    bin may hold no record.
    """
    training, divisor = resolved.plan.training, resolved.divisor
    smoothness_drawn = curvature.smoothness * (1.0 + NORM_TOLERANCE) ** 2
    room = (2.0 / learning_rate - training.l2_penalty) * divisor / smoothness_drawn
    cap = math.floor(room)
    if cap < 1:
        rule = f"must let a bin of {divisor:.3g} records on average hold one ({training.algorithm})"
        raise PlanError(
            "training.learning_rate",
            learning_rate,
            rule,
            _largest_rate(resolved, learning_rate, smoothness_drawn),
        )
    return ConvexBounds(
        gradient_norm=curvature.gradient_norm,
        smoothness=curvature.smoothness,
        residual_cap=residual_cap_of(resolved),
        bin_cap=cap,
    )


def residual_cap_of(resolved: ResolvedPlan) -> float:
    """t: `training.residual_cap`, or 1 where there is none."""
    cap = resolved.plan.training.residual_cap
    return 1.0 if cap is None else cap


def _largest_rate(resolved: ResolvedPlan, learning_rate: float, smoothness: float) -> str:
    """What a bin that holds no record needs: (2/γ − λ)·b/β ≥ 1, solved for γ and for the number of
    bins, in words.
    """
    training, divisor = resolved.plan.training, resolved.divisor
    mean = math.fsum(silo.records for silo in resolved.silos) / len(resolved.silos)
    largest = 2.0 / (smoothness / divisor + training.l2_penalty)
    digits = 10.0 ** (2 - math.floor(math.log10(largest)))
    fix = f"Use at most {math.floor(largest * digits) / digits:g}"
    # b follows from the bins
    counted = abs(divisor * resolved.local_steps - mean) <= 0.01 * mean
    bins = math.floor(mean * (2.0 / learning_rate - training.l2_penalty) / smoothness)
    return (
        f"{fix}, or fewer bins: federation.local_steps at most {bins}."
        if counted and bins >= 1
        else f"{fix}."
    )


def _overfull(cap: int, *, others: int, bins: int) -> float:
    """P[Binomial(others, 1/bins) ≥ cap]: a record's bin holds at least `cap` others."""
    if cap > others:
        return 0.0
    return 1.0 if bins == 1 else float(betainc(cap, others - cap + 1, 1.0 / bins))
