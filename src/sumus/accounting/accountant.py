"""ε of a release by the accountant of one's choice, tightest first."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, final

import numpy as np

from sumus.accounting.loss_distribution import deltas_pld, epsilon_pld, why_not_composable
from sumus.accounting.release import Queries, Release
from sumus.accounting.renyi import (
    ORDERS,
    PAPER_ORDERS,
    cks_bounds,
    cks_deltas,
    gaussian_curve,
    mironov_bounds,
    mironov_deltas,
    subsampled,
)
from sumus.accounting.several_parts import TILTS, told_parts
from sumus.errors import GuaranteeError, PlanError
from sumus.noise import Orders, Values

__all__ = [
    "ACCOUNTANTS",
    "Accountant",
    "accountant_named",
    "epsilon_of",
    "renyi_values",
    "tightest",
]

_USUAL_DELTA = 1e-6  # where the width of a privacy-loss bucket is chosen for a whole curve


class Accountant(ABC):
    """One way from a release to ε.

    Attributes:
        name: the plan's `privacy.accountant`.
        tolerance: how closely calibration meets a target, relative, on ε.
        noise_against_renyi: about the noise it needs, relative to what Rényi orders ask for.
        orders: Rényi orders of its first estimate.
    """

    name: ClassVar[str]
    tolerance: ClassVar[float]
    noise_against_renyi: ClassVar[float] = 1.0
    orders: ClassVar[Orders] = ORDERS

    @abstractmethod
    def supports(self, release: Release) -> bool:
        """Whether it can account for every query of the release; `epsilon` refuses otherwise."""

    @abstractmethod
    def epsilon(self, release: Release, *, delta: float) -> float:
        """ε at δ of the release.

        Guarantee: an upper bound on the ε of everything the release dominates, for adaptive
            composition and add/remove neighbours.
        """

    @abstractmethod
    def deltas(self, release: Release, epsilons: Values) -> Values:
        """δ of the release at every ε, ascending: the whole curve that `epsilon` reads at one δ.

        Guarantee: each is an upper bound, as that of `epsilon`.
        """

    def bounds(self, orders: Orders, values: Values, delta: float) -> Values:
        """ε at δ of a Rényi curve, by its conversion, at every order."""
        return cks_bounds(orders, values, delta)

    def has_closed_form(self, release: Release) -> bool:
        """Whether ε is a function of Σ count/σ², and cheap."""
        return False


@final
class LossDistributions(Accountant):
    """Privacy-loss distributions: the tightest."""

    name = "pld"
    tolerance = 2e-4
    noise_against_renyi = 0.92

    def supports(self, release: Release) -> bool:
        return why_not_composable(release) is None

    def epsilon(self, release: Release, *, delta: float) -> float:
        interval = _loss_interval(release, RenyiOrders().epsilon(release, delta=delta))
        return epsilon_pld(release, delta, interval=interval)

    def deltas(self, release: Release, epsilons: Values) -> Values:
        interval = _loss_interval(release, RenyiOrders().epsilon(release, delta=_USUAL_DELTA))
        return deltas_pld(release, epsilons, interval=interval)

    def has_closed_form(self, release: Release) -> bool:
        return all(queries.sampling_rate == 1.0 for queries in release)


class RenyiOrders(Accountant):
    """Rényi curves at integer orders, with the best conversion; any queries beside any others."""

    name = "renyi"
    tolerance = 2e-6

    def supports(self, release: Release) -> bool:
        return True

    def epsilon(self, release: Release, *, delta: float) -> float:
        values = renyi_values(release, self.orders)
        return max(0.0, float(np.min(self.bounds(self.orders, values, delta))))

    def deltas(self, release: Release, epsilons: Values) -> Values:
        values = renyi_values(release, self.orders)
        return np.array(
            [min(1.0, float(np.min(self.delta_bounds(values, epsilon)))) for epsilon in epsilons]
        )

    def delta_bounds(self, values: Values, epsilon: float) -> Values:
        """δ at ε of a Rényi curve, by its conversion, at every order."""
        return cks_deltas(self.orders, values, epsilon)


@final
class PaperOrders(RenyiOrders):
    """Integer orders 2 … 255 and Mironov's conversion, as in Heikkilä 2025."""

    name = "renyi-mironov"
    orders = PAPER_ORDERS

    def bounds(self, orders: Orders, values: Values, delta: float) -> Values:
        return mironov_bounds(orders, values, delta)

    def delta_bounds(self, values: Values, epsilon: float) -> Values:
        return mironov_deltas(self.orders, values, epsilon)


ACCOUNTANTS: Mapping[str, Accountant] = MappingProxyType(
    {
        accountant.name: accountant
        for accountant in (LossDistributions(), RenyiOrders(), PaperOrders())
    }
)
"""By `privacy.accountant`, tightest first."""


def accountant_named(name: str) -> Accountant:
    """The accountant of this name."""
    if name not in ACCOUNTANTS:
        raise PlanError(
            "accountant", name, f"must be one of {', '.join(ACCOUNTANTS)}", "Choose one of them."
        )
    return ACCOUNTANTS[name]


def epsilon_of(release: Release, *, delta: float, accountant: str = "pld") -> float:
    """ε at δ of a release, by the accountant of this name (see `Accountant.epsilon`)."""
    if not 0.0 < delta < 1.0:
        raise PlanError(
            "delta",
            delta,
            "must be a number in (0, 1)",
            "A usual choice is below one over the number of records.",
        )
    return accountant_named(accountant).epsilon(release, delta=delta)


def tightest(release: Release) -> Accountant:
    """The tightest accountant that can account for the whole release."""
    for accountant in ACCOUNTANTS.values():
        if accountant.supports(release):
            return accountant
    raise GuaranteeError(f"no accountant can account for {release}.")


def renyi_values(release: Release, orders: Orders) -> Values:
    """The Rényi curve of the whole release at integer orders."""
    values = np.zeros(len(orders))
    for queries in release:
        values = values + queries.count * _of_one(queries, orders)
    return values


def _of_one(queries: Queries, orders: Orders) -> Values:
    """The Rényi curve of one query.

    Of a unit of several parts the moments e^{(α−1)ε_j(α)} are averaged over the number j that is
    told, for the best shares at every order.
    """
    if queries.parts == 1:
        return subsampled(queries.renyi, queries.sampling_rate, orders)
    multiplier = queries.dominating_multiplier
    bounds = [
        np.logaddexp.reduce(
            [
                math.log(share)
                + (orders - 1) * subsampled(gaussian_curve(multiplier / number), joins, orders)
                for number, share, joins in told_parts(
                    queries.sampling_rate, queries.parts, multiplier, tilt
                )
            ]
        )
        / (orders - 1)
        for tilt in TILTS
    ]
    return np.asarray(np.min(bounds, axis=0))


def _loss_interval(release: Release, epsilon: float) -> float:
    """A bucket width of privacy loss that costs about 2e-5 of ε: the measured excess of n
    compositions is close to n·width².
    """
    compositions = sum(queries.count for queries in release)
    return (
        float(np.clip(math.sqrt(2e-5 * epsilon / compositions), 1e-6, 1e-2))
        if math.isfinite(epsilon)
        else 1e-2
    )
