"""The Poisson-binomial mechanism as a plan: coin tosses instead of added noise, for whole silos
(`unit = "silo"`).

Every coordinate of a silo's update is clipped to ±c with c = C/√d, so that its norm is at most C,
and leaves the silo as the number of ones among `noise.trials` coins that lean by at most θ. The
plan's noise multiplier is, as everywhere, the standard deviation of a decoded coordinate of the sum
over C:

    σ = √(k/m)·c/(2θ·C) = √(k/(m·d)) / (2θ)      so      θ = √(k/(m·d)) / (2σ)

with m trials and k counted silos. Guarantees come from the Rényi divergence in
`sumus.accounting.poisson_binomial`; there is no privacy-loss accountant for it.
"""

from __future__ import annotations

import math

from sumus.accounting import LARGEST_COINS, Queries, Release, poisson_binomial_curve
from sumus.errors import PlanError
from sumus.noise import LAWS, PoissonBinomial
from sumus.plan import ResolvedPlan, TrainingPlan

__all__ = ["check_coins", "coin_log_ratio", "coin_release", "coins_of"]

_LARGEST_LEAN = 0.25


def coins_of(resolved: ResolvedPlan) -> PoissonBinomial | None:
    """The coins of a plan with known noise; None where the plan adds noise instead."""
    plan, dimension = resolved.plan, resolved.dimension
    if plan.noise.mechanism in LAWS or not resolved.rules.private:
        return None
    multiplier = plan.noise.noise_multiplier
    if multiplier is None:
        raise PlanError(
            "noise.noise_multiplier",
            None,
            "must be calibrated before coins are tossed",
            "Call sumus.account first.",
        )
    theta = math.sqrt(resolved.contributors / (plan.noise.trials * dimension)) / (2.0 * multiplier)
    if theta > _LARGEST_LEAN:
        least = math.sqrt(resolved.contributors / (plan.noise.trials * dimension)) / (
            2.0 * _LARGEST_LEAN
        )
        rule = f"must be at least {least:.4g}: a coin may lean by at most {_LARGEST_LEAN:g}"
        raise PlanError(
            "noise.noise_multiplier", multiplier, rule, "Raise it, or raise noise.trials."
        )
    return PoissonBinomial(plan.training.clip_norm / math.sqrt(dimension), plan.noise.trials, theta)


def coin_release(resolved: ResolvedPlan, *, contributors: int | None = None) -> Release:
    """What all rounds release, as a Rényi curve: one sum of the counted silos' coins per round.

    Args:
        contributors: silos in the sum whose coins are counted; 1 gives the silo's own coins alone.
    """
    coins, plan = coins_of(resolved), resolved.plan
    if coins is None or plan.noise.noise_multiplier is None:
        raise PlanError(
            "noise.mechanism", plan.noise.mechanism, "tosses no coins", 'Use "poisson-binomial".'
        )
    curve = poisson_binomial_curve(
        silos=resolved.contributors if contributors is None else contributors,
        trials=coins.trials,
        theta=coins.theta,
        dimension=resolved.dimension,
    )
    return Release((Queries(None, 1.0, plan.federation.rounds, curve),))


def coin_log_ratio(resolved: ResolvedPlan) -> float:
    """How far all coins together are from their law: probabilities are rounded to doubles, each
    exact to a factor 1 ± 2^-51.
    """
    plan = resolved.plan
    rounds, trials = plan.federation.rounds, plan.noise.trials
    return rounds * len(resolved.silos) * trials * resolved.dimension * 2.0**-51


def check_coins(plan: TrainingPlan) -> None:
    """Refuse what the mechanism cannot certify or its ring cannot hold."""
    if plan.privacy.accountant == "pld":
        rule = (
            'must be "renyi" or "renyi-mironov" for poisson-binomial (its privacy-loss '
            "distribution has no dominating Gaussian)"
        )
        raise PlanError(
            "privacy.accountant", plan.privacy.accountant, rule, 'Set accountant = "renyi".'
        )
    silos = plan.invited
    if silos * plan.noise.trials > LARGEST_COINS:
        rule = f"times {silos} silos must be at most {LARGEST_COINS} coins per coordinate"
        raise PlanError(
            "noise.trials", plan.noise.trials, rule, f"Use at most {LARGEST_COINS // silos}."
        )
    needed = (silos * plan.noise.trials).bit_length() + 1  # sums are read as centred integers
    if plan.aggregation.modulus_bits < needed:
        rule = f"must hold {silos} × {plan.noise.trials} coins without wrapping"
        raise PlanError(
            "aggregation.modulus_bits",
            plan.aggregation.modulus_bits,
            rule,
            f"Use at least {needed}.",
        )
    if (
        plan.noise.removable
        or plan.federation.selection != "all"
        or any(each.as_table() for each in plan.silo.values())
    ):
        rule = "needs all silos alike: no removable noise, no selection, no [silo.…] tables"
        raise PlanError("noise.mechanism", plan.noise.mechanism, rule, 'Use "skellam".')
