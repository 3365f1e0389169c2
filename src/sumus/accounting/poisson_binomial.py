"""Rényi divergence of the Poisson-binomial mechanism for the privacy of one silo, in numbers and
from above.

N silos each toss `trials` = m coins per coordinate; a coin of silo i shows one with probability p_i
of [½ − θ, ½ + θ] = [lo, hi]. Released is the number of ones. Neighbours (one silo's data):
    "zero"      the silo's update against the zero update (fair coins). The absent silo must be replaced by fair coins: with
                a silo simply missing the supports differ and the divergence is infinite.
    "replace"   any update against any other.

Worst case. Let P, Q be the two laws of the sum, P with the protected silo's coins at p ≥ p′ of Q.
(i) The protected silo is at the ends. Sums of coins are log-concave, so L = P/Q is nondecreasing,
and with one coin of P (or Q)
    at parameter a, and P°, Q° the laws without that coin,
        ∂_a Σ P^α Q^(1−α) = α Σ_s P°(s)(L(s+1)^(α−1) − L(s)^(α−1)) ≥ 0   (coin of P),
        ∂_a Σ P^α Q^(1−α) = −(α−1) Σ_s Q°(s)(L(s+1)^α − L(s)^α) ≤ 0       (coin of Q).
    So p = hi against p′ = lo ("replace"), hi against ½ and ½ against hi ("zero"), up to the
    reflection s → Nm − s.
(ii) The other silos' coins are at lo or hi. P and Q are affine in one such coin and Σ P^α Q^(1−α)
    is jointly convex, so it is largest at an end of every coin's range. What counts is h, how many
    of the M = (N − 1)m coins are at hi.
(iii) The largest over h = 0 … M is found by branch and bound: dropping the coins that are still
    free only removes noise (data processing), so the divergence without them bounds all h of a
    branch. The result is above the largest value and within 0.5 % of it.
(iv) (α − 1)·D_α is convex in α, so a chord between two computed orders lies above the orders
between.

Coordinates are independent: d coordinates cost d times one. Probabilities stay logarithms
    throughout.

Reference: Chen, Özgür, Kairouz 2022 (arXiv:2207.09916), who bound the same divergence by
    C·d·θ²·m·α/N.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from sumus.errors import PlanError
from sumus.noise import RenyiCurve

__all__ = ["LARGEST_COINS", "Neighbours", "poisson_binomial_curve", "worst_divergences"]

Neighbours = Literal["zero", "replace"]
LARGEST_COINS = 1 << 12
_ANCHORS = np.array(
    [2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128, 192, 256, 384, 512, 1024, 2048],
    dtype=np.float64,
)
_SURPLUS = 5e-3
# absolute, per coordinate: convolutions of positive numbers err by about coins·2^-53
_ROUNDING = 1e-11

Pair = npt.NDArray[np.float64]  # log-probabilities of P and Q, one row each


def poisson_binomial_curve(
    *, silos: int, trials: int, theta: float, dimension: int = 1, neighbours: Neighbours = "zero"
) -> RenyiCurve:
    """ε(α) of one sum of all silos' coins: an upper bound, within 0.5 % of the largest divergence
    at the orders computed.

    Guarantee: integer orders 2 … 2048, one silo as the unit, both directions; orders above come
        back infinite.

    Args:
        silos: N, honest silos in the sum, the protected one among them.
        trials: m, coins per coordinate and silo.
        theta: θ, how far a coin may lean.
        dimension: d, coordinates of one update, each within ±c.
        neighbours: which changes of one silo are covered (see the module).
    """
    if dimension < 1:
        raise PlanError(
            "dimension", dimension, "must be at least 1", "Count the model's parameters."
        )
    worst = np.asarray(worst_divergences(silos, trials, theta, neighbours))

    def curve(orders: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        chord = np.interp(orders, _ANCHORS, (_ANCHORS - 1.0) * worst, right=math.inf) / (
            np.asarray(orders) - 1.0
        )
        return np.asarray(dimension * chord)

    return curve


@lru_cache(maxsize=64)
def worst_divergences(
    silos: int, trials: int, theta: float, neighbours: Neighbours
) -> tuple[float, ...]:
    """Upper bounds on sup D_α for one coordinate at the computed orders, over all inputs of all
    silos.
    """
    if silos < 1 or trials < 1 or silos * trials > LARGEST_COINS:
        raise PlanError(
            "silos × trials",
            silos * trials,
            f"must lie in [1, {LARGEST_COINS}]",
            "Toss fewer coins per silo.",
        )
    if not 0.0 < theta < 0.5:
        raise PlanError("theta", theta, "must lie strictly between 0 and 1/2", "Use 0.25 or less.")
    if neighbours not in ("zero", "replace"):
        raise PlanError(
            "neighbours",
            neighbours,
            'must be "zero" or "replace"',
            "See sumus.accounting.poisson_binomial.",
        )
    ends = (
        [(0.5 + theta, 0.5 - theta)]
        if neighbours == "replace"
        else [(0.5 + theta, 0.5), (0.5, 0.5 + theta)]
    )
    certified = [
        _certified_maximum(_protected(trials, *end), (silos - 1) * trials, theta) for end in ends
    ]
    return tuple((np.maximum.reduce(certified) + _ROUNDING).tolist())


def _certified_maximum(protected: Pair, others: int, theta: float) -> npt.NDArray[np.float64]:
    """Branch and bound over h, the number of the other silos' coins at hi, for all orders at
    once.
    """
    high, low = 0.5 + theta, 0.5 - theta
    best = np.maximum(
        _divergences(_toss(protected, high, others)), _divergences(_toss(protected, low, others))
    )
    certified = best
    # the pair with the coins fixed so far, and how many coins are free
    branches = [(protected, others)]
    while branches:
        pair, free = branches.pop()
        bound = _divergences(pair)
        if free == 0:
            best = np.maximum(best, bound)
        if free == 0 or (bound <= best * (1.0 + _SURPLUS)).all():
            certified = np.maximum(certified, bound)
            continue
        half = free // 2
        # at most `half` of the free coins at hi
        branches.append((_toss(pair, low, free - half), half))
        branches.append((_toss(pair, high, half + 1), free - half - 1))  # or more: searched first
    return certified


def _protected(trials: int, first: float, second: float) -> Pair:
    """The protected silo's coins alone: Binomial(trials, first) against Binomial(trials,
    second).
    """
    return np.stack([_log_binomial(trials, first), _log_binomial(trials, second)])


def _toss(pair: Pair, probability: float, coins: int) -> Pair:
    """Both laws after `coins` more independent coins of the same probability."""
    coin_law = _log_binomial(coins, probability)
    return np.stack([_log_convolve(row, coin_law) for row in pair])


def _log_binomial(coins: int, probability: float) -> npt.NDArray[np.float64]:
    """log-probabilities of the number of ones among equal coins, from the ratios of neighbours."""
    ones = np.arange(coins)
    steps = np.log((coins - ones) / (ones + 1.0)) + math.log(probability / (1.0 - probability))
    logs = np.concatenate([[0.0], np.cumsum(steps)])
    logs -= logs.max()
    return np.asarray(logs - math.log(float(np.exp(logs).sum())))


def _log_convolve(
    first: npt.NDArray[np.float64], second: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Convolution of two log-concave laws given and returned as logarithms, without underflow.

    Both are tilted by the same e^(τs), which the convolution keeps, with τ such that the tilted sum
    peaks a little beyond the first point not yet known (the sorted increments of the logarithms
    tell which τ that is). Then every point whose tilted value exceeds 1e-100 is known to rounding:
    the peak is at least one, and what underflows is below 1e-300.
    """
    size = first.size + second.size - 1
    increments = np.sort(np.concatenate([np.diff(first), np.diff(second)]))[::-1]
    result = np.full(size, -np.inf)
    points = np.arange(size)
    known, ahead = 0, 16.0
    while known < size:
        target = known + int(ahead * math.sqrt(known * (size - known) / size))
        tilt = -increments[min(target, size - 2)] if size > 1 else 0.0
        tilted_first, tilted_second = (
            first + tilt * points[: first.size],
            second + tilt * points[: second.size],
        )
        peaks = float(tilted_first.max() + tilted_second.max())
        products = np.convolve(
            np.exp(tilted_first - tilted_first.max()), np.exp(tilted_second - tilted_second.max())
        )
        reached = int(np.argmax(np.append(products[known:], 0.0) < 1e-100)) + known
        ahead = 16.0 if reached > known else 0.0  # at the peak itself the value is at least one
        result[known:reached] = (
            np.log(products[known:reached]) + peaks - tilt * points[known:reached]
        )
        known = reached
    return result


def _divergences(pair: Pair) -> npt.NDArray[np.float64]:
    """D_α(P‖Q) = log Σ P^α Q^(1−α) / (α − 1) at every computed order."""
    log_p, log_q = pair
    exponents = log_q + _ANCHORS[:, None] * (log_p - log_q)
    peak = exponents.max(axis=1)
    return np.asarray(
        (peak + np.log(np.exp(exponents - peak[:, None]).sum(axis=1))) / (_ANCHORS - 1.0)
    )
