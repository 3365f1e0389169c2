"""`silo`: noiseless local steps, the whole update clipped and noised (algorithm 3 of Heikkilä 2025);
`fedavg`: the same without clip and noise, and without any guarantee.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, final

from sumus.guarantee.algorithms.algorithm import Algorithm, clipped_silo, clipped_unit
from sumus.guarantee.claims import ONE_DRAW_ALONE, Setting, Statement, one_draw_per_round
from sumus.guarantee.layout import Layout, SiloDesign
from sumus.noise import Grid
from sumus.plan import RULES, ResolvedPlan, ResolvedSilo

__all__ = ["ALGORITHMS"]


class _WholeUpdate(Algorithm):
    def layout(self, resolved: ResolvedPlan) -> Layout:
        unit = clipped_unit(resolved)
        return Layout(unit=unit, step_weights=(1,), update_scale=1.0 / resolved.invited)

    def silo(self, resolved: ResolvedPlan, silo: ResolvedSilo, grid: Grid) -> SiloDesign:
        return clipped_silo(resolved, silo, grid)

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
        """The clip norm of the whole update, which truncation never exceeds."""
        return float(silo.resolution)


@final
class WholeSilo(_WholeUpdate):
    """One noisy sum of clipped updates a round; the unit is all records of a silo."""

    rules = RULES["silo"]
    statements: ClassVar = (
        Statement(
            name="silo",
            compose=lambda s: one_draw_per_round(s, s.total),
            text="the whole update of a silo is clipped; the noise of all counted silos protects it",
            brief="whole update",
        ),
        ONE_DRAW_ALONE,
    )

    def proved(self, setting: Setting) -> Mapping[str, bool]:
        return {"silo": True, "local": True}


@final
class FedAvg(_WholeUpdate):
    """One plain sum of updates a round."""

    rules = RULES["fedavg"]
    statements: ClassVar = ()
    removable = False

    def proved(self, setting: Setting) -> Mapping[str, bool]:
        return {}


ALGORITHMS = (WholeSilo, FedAvg)
