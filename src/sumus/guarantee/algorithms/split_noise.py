"""`split-noise`: local states carry extra noise that is never sent, in all steps but the last."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, final

from sumus.accounting import Queries, Release, unit_shift
from sumus.errors import PlanError
from sumus.guarantee.algorithms.algorithm import Work
from sumus.guarantee.algorithms.noisy_steps import NoisySteps
from sumus.guarantee.claims import LOCAL_STEPS_ALONE, PER_STEP, Setting, Statement, but_the_last
from sumus.noise import Law, noise_law
from sumus.plan import RULES, TrainingPlan

__all__ = ["ALGORITHMS", "split_noise_multiplier"]


def _compose(s: Setting) -> Release:
    if s.slots not in (None, s.local_steps) or s.own_share != 1.0 or s.other_shares is not None:
        rule = (
            "needs equal steps and equal noise shares in all silos (its steps are composed side by "
            "side)"
        )
        raise PlanError("training.algorithm", SplitNoise.rules.name, rule, "Use dp-sgd.")
    multiplier = split_noise_multiplier(s)
    parts = s.silos_per_unit
    if s.sampling_rate == 1.0:  # all silos of a unit move together
        return but_the_last(s, lambda count: Queries(multiplier / parts, 1.0, count))
    return but_the_last(s, lambda count: Queries(multiplier, s.sampling_rate, count, parts=parts))


@final
class SplitNoise(NoisySteps):
    """Noisy steps whose states are hidden by noise of their own."""

    rules = RULES["split-noise"]
    removable = False
    statements: ClassVar = (
        Statement(
            name="split-noise",
            compose=_compose,
            text="local states carry extra noise that is never sent; the last step counts with the "
            "noise of all silos",
            brief="split noise",
            counts="both",
            remark="any model",
        ),
        replace(LOCAL_STEPS_ALONE, remark=None),
        replace(PER_STEP, remark=None),
    )

    def proved(self, setting: Setting) -> Mapping[str, bool]:
        return {"split-noise": True, "local": True, "per-step": setting.local_steps == 1}

    def state_noise(self, plan: TrainingPlan) -> float:
        shares = plan.training.state_noise
        if isinstance(shares, str):
            rule = "must be chosen before noise is drawn"
            raise PlanError("training.state_noise", shares, rule, "Call sumus.account first.")
        return shares

    def compared(self, base: Setting, plan: TrainingPlan, work: Work) -> Setting:
        return replace(base, algorithm=self.rules.name, state_noise=self.state_noise(plan))


ALGORITHMS = (SplitNoise,)


def split_noise_multiplier(s: Setting) -> float:
    """Noise multiplier of one step of split noise but the last: 1/√cost, where a record's shift g
    is carried by all silos' noises together.

    Shift ξ₁ by a, ζ₁ by g − a, every other ξ_j by b_j and ζ_j by −b_j, with a + Σ b_j = g: then
    every state noise ξ_j + ζ_j of the other silos keeps its value, silo 1's moves by g, and the sum
    moves by g. With u = (k−1)m_ξ²/(k(m_ξ² + m_ζ²)) the share that leaves ξ₁,

        cost = m_ξ²·[((1−u)Δ + √d/2)² + B] + m_ζ²·[(uΔ + √d/2)² + B],   B = (uΔ + √d/2)²/(k−1) + d(k−1)/4

    which tends to (k+κ)/(k(1+κ)) per unit share, i.e. σ_eff² = σ²(1+κ)/(k+κ). Rounding: a is the
    nearest integer vector to (1−u)g; the b_j are equal up to one grid step in every coordinate and
    sum to g − a, so their squares exceed those of equal real parts by at most (k−1)/4 per
    coordinate, without a cross term.

    Guarantee: upper bound on the privacy loss of seeing every silo's state noise and the sum, every
        step; valid for any model. The shifts of several silos add up, and so do their roots of cost.
    """
    if s.state_noise == 0.0 or s.contributors == 1:
        return 1.0 / (_shift(s.own) * s.l2_grid)
    m_sent = _shift(s.share)
    m_state = _shift(noise_law(s.mechanism, s.share.variance_grid * s.state_noise))
    k, delta2 = s.contributors, s.l2_grid
    slack = math.sqrt(s.dimension) / 2.0 if s.share.discrete else 0.0
    moved = (k - 1) * m_sent**2 / (k * (m_sent**2 + m_state**2))
    others = (moved * delta2 + slack) ** 2 / (k - 1) + slack**2 * (k - 1)
    cost = m_sent**2 * (((1.0 - moved) * delta2 + slack) ** 2 + others) + m_state**2 * (
        (moved * delta2 + slack) ** 2 + others
    )
    return 1.0 / min(math.sqrt(cost), m_sent * delta2)


def _shift(noise: Law) -> float:
    return unit_shift(noise) if noise.discrete else 1.0 / noise.std_grid
