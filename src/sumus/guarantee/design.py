"""From a plan to what is drawn: the one frozen value that the trainer samples from and the
accountant reads.

`NoiseDesign` says, for every silo of a resolved plan, onto which grid its vector goes, how far one
record can move it, and which law its noise has. Nothing here depends on a record.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self, final

from sumus.errors import GuaranteeError, PlanError
from sumus.guarantee.algorithms import algorithm_of
from sumus.guarantee.algorithms.algorithm import Algorithm
from sumus.guarantee.claims import Setting, equal_share
from sumus.guarantee.coins import check_coins, coins_of
from sumus.guarantee.layout import SiloDesign
from sumus.guarantee.mechanisms import AdditiveNoise, Coins, Mechanism
from sumus.noise import LAWS, Grid, Law, PoissonBinomial, component_shares, noise_law
from sumus.plan import (
    PublicFacts,
    ResolvedPlan,
    TrainingPlan,
    has_schedule,
    noise_ratios,
    plan_of_round,
    plans_of_rates,
)

__all__ = ["NoiseDesign"]

_WRAP_LOG_PROBABILITY = -40.0 * math.log(2.0)
_LARGEST_RING = 64  # bits
_LEAST_HEADROOM = 4.0  # clip norms per coordinate and query that a silo must be able to express


@final
@dataclass(frozen=True, kw_only=True)
class NoiseDesign:
    """The public design of one resolved plan with a fixed noise multiplier, made by `of`.

    Args:
        resolved: the plan, noise multiplier included.
        grid: `grid.clip_norm` real units are `grid.resolution` grid steps of the sum.
        silos: one design per silo.
        step_weights: fixed-point integer weights of the local steps in the release (all 1 without
            momentum or a schedule).
        update_scale: decoded sum × this = the averaged model update.
        clamp_grid: a silo clamps every coordinate of each query to ± this, so that the ring
            cannot wrap whatever the records are.
        facts: what is public about the records, for the account to show; no number depends on it.
    """

    resolved: ResolvedPlan
    grid: Grid
    silos: tuple[SiloDesign, ...]
    step_weights: tuple[int, ...]
    update_scale: float
    clamp_grid: int
    facts: PublicFacts | None = field(default=None, compare=False)
    _rounds: dict[int, NoiseDesign] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    @classmethod
    def of(cls, resolved: ResolvedPlan, *, noise_multiplier: float | None = None) -> Self:
        """The design of a resolved plan. Refuses a modulus that can wrap and differences between
        silos that no analysis covers.

        Args:
            noise_multiplier: σ, total, in clip norms; omitted: the plan's own.
        """
        if noise_multiplier is not None:
            resolved = resolved.replace("noise", noise_multiplier=noise_multiplier)
        _check(resolved)
        algorithm = algorithm_of(resolved.rules.name)
        layout = algorithm.layout(resolved)
        grid = Grid(layout.unit, resolved.plan.resolution)
        design = cls(
            resolved=resolved,
            grid=grid,
            silos=_silos_of_all_rounds(resolved, algorithm, grid),
            step_weights=layout.step_weights,
            update_scale=layout.update_scale,
            clamp_grid=1 << 62,
        )
        if not resolved.rules.private:
            return design
        if has_schedule(resolved.plan):  # every round has a clamp of its own
            _check_largest_noise(design)
            return design
        return replace(design, clamp_grid=_clamp_grid(design))

    def in_round(self, number: int) -> NoiseDesign:
        """What round `number` (from 0) computes and draws; the design itself where no round differs
        from another.
        """
        if not has_schedule(self.plan):
            return self
        if number not in self._rounds:
            self._rounds[number] = NoiseDesign.of(plan_of_round(self.resolved, number))
        return self._rounds[number]

    def after(self, numbers: Sequence[int]) -> NoiseDesign:
        """The design of the rounds with these numbers (from 0) alone, in whatever order they were
        released; its laws are those that were drawn.
        """
        rounds = len(numbers)
        if not noise_ratios(self.plan):
            plan = self.plan.replace("federation", rounds=rounds)
        else:
            every = noise_ratios(self.plan)
            kept = tuple(every[number] for number in numbers)
            plan = replace(
                self.plan,
                federation=replace(self.plan.federation, rounds=rounds),
                noise=replace(self.plan.noise, schedule=kept),
            )
        return replace(self, resolved=ResolvedPlan.of(plan, self.resolved.silo_names))

    @property
    def plan(self) -> TrainingPlan:
        """What is hashed, approved and written."""
        return self.resolved.plan

    @property
    def noise_multiplier(self) -> float:
        """σ, total, in clip norms."""
        multiplier = self.plan.noise.noise_multiplier
        if multiplier is None:
            raise PlanError(
                "noise.noise_multiplier",
                None,
                "must be calibrated before noise is drawn",
                "Call sumus.account first.",
            )
        return multiplier

    def about(self, facts: PublicFacts) -> Self:
        """The same design for records of which this is public."""
        return replace(self, facts=facts)

    @property
    def coins(self) -> PoissonBinomial | None:
        """The coins that silos toss instead of adding noise, under the Poisson-binomial
        mechanism.
        """
        return coins_of(self.resolved)

    @property
    def mechanism(self) -> Mechanism:
        """What becomes of a silo's vector, and what is proved for it."""
        coins = self.coins
        return AdditiveNoise(self) if coins is None else Coins(self, coins)

    @property
    def queries_per_round(self) -> int:
        """Noise draws that one silo adds up in a round."""
        return self.algorithm.queries(max(silo.local_steps for silo in self.silos))

    @property
    def algorithm(self) -> Algorithm:
        """What is drawn and what is proved for the plan's algorithm."""
        return algorithm_of(self.resolved.rules.name)

    @property
    def share(self) -> Law:
        """The law a silo with an equal share draws, per query and coordinate."""
        return self._law(1.0)

    @property
    def shares_of_rounds(self) -> tuple[tuple[Law, int], ...]:
        """The laws of an equal share, each with a number of rounds in which it is drawn."""
        ratios = noise_ratios(self.plan)
        if not ratios:
            return ((self.share, self.plan.federation.rounds),)
        return tuple((self.share_at(ratio), count) for ratio, count in Counter(ratios).items())

    def drawn_by(self, silo: SiloDesign) -> Law:
        """The law that one silo draws, per query and coordinate."""
        return self._law(silo.variance_ratio)

    @property
    def state_noise(self) -> Law | None:
        """The law of the unsent noise of split-noise; None where none is drawn.

        It hides the state at which the next gradient is taken, so the last step of a round, after
        which there is none, goes without.
        """
        return self.state_noise_beside(self.share)

    def state_noise_beside(self, share: Law) -> Law | None:
        """The law of unsent noise in a round whose equal share is this one."""
        shares = self.algorithm.state_noise(self.plan)
        if shares == 0.0 or self.queries_per_round == 1:
            return None
        return noise_law(self.plan.noise.mechanism, share.variance_grid * shares)

    @property
    def removable_components(self) -> tuple[Law, ...]:
        """The share of one silo in independent parts: the first is kept, part l is taken back if
        fewer than l silos drop out.
        """
        plan = self.plan
        fractions = component_shares(
            silos=plan.least_invited, dropouts=plan.federation.dropouts, colluding=plan.colluding
        )
        total = self.share.variance_grid * self.resolved.contributors
        return tuple(
            noise_law(plan.noise.mechanism, float(fraction) * total) for fraction in fractions
        )

    def share_at(self, ratio: float) -> Law:
        """An equal share of `ratio` times the plan's noise."""
        return equal_share(
            self.plan.noise.mechanism,
            self.noise_multiplier * ratio,
            resolution=self.grid.resolution,
            contributors=self.resolved.contributors,
        )

    def _law(self, factor: float) -> Law:
        if noise_ratios(self.plan):  # a law that no round draws
            raise GuaranteeError(
                "noise.schedule gives every round a noise of its own. Ask `in_round` for it."
            )
        share = self.share_at(1.0)
        return (
            share
            if factor == 1.0
            else noise_law(self.plan.noise.mechanism, share.variance_grid * factor)
        )

    def setting(self, silo: SiloDesign, *, known: int = 0) -> Setting:
        """What the accountant needs to know for a record of one silo.

        Args:
            known: counted silos, not this one, whose noise the adversary knows after all.
        """
        plan, contributors = self.plan, self.resolved.contributors
        counted = contributors - known
        equal = all(each.variance_ratio == 1.0 for each in self.silos)
        own = Setting(
            algorithm=plan.training.algorithm,
            mechanism=plan.noise.mechanism,
            rounds=plan.federation.rounds,
            local_steps=silo.local_steps,
            sampling_rate=silo.sampling_rate,
            noise_multiplier=self.noise_multiplier * math.sqrt(counted / contributors),
            contributors=counted,
            resolution=self.grid.resolution,
            l2_grid=silo.l2_grid,
            dimension=self.algorithm.noisy_coordinates(self.resolved),
            state_noise=self.algorithm.state_noise(plan),
            overfull_rate=silo.overfull_rate,
            slots=min(each.local_steps for each in self.silos),
            own_share=silo.variance_ratio * self._kept_part,
            other_shares=None if equal else self._other_shares(silo, counted - 1),
            noise_ratios=noise_ratios(plan),
        )
        several = plan.protects_persons and plan.privacy.silos_per_person > 1
        return self._of_several(own, counted) if several else own

    def _of_several(self, own: Setting, counted: int) -> Setting:
        """The setting of a person in several silos, each of them taken for the most sensitive, most
        often sampled and least noisy one, whoever drops out.
        """
        silos = self.silos
        ratios = sorted(each.variance_ratio for each in silos)
        return replace(
            own,
            silos_per_unit=self.plan.privacy.silos_per_person,
            local_steps=max(each.local_steps for each in silos),
            sampling_rate=max(each.sampling_rate for each in silos),
            l2_grid=max(each.l2_grid for each in silos),
            overfull_rate=max(each.overfull_rate for each in silos),
            own_share=ratios[0] * self._kept_part,
            other_shares=None if own.other_shares is None else math.fsum(ratios[1:counted]),
        )

    @property
    def _kept_part(self) -> float:
        """The part of its share that a silo keeps in every round: of removable noise only what
        stays when nobody drops out, k/(N − c).
        """
        plan = self.plan
        return (
            self.resolved.contributors / (plan.least_invited - plan.colluding)
            if plan.noise.removable
            else 1.0
        )

    def _other_shares(self, silo: SiloDesign, counted: int) -> float:
        """Noise variances of the least noisy others: whoever drops out or colludes may be the
        noisiest.
        """
        others = sorted(each.variance_ratio for each in self.silos if each is not silo)
        return math.fsum(others[:counted])


