"""`describe`: one noisy sum of histograms, from which statistics are read.

A record adds one unit, u grid steps, to one cell of each of m columns, so what it adds has length
Δ₂ = u·√m exactly; counts are whole numbers, so nothing is rounded and no order of adding matters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar, final

from sumus.guarantee.algorithms.algorithm import Algorithm
from sumus.guarantee.claims import ONE_DRAW_ALONE, Setting, Statement, one_draw_per_round
from sumus.guarantee.layout import Layout, SiloDesign
from sumus.noise import Grid
from sumus.plan import RULES, ResolvedPlan, ResolvedSilo, cells_of

__all__ = ["ALGORITHMS"]


@final
class Describe(Algorithm):
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

    def silo(self, resolved: ResolvedPlan, silo: ResolvedSilo, grid: Grid) -> SiloDesign:
        columns = len(cells_of(resolved.plan))
        return SiloDesign(
            name=silo.name,
            learning_rate=silo.learning_rate,
            clip_norm=grid.clip_norm,
            resolution=grid.resolution,
            l2_grid=root_above(columns) * grid.resolution,
            sampling_rate=1.0,
            local_steps=1,
            records=silo.records,
            variance_ratio=silo.std_factor**2,
            overfull_rate=0.0,
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
        """Every record adds a vector of length Δ₂."""
        return float(silo.records) * silo.l2_grid

    def proved(self, setting: Setting) -> Mapping[str, bool]:
        return {"describe": True, "local": True}

    def headroom(self, resolved: ResolvedPlan) -> float:
        """All records of a silo may be in one cell."""
        return float(max(silo.records for silo in resolved.silos))


ALGORITHMS = (Describe,)


def root_above(columns: int) -> float:
    """√m, never below it: exact for squares, otherwise the next float."""
    root = math.isqrt(columns)
    return float(root) if root * root == columns else math.nextafter(math.sqrt(columns), math.inf)
