"""The share of unsent noise for `training.state_noise = "auto"`, by public numbers alone.

The more unsent noise κ a silo's state carries, the less noise σ the sum needs for the same ε. Unsent
noise reaches the sum only through the gradients of later steps, so of S steps the noise after step s
is weighed by how many follow it,

    J(κ) = σ(κ)²·(S + κ·Σ_{s<S} ((S − s)/S)²)

and the κ with the least J is taken. Any κ has the same proof; the choice costs nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sumus.accounting import least_noise
from sumus.errors import PlanError
from sumus.guarantee.algorithms import calibrated_analysis, release_of
from sumus.guarantee.design import NoiseDesign
from sumus.noise import Gaussian
from sumus.plan import ResolvedPlan

__all__ = ["with_state_noise"]

_CANDIDATES: Final = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0)


def with_state_noise(resolved: ResolvedPlan) -> ResolvedPlan:
    """The plan with κ written down; unchanged where it is."""
    plan = resolved.plan
    if plan.training.state_noise != "auto":
        return resolved
    target = plan.privacy.epsilon
    if target is None or plan.noise.noise_multiplier is not None:
        rule = "needs a target: privacy.epsilon without noise.noise_multiplier"
        raise PlanError("training.state_noise", "auto", rule, "Give a number, or a target.")
    if "training.state_noise" not in plan.rules.keys:
        return resolved.replace("training", state_noise=2.0)  # it has no meaning there
    steps = resolved.local_steps
    unsent = sum(((steps - step) / steps) ** 2 for step in range(1, steps))
    costs = {
        shares: _least_multiplier(resolved, shares, target) ** 2 * (steps + shares * unsent)
        for shares in (_CANDIDATES if steps > 1 else _CANDIDATES[:1])
    }
    return resolved.replace("training", state_noise=min(costs, key=costs.__getitem__))


def _least_multiplier(resolved: ResolvedPlan, shares: float, target: float) -> float:
    """σ of the target with so much unsent noise, as continuous noise and by Rényi orders: for
    comparisons, what is drawn is calibrated apart.
    """
    plan = resolved.plan
    tried = resolved.replace("training", state_noise=shares)
    design = NoiseDesign.of(tried.replace("aggregation", modulus_bits=64), noise_multiplier=1.0)
    worst = max(design.silos, key=lambda silo: (silo.l2_grid, silo.sampling_rate))
    setting = replace(design.setting(worst), mechanism=Gaussian.name)
    name = calibrated_analysis(plan.privacy.calibrate_to, setting)
    return least_noise(
        lambda sigma: release_of(name, replace(setting, noise_multiplier=sigma)),
        epsilon=target,
        delta=plan.privacy.delta,
        accountant="renyi",
    )
