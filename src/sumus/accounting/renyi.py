"""Rényi differential privacy at integer orders: curves of single queries, Poisson subsampling,
conversions to (ε, δ).

References: Mironov 2017 (arXiv:1702.07476); Canonne, Kamath, Steinke 2020 (arXiv:2004.00010); Zhu,
    Wang 2019 (ICML) and Steinke 2022 (arXiv:2210.00597, thm 11).
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.special import gammaln

from sumus.noise import Orders, RenyiCurve, Values

__all__ = [
    "ORDERS",
    "PAPER_ORDERS",
    "cks_bounds",
    "cks_deltas",
    "doubling_curve",
    "epsilon_cks",
    "gaussian_curve",
    "minimum",
    "mironov_bounds",
    "mironov_deltas",
    "subsampled",
]

PAPER_ORDERS: Orders = np.arange(2, 256)
ORDERS: Orders = np.concatenate(
    [np.arange(2, 129), np.unique(np.geomspace(130, 2048, 40).astype(np.int64))]
)
_LOW_ORDER = 128
# orders above are never the best one once a sampling rate enters, and cost a long sum each
_MAXIMUM_ORDER_SUBSAMPLED = 512


def gaussian_curve(noise_multiplier: float) -> RenyiCurve:
    """ε(α) = α / (2σ²) for the Gaussian mechanism with noise multiplier σ."""
    return lambda orders: np.asarray(orders / (2.0 * noise_multiplier**2), dtype=np.float64)


def minimum(*curves: RenyiCurve) -> RenyiCurve:
    """The pointwise smallest of several valid curves of the same query."""
    return lambda orders: np.minimum.reduce([curve(orders) for curve in curves])


def doubling_curve(noise_multiplier: float, doubling_rate: float) -> RenyiCurve:
    """A Gaussian whose sensitivity doubles with a revealed probability p: e^{(α−1)ε(α)} =
    (1−p)·e^{(α−1)α/2σ²} + p·e^{(α−1)·4α/2σ²}.
    """

    def curve(orders: Orders) -> Values:
        exponent = (orders - 1.0) * orders / (2.0 * noise_multiplier**2)
        log_mean = np.logaddexp(
            math.log1p(-doubling_rate) + exponent, math.log(doubling_rate) + 4.0 * exponent
        )
        return np.asarray(log_mean / (orders - 1.0), dtype=np.float64)

    return curve


def subsampled(curve: RenyiCurve, sampling_rate: float, orders: Orders) -> Values:
    """Rényi curve of the query on a Poisson sample, at integer orders (Zhu, Wang 2019; Steinke
    2022, thm 11).

        ε′(α) = 1/(α−1)·log[ (1−q)^{α−1}(1 + (α−1)q) + Σ_{j=2}^{α} C(α, j)(1−q)^{α−j} q^j
        e^{(j−1)ε(j)} ]

    Guarantee: upper bound in both directions of add/remove neighbours for additive symmetric noise,
        whose neighbouring laws are mirror images (docs/mathematics.md, "Rényi"). Orders above 512
        come back infinite when q < 1.
    """
    if sampling_rate == 1.0:
        return curve(orders)
    out = np.full(len(orders), math.inf)
    # apart, because a row has as many terms as the largest order beside it
    low = orders <= _LOW_ORDER
    for part in (low, ~low & (orders <= _MAXIMUM_ORDER_SUBSAMPLED)):
        if part.any():
            out[part] = _subsampled(curve, sampling_rate, orders[part])
    return out


def _subsampled(curve: RenyiCurve, sampling_rate: float, orders: Orders) -> Values:
    inner = np.arange(2, int(orders[-1]) + 1)
    log_terms = _log_binomial_table(tuple(orders.tolist()), sampling_rate) + (inner - 1.0) * curve(
        inner
    )
    peak = log_terms.max(axis=1)
    log_sum = peak + np.log(np.exp(log_terms - peak[:, None]).sum(axis=1))
    log_rest = (orders - 1) * math.log1p(-sampling_rate) + np.log1p((orders - 1) * sampling_rate)
    return np.asarray(np.maximum(np.logaddexp(log_rest, log_sum), 0.0) / (orders - 1))


@lru_cache(maxsize=64)
def _log_binomial_table(orders: tuple[int, ...], sampling_rate: float) -> Values:
    """log[C(α, j)(1−q)^{α−j} q^j] with a row per order α and a column per j = 2 … max α; −∞ where j
    > α.
    """
    alpha = np.array(orders)[:, None]
    j = np.arange(2, orders[-1] + 1)[None, :]
    inside = np.maximum(alpha - j, 0)
    table = _LOG_FACTORIALS[alpha] - _LOG_FACTORIALS[j] - _LOG_FACTORIALS[inside]
    table += inside * math.log1p(-sampling_rate) + j * math.log(sampling_rate)
    return np.where(j <= alpha, table, -np.inf)


_LOG_FACTORIALS = gammaln(np.arange(_MAXIMUM_ORDER_SUBSAMPLED + 1) + 1.0)


def epsilon_cks(orders: Orders, values: Values, delta: float) -> float:
    """ε = min_α ε(α) + log(1 − 1/α) − log(δα)/(α − 1) (Canonne, Kamath, Steinke 2020, prop. 12);
    never worse than Mironov's.
    """
    return max(0.0, float(np.min(cks_bounds(orders, values, delta))))


def mironov_bounds(orders: Orders, values: Values, delta: float) -> Values:
    """ε(α) + log(1/δ)/(α − 1) at every order α (Mironov 2017, prop. 3; as in Heikkilä 2025)."""
    return _known(values + math.log(1.0 / delta) / (orders - 1))


def cks_bounds(orders: Orders, values: Values, delta: float) -> Values:
    """The ε of Canonne, Kamath and Steinke's conversion at every order."""
    return _known(
        values + np.log1p(-1.0 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)
    )


def mironov_deltas(orders: Orders, values: Values, epsilon: float) -> Values:
    """The δ at ε = `epsilon` of Mironov's conversion at every order: its ε solved for δ."""
    return _known(np.exp(np.minimum((orders - 1) * (values - epsilon), 0.0)))


def cks_deltas(orders: Orders, values: Values, epsilon: float) -> Values:
    """The δ at ε = `epsilon` of Canonne, Kamath and Steinke's conversion at every order."""
    exponent = (orders - 1) * (values + np.log1p(-1.0 / orders) - epsilon) - np.log(orders)
    return _known(np.exp(np.minimum(exponent, 0.0)))


def _known(bounds: Values) -> Values:
    """An order whose bound is not a number (an infinite curve, subsampled) says nothing; `max(0,
    nan)` would say ε = 0.
    """
    return np.where(np.isnan(bounds), math.inf, bounds)
