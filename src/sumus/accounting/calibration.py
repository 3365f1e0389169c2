"""The least noise for a target ε, always from the safe side: ε(calibrate(ε)) ≤ ε, and within 0.1 %
of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from sumus.accounting.accountant import Accountant, accountant_named, renyi_values
from sumus.accounting.loss_distribution import gdp_parameter, unsampled_mu2
from sumus.accounting.release import Release
from sumus.errors import GuaranteeError, PlanError
from sumus.noise import Orders

__all__ = ["least_noise"]

_SMALLEST_MULTIPLIER, _LARGEST_MULTIPLIER = 1e-6, 1e7
_EVALUATIONS = 80
_SPREAD_ORDERS = 16


def least_noise(
    build: Callable[[float], Release],
    *,
    epsilon: float,
    delta: float,
    accountant: str = "pld",
    limit: Callable[[float], Release] | None = None,
) -> float:
    """The smallest noise multiplier σ with ε(build(σ)) ≤ epsilon, rounded up.

    A Rényi search finds the neighbourhood of σ in milliseconds, so that the privacy-loss accountant
    is asked only a few times. `limit` may give a cheaper release (continuous Gaussian noise) for
    that search; the answer is always evaluated with `build`.

    Guarantee: the returned σ satisfies ε(build(σ)) ≤ epsilon under `accountant`; otherwise
        `GuaranteeError`.
    """
    if not (epsilon > 0.0 and math.isfinite(epsilon)):
        raise PlanError(
            "epsilon", epsilon, "must be a finite number above 0", "Give a target such as 1.0."
        )
    if not 0.0 < delta < 1.0:
        raise PlanError(
            "delta",
            delta,
            "must be a number in (0, 1)",
            "A usual choice is below one over the number of records.",
        )
    accounting = accountant_named(accountant)
    search = limit or build
    closed_form = accounting.has_closed_form(search(1.0))
    if closed_form and all(queries.doubling_rate == 0.0 for queries in search(1.0)):
        # without subsampling ε is a function of Σ count/σ², which scales exactly in the Gaussian
        # limit
        start = math.sqrt(unsampled_mu2(search(1.0))) / gdp_parameter(epsilon, delta)
    else:
        start = _renyi_start(search, accounting, epsilon=epsilon, delta=delta)
    return _least(
        lambda sigma: accounting.epsilon(build(sigma), delta=delta),
        epsilon,
        start=start,
        tolerance=1e-6 if closed_form else accounting.tolerance,
    )


def _renyi_start(
    search: Callable[[float], Release], accounting: Accountant, *, epsilon: float, delta: float
) -> float:
    """A σ close to the answer from a few Rényi orders: spread out first, then all of them around
    the best.
    """
    orders, bounds = accounting.orders, accounting.bounds

    def at(some: Orders) -> Callable[[float], float]:
        return lambda sigma: max(
            0.0, float(np.min(bounds(some, renyi_values(search(sigma), some), delta)))
        )

    places = np.unique(np.searchsorted(orders, np.geomspace(orders[0], orders[-1], _SPREAD_ORDERS)))
    # ε ≈ √(2 log(1/δ)·Σ count·q²)/σ once the noise is large; only where the search begins
    spread = sum(
        queries.count * (queries.sampling_rate / (queries.gaussian_multiplier or 1.0)) ** 2
        for queries in search(1.0)
    )
    start = math.sqrt(-2.0 * math.log(delta) * spread) / epsilon
    start = min(max(start, 1e-2), 1e4) if start > 0.0 else 1.0
    sigma = _least(at(orders[places]), epsilon, start=start, tolerance=1e-2)
    if accounting.noise_against_renyi < 1.0:
        return sigma * accounting.noise_against_renyi
    best = int(
        np.argmin(bounds(orders[places], renyi_values(search(sigma), orders[places]), delta))
    )
    around = orders[places[max(best - 1, 0)] : places[min(best + 1, len(places) - 1)] + 1]
    return _least(at(around), epsilon, start=sigma, tolerance=accounting.tolerance / 2.0)


def _least(
    evaluate: Callable[[float], float], target: float, *, start: float, tolerance: float
) -> float:
    """σ with evaluate(σ) in [(1 − tolerance)·target, target], for a decreasing function: secant
    steps in log-log, kept inside a bracket.
    """
    sigma, slope = start, -1.3
    unsafe, safe = 0.0, math.inf  # evaluate(unsafe) > target ≥ evaluate(safe)
    before: tuple[float, float] | None = None
    for _ in range(_EVALUATIONS):
        value = evaluate(sigma)
        if value <= target:
            safe = min(safe, sigma)
            if value >= (1.0 - tolerance) * target or safe <= _SMALLEST_MULTIPLIER:
                return safe
        else:  # NaN counts as unsafe
            unsafe = max(unsafe, sigma)
            if unsafe >= _LARGEST_MULTIPLIER:
                break
        if safe <= unsafe * (1.0 + 1e-9):  # a jump of the function: the safe end is the answer
            return safe
        if before and sigma != before[0] and 0.0 < value < math.inf and 0.0 < before[1] < math.inf:
            slope = min(-0.05, math.log(value / before[1]) / math.log(sigma / before[0]))
        before = sigma, value
        sigma = _next(
            sigma, value, slope, aim=(1.0 - tolerance / 2.0) * target, unsafe=unsafe, safe=safe
        )
    if safe < math.inf:
        return safe
    raise GuaranteeError(
        f"epsilon {target:g} cannot be certified with a noise multiplier up to "
        f"{_LARGEST_MULTIPLIER:g}."
    )


def _next(
    sigma: float, value: float, slope: float, *, aim: float, unsafe: float, safe: float
) -> float:
    """The next σ to try: where the power law through (σ, value) meets the aim, or the middle of the
    bracket.
    """
    if 0.0 < value < math.inf:
        guess = sigma * min(max(math.pow(aim / value, 1.0 / slope), 1.0 / 64.0), 64.0)
    else:
        guess = sigma / 4.0 if value == 0.0 else sigma * 4.0
    if unsafe < guess < safe:
        return guess
    return math.sqrt(unsafe * safe) if unsafe > 0.0 and safe < math.inf else guess
