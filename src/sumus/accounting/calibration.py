"""The least noise for a target ε, always from the safe side: ε(calibrate(ε)) ≤ ε, and within 0.1 % of it."""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy.optimize import brentq

from sumus.accounting.accountant import epsilon_of, loss_interval
from sumus.accounting.loss_distribution import gdp_parameter
from sumus.accounting.release import Release
from sumus.errors import GuaranteeError, PlanError

__all__ = ["least_noise"]

_TOLERANCE = 1e-4  # relative, on the noise; the promise is 1e-3
_LARGEST_MULTIPLIER = 1e7


def least_noise(
    build: Callable[[float], Release],
    *,
    epsilon: float,
    delta: float,
    accountant: str = "pld",
    limit: Callable[[float], Release] | None = None,
) -> float:
    """The smallest noise multiplier σ with ε(build(σ)) ≤ epsilon, rounded up.

    A Rényi search brackets σ in milliseconds; the privacy-loss accountant is asked only a few times inside the bracket, with coarse
    buckets first and fine ones last. `limit` may give a cheaper release (continuous Gaussian noise) for the search; the answer is
    always checked against `build`.

    Guarantee: the returned σ satisfies ε(build(σ)) ≤ epsilon under `accountant`; otherwise `GuaranteeError`.
    """
    if not (epsilon > 0.0 and math.isfinite(epsilon)):
        raise PlanError("epsilon", epsilon, "must be a finite number above 0", "Give a target such as 1.0.")
    if not 0.0 < delta < 1.0:
        raise PlanError("delta", delta, "must be a number in (0, 1)", "A usual choice is below one over the number of records.")
    search = limit or build
    if accountant == "pld" and all(step.sampling_rate == 1.0 and step.surge_rate == 0.0 for step in search(1.0)):
        # without subsampling ε is a function of Σ count/σ², which scales exactly in the Gaussian limit
        mu_at_one = math.sqrt(sum(step.count / step.gaussian_multiplier**2 for step in search(1.0)))
        candidate = mu_at_one / gdp_parameter(epsilon, delta)
    else:
        renyi = accountant if accountant != "pld" else "renyi"
        candidate = _root(lambda sigma: epsilon_of(search(sigma), delta=delta, accountant=renyi), epsilon, start=1.0)
        if accountant == "pld":
            coarse = 4.0 * loss_interval(search(1.0), epsilon)
            evaluate = lambda sigma: epsilon_of(search(sigma), delta=delta, interval=coarse)  # noqa: E731
            candidate = _root(evaluate, epsilon, start=candidate, tolerance=_TOLERANCE)
    return _from_the_safe_side(build, candidate, epsilon=epsilon, delta=delta, accountant=accountant)


def _root(evaluate: Callable[[float], float], epsilon: float, *, start: float, tolerance: float = 1e-7) -> float:
    """σ with evaluate(σ) ≈ epsilon, for a decreasing function; bracketed geometrically around `start`."""
    low = high = start
    value = evaluate(start)
    factor = 1.15
    while value > epsilon:
        low, high = high, high * factor
        factor = min(factor * factor, 4.0)
        if high > _LARGEST_MULTIPLIER:
            raise GuaranteeError(f"epsilon {epsilon:g} cannot be reached with a noise multiplier up to {_LARGEST_MULTIPLIER:g}.")
        value = evaluate(high)
    while low == high or evaluate(low) <= epsilon:
        high, low = low, low / factor
        factor = min(factor * factor, 4.0)
        if low < 1e-6:
            return low
    gap = lambda log_sigma: math.log(max(evaluate(math.exp(log_sigma)), 1e-300)) - math.log(epsilon)  # noqa: E731
    return math.exp(float(brentq(gap, math.log(low), math.log(high), xtol=tolerance, rtol=1e-12)))


def _from_the_safe_side(build: Callable[[float], Release], candidate: float, *, epsilon: float, delta: float, accountant: str) -> float:
    """Raise a candidate by the least factor that makes the exact release certifiable, by a few secant steps."""
    sigma = candidate
    for _ in range(40):
        value = epsilon_of(build(sigma), delta=delta, accountant=accountant)  # exactly what anybody who asks later will get
        if value <= epsilon:
            return sigma
        sigma *= 1.0 + max((value / epsilon - 1.0) * 1.02, 1e-9) + 1e-7
    raise GuaranteeError(f"epsilon {epsilon:g} at delta {delta:g} could not be certified near noise multiplier {sigma:g}.")
