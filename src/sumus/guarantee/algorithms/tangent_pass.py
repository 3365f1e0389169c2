"""`tangent-pass`: the pass over a network's outputs, linearised at the model of the round.

    f_x(u) = φ(z_x + A_x·u),   A_x = s_x·J_x

z_x are the outputs of record x at the public model θ, J_x their Jacobian and s_x ≤ 1 what brings it
below public bounds, all of them stored numbers that follow from the record and θ. In u every such
loss is convex and smooth, whatever the network is, so the pass is that of a convex model
(docs/mathematics.md, theorem 17).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, final

from sumus.errors import PlanError
from sumus.guarantee.algorithms.non_expansive_pass import (
    NORM_TOLERANCE,
    ConvexBounds,
    NonExpansivePass,
    bounds_of,
    residual_cap_of,
)
from sumus.guarantee.claims import ONE_DRAW_ALONE, Statement, one_draw_per_round
from sumus.guarantee.layout import SiloDesign
from sumus.plan import RULES, ResolvedPlan
from sumus.tasks import Link

__all__ = ["ALGORITHMS", "TangentBounds", "tangent_bounds"]

# ‖A_x‖_F over R: a linear model with 36 classes reaches it
_OUTPUT_SPREAD: Final = 6.0
_LARGEST_OUTPUTS: Final = 4096.0  # ‖z_x‖: no probability tells such outputs from longer ones
_LARGEST_MOVE: Final = 32.0  # R·‖u‖: a round moves no difference of two outputs by more than √2·32


@final
@dataclass(frozen=True, kw_only=True)
class TangentBounds:
    """What is stored of a record stays below these, and so does the pass.

    Args:
        convex: constants of f_x, and so of a step.
        jacobian_norm: R. Softmax: no two rows of A_x are farther apart than √2·R, nor is any
            longer; otherwise `reach` says.
        whole_norm: of ‖A_x‖_F.
        outputs_norm: of ‖z_x‖.
        move_norm: of ‖u‖; steps end with a projection onto this ball.
    """

    convex: ConvexBounds
    jacobian_norm: float
    whole_norm: float
    outputs_norm: float
    move_norm: float

    def reach(self, link: Link, outputs: int) -> float:
        """What a record's Jacobian is brought below: R where outputs are compared, otherwise the
        longest ‖A_x‖ for which C and β hold, which is R, and √2·R for a yes or no with one logit: a
        softmax of (z, 0).
        """
        if link is Link.SOFTMAX:
            return self.jacobian_norm
        bends = 0.25 if link is Link.LOGISTIC else 1.0  # most that a residual answers to its output
        length = self.convex.residual_cap * math.sqrt(outputs)
        return min(self.convex.gradient_norm / length, math.sqrt(self.convex.smoothness / bends))


@final
class TangentPass(NonExpansivePass):
    """Convex in the move away from the model of the round."""

    rules = RULES["tangent-pass"]
    statements: ClassVar = (
        Statement(
            name="tangent-pass",
            compose=lambda s: one_draw_per_round(s, s.total),
            text=(
                "noiseless non-expansive local pass on the linearised network, one draw of noise "
                "per round"
            ),
            brief="tangent pass",
        ),
        ONE_DRAW_ALONE,
    )

    def bounds(self, resolved: ResolvedPlan, learning_rate: float) -> ConvexBounds:
        return tangent_bounds(resolved, learning_rate).convex

    def float_slack_grid(
        self,
        resolved: ResolvedPlan,
        *,
        learning_rate: float,
        steps: int,
        records: int,
        resolution: float,
    ) -> float:
        """2·P·S·u·e·r·b/(γC) + P·r·2^-19, u = 2^-53, e·u the error of one step.

            e = 2·{ℓF·[ρ(d + n + 6) + (d + 10)·F·W + 2Z + 2d + 12] + (d/2 + 8)·(W + ℓC₁)}

        F, Z and W bound ‖A_x‖_F, ‖z_x‖ and ‖u‖, ℓ = 2/β is the longest (γ/b)·|bin|, ρ = C₁/R a
        residual's length and C₁ a gradient's without a cap; n·m stands for n where a record is
        made of up to m rows.
        """
        bounds = tangent_bounds(resolved, learning_rate)
        convex, training = bounds.convex, resolved.plan.training
        numbers = float(resolved.dimension)
        longest = 2.0 / convex.smoothness
        uncapped = convex.gradient_norm / convex.residual_cap
        rows = float(records * resolved.rows_per_record)
        outputs = (
            (numbers + 10.0) * bounds.whole_norm * bounds.move_norm
            + 2.0 * bounds.outputs_norm
            + 2.0 * numbers
            + 12.0
        )
        residuals = uncapped / bounds.jacobian_norm * (numbers + rows + 6.0) + outputs
        moved = (numbers / 2.0 + 8.0) * (bounds.move_norm + longest * uncapped)
        per_step = 2.0 * (longest * bounds.whole_norm * residuals + moved)
        unit = learning_rate * convex.gradient_norm / resolved.divisor
        rounding = 2.0 * training.passes * steps * 2.0**-53 * per_step * resolution / unit
        return rounding + training.passes * resolution * NORM_TOLERANCE

    def longest_update_grid(
        self,
        resolved: ResolvedPlan,
        silo: SiloDesign,
        *,
        step_weights: Sequence[int],
        batch: int,
        weight_norm: float,
    ) -> float:
        """As of any pass; u begins at zero, wherever the model is."""
        return super().longest_update_grid(
            resolved, silo, step_weights=step_weights, batch=batch, weight_norm=0.0
        )


ALGORITHMS = (TangentPass,)


def tangent_bounds(resolved: ResolvedPlan, learning_rate: float) -> TangentBounds:
    """The bounds of a plan; refuses tasks whose loss is not known to be convex in the outputs."""
    training, task = resolved.plan.training, resolved.plan.task
    bound = training.feature_bound
    curvature = task.curvature(
        "linear", feature_bound=bound, residual_cap=residual_cap_of(resolved)
    )
    if curvature is None or task.link(1) is None:
        rule = "has no tangent pass (its loss is no known convex function of the outputs)"
        raise PlanError("training.task", task.name, rule, 'Use "split-noise" or "dp-sgd".')
    return TangentBounds(
        convex=bounds_of(resolved, learning_rate, curvature),
        jacobian_norm=bound,
        whole_norm=_OUTPUT_SPREAD * bound,
        outputs_norm=_LARGEST_OUTPUTS,
        move_norm=_LARGEST_MOVE / bound,
    )
