"""What an algorithm must say about itself: its vectors, its silos, its claims."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, final

from sumus.guarantee.claims import Claim, Setting, Statement
from sumus.guarantee.layout import Layout, SiloDesign
from sumus.noise import Grid, summation_slack_grid
from sumus.plan import AlgorithmRules, ResolvedPlan, ResolvedSilo, TrainingPlan, float_sum_terms

__all__ = ["Algorithm", "Work", "clipped_silo", "clipped_unit"]


@final
@dataclass(frozen=True)
class Work:
    """What a round does, in noisy steps, so that algorithms can be compared at equal work."""

    passes: int
    steps: int
    sampling_rate: float


class Algorithm(ABC):
    """What is drawn and what is proved for one algorithm. Nothing here depends on a record.

    Attributes:
        rules: what the plan knows about it.
        statements: all that can be claimed about it, the best first.
        removable: noise of the sum may be taken back: nothing else rests on it.
        largest_weight_norm: server and silos project the model onto the ball of this radius.
    """

    rules: ClassVar[AlgorithmRules]
    statements: ClassVar[tuple[Statement, ...]]
    removable: ClassVar[bool] = True
    largest_weight_norm: ClassVar[float] = math.inf

    @abstractmethod
    def layout(self, resolved: ResolvedPlan) -> Layout:
        """The grid of the sum, the weights of the steps, the scale of the update."""

    @abstractmethod
    def silo(self, resolved: ResolvedPlan, silo: ResolvedSilo, grid: Grid) -> SiloDesign:
        """What one silo adds to the sum, and how far one record can move it."""

    @abstractmethod
    def proved(self, setting: Setting) -> Mapping[str, bool]:
        """Names of the statements that say something about a setting, and whether each is proved
        for it.
        """

    @abstractmethod
    def queries(self, local_steps: int) -> int:
        """Noise draws that one silo adds up in a round."""

    @abstractmethod
    def longest_update_grid(
        self,
        resolved: ResolvedPlan,
        silo: SiloDesign,
        *,
        step_weights: Sequence[int],
        batch: int,
        weight_norm: float,
    ) -> float:
        """The longest L2 norm, grid steps, that an honest silo's vector can have before its noise.

        Args:
            step_weights: of the design.
            batch: records that a step of the silo takes at most.
            weight_norm: ‖θ‖ of the model that it was sent.
        """

    def claims(self, setting: Setting) -> tuple[Claim, ...]:
        """What can be claimed for a record of one silo, in the order of preference.

        For a person in several silos nothing is claimed that rests on one silo's noise alone
        (whoever holds the other rows knows them), or that is not proved.
        """
        statements = {statement.name: statement for statement in self.statements}
        several = setting.silos_per_unit > 1
        return tuple(
            Claim(
                name=name,
                release=partial(statements[name].release, setting),
                proved=proved,
                statement=statements[name].text,
            )
            for name, proved in self.proved(setting).items()
            if not several or (proved and statements[name].counts != "own")
        )

    def headroom(self, resolved: ResolvedPlan) -> float:
        """Clip norms per coordinate and query that a silo's vector may need; a ring that cannot
        hold them is refused.
        """
        return 0.0

    def noisy_coordinates(self, resolved: ResolvedPlan) -> int:
        """Coordinates of what a proof shows of one query: those of the sum, unless a silo draws
        noise for more.
        """
        return resolved.coordinates

    def state_noise(self, plan: TrainingPlan) -> float:
        """κ: variance of the noise that a silo adds to its state and never sends, in shares."""
        return 0.0

    def work(self, plan: TrainingPlan, silo: SiloDesign) -> Work:
        """What a round of this algorithm does, in noisy steps."""
        passes = max(1, round(silo.sampling_rate * silo.local_steps))
        return Work(passes, silo.local_steps, silo.sampling_rate)

    def compared(self, base: Setting, plan: TrainingPlan, work: Work) -> Setting:
        """The setting of this algorithm that does the same work as some other one's.

        Args:
            base: of dp-sgd, in whole clip norms.
        """
        return replace(base, algorithm=self.rules.name)


def clipped_unit(resolved: ResolvedPlan) -> float:
    """The grid's unit where silos send clipped vectors: the largest clip norm, at the plan's
    learning rate.
    """
    common = resolved.plan.training.learning_rate
    return max(silo.clip_norm * silo.learning_rate / common for silo in resolved.silos)


def clipped_silo(resolved: ResolvedPlan, silo: ResolvedSilo, grid: Grid) -> SiloDesign:
    """A silo that sends vectors of norm at most C_i, rounded as the plan says."""
    common = resolved.plan.training.learning_rate
    reach = silo.clip_norm * silo.learning_rate / common / grid.clip_norm
    resolution = max(1, math.floor(grid.resolution * min(reach, 1.0)))
    slack = summation_slack_grid(terms=float_sum_terms(max(silo.records, 1)), resolution=resolution)
    return SiloDesign(
        name=silo.name,
        learning_rate=silo.learning_rate,
        clip_norm=silo.clip_norm,
        resolution=resolution,
        l2_grid=Grid(silo.clip_norm, resolution).sensitivity_grid(
            resolved.rounding, resolved.dimension, float_slack_grid=slack
        ),
        sampling_rate=silo.sampling_rate,
        local_steps=silo.local_steps,
        records=silo.records,
        variance_ratio=silo.std_factor**2,
        overfull_rate=0.0,
    )
