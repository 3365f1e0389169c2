"""ε of a release by the accountant of one's choice."""

from __future__ import annotations

import math

import numpy as np

from sumus.accounting.loss_distribution import epsilon_pld
from sumus.accounting.release import Release
from sumus.accounting.renyi import (
    ORDERS,
    PAPER_ORDERS,
    epsilon_cks,
    epsilon_mironov,
    subsampled,
)
from sumus.errors import PlanError
from sumus.noise import Orders, Values

__all__ = ["epsilon_of", "loss_interval", "renyi_values"]


def epsilon_of(
    release: Release, *, delta: float, accountant: str = "pld", interval: float | None = None
) -> float:
    """ε at δ of a release.

    Guarantee: an upper bound on the ε of everything the release dominates, for adaptive composition
        and add/remove neighbours.

    Args:
        accountant: "pld" (privacy-loss distribution, tightest), "renyi" (integer orders, best
            conversion) or "renyi-mironov" (integer orders 2…255 and Mironov's conversion, as in the
            paper).
    """
    if not 0.0 < delta < 1.0:
        raise PlanError(
            "delta",
            delta,
            "must be a number in (0, 1)",
            "A usual choice is below one over the number of records.",
        )
    if accountant == "pld":
        if interval is None:
            interval = loss_interval(release, _epsilon_renyi(release, delta, mironov=False))
        return epsilon_pld(release, delta, interval=interval)
    if accountant == "renyi":
        return _epsilon_renyi(release, delta, mironov=False)
    if accountant == "renyi-mironov":
        return _epsilon_renyi(release, delta, mironov=True)
    raise PlanError(
        "accountant", accountant, "must be one of pld, renyi, renyi-mironov", "Choose one of them."
    )


def loss_interval(release: Release, epsilon: float) -> float:
    """A bucket width of privacy loss that costs about 2e-5 of ε: the measured excess of n
    compositions is close to n·width².
    """
    compositions = sum(step.count for step in release)
    return (
        float(np.clip(math.sqrt(2e-5 * epsilon / compositions), 1e-6, 1e-2))
        if math.isfinite(epsilon)
        else 1e-2
    )


def renyi_values(release: Release, orders: Orders) -> Values:
    """The Rényi curve of the whole release at integer orders."""
    values = np.zeros(len(orders))
    for step in release:
        values = values + step.count * subsampled(step.renyi, step.sampling_rate, orders)
    return values


def _epsilon_renyi(release: Release, delta: float, *, mironov: bool) -> float:
    if mironov:
        return epsilon_mironov(PAPER_ORDERS, renyi_values(release, PAPER_ORDERS), delta)
    return epsilon_cks(ORDERS, renyi_values(release, ORDERS), delta)
