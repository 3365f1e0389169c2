"""`convex-pass`: a noiseless non-expansive pass over bins of all records, one draw of noise a round.

The loss is that of a generalised linear model on records of bounded norm, so its constants are
public: how long a record's gradient can be, how smooth the loss is, and how many records a bin may
hold for a step to be non-expansive.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, final

from scipy.special import betainc

from sumus.errors import PlanError
from sumus.guarantee.algorithms.algorithm import Algorithm, Work
from sumus.guarantee.claims import ONE_DRAW_ALONE, Setting, Statement, one_draw_per_round
from sumus.guarantee.layout import Layout, SiloDesign
from sumus.noise import Grid, Rounding
from sumus.plan import RULES, ResolvedPlan, ResolvedSilo, TrainingPlan

__all__ = ["ALGORITHMS", "LARGEST_WEIGHT_NORM", "ConvexBounds", "convex_bounds"]

LARGEST_WEIGHT_NORM = 1e3
"""Weights of a convex pass stay within this norm: every step ends with a projection onto the ball,
and so does the server's. The float slack of the sensitivity rests on it. A projection is
non-expansive: it never raises a sensitivity, and no record can stop a run.
"""

# relative: records are float32, so their norm may exceed the feature bound by this much
_NORM_TOLERANCE = 2.0**-19
# the most noisy steps that one convex pass is compared with
_STEPS_PER_PASS = 16


@final
class ConvexPass(Algorithm):
    """One noisy sum of whole updates a round, each a function of which one record moves little."""

    rules = RULES["convex-pass"]
    statements: ClassVar = (
        Statement(
            name="convex-pass",
            compose=lambda s: one_draw_per_round(s, s.total),
            text="noiseless non-expansive local pass, one draw of noise per round",
            brief="convex pass",
            remark="convex losses",
        ),
        ONE_DRAW_ALONE,
    )
    largest_weight_norm = LARGEST_WEIGHT_NORM

    def layout(self, resolved: ResolvedPlan) -> Layout:
        unit = max(
            convex_bounds(resolved, silo.learning_rate).gradient_norm
            * silo.learning_rate
            / resolved.divisor
            for silo in resolved.silos
        )
        return Layout(unit=unit, step_weights=(1,), update_scale=1.0 / resolved.invited)

    def silo(self, resolved: ResolvedPlan, silo: ResolvedSilo, grid: Grid) -> SiloDesign:
        passes, bounds = resolved.plan.training.passes, convex_bounds(resolved, silo.learning_rate)
        # of this silo, over the grid's unit
        reach = silo.learning_rate * bounds.gradient_norm / resolved.divisor / grid.clip_norm
        others = max(silo.records - 1, 0)
        overfull = min(
            1.0, passes * _overfull(bounds.bin_cap, others=others, bins=silo.local_steps)
        )
        slack = convex_float_slack_grid(
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
        training, bounds = resolved.plan.training, convex_bounds(resolved, silo.learning_rate)
        unit = silo.learning_rate * bounds.gradient_norm / resolved.divisor
        kept = (1.0 - silo.learning_rate * training.l2_penalty) ** (
            training.passes * silo.local_steps
        )
        taken = min(silo.records, silo.local_steps * bounds.bin_cap)
        moved = training.passes * unit * taken * (1.0 + _NORM_TOLERANCE)
        granularity = self.layout(resolved).unit / resolved.plan.resolution
        return (moved + abs(1.0 - kept) * weight_norm) / granularity + silo.l2_grid

    def proved(self, setting: Setting) -> Mapping[str, bool]:
        return {"convex-pass": True, "local": True}

    def work(self, plan: TrainingPlan, silo: SiloDesign) -> Work:
        passes = plan.training.passes
        steps = passes * min(silo.local_steps, _STEPS_PER_PASS)
        return Work(passes, steps, passes / steps)

    def compared(self, base: Setting, plan: TrainingPlan, work: Work) -> Setting:
        l2_grid = work.passes * base.resolution + math.sqrt(base.dimension)
        return replace(base, algorithm=self.rules.name, sampling_rate=1.0, l2_grid=l2_grid)


ALGORITHMS = (ConvexPass,)


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


def convex_bounds(resolved: ResolvedPlan, learning_rate: float) -> ConvexBounds:
    """The constants for one learning rate; refuses models whose loss is not known to be convex and
    smooth.
    """
    training, divisor = resolved.plan.training, resolved.divisor
    residual_cap = 1.0 if training.residual_cap is None else training.residual_cap
    curvature = resolved.plan.task.curvature(
        training.model, feature_bound=training.feature_bound, residual_cap=residual_cap
    )
    if curvature is None:
        rule = (
            f"must be a model whose loss is convex and smooth in {resolved.plan.task.name} "
            "(convex-pass rests on it)"
        )
        fix = (
            "In classification softmax, linear and logistic are; elsewhere use "
            '"split-noise" or "dp-sgd".'
        )
        raise PlanError("training.model", training.model, rule, fix)
    smoothness_drawn = curvature.smoothness * (1.0 + _NORM_TOLERANCE) ** 2
    room = (2.0 / learning_rate - training.l2_penalty) * divisor / smoothness_drawn
    cap = math.floor(room)
    if cap < 1:
        rule = f"must let a bin of {divisor:.3g} records on average hold one (convex-pass)"
        raise PlanError(
            "training.learning_rate",
            learning_rate,
            rule,
            _largest_rate(resolved, learning_rate, smoothness_drawn),
        )
    return ConvexBounds(
        gradient_norm=curvature.gradient_norm,
        smoothness=curvature.smoothness,
        residual_cap=residual_cap,
        bin_cap=cap,
    )


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


def convex_float_slack_grid(
    resolved: ResolvedPlan, *, learning_rate: float, steps: int, records: int, resolution: float
) -> float:
    """Grid steps that float64 arithmetic and float32 records can add to what one record does to a
    convex pass.

        2·P·S·u·[(3d + 11)·(W·(1 + 2^-20) + s) + s·(4d + n + 20)]·r·b/(γC) + P·r·2^-19,   u = 2^-53, W = `LARGEST_WEIGHT_NORM`

    s = max(8/R, 2C₁/β) is the longest step, C₁ being C without a cap: 8·√K/R for K logistic losses.

    Guarantee: holds for weights of norm at most W before the pass and bins of up to n records, in
        whatever order sums are taken (docs/mathematics.md, "rounding and floats"). Where a record
        is made of up to m rows, n·m + 4 stands for n: more terms, and a product with each row's
        weight.

    Args:
        records: n, public bound on the silo's records.
        resolution: grid steps that γC/b stands for.
    """
    training, bounds = resolved.plan.training, convex_bounds(resolved, learning_rate)
    numbers = resolved.dimension + resolved.local_dimension  # f·K ≥ f + K − 1
    most = resolved.rows_per_record
    weighted = most > 1 or bool(resolved.plan.task.class_weights)
    rows = records * most + 4 if weighted else records
    longest = max(
        8.0 / training.feature_bound,
        2.0 * bounds.gradient_norm / bounds.residual_cap / bounds.smoothness,
    )
    largest = LARGEST_WEIGHT_NORM * (1.0 + 2.0**-20) + longest
    per_step = (3.0 * numbers + 11.0) * largest + longest * (4.0 * numbers + rows + 20.0)
    unit = learning_rate * bounds.gradient_norm / resolved.divisor
    rounding = 2.0 * training.passes * steps * 2.0**-53 * per_step * resolution / unit
    return rounding + training.passes * resolution * _NORM_TOLERANCE


def _overfull(cap: int, *, others: int, bins: int) -> float:
    """P[Binomial(others, 1/bins) ≥ cap]: a record's bin holds at least `cap` others."""
    if cap > others:
        return 0.0
    return 1.0 if bins == 1 else float(betainc(cap, others - cap + 1, 1.0 / bins))
