"""The whole ε of a run, set aside on the data set's ledger before its first release.

    reservation ──► release, release, …  ──► end

Limits look at what is spent and at what is set aside: of two runs that would not fit together the
second is refused before it begins, and not when both are half done. A run whose reservation has
ended counts with what it has spent; one that its people have cancelled releases nothing more until
they begin it again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from sumus.books.round import rounded_up
from sumus.books.spending import RunSpending, Total, added, seen_from, sum_up

if TYPE_CHECKING:
    from sumus.guarantee import Account

__all__ = ["Ending", "Reservation", "RunKey", "committed", "reserved_words", "whole_run"]

RunKey = tuple[str, str]
"""A run's name on the ledger and its plan's hash."""


@final
@dataclass(frozen=True, kw_only=True)
class Reservation:
    """What a run may come to spend.

    Args:
        run: its name on the ledger.
        epsilon: of all its releases, measurements and tuning included; `delta` likewise.
    """

    run: str
    plan_hash: str
    unit: str
    epsilon: float
    delta: float
    proved: bool
    time: str = ""

    @classmethod
    def of(cls, account: Account, run: str) -> Reservation:
        """Of a run with this account."""
        epsilon, delta = whole_run(account)
        return cls(
            run=run,
            plan_hash=account.plan_hash,
            unit=account.unit,
            epsilon=epsilon,
            delta=delta,
            proved=account.proved,
        )

    @property
    def key(self) -> RunKey:
        """Whose it is."""
        return self.run, self.plan_hash


@final
@dataclass(frozen=True, kw_only=True)
class Ending:
    """From here on a run counts with what it has spent.

    Args:
        why: in words: it is finished, was interrupted, or was cancelled.
        cancelled: by the data set's own people: nobody else begins it again.
    """

    run: str
    plan_hash: str
    why: str
    cancelled: bool = False
    time: str = ""

    @property
    def key(self) -> RunKey:
        """Whose it is."""
        return self.run, self.plan_hash


def whole_run(account: Account) -> tuple[float, float]:
    """(ε, δ) of everything that a run with this account may release.

    The ledger adds metrics to the model: test records are no training records, so that counts too
    much, never too little.
    """
    metrics = account.metrics_epsilon
    epsilon = max(account.epsilon, account.tuning_epsilon or 0.0) + (metrics or 0.0)
    return epsilon, account.delta if metrics is None else 2.0 * account.delta


def reserved_words(total: Total) -> str:
    """How much of a sum is only set aside, for whoever is refused because of it."""
    if not total.reserved:
        return ""
    return (
        f" (of it ε ≤ {rounded_up(total.reserved)} set aside by runs that have not ended: "
        "`sumus ledger show`, `sumus ledger cancel`)"
    )


def committed(
    spent_by_runs: list[RunSpending], reserved: Mapping[RunKey, Reservation], unit: str
) -> Total:
    """What is spent, and of the runs that have a reservation what is set aside if that is more.

    ε = Σ over runs of max(ε spent, ε reserved),   δ likewise
    """
    spent = added(spent_by_runs, unit)
    more = [_beyond(spent_by_runs, each, unit) for each in reserved.values()]
    epsilon = sum_up([spent.epsilon, *(each for each, _ in more)])
    delta = sum_up([spent.delta, *(each for _, each in more)])
    runs = {(each.run, each.plan_hash) for each in spent_by_runs} | set(reserved)
    return Total(
        unit=unit,
        epsilon=epsilon,
        delta=min(1.0, delta),
        proved=spent.proved and all(each.proved for each in reserved.values()),
        runs=len(runs),
        releases=spent.releases,
        reserved=sum_up(each for each, _ in more),
    )


def _beyond(
    spent_by_runs: Iterable[RunSpending], reservation: Reservation, unit: str
) -> tuple[float, float]:
    """(ε, δ) by which a reservation exceeds what its run has spent."""
    own = [each for each in spent_by_runs if (each.run, each.plan_hash) == reservation.key]
    spent = added(own, unit)
    epsilon, delta = seen_from(
        unit, of=reservation.unit, epsilon=reservation.epsilon, delta=reservation.delta
    )
    beyond = 0.0 if math.isinf(spent.epsilon) else max(0.0, epsilon - spent.epsilon)
    return beyond, max(0.0, delta - spent.delta)
