"""Privacy of small mechanisms by enumeration and quadrature: slow, obvious, and without a line of
the package.

Integer laws are arrays over −reach … reach; a shift is a roll that must not lose mass. The
hockey-stick divergence H_α(P‖Q) = Σ max(P − αQ, 0) is what (ε, δ) means: δ(ε) = H_{e^ε}.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def poisson(rate: float, most: int) -> Array:
    k = np.arange(most + 1)
    factorials = np.array([math.lgamma(value + 1.0) for value in k])
    return np.asarray(np.exp(k * math.log(rate) - rate - factorials))


def skellam(variance: float, reach: int) -> Array:
    """Law of the difference of two Poisson variables of rate v/2, by convolution."""
    one = poisson(variance / 2.0, 4 * reach)
    both = np.convolve(one, one[::-1])
    return np.asarray(both[4 * reach - reach : 4 * reach + reach + 1])


def discrete_gaussian(scale2: float, reach: int) -> Array:
    wide = np.exp(-np.square(np.arange(-4 * reach, 4 * reach + 1)) / (2.0 * scale2))
    return np.asarray((wide / wide.sum())[3 * reach : 5 * reach + 1])


def summed(law: Array, count: int) -> Array:
    """Law of the sum of independent copies, on the same support."""
    reach = len(law) // 2
    total = law
    for _ in range(count - 1):
        total = np.convolve(total, law)[reach : 3 * reach + 1]
    return total


def product(laws: Sequence[Array]) -> Array:
    """Law of a vector with independent coordinates."""
    out = np.array(1.0)
    for law in laws:
        out = np.multiply.outer(out, law)
    return out


def shifted(law: Array, by: Sequence[int]) -> Array:
    """Law of X + by; asserts that only negligible mass leaves the support."""
    out = law
    for axis, step in enumerate(by):
        edge = (
            np.take(out, range(-step, 0) if step > 0 else range(-step), axis=axis)
            if step
            else np.zeros(1)
        )
        assert edge.sum() < 1e-13, "the support is too small for this shift"
        out = np.roll(out, step, axis=axis)
    return out


def hockey_stick(p: Array, q: Array, alpha: float) -> float:
    return float(np.maximum(p - alpha * q, 0.0).sum())


def _sf(x: float) -> float:
    """P[N(0, 1) > x]."""
    return 0.5 * math.erfc(x / math.sqrt(2.0))


def _density(x: Array) -> Array:
    return np.asarray(np.exp(-np.square(x) / 2.0) / math.sqrt(2.0 * math.pi))


def gaussian_hockey_stick(mu: float, alpha: float) -> float:
    """H_α(N(μ, 1) ‖ N(0, 1)): the likelihood ratio exceeds α right of x = log α/μ + μ/2."""
    x = math.log(alpha) / mu + mu / 2.0
    return _sf(x - mu) - alpha * _sf(x)


def sampled_gaussian_hockey_stick(mu: float, rate: float, alpha: float, *, removed: bool) -> float:
    """H_α of the mixture (1−q)N(0) + qN(μ) against N(0); `removed`: the other way round."""
    # N(0) − α·mixture is positive where the ratio mixture/N(0) = 1 − q + q·e^{μx−μ²/2} is below 1/α
    if removed:
        level = (1.0 / alpha - 1.0 + rate) / rate
        if level <= 0.0:
            return 0.0
        x = math.log(level) / mu + mu / 2.0
        return _sf(-x) - alpha * ((1.0 - rate) * _sf(-x) + rate * _sf(mu - x))
    level = (alpha - 1.0 + rate) / rate
    if level <= 0.0:
        return 1.0 - alpha
    x = math.log(level) / mu + mu / 2.0
    return (1.0 - rate - alpha) * _sf(x) + rate * _sf(x - mu)


def twice_sampled_gaussian_hockey_stick(
    mu: float, rate: float, alpha: float, *, removed: bool
) -> float:
    """H_α of two independent subsampled Gaussians: ∫ p(y)·H_{α·q(y)/p(y)} dy by the trapezoid
    rule.
    """
    y = np.linspace(-9.0, 9.0 + mu, 601)  # smooth and decaying: the rule converges geometrically
    base, mixture = _density(y), (1.0 - rate) * _density(y) + rate * _density(y - mu)
    p, q = (base, mixture) if removed else (mixture, base)
    inner = np.array(
        [
            sampled_gaussian_hockey_stick(mu, rate, alpha * float(b / a), removed=removed)
            if a > 0
            else 0.0
            for a, b in zip(p, q, strict=True)
        ]
    )
    return float(np.trapezoid(p * inner, y))


def split_noise_joint(sent: Array, state: Array, silos: int) -> Array:
    """Joint law of (ξ₁ + ζ₁, …, ξ_k + ζ_k, Σ ξ_j) for integer noises ξ_j ~ sent and ζ_j ~ state, by
    enumeration.
    """
    reach = len(sent) // 2
    size = 2 * reach + 1
    wide = np.zeros((size,) * silos + (2 * silos * reach + 1,))
    points = range(-reach, reach + 1)
    columns = np.zeros((size, size))  # columns[ξ] = law of ξ + ζ given ξ, on −reach … reach
    for index, xi in enumerate(points):
        for place, z in enumerate(points):
            if abs(z - xi) <= reach:
                columns[index, place] = state[z - xi + reach]
    for combination in np.ndindex(*(size,) * silos):
        weight = math.prod(float(sent[each]) for each in combination)
        if weight > 1e-18:
            total = sum(points[each] for each in combination) + silos * reach
            wide[..., total] += weight * product([columns[each] for each in combination])
    return wide
