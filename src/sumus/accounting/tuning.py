"""The cost of choosing hyper-parameters: run a private training a random number of times and keep the best.

Reference: Papernot, Steinke 2022 (arXiv 2110.03620), thm 2 (truncated negative binomial number of runs), through dp-accounting's
RepeatAndSelectDpEvent. The number of runs must really be drawn from that law, from secret randomness.
"""

from __future__ import annotations

from sumus.accounting.release import Release
from sumus.accounting.renyi import ORDERS
from sumus.errors import GuaranteeError
from sumus.plan_rules import number

__all__ = ["epsilon_with_tuning"]


def epsilon_with_tuning(release: Release, *, delta: float, expected_runs: float, shape: float = 1.0) -> float:
    """ε of releasing the best of a random number of runs of `release`, each run adaptive inside but chosen before it starts.

    Guarantee: upper bound for K ~ truncated negative binomial with the given mean and shape (1: geometric), add/remove neighbours.

    Args:
        expected_runs: mean of the number of runs, at least 1.
        shape: η of the negative binomial law; smaller costs less and has a heavier tail.
    """
    number(low=1.0).check("privacy.tuning_runs", expected_runs)
    import dp_accounting

    inside = dp_accounting.ComposedDpEvent(
        [
            dp_accounting.SelfComposedDpEvent(
                dp_accounting.PoissonSampledDpEvent(step.sampling_rate, dp_accounting.GaussianDpEvent(step.gaussian_multiplier))
                if step.sampling_rate < 1.0
                else dp_accounting.GaussianDpEvent(step.gaussian_multiplier),
                step.count,
            )
            for step in release
        ]
    )
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant(orders=[float(order) for order in ORDERS if order <= 512])
    accountant.compose(dp_accounting.RepeatAndSelectDpEvent(inside, expected_runs, shape))
    epsilon = float(accountant.get_epsilon(delta))
    if not epsilon < float("inf"):
        raise GuaranteeError("tuning cannot be accounted at this noise: no finite Rényi order. Add noise or tune less.")
    return epsilon