def _silos_of_all_rounds(
    resolved: ResolvedPlan, algorithm: Algorithm, grid: Grid
) -> tuple[SiloDesign, ...]:
    """What every silo adds to the sum; of rounds with rates of their own the largest sensitivity
    and the most overfull bins, each in grid steps of its round.
    """
    silos = tuple(algorithm.silo(resolved, silo, grid) for silo in resolved.silos)
    for plan in plans_of_rates(resolved)[1:]:
        unit = Grid(algorithm.layout(plan).unit, plan.plan.resolution)
        of_round = (algorithm.silo(plan, silo, unit) for silo in plan.silos)
        silos = tuple(
            replace(
                most,
                l2_grid=max(most.l2_grid, each.l2_grid),
                overfull_rate=max(most.overfull_rate, each.overfull_rate),
            )
            for most, each in zip(silos, of_round, strict=True)
        )
    return silos


def _check_largest_noise(design: NoiseDesign) -> None:
    """Refuse a ring that the noise of some round could wrap: the largest noise is the hardest."""
    ratios = noise_ratios(design.plan)
    loudest = max(range(len(ratios)), key=ratios.__getitem__) if ratios else 0
    design.in_round(loudest)


def _check(resolved: ResolvedPlan) -> None:
    """Refuse what no analysis covers."""
    plan = resolved.plan
    law = LAWS.get(plan.noise.mechanism)
    if law is not None and not law.discrete and plan.aggregation.protocol != "trusted":
        rule = f'must be discrete under secure aggregation; "{law.name}" is continuous'
        raise PlanError(
            "noise.mechanism",
            plan.noise.mechanism,
            rule,
            'Use "skellam", or aggregation.protocol = "trusted" to simulate.',
        )
    if resolved.rules.private and plan.noise.mechanism not in LAWS:
        check_coins(plan)
    if plan.noise.removable:
        _check_removable(resolved)


