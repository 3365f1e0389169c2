"""`describe`: one noisy sum of histograms, from which statistics are read.

A record adds one unit, u grid steps, to one cell of each of m columns, so what it adds has length
Δ₂ = u·√m exactly; counts are whole numbers, so nothing is rounded and no order of adding matters.
"""

from __future__ import annotations

import math
from typing import ClassVar, final

from sumus.guarantee.algorithms.one_sum import OneSum
from sumus.guarantee.claims import ONE_DRAW_ALONE, Statement, one_draw_per_round
from sumus.guarantee.layout import Layout
from sumus.noise import Grid
from sumus.plan import RULES, ResolvedPlan, cells_of

__all__ = ["ALGORITHMS"]


@final
class Describe(OneSum):
    """One noisy sum of counts, once; the grid's unit is one record in one cell."""

    rules = RULES["describe"]
    statements: ClassVar = (
        Statement(
            name="describe",
            compose=lambda s: one_draw_per_round(s, s.total),
            text="one noisy sum of histograms; a record is in one cell of each column, and "
            "statistics are read from the sum",
            brief="histograms",
            noise_in="records a count",
        ),
        ONE_DRAW_ALONE,
    )

    def layout(self, resolved: ResolvedPlan) -> Layout:
        return Layout(unit=1.0, step_weights=(1,), update_scale=1.0)

    def sensitivity_grid(self, resolved: ResolvedPlan, grid: Grid) -> float:
        """One unit in one cell of each column: u·√m."""
        return root_above(len(cells_of(resolved.plan))) * grid.resolution

    def headroom(self, resolved: ResolvedPlan) -> float:
        """All records of a silo may be in one cell."""
        return float(max(silo.records for silo in resolved.silos))


ALGORITHMS = (Describe,)


def root_above(columns: int) -> float:
    """√m, never below it: exact for squares, otherwise the next float."""
    root = math.isqrt(columns)
    return float(root) if root * root == columns else math.nextafter(math.sqrt(columns), math.inf)
