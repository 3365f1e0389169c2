"""`convex-pass`: the pass over records of bounded norm under a generalised linear model, whose
constants follow from the norm.
"""

from __future__ import annotations

from typing import ClassVar, final

from sumus.errors import PlanError
from sumus.guarantee.algorithms.non_expansive_pass import (
    NORM_TOLERANCE,
    ConvexBounds,
    NonExpansivePass,
    bounds_of,
    residual_cap_of,
)
from sumus.guarantee.claims import ONE_DRAW_ALONE, Statement, one_draw_per_round
from sumus.plan import RULES, ResolvedPlan

__all__ = ["ALGORITHMS", "LARGEST_WEIGHT_NORM", "convex_bounds"]

LARGEST_WEIGHT_NORM = 1e3
"""Weights of a convex pass stay within this norm: every step ends with a projection onto the ball,
and so does the server's. The float slack of the sensitivity rests on it. A projection is
non-expansive: it never raises a sensitivity, and no record can stop a run.
"""


@final
class ConvexPass(NonExpansivePass):
    """Convex in the model's own weights."""

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

    def bounds(self, resolved: ResolvedPlan, learning_rate: float) -> ConvexBounds:
        return convex_bounds(resolved, learning_rate)

    def float_slack_grid(
        self,
        resolved: ResolvedPlan,
        *,
        learning_rate: float,
        steps: int,
        records: int,
        resolution: float,
    ) -> float:
        return convex_float_slack_grid(
            resolved,
            learning_rate=learning_rate,
            steps=steps,
            records=records,
            resolution=resolution,
        )


ALGORITHMS = (ConvexPass,)


def convex_bounds(resolved: ResolvedPlan, learning_rate: float) -> ConvexBounds:
    """The constants for one learning rate; refuses models whose loss is not known to be convex and
    smooth.
    """
    training = resolved.plan.training
    curvature = resolved.plan.task.curvature(
        training.model,
        feature_bound=training.feature_bound,
        residual_cap=residual_cap_of(resolved),
    )
    if curvature is None:
        rule = (
            f"must be a model whose loss is convex and smooth in {resolved.plan.task.name} "
            "(convex-pass rests on it)"
        )
        fix = (
            "In classification softmax, linear and logistic are; elsewhere use "
            '"tangent-pass", "split-noise" or "dp-sgd".'
        )
        raise PlanError("training.model", training.model, rule, fix)
    return bounds_of(resolved, learning_rate, curvature)


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
    return rounding + training.passes * resolution * NORM_TOLERANCE
