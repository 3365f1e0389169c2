"""Privacy-loss distributions: the tightest accountant; closed form without subsampling.

References: Doroshenko et al. 2022 (arXiv:2207.04380, connect-the-dots; pessimistic, so every ε is
    an upper bound); Balle, Wang 2018 (arXiv:1805.06530, thm 8) for the Gaussian without
    subsampling.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, reduce
from typing import Any

import numpy as np
from scipy.special import gammaln, log_ndtr, xlog1py, xlogy

from sumus.accounting.gridded_losses import GriddedLosses
from sumus.accounting.release import Queries, Release
from sumus.accounting.roots import root_between
from sumus.accounting.sampled_gaussian import sampled_gaussian
from sumus.accounting.several_parts import TILTS, told_parts
from sumus.errors import GuaranteeError, PlanError
from sumus.noise import Values

__all__ = [
    "deltas_pld",
    "epsilon_gaussian",
    "epsilon_pld",
    "gdp_parameter",
    "unsampled_mu2",
    "why_not_composable",
]

_LARGEST_EPSILON = 1e9
# of δ, per composition and 100 more: twenty times what float64 transforms were seen to lose against
# closed forms
_TRANSFORM_ERROR = 1e-15

_MIXTURE = 4096  # grid steps of all that several kinds of doublings can add to μ²
_LARGEST_TABLE = 2e7  # buckets of one query's privacy loss, up to about 1/(2σ²) + 15/σ
# relative; covers the cancellation in `_log_delta` and the tolerance of the root finder
_ROUNDING = 1e-9


def why_not_composable(release: Release) -> str | None:
    """Why loss distributions cannot account for a release, or None if they can: they carry queries
    whose sensitivity may double only beside unsampled ones.
    """
    doubling = any(queries.doubling_rate > 0.0 for queries in release)
    if any(queries.gaussian_multiplier is None for queries in release):
        return "a query without a dominating Gaussian has no privacy-loss distribution"
    if doubling and any(queries.sampling_rate < 1.0 for queries in release):
        return (
            "a query whose sensitivity may double cannot be composed with subsampled ones by "
            "privacy-loss distributions"
        )
    return None


def epsilon_pld(release: Release, delta: float, *, interval: float = 1e-4) -> float:
    """ε at δ of an adaptively composed release.

    Args:
        interval: width of a privacy-loss bucket; a wider one is faster and never optimistic.
    """
    if (reason := why_not_composable(release)) is not None:
        raise GuaranteeError(f'{reason}. Use accountant = "renyi".')
    if all(queries.sampling_rate == 1.0 for queries in release):
        return _epsilon_unsampled(release, delta)
    return _epsilon_sampled(_told_apart(release), delta, interval)


def _told_apart(release: Release) -> Release:
    """The release as loss distributions read it: without Rényi curves, equal where they are."""
    return replace(
        release, queries=tuple(replace(queries, curve=None) for queries in release.queries)
    )


# calibration, the headline and the live ε ask for the same silo's, each in a pass over all silos
@lru_cache(maxsize=8192)
def _epsilon_sampled(release: Release, delta: float, interval: float) -> float:
    transform_error = _transform_error(release)
    if delta < 10.0 * transform_error:
        rule = (
            f"must be at least {10.0 * transform_error:.3g} for the privacy-loss accountant (its "
            "Fourier transforms are no better)"
        )
        raise PlanError("delta", delta, rule, 'Use accountant = "renyi".')
    epsilon = min(
        _composed(release, interval, tilt).epsilon(delta - transform_error)
        for tilt in _tilts(release)
    )
    if not math.isfinite(epsilon):
        raise GuaranteeError(f"no finite ε at δ = {delta:g}: the noise is too small for {release}.")
    return max(epsilon, 0.0)


def deltas_pld(release: Release, epsilons: Values, *, interval: float = 1e-4) -> Values:
    """δ(ε) of an adaptively composed release at every ε, from above.

    Args:
        epsilons: ascending, at least 0.
        interval: see `epsilon_pld`.
    """
    if (reason := why_not_composable(release)) is not None:
        raise GuaranteeError(f'{reason}. Use accountant = "renyi".')
    if all(queries.sampling_rate == 1.0 for queries in release):
        log_weights, parameters = _gaussian_mixture(release)
        log_deltas = _log_delta(epsilons, parameters[:, np.newaxis])
        logs = np.logaddexp.reduce(log_weights[:, np.newaxis] + log_deltas)
        return np.asarray(np.minimum(np.exp(logs) * (1.0 + _ROUNDING), 1.0))
    apart = _told_apart(release)
    found = [_composed(apart, interval, tilt).deltas(epsilons) for tilt in _tilts(release)]
    least: Values = np.min(found, axis=0)
    return np.minimum(least + _transform_error(release), 1.0)


def _tilts(release: Release) -> tuple[float, ...]:
    """The shares that are tried: one choice where no unit has several parts."""
    return TILTS if any(queries.parts > 1 for queries in release) else TILTS[:1]


def _transform_error(release: Release) -> float:
    return _TRANSFORM_ERROR * (100 + sum(queries.count for queries in release))


# one release is read as ε and then as a curve; megabytes each
@lru_cache(maxsize=2)
def _composed(release: Release, interval: float, tilt: float) -> GriddedLosses:
    """The privacy-loss distribution of the whole release; `tilt` is of units of several parts."""
    for queries in release:
        multiplier = queries.dominating_multiplier / queries.parts
        if (0.5 / multiplier + 15.0) / multiplier > _LARGEST_TABLE * interval:
            raise GuaranteeError(
                f"noise multiplier {multiplier:.3g} is too small for the privacy-loss accountant. "
                'Add noise, or use accountant = "renyi".'
            )
    return reduce(
        GriddedLosses.composed,
        (_of_parts(queries, interval, tilt).repeated(queries.count) for queries in release),
    )


def unsampled_mu2(release: Release) -> float:
    """μ² of the Gaussian-DP that the release has without subsampling and doubling: Σ count/σ²."""
    return sum(queries.count / queries.dominating_multiplier**2 for queries in release)


def _epsilon_unsampled(release: Release, delta: float) -> float:
    """Closed form without subsampling; a sensitivity that may double makes it a mixture of Gaussians
    over the number of queries in which it did (of several kinds see `_gaussian_mixture`).

    δ(ε) = Σ_j Binomial(T, p)(j)·δ_{μ_j}(ε),   μ_j² = (T + 3j)/σ² + (the other queries)
    """
    if not any(queries.doubling_rate > 0.0 for queries in release):
        return epsilon_gaussian(math.sqrt(unsampled_mu2(release)), delta)
    log_weights, parameters = _gaussian_mixture(release)
    # what is left out has weight below δ·e^-60·T: nothing against the rounding up
    kept = log_weights > math.log(delta) - 60.0
    return _root_of(
        lambda epsilon: float(
            np.logaddexp.reduce(log_weights[kept] + _log_delta(epsilon, parameters[kept]))
        ),
        delta,
    )


def _gaussian_mixture(release: Release) -> tuple[Values, Values]:
    """(log of a weight, μ) of every Gaussian in the mixture: of one kind of query that may double
    log Binomial(T, p)(j) and μ_j for j = 0 … T; one Gaussian where no sensitivity may double.

    Of several kinds the numbers of doublings are independent, and what they add to μ² is rounded up
    to a common grid: δ_μ(ε) grows with μ, so the mixture is an upper bound.
    """
    base2 = unsampled_mu2(release)
    doubling = [queries for queries in release if queries.doubling_rate > 0.0]
    if not doubling:
        return np.zeros(1), np.array([math.sqrt(base2)])
    if len(doubling) == 1:
        (queries,) = doubling
        log_weights = _log_doublings(queries)
        doubled = np.arange(queries.count + 1)
        return log_weights, np.sqrt(base2 + 3.0 * doubled / queries.dominating_multiplier**2)
    added = [3.0 / queries.dominating_multiplier**2 for queries in doubling]
    unit = math.fsum(a * each.count for a, each in zip(added, doubling, strict=True)) / _MIXTURE
    weights = np.ones(1)
    for amount, queries in zip(added, doubling, strict=True):
        stride = math.ceil(amount / unit * (1.0 + _ROUNDING))
        of_kind = np.zeros(queries.count * stride + 1)
        of_kind[::stride] = np.exp(_log_doublings(queries))
        weights = np.convolve(weights, of_kind)
    places = np.flatnonzero(weights)
    return np.log(weights[places]), np.sqrt(base2 + unit * places)


def _log_doublings(queries: Queries) -> Values:
    """log Binomial(T, p)(j) for j = 0 … T."""
    doubled = np.arange(queries.count + 1)
    kept_single = queries.count - doubled
    log_choices = gammaln(queries.count + 1.0) - gammaln(doubled + 1.0) - gammaln(kept_single + 1.0)
    return np.asarray(
        log_choices
        + xlogy(doubled, queries.doubling_rate)
        + xlog1py(kept_single, -queries.doubling_rate)
    )


def _of_parts(queries: Queries, interval: float, tilt: float) -> GriddedLosses:
    """The loss of one query; of a unit of several parts mixed over the number of them that is
    told.
    """
    multiplier = queries.dominating_multiplier
    if queries.parts == 1:
        return sampled_gaussian(multiplier, queries.sampling_rate, interval)
    told = told_parts(queries.sampling_rate, queries.parts, multiplier, tilt)
    losses = (sampled_gaussian(multiplier / number, joins, interval) for number, _, joins in told)
    mixed, so_far = next(losses), told[0][1]
    for one, (_, share, _) in zip(losses, told[1:], strict=True):
        so_far += share
        mixed = mixed.mixed(one, 1.0 - share / so_far)
    return mixed


def _log_delta(epsilon: Any, mu: Any) -> Any:
    """log of δ(ε) = Φ(−ε/μ + μ/2) − e^ε·Φ(−ε/μ − μ/2), without cancellation far in the tail."""
    first = log_ndtr(-epsilon / mu + mu / 2.0)
    second = epsilon + log_ndtr(-epsilon / mu - mu / 2.0)
    return first + np.log(-np.expm1(np.minimum(second - first, -1e-16)))


def epsilon_gaussian(mu: float, delta: float) -> float:
    """ε at δ of a μ-GDP mechanism, rounded up."""
    return _root_of(lambda epsilon: float(_log_delta(epsilon, mu)), delta)


def _root_of(log_delta: Callable[[float], float], delta: float) -> float:
    """The ε at which a decreasing log δ(ε) falls to log δ, rounded up."""
    target = math.log(delta)
    if log_delta(0.0) <= target:
        return 0.0
    high = 1.0
    while log_delta(high) > target:
        high *= 2.0
        if high > _LARGEST_EPSILON:
            raise GuaranteeError(f"no finite ε at δ = {delta:g}. Add noise.")
    root = root_between(
        lambda epsilon: log_delta(epsilon) - target, 0.0, high, tolerance=1e-13, relative=1e-13
    )
    return root * (1.0 + _ROUNDING)


def gdp_parameter(epsilon: float, delta: float) -> float:
    """μ(ε, δ): the largest μ whose μ-GDP curve gives (ε, δ), rounded down."""
    low, high = 1e-12, 1.0
    if epsilon > _LARGEST_EPSILON:
        raise GuaranteeError(
            f"epsilon = {epsilon:g} is more than can be computed with. Use at most "
            f"{_LARGEST_EPSILON:g}."
        )
    if not _log_delta(epsilon, low) < math.log(delta):
        raise GuaranteeError(
            f"epsilon = {epsilon:g} at delta = {delta:g} is beyond what can be computed. Ask for "
            "more."
        )
    while _log_delta(epsilon, high) < math.log(delta):
        high *= 2.0
    root = root_between(
        lambda m: float(_log_delta(epsilon, m)) - math.log(delta),
        low,
        high,
        tolerance=1e-14,
        relative=1e-13,
    )
    return root * (1.0 - _ROUNDING)
