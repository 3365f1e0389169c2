"""The least noise for a target: from a plan to its `NoiseDesign`."""

from __future__ import annotations

import math
from dataclasses import replace

from sumus.accounting import Release, least_noise
from sumus.errors import GuaranteeError, PlanError
from sumus.guarantee.algorithms import calibrated_analysis, release_of
from sumus.guarantee.best_state_noise import with_state_noise
from sumus.guarantee.coins import check_coins, coin_release
from sumus.guarantee.design import NoiseDesign
from sumus.guarantee.exactness import out_of_range
from sumus.guarantee.layout import SiloDesign
from sumus.guarantee.metrics import (
    with_metrics_noise,
)
from sumus.guarantee.per_silo import (
    certified_epsilon,
    distinct_silos,
)
from sumus.noise import LAWS, Gaussian
from sumus.plan import PublicFacts, ResolvedPlan, TrainingPlan, resolve

__all__ = ["calibrated"]


def calibrated(plan: TrainingPlan, facts: PublicFacts | None = None) -> NoiseDesign:
    """The design of a plan: resolved against public facts, with the noise of the model and that of
    secure metrics calibrated to the target ε unless the plan fixes them.

    Args:
        facts: what is public about the records; omitted: read off the data that the plan names.
    """
    if facts is None:
        from sumus.data import public_facts

        facts = public_facts(plan)
    return _calibrated(resolve(plan, facts)).about(facts)


def _calibrated(resolved: ResolvedPlan) -> NoiseDesign:
    resolved = ResolvedPlan.of(with_metrics_noise(resolved.plan), resolved.silo_names)
    resolved = with_state_noise(resolved)
    plan, target = resolved.plan, resolved.plan.privacy.epsilon
    if plan.noise.noise_multiplier is not None or not resolved.rules.private:
        return NoiseDesign.of(resolved)
    if target is None:
        rule = "must be set (or noise.noise_multiplier)"
        raise PlanError("privacy.epsilon", None, rule, "Give a target such as epsilon = 1.0.")
    if plan.noise.mechanism not in LAWS:
        return _calibrated_coins(resolved, target)
    trial = NoiseDesign.of(resolved.replace("aggregation", modulus_bits=64), noise_multiplier=1.0)
    likely_worst = max(
        distinct_silos(trial),
        key=lambda silo: (
            silo.l2_grid * (1.0 + silo.overfull_rate),
            silo.sampling_rate * silo.local_steps,
        ),
    )
    multiplier = _least_multiplier(trial, likely_worst, target)
    # the trial's slack may differ from the real one in the last digits
    for _ in range(8 + len(trial.silos)):
        design = NoiseDesign.of(resolved, noise_multiplier=multiplier)
        short = [
            silo for silo in distinct_silos(design) if _calibrated_epsilon(design, silo) > target
        ]
        if not short:
            return design
        multiplier = max(multiplier * (1.0 + 1e-5), _least_multiplier(trial, short[0], target))
    raise GuaranteeError(
        f"privacy.epsilon = {target:g} could not be certified near noise multiplier {multiplier:g}."
    )


def _calibrated_coins(resolved: ResolvedPlan, target: float) -> NoiseDesign:
    """The least noise multiplier of the Poisson-binomial mechanism for the plan's target."""
    plan = resolved.plan
    check_coins(plan)
    # a coin leans by ¼ at most
    least = 2.0 * math.sqrt(resolved.contributors / (plan.noise.trials * resolved.dimension))

    def build(sigma: float) -> Release:
        return coin_release(resolved.replace("noise", noise_multiplier=max(sigma, least)))

    drawn = NoiseDesign.of(resolved, noise_multiplier=least).mechanism.inexactness()
    slack, delta = drawn.budget(0.0, plan.privacy.delta)
    if target <= slack or delta <= 0.0:
        given = f"epsilon = {plan.privacy.epsilon} at delta = {plan.privacy.delta:g}"
        raise GuaranteeError(f"{given} is less than the exactness of the coins costs. Raise it.")
    multiplier = least_noise(
        build, epsilon=target - slack, delta=delta, accountant=plan.privacy.accountant
    )
    return NoiseDesign.of(resolved, noise_multiplier=max(multiplier, least))


def _least_multiplier(trial: NoiseDesign, silo: SiloDesign, target: float) -> float:
    """Least noise for one silo's records, in the analysis the plan calibrates to."""
    plan, name = trial.plan, _calibrated_analysis(trial, silo)
    drawn = trial.mechanism.inexactness()
    slack_epsilon, delta = drawn.budget(target, plan.privacy.delta)
    if target <= slack_epsilon or delta <= 0.0:
        raise GuaranteeError(out_of_range(target, plan.privacy.delta, drawn))
    base = trial.setting(silo)
    continuous = replace(base, mechanism=Gaussian.name)
    return least_noise(
        lambda sigma: release_of(name, replace(base, noise_multiplier=sigma)),
        limit=lambda sigma: release_of(name, replace(continuous, noise_multiplier=sigma)),
        epsilon=target - slack_epsilon,
        delta=delta,
        accountant=plan.privacy.accountant,
    )


def _calibrated_analysis(design: NoiseDesign, silo: SiloDesign) -> str:
    """The analysis whose ε the plan's target is compared with."""
    return calibrated_analysis(design.plan.privacy.calibrate_to, design.setting(silo))


def _calibrated_epsilon(design: NoiseDesign, silo: SiloDesign) -> float:
    return certified_epsilon(
        design, release_of(_calibrated_analysis(design, silo), design.setting(silo))
    )
