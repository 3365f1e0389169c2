"""From a plan to what is drawn: the one frozen value that the trainer samples from and the
accountant reads.

`NoiseDesign` says, for every silo of a resolved plan, onto which grid its vector goes, how far one
record can move it, and which law its noise has. Nothing here depends on a record.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Self, final

from scipy.special import betainc

from sumus.errors import PlanError
from sumus.guarantee.claims import Setting
from sumus.guarantee.mechanisms import check_coins, coins_of
from sumus.noise import (
    Grid,
    Law,
    PoissonBinomial,
    Rounding,
    component_shares,
    noise_law,
    summation_slack_grid,
)
from sumus.plan import PublicFacts, ResolvedPlan, ResolvedSilo, TrainingPlan, float_sum_terms

__all__ = ["ConvexBounds", "NoiseDesign", "SiloDesign", "convex_bounds"]

LARGEST_WEIGHT_NORM = 1e3
"""Weights of a convex pass stay within this norm: every step ends with a projection onto the ball,
and so does the server's. The float slack of the sensitivity rests on it. A projection is
non-expansive: it never raises a sensitivity, and no record can stop a run.
"""

# relative: records are float32, so their norm may exceed the feature bound by this much
_NORM_TOLERANCE = 2.0**-19

_WEIGHT_BITS = 8
_WRAP_LOG_PROBABILITY = -40.0 * math.log(2.0)
_LEAST_HEADROOM = 4.0  # clip norms per coordinate and query that a silo must be able to express


# -- convex pass: constants of the loss


@final
@dataclass(frozen=True, kw_only=True)
class ConvexBounds:
    """Constants of a generalised linear loss on records of norm at most R (bias included),
    residuals capped at t (1: not capped).

    softmax: gradient norm C = √2·t·R, smoothness β = R²/2; binary logistic: C = t·R, β = R²/4.

    Args:
        gradient_norm: C.
        smoothness: β.
        residual_cap: t, which the pass takes from here, so that it caps what is accounted.
        bin_cap: the most records a bin may hold for a step of full length, ⌊(2/γ − λ)·b/β⌋, with β
            of records a float32 too long.
    """

    gradient_norm: float
    smoothness: float
    residual_cap: float
    bin_cap: int


def convex_bounds(resolved: ResolvedPlan, learning_rate: float) -> ConvexBounds:
    """The constants for one learning rate; refuses models whose loss is not known to be convex and
    smooth.
    """
    training, divisor = resolved.plan.training, resolved.divisor
    bound2 = training.feature_bound**2
    residual_cap = 1.0 if training.residual_cap is None else training.residual_cap
    if training.model in ("softmax", "linear"):
        gradient_norm, smoothness = residual_cap * math.sqrt(2.0 * bound2), bound2 / 2.0
    elif training.model == "logistic":
        gradient_norm, smoothness = residual_cap * training.feature_bound, bound2 / 4.0
    else:
        rule = (
            "must be softmax, linear or logistic for convex-pass (its guarantee needs a convex "
            "smooth loss)"
        )
        raise PlanError(
            "training.model",
            training.model,
            rule,
            'Use "split-noise" or "dp-sgd" for other models.',
        )
    smoothness_drawn = smoothness * (1.0 + _NORM_TOLERANCE) ** 2
    room = (2.0 / learning_rate - training.l2_penalty) * divisor / smoothness_drawn
    cap = math.floor(room)
    if cap < 1:
        rule = f"must let a bin of {divisor:.3g} records on average hold one (convex-pass)"
        raise PlanError(
            "training.learning_rate",
            learning_rate,
            rule,
            _largest_rate(resolved, learning_rate, smoothness_drawn),
        )
    return ConvexBounds(
        gradient_norm=gradient_norm, smoothness=smoothness, residual_cap=residual_cap, bin_cap=cap
    )


def _largest_rate(resolved: ResolvedPlan, learning_rate: float, smoothness: float) -> str:
    """What a bin that holds no record needs: (2/γ − λ)·b/β ≥ 1, solved for γ and for the number of
    bins, in words.
    """
    training, divisor = resolved.plan.training, resolved.divisor
    mean = math.fsum(silo.records for silo in resolved.silos) / len(resolved.silos)
    largest = 2.0 / (smoothness / divisor + training.l2_penalty)
    digits = 10.0 ** (2 - math.floor(math.log10(largest)))
    fix = f"Use at most {math.floor(largest * digits) / digits:g}"
    # b follows from the bins
    counted = abs(divisor * resolved.local_steps - mean) <= 0.01 * mean
    bins = math.floor(mean * (2.0 / learning_rate - training.l2_penalty) / smoothness)
    return (
        f"{fix}, or fewer bins: federation.local_steps at most {bins}."
        if counted and bins >= 1
        else f"{fix}."
    )


def convex_float_slack_grid(
    resolved: ResolvedPlan, *, learning_rate: float, steps: int, records: int, resolution: float
) -> float:
    """Grid steps that float64 arithmetic and float32 records can add to what one record does to a
    convex pass.

        2·P·S·u·[(3d + 11)·(W·(1 + 2^-20) + 8/R) + 8(4d + n + 20)/R]·r·b/(γC) + P·r·2^-19,   u = 2^-53, W = `LARGEST_WEIGHT_NORM`

    Guarantee: holds for weights of norm at most W before the pass and bins of up to n records, in
        whatever order sums are taken (docs/mathematics.md, "rounding and floats").

    Args:
        records: n, public bound on the silo's records.
        resolution: grid steps that γC/b stands for.
    """
    training, bounds = resolved.plan.training, convex_bounds(resolved, learning_rate)
    numbers = resolved.dimension  # f·K ≥ f + K − 1
    largest = LARGEST_WEIGHT_NORM * (1.0 + 2.0**-20) + 8.0 / training.feature_bound
    per_step = (3.0 * numbers + 11.0) * largest + 8.0 * (
        4.0 * numbers + records + 20.0
    ) / training.feature_bound
    unit = learning_rate * bounds.gradient_norm / resolved.divisor
    rounding = 2.0 * training.passes * steps * 2.0**-53 * per_step * resolution / unit
    return rounding + training.passes * resolution * _NORM_TOLERANCE


# -- what every silo draws


@final
@dataclass(frozen=True, kw_only=True)
class SiloDesign:
    """What one silo does in a round, in the units of the common grid.

    Args:
        name: the silo.
        learning_rate: γ_i.
        clip_norm: C_i, gradient units (convex-pass: the natural gradient bound; silo: the bound on
            the whole update).
        resolution: grid steps that its clip norm stands for; at most the plan's.
        l2_grid: Δ₂, what one record can do to one noisy query of this silo.
        sampling_rate: q_i.
        local_steps: S_i.
        records: public upper bound on its training records.
        variance_ratio: its noise variance over that of an equal share.
        surge_rate: probability per round that a record's bin overflows and its influence at most
            doubles (convex-pass).
    """

    name: str
    learning_rate: float
    clip_norm: float
    resolution: int
    l2_grid: float
    sampling_rate: float
    local_steps: int
    records: int
    variance_ratio: float
    surge_rate: float


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
        saturation_grid: a silo clamps every coordinate of each query to ± this, so that the ring
            cannot wrap whatever the records are.
        facts: what is public about the records, for the account to show; no number depends on it.
    """

    resolved: ResolvedPlan
    grid: Grid
    silos: tuple[SiloDesign, ...]
    step_weights: tuple[int, ...]
    update_scale: float
    saturation_grid: int
    facts: PublicFacts | None = field(default=None, compare=False)

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
        plan = resolved.plan
        clip_norms = {silo.name: _clip_norm(resolved, silo) for silo in resolved.silos}
        unit = max(
            clip_norms[silo.name] * silo.learning_rate / plan.training.learning_rate
            for silo in resolved.silos
        )
        if plan.training.algorithm == "convex-pass":
            unit = max(
                clip_norms[silo.name] * silo.learning_rate / resolved.divisor
                for silo in resolved.silos
            )
        grid = Grid(unit, plan.resolution)
        scale = 1.0 / resolved.invited
        if plan.training.algorithm not in ("convex-pass", "silo", "fedavg"):
            weighted = (
                plan.training.learning_rates is not None or plan.training.local_momentum > 0.0
            )
            weight_unit = float(1 << _WEIGHT_BITS) if weighted else 1.0
            scale *= -plan.training.learning_rate / (resolved.divisor * weight_unit)
        design = cls(
            resolved=resolved,
            grid=grid,
            silos=tuple(
                _silo_design(resolved, silo, grid=grid, clip_norm=clip_norms[silo.name])
                for silo in resolved.silos
            ),
            step_weights=_step_weights(resolved),
            update_scale=scale,
            saturation_grid=1 << 62,
        )
        if plan.training.algorithm == "fedavg":
            return design
        return replace(design, saturation_grid=_saturation(design))

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
    def queries_per_round(self) -> int:
        """Noise draws that one silo adds up in a round."""
        return (
            1
            if self.plan.training.algorithm in ("convex-pass", "silo")
            else max(s.local_steps for s in self.silos)
        )

    @property
    def share(self) -> Law:
        """The law a silo with an equal share draws, per query and coordinate."""
        return self._law(1.0)

    def drawn_by(self, silo: SiloDesign) -> Law:
        """The law that one silo draws, per query and coordinate."""
        return self._law(silo.variance_ratio)

    @property
    def state_noise(self) -> Law | None:
        """The law of the unsent noise of split-noise; None where none is drawn.

        It hides the state at which the next gradient is taken, so the last step of a round, after
        which there is none, goes without.
        """
        training = self.plan.training
        if (
            training.algorithm != "split-noise"
            or training.state_noise == 0.0
            or self.queries_per_round == 1
        ):
            return None
        return noise_law(self.plan.noise.mechanism, self.share.variance_grid * training.state_noise)

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

    def _law(self, factor: float) -> Law:
        share = noise_law(
            self.plan.noise.mechanism, (self.noise_multiplier * self.grid.resolution) ** 2
        ).share(self.resolved.contributors)
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
        return Setting(
            algorithm=plan.training.algorithm,
            mechanism=plan.noise.mechanism,
            rounds=plan.federation.rounds,
            local_steps=silo.local_steps,
            sampling_rate=silo.sampling_rate,
            noise_multiplier=self.noise_multiplier * math.sqrt(counted / contributors),
            contributors=counted,
            resolution=self.grid.resolution,
            l2_grid=silo.l2_grid,
            dimension=self.resolved.dimension,
            state_noise=plan.training.state_noise
            if plan.training.algorithm == "split-noise"
            else 0.0,
            surge_rate=silo.surge_rate,
            slots=min(each.local_steps for each in self.silos),
            own_share=silo.variance_ratio * self._kept_part,
            other_shares=None if equal else self._other_shares(silo, counted - 1),
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


def _check(resolved: ResolvedPlan) -> None:
    """Refuse what no analysis covers."""
    plan = resolved.plan
    if plan.noise.mechanism == "gaussian" and plan.aggregation.protocol != "trusted":
        rule = 'must be discrete under secure aggregation; "gaussian" is continuous'
        raise PlanError(
            "noise.mechanism",
            plan.noise.mechanism,
            rule,
            'Use "skellam", or aggregation.protocol = "trusted" to simulate.',
        )
    differing = [name for name, own in plan.silo.items() if own.local_steps or own.std_factor]
    if plan.training.algorithm == "split-noise" and differing:
        rule = (
            "cannot set local_steps or std_factor under split-noise (its steps are composed side "
            "by side)"
        )
        raise PlanError(
            f"silo.{differing[0]}", differing[0], rule, "Remove the key, or use dp-sgd."
        )
    if plan.noise.mechanism == "poisson-binomial" and plan.training.algorithm != "fedavg":
        check_coins(plan)
    if plan.noise.removable:
        _check_removable(resolved)


def _check_removable(resolved: ResolvedPlan) -> None:
    """Noise may be taken back only where the guarantee rests on the sum's noise alone and variances
    add within the law.
    """
    plan = resolved.plan
    steps = max(resolved.local_steps, *(silo.local_steps for silo in resolved.silos))
    one_query = plan.training.algorithm in ("convex-pass", "silo") or (
        plan.training.algorithm in ("single-step", "dp-sgd") and steps == 1
    )
    fits = one_query and plan.noise.mechanism == "skellam" and plan.federation.selection == "all"
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


def _clip_norm(resolved: ResolvedPlan, silo: ResolvedSilo) -> float:
    if resolved.plan.training.algorithm == "convex-pass":
        return convex_bounds(resolved, silo.learning_rate).gradient_norm
    return silo.clip_norm


def _silo_design(
    resolved: ResolvedPlan, silo: ResolvedSilo, *, grid: Grid, clip_norm: float
) -> SiloDesign:
    plan, rate = resolved.plan, silo.learning_rate
    surge = 0.0
    if plan.training.algorithm == "convex-pass":
        # of this silo, over the grid's unit
        reach = rate * clip_norm / resolved.divisor / grid.clip_norm
        cap = convex_bounds(resolved, rate).bin_cap
        surge = min(
            1.0,
            plan.training.passes
            * _crowded(cap, others=max(silo.records - 1, 0), bins=silo.local_steps),
        )
        resolution = grid.resolution
        slack = convex_float_slack_grid(
            resolved,
            learning_rate=rate,
            steps=silo.local_steps,
            records=silo.records,
            resolution=grid.resolution * reach,
        )
        l2_grid = grid.sensitivity_grid(Rounding.SUMMED, resolved.dimension, float_slack_grid=slack)
        # P·γC/b of this silo in place of the grid's unit
        l2_grid += (reach * plan.training.passes - 1.0) * grid.resolution
        if surge > 0.5:  # almost every bin is overfull: count the double influence always
            surge, l2_grid = 0.0, 2.0 * l2_grid
    else:
        reach = clip_norm * rate / plan.training.learning_rate / grid.clip_norm
        resolution = max(1, math.floor(grid.resolution * min(reach, 1.0)))
        own_grid = Grid(clip_norm, resolution)
        slack = summation_slack_grid(
            terms=float_sum_terms(max(silo.records, 1)), resolution=resolution
        )
        l2_grid = own_grid.sensitivity_grid(
            resolved.rounding, resolved.dimension, float_slack_grid=slack
        )
    return SiloDesign(
        name=silo.name,
        learning_rate=rate,
        clip_norm=clip_norm,
        resolution=resolution,
        l2_grid=l2_grid,
        sampling_rate=silo.sampling_rate,
        local_steps=silo.local_steps,
        records=silo.records,
        variance_ratio=silo.std_factor**2,
        surge_rate=surge,
    )


def _crowded(cap: int, *, others: int, bins: int) -> float:
    """P[Binomial(others, 1/bins) ≥ cap]: a record's bin holds at least `cap` others."""
    if cap > others:
        return 0.0
    return 1.0 if bins == 1 else float(betainc(cap, others - cap + 1, 1.0 / bins))


def _step_weights(resolved: ResolvedPlan) -> tuple[int, ...]:
    """Integer weights of the local steps: the momentum sum (1 − m^(S−s+1))/(1 − m), or the
    learning-rate schedule over its largest.
    """
    plan, training = resolved.plan, resolved.plan.training
    steps = max(resolved.local_steps, *(silo.local_steps for silo in resolved.silos))
    if training.algorithm in ("convex-pass", "silo", "fedavg"):
        return (1,)
    if training.learning_rates is not None:
        return tuple(
            max(1, round((1 << _WEIGHT_BITS) * rate / training.learning_rate))
            for rate in training.learning_rates
        )
    if training.local_momentum == 0.0:
        return (1,) * steps
    if any(s.local_steps for s in plan.silo.values()):
        raise PlanError(
            "training.local_momentum",
            training.local_momentum,
            "must be 0 where silos take unequal steps",
            "Set it to 0.",
        )
    m = training.local_momentum
    return tuple(
        round((1 << _WEIGHT_BITS) * (1.0 - m ** (steps - s)) / (1.0 - m)) for s in range(steps)
    )


def _saturation(design: NoiseDesign) -> int:
    """The largest magnitude a silo may give one coordinate of one query so that the sum wraps with
    probability below 2^-40.

    m/2 ≥ N·Σ_s w_s·saturation + t, with t the point that the summed noise exceeds in any coordinate
    of any round with probability 2^-40.
    """
    plan = design.plan
    parties = design.resolved.invited
    half = 2.0 ** (plan.aggregation.modulus_bits - 1)
    if plan.noise.mechanism == "poisson-binomial" or not design.share.discrete:
        return 1 << 52  # the range of coins is checked apart, floats do not wrap
    largest = design.drawn_by(max(design.silos, key=lambda silo: silo.variance_ratio))
    heaviest, draws = max(design.step_weights), parties * design.queries_per_round
    log_coordinates = math.log(2.0 * design.resolved.dimension * plan.federation.rounds)
    low, high = 0.0, 2.0**62
    for _ in range(200):  # the bound decreases with the threshold
        middle = 0.5 * (low + high)
        safe = (
            log_coordinates + largest.log_tail_bound(middle / heaviest, draws)
            <= _WRAP_LOG_PROBABILITY
        )
        low, high = (low, middle) if safe else (middle, high)
    weight_sum = sum(design.step_weights[: design.queries_per_round])
    saturation = math.floor((half - high - 1.0) / (parties * weight_sum))
    if saturation < _LEAST_HEADROOM * design.grid.resolution:
        needed = high + _LEAST_HEADROOM * design.grid.resolution * parties * weight_sum + 1.0
        rule = (
            f"must hold the sum of {parties} silos and its noise without wrapping (probability "
            "above 2^-40)"
        )
        fix = f"Use at least {math.ceil(math.log2(2.0 * needed))}, or lower noise.resolution_bits."
        raise PlanError("aggregation.modulus_bits", plan.aggregation.modulus_bits, rule, fix)
    return saturation
