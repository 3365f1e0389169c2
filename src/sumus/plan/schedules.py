"""What changes from round to round, all of it public: learning rates and the noise.

    γ_t = γ·s(t)     constant: 1     linear: 1 − t/T     cosine: ½(1 + cos(πt/T)),     t = 0 … T − 1
    σ_t = σ·ρ_t      ρ of `noise.schedule`, one ratio for every round

Round t of such a plan is round t of `plan_of_round(resolved, t)`, a plan without schedules.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from sumus.errors import PlanError
from sumus.plan.resolved import ResolvedPlan

if TYPE_CHECKING:
    from sumus.plan.plan import TrainingPlan

__all__ = [
    "has_schedule",
    "noise_ratios",
    "plan_of_round",
    "plans_of_rates",
    "rate_factor",
]


def rate_factor(schedule: str, number: int, rounds: int) -> float:
    """s(t) of a round's learning rate, in (0, 1].

    Args:
        schedule: "constant", "linear" or "cosine".
        number: t, counted from 0.
        rounds: T.
    """
    part = min(max(number / rounds, 0.0), 1.0 - 1.0 / rounds)
    if schedule == "constant":
        return 1.0
    return 1.0 - part if schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * part))


def has_schedule(plan: TrainingPlan) -> bool:
    """Whether what silos draw or compute differs from round to round."""
    return plan.noise.schedule is not None or plan.training.rate_schedule != "constant"


def noise_ratios(plan: TrainingPlan) -> tuple[float, ...]:
    """ρ_t of every round; empty where all rounds have the plan's own noise."""
    return plan.noise.schedule or ()


def plan_of_round(resolved: ResolvedPlan, number: int) -> ResolvedPlan:
    """The plan without schedules that a round (from 0) follows: its learning rates, its noise."""
    plan, rounds = resolved.plan, resolved.plan.federation.rounds
    if not has_schedule(plan):
        return resolved
    if not 0 <= number < rounds:
        rule = f"must be one of the plan's {rounds}"
        raise PlanError("round", number + 1, rule, "Ask for a round that the plan has.")
    ratios, sigma = noise_ratios(plan), plan.noise.noise_multiplier
    if ratios and sigma is not None:
        plan = plan.replace("noise", noise_multiplier=sigma * ratios[number])
    plan = plan.replace("noise", schedule=None)
    return _with_rates(plan, rate_factor(plan.training.rate_schedule, number, rounds), resolved)


def plans_of_rates(resolved: ResolvedPlan) -> tuple[ResolvedPlan, ...]:
    """A plan without schedules for every learning rate that a run has."""
    if resolved.plan.training.rate_schedule == "constant":
        return (resolved,)
    rounds = range(resolved.plan.federation.rounds)
    return tuple(plan_of_round(resolved, number) for number in rounds)


def _with_rates(plan: TrainingPlan, factor: float, resolved: ResolvedPlan) -> ResolvedPlan:
    training = plan.training
    rates = training.learning_rates
    plan = plan.replace(
        "training",
        rate_schedule="constant",
        learning_rate=training.learning_rate * factor,
        learning_rates=None if rates is None else tuple(rate * factor for rate in rates),
    )
    silos = {
        name: own
        if own.learning_rate is None
        else replace(own, learning_rate=own.learning_rate * factor)
        for name, own in plan.silo.items()
    }
    return ResolvedPlan.of(replace(plan, silo=silos), resolved.silo_names)
