"""`newton`: in every round one noisy sum over all records, of their second moments and of their
clipped gradients, side by side.

A record of norm at most R adds trunc(r_m·x·xᵀ/R²), the upper triangle with off-diagonals times √2,
and trunc(r_g·clip_C(∇f)/C). The first has length at most r_m and the second at most r_g, in
integers, at whatever model the round begins with; with r_m = ⌊r·√s⌋ and r_g = ⌊r·√(1 − s)⌋ both
together have at most r = √(r_m² + r_g²) ≤ the resolution. Everything the server does with the sums
is post-processing (docs/mathematics.md, theorem 18).
"""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple, final

from sumus.errors import PlanError
from sumus.guarantee.algorithms.one_sum import OneSum
from sumus.guarantee.claims import ONE_DRAW_ALONE, Statement, one_draw_per_round
from sumus.guarantee.layout import Layout
from sumus.noise import Grid
from sumus.plan import RULES, ResolvedPlan

__all__ = ["ALGORITHMS", "NewtonParts", "newton_parts"]


class NewtonParts(NamedTuple):
    """The two parts of what one record adds, in grid steps.

    Args:
        matrix: r_m, that R² stands for.
        gradient: r_g, that C stands for.
    """

    matrix: int
    gradient: int


@final
class Newton(OneSum):
    """One noisy sum of moments and gradients a round; the grid's unit is a record's length."""

    rules = RULES["newton"]
    statements: ClassVar = (
        Statement(
            name="newton",
            compose=lambda s: one_draw_per_round(s, s.total),
            text="one noisy sum per round of all records' second moments and clipped gradients, "
            "record by record in integers; the server bends the step by the moments",
            brief="moments and gradients of all records",
            noise_in="records' lengths",
        ),
        ONE_DRAW_ALONE,
    )

    def layout(self, resolved: ResolvedPlan) -> Layout:
        _require_linear(resolved)
        return Layout(unit=1.0, step_weights=(1,), update_scale=1.0)

    def sensitivity_grid(self, resolved: ResolvedPlan, grid: Grid) -> float:
        """√(r_m² + r_g²) ≤ r, the resolution."""
        return float(grid.resolution)

    def headroom(self, resolved: ResolvedPlan) -> float:
        """A second moment adds up over a silo's records."""
        return float(max(silo.records for silo in resolved.silos))


ALGORITHMS = (Newton,)


def newton_parts(resolved: ResolvedPlan, resolution: int) -> NewtonParts:
    """How a record's length is split: r_m² + r_g² ≤ r².

    Guarantee: holds in integers; a resolution that leaves one of them without a step is refused.
    """
    share = resolved.plan.training.matrix_share
    matrix = math.isqrt(math.floor(share * resolution * resolution))
    gradient = math.isqrt(resolution * resolution - matrix * matrix)
    if not (matrix > 0 and gradient > 0):
        rule = f"must leave steps of {resolution} to moments and to gradients"
        raise PlanError("training.matrix_share", share, rule, "Raise noise.resolution_bits.")
    return NewtonParts(matrix, gradient)


def _require_linear(resolved: ResolvedPlan) -> None:
    """Refuse a declared size that is not that of a linear model of these moments."""
    plan, shape = resolved.plan, resolved.moments
    if plan.task.linear_outputs(plan.training.model, shape.outputs) != shape.outputs:
        rule = f"must be f·K with the K of training.model = {plan.training.model}"
        fix = "Omit it to have it counted."
        raise PlanError("training.dimension", resolved.dimension, rule, fix)
