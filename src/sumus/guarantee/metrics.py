"""What secure metrics guarantee to a test record, and the noise that meets the plan's target for
it.
"""

from __future__ import annotations

import math

from sumus.accounting import ORDERS, epsilon_of, least_noise, renyi_values
from sumus.errors import GuaranteeError, PlanError
from sumus.guarantee.counts import check_room, count_noise, count_release
from sumus.guarantee.exactness import Inexactness, breach_of, inexactness_of_draws, out_of_range
from sumus.guarantee.search import is_one_run, searched_epsilon
from sumus.plan import TrainingPlan

__all__ = [
    "inexactness_of_counts",
    "least_metrics_noise",
    "measurements_until",
    "metrics_epsilon",
    "metrics_spent",
    "with_metrics_noise",
]


def measurements_until(plan: TrainingPlan, rounds: int) -> int:
    """How many models are measured in the first `rounds` rounds."""
    return sum(plan.measures_after(number) for number in range(rounds))


def metrics_epsilon(
    plan: TrainingPlan, *, measurements: int | None = None, search: bool = False, known: int = 0
) -> float:
    """ε at the plan's δ of all secure metrics for one test record, everything paid for; infinite
    where the noise cannot carry one.

    Args:
        measurements: of so many measured models, instead of all of the plan.
        search: of the plan's tuning runs together, where the best of them is released
            (`privacy.tuning_runs`), instead of one run.
        known: counted silos whose noise the adversary knows after all.
    """
    count = (
        measurements_until(plan, plan.federation.rounds) if measurements is None else measurements
    )
    if count == 0:
        return 0.0
    release = count_release(plan, measurements=count, known=known)
    privacy, drawn = plan.privacy, inexactness_of_counts(plan, count, known=known)
    try:
        if search and not is_one_run(privacy):
            return searched_epsilon(renyi_values(release, ORDERS), drawn, privacy)
        return drawn.paid_for(
            lambda delta: epsilon_of(release, delta=delta, accountant=privacy.accountant),
            delta=privacy.delta,
        )
    except GuaranteeError:
        return math.inf


def metrics_spent(plan: TrainingPlan, rounds: int) -> float | None:
    """ε for a test record once the model of round `rounds` (from 1) is measured securely; None if
    the plan does not ask for it.
    """
    if plan.evaluation.metrics != "secure" or not plan.measures_after(rounds - 1):
        return None
    return metrics_epsilon(plan, measurements=measurements_until(plan, rounds))


def with_metrics_noise(plan: TrainingPlan) -> TrainingPlan:
    """The plan with the noise of its secure metrics calibrated to its target ε, unless it names
    that noise or measures otherwise.

    Guarantee: test records of the returned plan have ε ≤ `privacy.epsilon` where the noise was
        calibrated.
    """
    if plan.evaluation.metrics != "secure":
        return plan
    if plan.evaluation.noise_multiplier is None and plan.privacy.epsilon is not None:
        plan = plan.replace("evaluation", noise_multiplier=least_metrics_noise(plan))
    check_room(plan)
    return plan


def least_metrics_noise(plan: TrainingPlan) -> float:
    """The smallest `evaluation.noise_multiplier` that meets the plan's target for test records."""
    target, privacy = plan.privacy.epsilon, plan.privacy
    if target is None:
        rule = "must be set where nothing else says how much noise metrics need"
        raise PlanError("privacy.epsilon", None, rule, "Set it, or evaluation.noise_multiplier.")
    count = measurements_until(plan, plan.federation.rounds)

    def noised(multiplier: float) -> TrainingPlan:
        return plan.replace("evaluation", noise_multiplier=multiplier)

    drawn = inexactness_of_counts(noised(1.0), count)
    slack, delta = drawn.budget(target, privacy.delta)
    if target <= slack or delta <= 0.0:
        raise GuaranteeError(out_of_range(target, privacy.delta, drawn))
    multiplier = least_noise(
        lambda sigma: count_release(noised(sigma), measurements=count),
        epsilon=target - slack,
        delta=delta,
        accountant=privacy.accountant,
    )
    # the trial's slack may differ from the real one in the last digits
    while metrics_epsilon(noised(multiplier)) > target:
        multiplier *= 1.0 + 1e-6
    return multiplier


def inexactness_of_counts(plan: TrainingPlan, measurements: int, *, known: int = 0) -> Inexactness:
    """Of all noise on the counts of so many measured models that the adversary does not know."""
    sums = float(measurements * plan.task.counts.length)
    contributors = plan.noise_contributors - known
    drawn = inexactness_of_draws(
        count_noise(plan), contributors, sums=sums, draws_per_sum=contributors
    )
    return drawn + Inexactness(breach=breach_of(plan))
