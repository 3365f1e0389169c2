"""The cost of choosing hyper-parameters: run a private training a random number of times and keep
the best.

Reference: Papernot, Steinke 2022 (arXiv 2110.03620), thm 2 (truncated negative binomial number of
    runs). The number of runs must really be
drawn from that law, from secret randomness, and every run's score must be part of what the run
releases.
"""

from __future__ import annotations

import math

import numpy as np

from sumus.accounting.accountant import renyi_values
from sumus.accounting.release import Release
from sumus.accounting.renyi import ORDERS, epsilon_cks
from sumus.accounting.roots import root_between
from sumus.errors import GuaranteeError
from sumus.files import number
from sumus.noise import Values

__all__ = ["epsilon_of_search", "epsilon_with_tuning"]


def epsilon_with_tuning(
    release: Release, *, delta: float, expected_runs: float, shape: float = 1.0
) -> float:
    """ε of releasing the best of a random number K of runs of `release`, each run adaptive inside
    but chosen before it starts.

        ε′(α) = ε(α) + log E[K]/(α − 1) + (1 + η)·min_β { (1 − 1/β)·ε(β) + log(1/γ)/β }

    Guarantee: upper bound for K ~ truncated negative binomial with shape η and E[K] = η(1 − γ)/(γ(1
        − γ^η)), add/remove neighbours.

    Args:
        expected_runs: E[K], at least 1.
        shape: η, above 0; 1 is the geometric law, smaller costs less and has a heavier tail.
    """
    return epsilon_of_search(
        renyi_values(release, ORDERS), delta=delta, expected_runs=expected_runs, shape=shape
    )


def epsilon_of_search(
    values: Values, *, delta: float, expected_runs: float, shape: float = 1.0
) -> float:
    """`epsilon_with_tuning` for runs whose Rényi curve, at the orders `ORDERS`, is at most `values`
    whichever run it is.
    """
    number(low=1.0).check("privacy.tuning_runs", expected_runs)
    number(above=0.0).check("shape", shape)
    log_gamma = _log_gamma(expected_runs, shape)
    finite = np.isfinite(values)
    if not finite.any():
        raise GuaranteeError(
            "tuning cannot be accounted at this noise: no finite Rényi order. Add noise or tune "
            "less."
        )
    orders, known = ORDERS[finite], values[finite]
    selection = (1.0 + shape) * float(np.min((1.0 - 1.0 / orders) * known - log_gamma / orders))
    return epsilon_cks(orders, known + math.log(expected_runs) / (orders - 1.0) + selection, delta)


def _log_gamma(expected_runs: float, shape: float) -> float:
    """log γ of the truncated negative binomial law with the given mean; 0 for a single run."""
    if expected_runs == 1.0:
        return 0.0
    if shape == 1.0:
        return -math.log(expected_runs)

    def excess(log_gamma: float) -> float:
        return (
            math.log(shape)
            + math.log(-math.expm1(log_gamma) / -math.expm1(shape * log_gamma))
            - log_gamma
            - math.log(expected_runs)
        )

    return root_between(excess, -700.0, -1e-12, tolerance=1e-13, relative=1e-13)
