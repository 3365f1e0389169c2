"""The ε of a search: the best of a random number of runs is released (`privacy.tuning_runs`)."""

from __future__ import annotations

from sumus.accounting import Values, epsilon_of_search
from sumus.guarantee.exactness import Inexactness
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
    runs = privacy.tuning_runs or 1.0
    many = drawn.repeated(_MOST_RUNS * runs)
    return many.paid_for(
        lambda delta: epsilon_of_search(curve, delta=delta, expected_runs=runs), delta=privacy.delta
    )
