"""What ε means: how well any attacker tells whether one record was used, from the whole curve.

A test that sees everything released, knows all other records and raises a false alarm with
probability α finds a true case with probability at most

    power(α) ≤ min over ε of  min( e^ε·α + δ(ε),  1 − e^−ε·(1 − δ(ε) − α) )
    advantage = max over α of power(α) − α ≤ δ(0)

and of a pair of Gaussians at distance μ exactly Φ(Φ⁻¹(α) + μ) and 2Φ(μ/2) − 1.

References: Wasserman, Zhou 2010 (arXiv:0811.2501); Kairouz, Oh, Viswanath 2015 (arXiv:1311.0776);
    Dong, Roth, Su 2022 (arXiv:1905.02383).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from scipy.special import ndtr, ndtri

from sumus.accounting import ACCOUNTANTS, Release
from sumus.errors import GuaranteeError
from sumus.guarantee.exactness import Inexactness
from sumus.noise import Values

__all__ = ["FALSE_ALARMS", "Meaning", "meaning_of", "worst_of"]

FALSE_ALARMS = (0.001, 0.01, 0.1)
"""Shares of false alarms at which an attacker's power is stated."""

_POINTS = 257  # of the curve; the bound holds at any, more of them only tighten it


@final
@dataclass(frozen=True, kw_only=True)
class Meaning:
    """What any membership attack on one unit can reach.

    Guarantee: upper bounds for every test on everything released, by an attacker who knows all
        other records.

    Args:
        mu: distance of two unit Gaussians that are told apart with this advantage.
        gaussian: whether the release is as good as these two, at every rate of false alarms.
        advantage: true-positive rate minus false-positive rate of the best test.
        true_positive_rates: of the best test at each of the `false_positive_rates`.
    """

    mu: float
    gaussian: bool
    advantage: float
    false_positive_rates: tuple[float, ...]
    true_positive_rates: tuple[float, ...]

    def __str__(self) -> str:
        alarms, hits = (
            " / ".join(f"{100.0 * rate:.3g}" for rate in rates)
            for rates in (self.false_positive_rates, self.true_positive_rates)
        )
        return (
            f"an attack gains at most {100.0 * self.advantage:.3g} % over guessing (μ = "
            f"{self.mu:.3g}); it finds {hits} % at {alarms} % false alarms"
        )


def meaning_of(
    release: Release,
    *,
    accountant: str,
    drawn: Inexactness,
    false_alarms: Sequence[float] = FALSE_ALARMS,
) -> Meaning:
    """What a release means for one unit, with everything paid for that samplers and protocol cost.

    Args:
        accountant: by whom the curve is read.
        drawn: how far what is drawn is from what is declared.
    """
    mu = _gaussian_distance(release)
    if mu is not None:
        return _of_gaussians(mu, drawn, false_alarms)
    epsilons, deltas = _paid_curve(release, accountant, drawn)
    advantage = _advantage(epsilons, deltas)
    return Meaning(
        mu=2.0 * float(ndtri((1.0 + advantage) / 2.0)),
        gaussian=False,
        advantage=advantage,
        false_positive_rates=tuple(false_alarms),
        true_positive_rates=tuple(_power(epsilons, deltas, alpha) for alpha in false_alarms),
    )


def worst_of(meanings: Sequence[Meaning]) -> Meaning:
    """What holds for the units of every silo."""
    return Meaning(
        mu=max(meaning.mu for meaning in meanings),
        gaussian=all(meaning.gaussian for meaning in meanings),
        advantage=max(meaning.advantage for meaning in meanings),
        false_positive_rates=meanings[0].false_positive_rates,
        true_positive_rates=tuple(
            map(max, zip(*(meaning.true_positive_rates for meaning in meanings), strict=True))
        ),
    )


def _gaussian_distance(release: Release) -> float | None:
    """μ of a release of unsampled Gaussians: √Σ count/σ²; None of any other."""
    squares = []
    for queries in release:
        multiplier = queries.gaussian_multiplier
        if multiplier is None or queries.sampling_rate < 1.0 or queries.doubling_rate > 0.0:
            return None
        squares.append(queries.count / multiplier**2)
    return math.sqrt(math.fsum(squares))


def _of_gaussians(mu: float, drawn: Inexactness, false_alarms: Sequence[float]) -> Meaning:
    """In closed form; a drawn law P′ has P′ ≤ e^ρ·P + τ and P ≤ e^ρ·P′ + τ on every event."""
    ratio = math.exp(drawn.log_ratio)
    slack = drawn.tail_mass + drawn.breach
    powers = (
        ratio * float(ndtr(ndtri(min(ratio * alpha + drawn.tail_mass, 1.0)) + mu)) + slack
        for alpha in false_alarms
    )
    advantage = 2.0 * float(ndtr(mu / 2.0)) - 1.0 + 2.0 * (ratio - 1.0 + slack)
    return Meaning(
        mu=mu,
        gaussian=True,
        advantage=min(advantage, 1.0),
        false_positive_rates=tuple(false_alarms),
        true_positive_rates=tuple(min(power, 1.0) for power in powers),
    )


def _paid_curve(release: Release, accountant: str, drawn: Inexactness) -> tuple[Values, Values]:
    """(ε, δ(ε)) that hold for what is drawn: (ε + 2ρ, e^ρ·δ + (1 + e^(ε+2ρ))·τ + breach)."""
    read = ACCOUNTANTS[accountant]
    epsilon = read.epsilon(release, delta=1e-6)
    if not math.isfinite(epsilon):
        raise GuaranteeError("no finite ε: an attack may find every record.")
    declared = np.linspace(0.0, 2.0 * epsilon + 1.0, _POINTS)
    epsilons = declared + 2.0 * drawn.log_ratio
    with np.errstate(over="ignore"):
        tails = (1.0 + np.exp(epsilons)) * drawn.tail_mass
    deltas = math.exp(drawn.log_ratio) * read.deltas(release, declared) + tails + drawn.breach
    return epsilons, np.minimum(deltas, 1.0)


def _power(epsilons: Values, deltas: Values, alpha: float) -> float:
    with np.errstate(over="ignore"):
        above = np.exp(epsilons) * alpha + deltas
    below = 1.0 - np.exp(-epsilons) * (1.0 - deltas - alpha)
    return min(1.0, max(alpha, float(np.min(np.minimum(above, below)))))


def _advantage(epsilons: Values, deltas: Values) -> float:
    """Of (ε, δ) total variation is at most 1 − 2·(1 − δ)/(1 + e^ε): δ itself at ε = 0."""
    with np.errstate(over="ignore"):
        bounds = 1.0 - 2.0 * (1.0 - deltas) / (1.0 + np.exp(epsilons))
    return min(1.0, float(np.min(bounds)))
