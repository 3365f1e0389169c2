"""Algorithms whose silos send one vector each, once, a sum over their records: one draw of noise."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence

from sumus.guarantee.algorithms.algorithm import Algorithm
from sumus.guarantee.claims import Setting
from sumus.guarantee.layout import SiloDesign
from sumus.noise import Grid
from sumus.plan import ResolvedPlan, ResolvedSilo

__all__ = ["OneSum"]


class OneSum(Algorithm):
    """Every record counts once, in one sum that is noised once."""

    @abstractmethod
    def sensitivity_grid(self, resolved: ResolvedPlan, grid: Grid) -> float:
        """Δ₂ in grid steps: the most that one unit moves a silo's vector by, L2."""

    def silo(self, resolved: ResolvedPlan, silo: ResolvedSilo, grid: Grid) -> SiloDesign:
        return SiloDesign(
            name=silo.name,
            learning_rate=silo.learning_rate,
            clip_norm=grid.clip_norm,
            resolution=grid.resolution,
            l2_grid=self.sensitivity_grid(resolved, grid),
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
        """Every record adds a vector of length at most Δ₂."""
        return float(silo.records) * silo.l2_grid

    def proved(self, setting: Setting) -> Mapping[str, bool]:
        return {self.rules.name: True, "local": True}
