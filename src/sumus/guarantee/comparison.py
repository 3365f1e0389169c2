"""What every algorithm would cost for the same target: the noise in the averaged update, side by
side.

The common measure is the standard deviation of the noise in one coordinate of the *averaged* update
of a round, in units of what one record may do to its silo's sum, γC/b, over N. With S local steps
at sampling rate q, P = max(1, qS) passes, T rounds, k of N noises counted, and σ_P(q, n) the least
noise multiplier of n subsampled steps:

    single-step   √(N/k)·σ_P(q, T)                       one noisy step per round, the same batch
    last-step     √(N/k·S)·σ,  ε(T(S−1) × σ/√k ∘ T × σ)  dp-sgd, any model
    local         √(N·S)·σ_P(q, T·S)                     dp-sgd, every silo for itself
    split-noise   √(N/k·S)·σ,  ε(T(S−1) × σ_eff ∘ T × σ) any model
    convex-pass   √(N/k)·P·√T/μ(ε, δ)                    convex losses
    per-step      √(N/k·S)·σ_P(q, T·S)                   Heikkilä 2025, theorem 4.5; not proved, S > 1
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import final

from sumus.accounting import epsilon_of, least_noise
from sumus.errors import GuaranteeError
from sumus.guarantee.algorithms import ALGORITHMS, STATEMENTS, algorithm_of, release_of
from sumus.guarantee.algorithms.algorithm import Algorithm
from sumus.guarantee.claims import Setting, Statement
from sumus.guarantee.design import NoiseDesign
from sumus.noise import Gaussian
from sumus.plan import noise_ratios

__all__ = ["AlgorithmCost", "Comparison", "compare"]


def _compared() -> dict[str, tuple[Algorithm, Statement]]:
    """The statements that are set side by side, by name; last those that are not always proved."""
    pairs = [
        (algorithm, statement)
        for algorithm in ALGORITHMS.values()
        for statement in algorithm.statements
        if statement.remark is not None
    ]
    order = list(STATEMENTS)
    pairs.sort(key=lambda pair: (pair[1].proved_for is not None, order.index(pair[1].name)))
    return {statement.name: (algorithm, statement) for algorithm, statement in pairs}


_COMPARED = _compared()


@final
@dataclass(frozen=True, kw_only=True)
class AlgorithmCost:
    """What one analysis of one algorithm needs for the target.

    Args:
        analysis: name of the analysis.
        algorithm: the plan's `training.algorithm` it belongs to.
        noise_multiplier: σ, total, per noisy query.
        average_noise: standard deviation of the averaged update's noise per round, in γC/(bN).
        proved: whether the analysis is proved for this many local steps.
        remark: what it needs.
    """

    analysis: str
    algorithm: str
    noise_multiplier: float
    average_noise: float
    proved: bool
    remark: str


@final
@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The settings of all algorithms that do the same work per round as the plan.

    Args:
        own: the analysis that stands for the plan's own algorithm.
        settings: by analysis.
    """

    epsilon: float
    delta: float
    accountant: str
    silos: int
    own: str
    settings: dict[str, Setting]

    def costs(self) -> list[AlgorithmCost]:
        """The least noise of every algorithm for the target."""
        return [self._cost(name, self.least_multiplier(name)) for name in self.settings]

    def least_multiplier(self, name: str) -> float:
        """σ: the least total noise multiplier of one analysis for the target."""
        setting = self.settings[name]
        continuous = replace(setting, mechanism=Gaussian.name)
        return least_noise(
            lambda sigma: release_of(name, replace(setting, noise_multiplier=sigma)),
            limit=lambda sigma: release_of(name, replace(continuous, noise_multiplier=sigma)),
            epsilon=self.epsilon,
            delta=self.delta,
            accountant=self.accountant,
        )

    def average_noise(self, name: str, multiplier: float, *, silos: int | None = None) -> float:
        """Noise of the averaged update in γC/(bN) for a total multiplier: √(N/k·queries)·σ."""
        setting = self.settings[name]
        queries = algorithm_of(setting.algorithm).queries(setting.local_steps)
        return math.sqrt((silos or self.silos) / setting.contributors * queries) * multiplier

    def epsilon_at(self, name: str, average_noise: float, rounds: int) -> float:
        """ε of an analysis after some rounds when the averaged update carries the given noise;
        infinite if none can be certified.
        """
        multiplier = average_noise / self.average_noise(name, 1.0)
        setting = replace(self.settings[name], noise_multiplier=multiplier, rounds=rounds)
        try:
            return epsilon_of(
                release_of(name, setting), delta=self.delta, accountant=self.accountant
            )
        except GuaranteeError:
            return math.inf

    def with_silos(self, silos: int) -> Comparison:
        """The same federation with another number of silos, as many of them not counted as
        before.
        """
        lost = self.silos - next(iter(self.settings.values())).contributors
        settings = {
            name: replace(each, contributors=silos - lost) for name, each in self.settings.items()
        }
        return replace(self, silos=silos, settings=settings)

    def _cost(self, name: str, multiplier: float) -> AlgorithmCost:
        setting, (_, statement) = self.settings[name], _COMPARED[name]
        proved = statement.proved_for is None or setting.local_steps == 1
        noise = self.average_noise(name, multiplier)
        return AlgorithmCost(
            analysis=name,
            algorithm=setting.algorithm,
            noise_multiplier=multiplier,
            average_noise=noise,
            proved=proved,
            remark=statement.remark or "",
        )


def compare(design: NoiseDesign) -> Comparison | None:
    """The comparison for a design; None where the unit is a silo, where there is no target and no
    noise to compare at, where rounds have noise of their own, and for what does its work without
    steps.
    """
    plan = design.plan
    own = next(
        (name for name, (algorithm, _) in _COMPARED.items() if algorithm is design.algorithm), None
    )
    if plan.rules.protects != "records" or plan.privacy.epsilon is None or own is None:
        return None
    if noise_ratios(plan):
        return None
    silo = design.silos[0]
    work = design.algorithm.work(plan, silo)
    base = replace(
        design.setting(silo),
        local_steps=work.steps,
        slots=work.steps,
        sampling_rate=work.sampling_rate,
        l2_grid=float(design.grid.resolution),
        state_noise=0.0,
        overfull_rate=0.0,
        own_share=1.0,
        other_shares=None,
    )
    settings = {
        name: algorithm.compared(base, plan, work)
        for name, (algorithm, statement) in _COMPARED.items()
        # of persons in several silos nothing is claimed that rests on one silo's noise alone
        if base.silos_per_unit == 1 or statement.counts != "own"
    }
    return Comparison(
        epsilon=plan.privacy.epsilon,
        delta=plan.privacy.delta,
        accountant=plan.privacy.accountant,
        silos=design.resolved.invited,
        own=own,
        settings=settings,
    )
