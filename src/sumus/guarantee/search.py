"""The ε of a search: the best of a random number of runs is released (`privacy.tuning_runs`)."""

from __future__ import annotations

from sumus.accounting import epsilon_of_search
from sumus.errors import PlanError
from sumus.guarantee.exactness import Inexactness
from sumus.noise import Values
from sumus.plan import PrivacyPlan

__all__ = ["is_one_run", "searched_epsilon"]

# times the expected number of geometric runs; more have probability below e^-64, nothing against δ
_MOST_RUNS = 64.0


def is_one_run(privacy: PrivacyPlan) -> bool:
    """Whether the number of tuning runs is 1 for certain; the law with mean 1 has no other value,
    so `draw_run_count` draws none.
    """
    return privacy.tuning_runs == 1.0


def searched_epsilon(curve: Values, drawn: Inexactness, privacy: PrivacyPlan) -> float:
    """ε of releasing the best run, each of them at most as dear as the Rényi curve, with all draws
    of all runs paid for.
    """
    runs = privacy.tuning_runs
    if runs is None:
        rule = "must be set to account for a search"
        raise PlanError("privacy.tuning_runs", None, rule, "Give the expected number of runs.")
    many = drawn.repeated(_MOST_RUNS * runs)
    return many.paid_for(
        lambda delta: epsilon_of_search(curve, delta=delta, expected_runs=runs), delta=privacy.delta
    )
