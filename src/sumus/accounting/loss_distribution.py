"""Privacy-loss distributions: the tightest accountant, through Google's dp-accounting; closed form without subsampling.

Reference: Doroshenko et al. 2022 (arXiv 2207.04380, connect-the-dots; pessimistic, so every ε is an upper bound);
Balle, Wang 2018 (arXiv 1805.06530, thm 8) for the Gaussian without subsampling.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

from scipy.optimize import brentq
from scipy.special import log_ndtr

from sumus.accounting.release import Release
from sumus.errors import GuaranteeError, PlanError

__all__ = ["epsilon_gaussian", "epsilon_pld", "gdp_parameter"]

SMALLEST_DELTA = 1e-12
"""Below this δ the Fourier transforms behind the composition are no longer certain; ask for a Rényi accountant instead."""


def epsilon_pld(release: Release, delta: float, *, interval: float = 1e-4) -> float:
    """ε at δ of an adaptively composed release.

    Args:
        interval: width of a privacy-loss bucket; a wider one is faster and never optimistic.
    """
    if all(step.sampling_rate == 1.0 for step in release):
        return epsilon_gaussian(math.sqrt(sum(s.count / s.gaussian_multiplier**2 for s in release)), delta)
    if delta < SMALLEST_DELTA:
        rule = f"must be at least {SMALLEST_DELTA:g} for the privacy-loss accountant"
        raise PlanError("delta", delta, rule, 'Use accountant = "renyi".')
    composed: Any = None
    for step in release:
        part = _loss_distribution(step.gaussian_multiplier, step.sampling_rate, interval).self_compose(step.count)
        composed = part if composed is None else composed.compose(part)
    epsilon = float(composed.get_epsilon_for_delta(delta))
    if not math.isfinite(epsilon):
        raise GuaranteeError(f"no finite ε at δ = {delta:g}: the noise is too small for {release}.")
    return max(epsilon, 0.0)


@lru_cache(maxsize=32)
def _loss_distribution(gaussian_multiplier: float, sampling_rate: float, interval: float) -> Any:
    from dp_accounting.pld import privacy_loss_distribution

    return privacy_loss_distribution.from_gaussian_mechanism(
        gaussian_multiplier,
        sampling_prob=sampling_rate,
        value_discretization_interval=interval,
        use_connect_dots=True,
        pessimistic_estimate=True,
    )


def _log_delta(epsilon: float, mu: float) -> float:
    """log of δ(ε) = Φ(−ε/μ + μ/2) − e^ε·Φ(−ε/μ − μ/2), without cancellation far in the tail."""
    first = float(log_ndtr(-epsilon / mu + mu / 2.0))
    second = epsilon + float(log_ndtr(-epsilon / mu - mu / 2.0))
    return first + math.log1p(-math.exp(min(second - first, -1e-16)))


def epsilon_gaussian(mu: float, delta: float) -> float:
    """ε at δ of a μ-GDP mechanism, rounded up."""
    if _log_delta(0.0, mu) <= math.log(delta):
        return 0.0
    high = 1.0
    while _log_delta(high, mu) > math.log(delta):
        high *= 2.0
        if high > 1e9:
            raise GuaranteeError(f"no finite ε at δ = {delta:g} for μ = {mu:g}: add noise.")
    root = float(brentq(lambda e: _log_delta(e, mu) - math.log(delta), 0.0, high, xtol=1e-13, rtol=1e-13))
    return root * (1.0 + 1e-11)


def gdp_parameter(epsilon: float, delta: float) -> float:
    """μ(ε, δ): the largest μ whose μ-GDP curve gives (ε, δ), rounded down."""
    low, high = 1e-12, 1.0
    while _log_delta(epsilon, high) < math.log(delta):
        high *= 2.0
    root = float(brentq(lambda m: _log_delta(epsilon, m) - math.log(delta), low, high, xtol=1e-14, rtol=1e-13))
    return root * (1.0 - 1e-11)
