"""From the declared law to the drawn one: what a guarantee pays because samplers are exact only up
to a proved distance.

If every drawn law is within a factor e^{±ρ_i} of its declared law outside an event of mass τ_i, a
mechanism that is (ε, δ′)-DP with declared draws is (ε + 2Σρ_i, δ)-DP with drawn ones, δ =
e^{Σρ_i}·δ′ + (1 + e^ε)·Στ_i (docs/mathematics.md, "from the declared law to the drawn one"). The
far tails that the dominating Gaussian leaves out are paid for in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from sumus.accounting import TAIL_LOG_MASS
from sumus.noise import Law
from sumus.plan import TrainingPlan

__all__ = ["Inexactness", "breach_of", "inexactness_of_draws", "out_of_range"]

# of sumus.secagg.terms, whose import is slow; a test compares
_SPARSE_FROM, _SECURITY_BITS = 150, 40


@final
@dataclass(frozen=True, kw_only=True)
class Inexactness:
    """How far everything drawn is from everything declared: Σρ and Στ over all draws that a
    guarantee rests on.

    Args:
        breach: probability, whatever the records, that the secure sum hides nothing: added to δ as
            it is.
    """

    log_ratio: float = 0.0
    tail_mass: float = 0.0
    breach: float = 0.0

    def __add__(self, other: Inexactness) -> Inexactness:
        return Inexactness(
            log_ratio=self.log_ratio + other.log_ratio,
            tail_mass=self.tail_mass + other.tail_mass,
            breach=self.breach + other.breach,
        )

    def repeated(self, times: float) -> Inexactness:
        """The same, drawn so many times."""
        return Inexactness(
            log_ratio=times * self.log_ratio,
            tail_mass=times * self.tail_mass,
            breach=times * self.breach,
        )

    def or_worse(self, other: Inexactness) -> Inexactness:
        """At least as inexact as either."""
        return Inexactness(
            log_ratio=max(self.log_ratio, other.log_ratio),
            tail_mass=max(self.tail_mass, other.tail_mass),
            breach=max(self.breach, other.breach),
        )

    def budget(self, epsilon: float, delta: float) -> tuple[float, float]:
        """(ε to add, δ left): 2ρ and (δ − breach − (1 + e^ε)·τ)·e^{−ρ}.

        Args:
            epsilon: any upper bound on the ε that will be stated.
            delta: of the guarantee.
        """
        left = (
            delta - self.breach - (1.0 + math.exp(min(epsilon, 500.0))) * self.tail_mass
        ) * math.exp(-self.log_ratio)
        return 2.0 * self.log_ratio, left

    def largest_epsilon(self, delta: float) -> float:
        """The ε at which breach and far tails, (1 + e^ε)·Στ, use all of δ up; it and everything
        above leaves nothing for the noise.
        """
        left = delta - self.breach
        if not self.tail_mass:
            return math.inf if left > 0.0 else -math.inf
        return math.log(max(left / self.tail_mass - 1.0, math.ulp(0.0)))

    def paid_for(
        self, epsilon_at: Callable[[float], float], *, delta: float, assumed: float = 1.0
    ) -> float:
        """The ε that holds at `delta` with drawn values, where `epsilon_at` tells it for declared
        ones; infinite if δ does not suffice.

        Args:
            assumed: a first guess; a larger ε leaves less of δ, so the guess is raised until the
                result is below it.
        """
        while True:
            slack, left = self.budget(assumed, delta)
            if left <= 0.0:
                return math.inf
            epsilon = slack + epsilon_at(left)
            if epsilon <= assumed or epsilon == math.inf:
                return epsilon
            assumed = 1.1 * epsilon


def inexactness_of_draws(
    law: Law, contributors: int, *, sums: float, draws_per_sum: int
) -> Inexactness:
    """Of `sums` coordinates, each a sum of `draws_per_sum` draws that is accounted as the sum of
    `contributors` draws of `law`.

    The continuous Gaussian has no proved sampler, so nothing that it protects is called proved, and
    nothing is paid.
    """
    if not law.discrete:
        return Inexactness()
    # distance of the summed law from the one accounted
    declared = law.sum_of(contributors).log_ratio_slack - law.log_ratio_slack
    draws = sums * draws_per_sum
    tail = draws * (law.tail_mass + 2.0 * math.exp(TAIL_LOG_MASS))
    return Inexactness(log_ratio=draws * law.log_ratio_slack + sums * declared, tail_mass=tail)


def breach_of(plan: TrainingPlan) -> float:
    """Probability that a run's secure sums hide nothing: 2^-40 for every session on a sparse random
    graph (secagg/graph.py).
    """
    if plan.aggregation.protocol != "secagg" or plan.invited < _SPARSE_FROM:
        return 0.0
    keeps_its_session = plan.federation.selection == "all" and not plan.noise.removable
    return (1 if keeps_its_session else plan.federation.rounds) * 2.0**-_SECURITY_BITS


def out_of_range(target: float, delta: float, drawn: Inexactness) -> str:
    """Why no noise can be sized for the target: it lies below what the sampler costs, or its δ is
    used up by far tails.
    """
    least, largest = 2.0 * drawn.log_ratio, drawn.largest_epsilon(delta)
    given = f"privacy.epsilon = {target:g} at privacy.delta = {delta:g}"
    if largest <= least:
        cost = 2.0 * drawn.tail_mass + drawn.breach
        what = (
            "the far tails of the sampler cost"
            if not drawn.breach
            else "the sparse graph of the secure sum and far tails cost"
        )
        return f"{given}: δ is less than {what} ({cost:.2g}). Raise privacy.delta."
    if target <= least:
        return (
            f"{given} is less than the exactness of the sampler costs ({least:.2g}). Raise "
            "privacy.epsilon."
        )
    return (
        f"{given} is too large: (1 + e^ε) times the sampler's far tails exceeds δ. Use at most "
        f"{math.floor(largest)}."
    )