def _check_removable(resolved: ResolvedPlan) -> None:
    """Noise may be taken back only where the guarantee rests on the sum's noise alone and variances
    add within the law.
    """
    plan = resolved.plan
    algorithm, law = algorithm_of(resolved.rules.name), LAWS.get(plan.noise.mechanism)
    steps = max(resolved.local_steps, *(silo.local_steps for silo in resolved.silos))
    one_query = algorithm.removable and algorithm.queries(steps) == 1
    adds_up = law is not None and law.discrete and law.divisible
    fits = one_query and adds_up and plan.federation.selection == "all"
    if (
        not fits
        or plan.federation.dropouts == 0
        or any(own.std_factor for own in plan.silo.values())
    ):
        rule = (
            "needs skellam noise, one noisy query per round, equal shares, all silos invited, and "
            "dropouts above 0"
        )
        raise PlanError("noise.removable", True, rule, "Set it to false.")


def _clamp_grid(design: NoiseDesign) -> int:
    """The largest magnitude a silo may give one coordinate of one query so that the sum wraps with
    probability below 2^-40.

    m/2 ≥ N·Σ_s w_s·clamp + t, with t the point that the summed noise exceeds in any coordinate
    of any round with probability 2^-40.
    """
    plan = design.plan
    parties = design.resolved.invited
    half = 2.0 ** (plan.aggregation.modulus_bits - 1)
    if plan.noise.mechanism not in LAWS or not design.share.discrete:
        return 1 << 52  # the range of coins is checked apart, floats do not wrap
    largest = design.drawn_by(max(design.silos, key=lambda silo: silo.variance_ratio))
    heaviest, draws = max(design.step_weights), parties * design.queries_per_round
    log_coordinates = math.log(2.0 * design.resolved.coordinates * plan.federation.rounds)
    low, high = 0.0, 2.0**62
    for _ in range(200):  # the bound decreases with the threshold
        middle = 0.5 * (low + high)
        safe = (
            log_coordinates + largest.log_tail_bound(middle / heaviest, draws)
            <= _WRAP_LOG_PROBABILITY
        )
        low, high = (low, middle) if safe else (middle, high)
    weight_sum = sum(design.step_weights[: design.queries_per_round])
    clamp = math.floor((half - high - 1.0) / (parties * weight_sum))
    headroom = max(_LEAST_HEADROOM, design.algorithm.headroom(design.resolved))
    if clamp < headroom * design.grid.resolution:
        needed = high + headroom * design.grid.resolution * parties * weight_sum + 1.0
        rule = (
            f"must hold the sum of {parties} silos and its noise without wrapping (probability "
            "above 2^-40)"
        )
        bits = math.ceil(math.log2(2.0 * needed))
        fix = (
            f"Use at least {bits}, or lower noise.resolution_bits."
            if bits <= _LARGEST_RING
            else f"Lower noise.resolution_bits by {bits - _LARGEST_RING} or more, and use "
            f"{_LARGEST_RING}."
        )
        raise PlanError("aggregation.modulus_bits", plan.aggregation.modulus_bits, rule, fix)
    return clamp
