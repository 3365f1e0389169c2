"""`normal-equations`: one noisy sum of second moments, from which the server solves for the model.

Records have norm at most R (bias included) and targets at most B, so what one of them adds,
(x·xᵀ, x·yᵀ) with the off-diagonals of the upper triangle times √2, has length at most
C = R·√(R² + B²) exactly; where every class has a matrix of its own, a record adds x·xᵀ to one of
them, and C = R². Records (or persons) are put on the grid one by one, so Δ₂ is the resolution.
"""

from __future__ import annotations

import math
from typing import ClassVar, final

from sumus.errors import PlanError
from sumus.guarantee.algorithms.one_sum import OneSum
from sumus.guarantee.claims import ONE_DRAW_ALONE, Statement, one_draw_per_round
from sumus.guarantee.layout import Layout
from sumus.noise import Grid
from sumus.plan import RULES, ResolvedPlan

__all__ = ["ALGORITHMS", "LARGEST_SILO", "centred_bounds", "longest_moments"]

LARGEST_SILO = 1 << 24
"""Units of a silo whose moments are taken about its own mean, so that its sums fit 64 bits."""


@final
class NormalEquations(OneSum):
    """One noisy sum of moments, once."""

    rules = RULES["normal-equations"]
    statements: ClassVar = (
        Statement(
            name="normal-equations",
            compose=lambda s: one_draw_per_round(s, s.total),
            text="one noisy sum of second moments, record by record in integers; the model is "
            "solved from it",
            brief="normal equations",
        ),
        ONE_DRAW_ALONE,
    )

    def layout(self, resolved: ResolvedPlan) -> Layout:
        return Layout(unit=longest_moments(resolved), step_weights=(1,), update_scale=1.0)

    def sensitivity_grid(self, resolved: ResolvedPlan, grid: Grid) -> float:
        """The resolution, and √D more where the sum of a silo is rounded once."""
        rounded = math.sqrt(resolved.coordinates) if resolved.local_dimension else 0.0
        return grid.resolution + rounded

    def headroom(self, resolved: ResolvedPlan) -> float:
        """Moments add up over a silo's records: n·max(R², R·B)/C at most."""
        bound = resolved.plan.training.feature_bound
        target = _target_bound(resolved)
        largest = max(bound * bound, bound * target) / longest_moments(resolved)
        if resolved.local_dimension:
            largest = 1.0
        return largest * max(silo.records for silo in resolved.silos)


ALGORITHMS = (NormalEquations,)


def longest_moments(resolved: ResolvedPlan) -> float:
    """C = √(R⁴ + R²·B²): the most that one record adds to the sum, L2; B = 0 where there are no
    targets. About a silo's own mean it is that of the diameters 2R and 2B.
    """
    if resolved.local_dimension:
        radius, target = centred_bounds(resolved)
        return 4.0 * radius * math.hypot(radius, target)
    bound = resolved.plan.training.feature_bound
    return bound * math.hypot(bound, _target_bound(resolved))


def centred_bounds(resolved: ResolvedPlan) -> tuple[float, float]:
    """(R, B) of records without their bias feature, and of targets, where moments are about a silo's
    own mean; refused where they do not fit the integers of `gradients/scatter.py`.
    """
    plan = resolved.plan
    bound = plan.training.feature_bound
    if not bound <= 2.0:
        rule = "must be at most 2 beside training.local_parameters (normal-equations)"
        raise PlanError("training.feature_bound", bound, rule, "Use 1.0.")
    largest = max(silo.records for silo in resolved.silos)
    if largest > LARGEST_SILO:
        rule = f"must be at most {LARGEST_SILO} beside training.local_parameters (normal-equations)"
        raise PlanError("data.records_per_silo", largest, rule, 'Use "convex-pass".')
    # without the bias feature, a quarter of the bound, that is all a record has left
    return bound * math.sqrt(15.0 / 16.0), _target_bound(resolved)


def _target_bound(resolved: ResolvedPlan) -> float:
    """B of the plan's task and of as many outputs as its model has."""
    plan, shape = resolved.plan, resolved.moments
    if plan.task.linear_outputs(plan.training.model, shape.outputs) != shape.outputs:
        rule = (
            f"must be f·K with the K of training.model = {plan.training.model}, got "
            f"K = {shape.outputs}"
        )
        raise PlanError(
            "training.dimension", resolved.dimension, rule, "Omit it to have it counted."
        )
    if not shape.targets:
        return 0.0
    bound = plan.task.target_bound(shape.outputs)
    if bound is None:
        rule = f"has no targets for {plan.task.name}"
        raise PlanError("training.algorithm", "normal-equations", rule, 'Use "convex-pass".')
    return bound
