"""Every release is on a ledger before it happens, and within the silo's policy, or it does not
happen.

`releases.enter(number, round_id)` stands before every draw of noise. Whoever has no ledger says why
(`NoLedger`), and the run's journal keeps the reason.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, final

from sumus.books.budget import Budget
from sumus.books.ledger import Ledger
from sumus.books.ledger_entry import LedgerEntry
from sumus.books.policy import Policy
from sumus.books.spending import Total, rounds_with
from sumus.guarantee import Account, metrics_epsilon, metrics_spent
from sumus.plan import TrainingPlan

__all__ = ["DatasetTotal", "EnteredOnce", "LedgerReleases", "NoLedger", "Releases"]


class Releases(Protocol):
    """A policy and a ledger, bound to one plan."""

    def enter(self, number: int, round_id: bytes, purpose: str = "model") -> None:
        """Write down that round `number` (from 0), or its measurement, is about to be released;
        raises if the policy forbids it.
        """
        ...

    def require_near(self, number: int, last: int) -> None:
        """Refuse round `number` (from 0) if it leaps too far ahead of the last one that was
        answered, −1 before the first.
        """
        ...


@final
@dataclass(frozen=True)
class NoLedger:
    """No release is entered anywhere, for a reason that the journal keeps."""

    reason: str

    def enter(self, number: int, round_id: bytes, purpose: str = "model") -> None:
        """See `Releases.enter`."""

    def require_near(self, number: int, last: int) -> None:
        """See `Releases.require_near`: whoever plays all silos asks itself."""


@final
@dataclass(frozen=True, kw_only=True)
class DatasetTotal:
    """What all runs on a data set have spent together, by simple addition, as its ledger says."""

    dataset: str
    unit: str
    epsilon: float
    delta: float
    runs: int
    proved: bool
    before: DatasetTotal | None = None
    """Of all runs but this one."""


@final
@dataclass(frozen=True, kw_only=True)
class LedgerReleases:
    """Enters the releases of one run into the ledger of its data set, if the policy allows them.

    Guarantee: when `enter` returns, the release is on the disk and within the policy; when the
        policy refuses it, the ledger is as it was. A crash after `enter` and before the release
        over-counts by that one release, never under-counts. What is charged are the releases made:
        where the rounds of a plan are equal releases, any k of them cost what the first k do,
        whatever numbers a server gives them; where each has its own noise, those that were entered
        are composed.

    Args:
        ledger: of the data set.
        policy: what its owner allows; None: anything that is entered.
        plan: resolved and calibrated.
        account: its guarantee; None without noise, which spends everything.
        run: what the run's releases are called on the ledger.
        spent: numbers of rounds (from 1) → ε of the models that they released.
        repeatable: a round that is asked for again draws the same noise again and is entered once,
            with its measurement: both, or neither. Else every call stands for a draw of its own.
        budget: the limit of the data set where there is no policy; None: there is none.
    """

    ledger: Ledger
    policy: Policy | None
    plan: TrainingPlan
    account: Account | None
    run: str
    spent: Callable[[Sequence[int]], float]
    repeatable: bool = False
    budget: Budget | None = None

    def enter(self, number: int, round_id: bytes, purpose: str = "model") -> None:
        """See `Releases.enter`.

        A round id that is on the ledger already stands for another draw (the plan runs again under
        a new roster, say) and must not pass for a repetition of the first, unless repetitions draw
        the same noise.
        """
        allow = None if self.policy is None else self.policy.check_total
        if self.policy is None and self.budget is not None and self.account is not None:
            allow = self.budget.check_total
        past = self.ledger.entries()
        if self.repeatable:
            known = (self.run, number + 1, purpose)
            if any((entry.run, entry.round, entry.purpose) == known for entry in past):
                return
            measured = purpose == "model" and metrics_spent(self.plan, number + 1) is not None
            purposes = ("metrics", "model") if measured and self.account else (purpose,)
            entries = [self._entry(past, number, round_id.hex(), each) for each in purposes]
            self.ledger.enter(*entries, allow=allow)
            return
        name = round_id.hex()
        draws = sum(
            entry.purpose == purpose and entry.round_id.partition("/")[0] == name for entry in past
        )
        drawn = f"{name}/{draws + 1}" if draws else name
        self.ledger.enter(self._entry(past, number, drawn, purpose), allow=allow)

    def require_near(self, number: int, last: int) -> None:
        """See `Releases.require_near`; a run that is repeated from its own journal leaps nowhere."""
        if self.policy is not None and not self.repeatable:
            self.policy.check_gap(number, last)

    def total(self) -> DatasetTotal:
        """Of everything on the ledger, for what this run protects."""
        unit = "record" if self.account is None else self.account.unit
        without = self._told(self.ledger.total(unit, without=self.run))
        return replace(self._told(self.ledger.total(unit)), before=without)

    def _told(self, total: Total) -> DatasetTotal:
        return DatasetTotal(
            dataset=self.ledger.dataset,
            unit=total.unit,
            epsilon=total.epsilon,
            delta=total.delta,
            runs=total.runs,
            proved=total.proved,
        )

    def _entry(
        self, past: list[LedgerEntry], number: int, round_id: str, purpose: str
    ) -> LedgerEntry:
        if self.account is None:
            return LedgerEntry.without_noise(
                self.plan, run=self.run, round=number + 1, round_id=round_id
            )
        entry = LedgerEntry.of(
            self.account,
            run=self.run,
            round=number + 1,
            round_id=round_id,
            epsilon=0.0,
            purpose=purpose,
        )
        made = rounds_with(entry, past)
        epsilon = (
            metrics_epsilon(self.plan, measurements=len(made))
            if purpose == "metrics"
            else self.spent(made)
        )
        return replace(entry, epsilon=epsilon)


@final
class EnteredOnce:
    """One ledger for all silos that a process plays: the first that asks enters the round, before
    any of them draws.
    """

    def __init__(self, releases: Releases) -> None:
        self._releases, self._lock = releases, threading.Lock()
        self._entered: set[tuple[bytes, str]] = set()

    def enter(self, number: int, round_id: bytes, purpose: str = "model") -> None:
        """See `Releases.enter`."""
        with self._lock:
            if (round_id, purpose) not in self._entered:
                self._releases.enter(number, round_id, purpose)
                self._entered.add((round_id, purpose))

    def require_near(self, number: int, last: int) -> None:
        """See `Releases.require_near`."""
        self._releases.require_near(number, last)
