"""The privacy loss of a Gaussian that a unit joins with a probability, on a grid.

With the unit the output is (1 − q)·N(0, σ²) + q·N(−1, σ²), without it N(0, σ²). The exact curve δ(ε)
is known at every point of the grid; "connect the dots" finds the masses on the grid whose curve goes
through these points and lies above it in between.

Reference: Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022 (arXiv:2207.04380), algorithm 1.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri

from sumus.accounting.gridded_losses import GriddedLoss, GriddedLosses
from sumus.errors import GuaranteeError
from sumus.noise import Values

__all__ = ["sampled_gaussian"]

_LOG_TAIL = -50.0  # of what lies beyond the grid's ends
_LARGEST_RISE = 1e-12  # of a curve that falls, by rounding
_CLOSE = 1e-9  # relative; how near a loss may come to the one that nothing exceeds


@lru_cache(maxsize=32)
def sampled_gaussian(multiplier: float, rate: float, width: float) -> GriddedLosses:
    """The losses of N(·, σ²) with sensitivity 1 and Poisson sampling.

    Guarantee: the curve of every direction lies at or above the exact one, up to the rounding of
        the normal distribution in float64.

    Args:
        multiplier: σ.
        rate: q, in (0, 1].
        width: of a bucket of privacy loss.
    """
    removed = _loss_on_grid(multiplier, rate, width, added=False)
    alike = rate == 1.0
    return GriddedLosses(
        removed, removed if alike else _loss_on_grid(multiplier, rate, width, added=True)
    )


def _loss_on_grid(multiplier: float, rate: float, width: float, *, added: bool) -> GriddedLoss:
    tail = float(ndtri(0.5 * math.exp(_LOG_TAIL)) * multiplier)
    # from the largest loss to the smallest
    ends = (tail, 1.0 - tail) if added else (tail - 1.0, -tail)
    highest = math.ceil(_loss(ends[0], multiplier, rate, added=added) / width)
    lowest = math.floor(_loss(ends[1], multiplier, rate, added=added) / width)
    epsilons: Values = np.arange(lowest, highest + 1) * np.float64(width)
    return _through(_deltas(epsilons, multiplier, rate, added=added), lowest, width)


def _through(deltas: Values, lowest: int, width: float) -> GriddedLoss:
    """The masses whose δ(ε) is `deltas` on the grid.

    Between two points the curve of such masses is linear in e^ε, so its kinks are the masses.
    """
    if len(deltas) == 1:
        return GriddedLoss(width, lowest, 1.0 - deltas, float(deltas[0]))
    if not (np.diff(deltas) <= _LARGEST_RISE).all():
        raise GuaranteeError('a privacy curve rises by rounding. Use accountant = "renyi".')
    deltas = np.minimum.accumulate(deltas)
    falls = np.diff(deltas)
    masses = np.zeros_like(deltas)
    masses[0] = 1.0 - deltas[0] + falls[0] / math.expm1(width)
    masses[1:-1] = (falls[1:] - falls[:-1] * math.exp(width)) / math.expm1(width)
    masses[-1] = falls[-1] / math.expm1(-width)
    return GriddedLoss(width, lowest, np.maximum(0.0, masses), float(deltas[-1]))


def _deltas(epsilons: Values, multiplier: float, rate: float, *, added: bool) -> Values:
    """The exact δ(ε): the mass of the outputs whose loss is above ε, less e^ε times that of the
    other world.
    """
    deltas = np.zeros(len(epsilons))
    # a unit that may not have joined cannot be excluded, nor can its absence
    inside = np.ones(len(epsilons), dtype=bool)
    if rate < 1.0 and added:
        inside = epsilons < -math.log1p(-rate)
    elif rate < 1.0:
        inside = epsilons > math.log1p(-rate)
        deltas[~inside] = -np.expm1(epsilons[~inside])
    losses = epsilons[inside]
    ends = _outputs(losses, multiplier, rate, added=added)
    at, beside = ends / multiplier, (ends + (-1.0 if added else 1.0)) / multiplier
    if added:
        masses = ndtr(at)
        others = log_ndtr(beside)
        if rate < 1.0:
            others = np.logaddexp(np.log1p(-rate) + log_ndtr(at), np.log(rate) + others)
    else:
        masses = ndtr(beside)
        if rate < 1.0:
            masses = (1.0 - rate) * ndtr(at) + rate * masses
        others = log_ndtr(at)
    deltas[inside] = masses - np.exp(losses + others)
    return np.clip(deltas, 0.0, 1.0)


def _outputs(losses: Values, multiplier: float, rate: float, *, added: bool) -> Values:
    """The outputs with these losses; losses fall as outputs grow."""
    sign = -1.0 if added else 1.0
    whole = losses
    if rate < 1.0:
        whole = np.full(len(losses), -sign * math.inf)
        edge = math.log(1.0 - rate)
        signed = sign * losses
        near = np.abs(signed - edge) <= _CLOSE * np.maximum(np.abs(signed), abs(edge))
        whole[~near] = sign * _without_coin(signed[~near], rate)
    outputs: Values = -0.5 - whole * multiplier**2
    return 1.0 + outputs if added else outputs


def _without_coin(losses: Values, rate: float) -> Values:
    """log((e^loss − (1 − q))/q): what the loss would be without the coin."""
    inverse = 1.0 / rate
    first, second = losses + np.log(inverse), np.log(inverse - 1.0)
    if inverse - 1.0 == inverse or not (first > second).all():
        raise GuaranteeError(
            f"sampling rate {rate:g} is too small for the privacy-loss accountant. Use accountant = "
            '"renyi".'
        )
    found = first + np.log1p(-np.exp(second - first))
    found[losses == 0.0] = np.log(inverse + (1.0 - inverse))
    return np.asarray(found)


def _loss(output: float, multiplier: float, rate: float, *, added: bool) -> float:
    """log of the ratio of the worlds' densities at an output."""
    sign = -1.0 if added else 1.0
    whole = (-0.5 - sign * output) / multiplier**2
    if rate < 1.0:
        joined, alone = whole + np.log(rate), np.log(1.0 - rate)
        larger, smaller = max(joined, alone), min(joined, alone)
        whole = larger + np.log1p(np.exp(smaller - larger))
    return float(sign * whole)
