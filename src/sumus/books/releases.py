"""Every release is on a ledger before it happens, and within the silo's policy, or it does not
happen.

`releases.enter(number, round_id)` stands before every draw of noise. Whoever has no ledger says why
(`NoLedger`), and the run's journal keeps the reason.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Protocol, final

from sumus.books.budget import Budget
from sumus.books.ledger import Ledger
from sumus.books.ledger_entry import PRESUMED, LedgerEntry
from sumus.books.policy import Policy
from sumus.books.reservation import Reservation
from sumus.books.spending import Total, rounds_with
from sumus.errors import SumusError
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

    def reserve(self) -> None:
        """Set the run's whole ε aside before its first release, unless it is already; raises if
        there is no room for it, or its people have cancelled the run.
        """
        ...

    def end(self, why: str) -> None:
        """Let go of what the run has set aside and not spent."""
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

    def reserve(self) -> None:
        """See `Releases.reserve`: there is nothing to set aside from."""

    def end(self, why: str) -> None:
        """See `Releases.end`: nothing was set aside."""


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
        allow, past = self._allow, self.ledger.entries()
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

    def presume(self, sums: Sequence[tuple[int, str]], *, reason: str) -> int:
        """Enter sums that may have been released and are not remembered, whatever the policy says;
        returns how many were not entered for this reason before.

        Guarantee: afterwards the ledger counts every one of them after what it counts already, each
            with the ε of all of them.

        Args:
            sums: round (from 0) and purpose, in order.
            reason: names the loss; a second call with it enters nothing twice.
        """
        past = self.ledger.entries()
        known = {entry.round_id for entry in past}
        entered: list[LedgerEntry] = []
        for purpose in dict.fromkeys(purpose for _, purpose in sums):
            numbers = [number for number, of in sums if of == purpose]
            names = [_presumed(reason, self.run, number, purpose) for number in numbers]
            blank = [
                self._blank(number, name, purpose)
                for number, name in zip(numbers, names, strict=True)
            ]
            made = rounds_with(blank[-1], [*past, *blank[:-1]])
            epsilon = self._epsilon(made, purpose)
            entered += [replace(entry, epsilon=epsilon) for entry in blank]
        fresh = [entry for entry in entered if entry.round_id not in known]
        if fresh:
            self.ledger.enter(*fresh, presumed=True)
        return len(fresh)

    def reserve(self, *, again: bool = False) -> None:
        """See `Releases.reserve`.

        Args:
            again: the run's own people begin it; otherwise one that they cancelled is refused.
        """
        if self.account is not None:
            reservation = Reservation.of(self.account, self.run)
            self.ledger.reserve(reservation, allow=self._allow, again=again)

    def end(self, why: str) -> None:
        """See `Releases.end`."""
        self.ledger.end(self.run, self.plan.hash, why=why)

    def begin_again(self) -> None:
        """Set the run's ε aside anew, if its own people had cancelled it: they begin it again."""
        ending = self.ledger.ended(self.run, self.plan.hash)
        if ending is not None and ending.cancelled:
            self.reserve(again=True)

    @contextmanager
    def reserved(self) -> Iterator[None]:
        """The run with its whole ε set aside; interrupted or finished, it counts with what it has
        spent. Killed, it counts whole until it is resumed or cancelled.
        """
        self.reserve(again=True)
        try:
            yield
        except BaseException:
            with suppress(SumusError):  # what cannot be written down stays set aside
                self.end("interrupted")
            raise
        self.end("finished")

    def require_near(self, number: int, last: int) -> None:
        """See `Releases.require_near`; a run that is repeated from its own journal leaps nowhere."""
        if self.policy is not None and not self.repeatable:
            self.policy.check_gap(number, last)

    def total(self) -> DatasetTotal:
        """Of everything on the ledger, for what this run protects."""
        unit = "record" if self.account is None else self.account.unit
        without = self._told(self.ledger.total(unit, without=self.run))
        return replace(self._told(self.ledger.total(unit)), before=without)

    @property
    def _allow(self) -> Callable[[Total], None] | None:
        """What a total must pass; None: nothing limits it."""
        if self.policy is not None:
            return self.policy.check_total
        if self.budget is not None and self.account is not None:
            return self.budget.check_total
        return None

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
        entry = self._blank(number, round_id, purpose)
        if self.account is None:
            return entry
        return replace(entry, epsilon=self._epsilon(rounds_with(entry, past), purpose))

    def _blank(self, number: int, round_id: str, purpose: str) -> LedgerEntry:
        """An entry that does not say yet what the run has spent with it; without noise, all."""
        if self.account is None:
            return LedgerEntry.without_noise(
                self.plan, run=self.run, round=number + 1, round_id=round_id
            )
        return LedgerEntry.of(
            self.account,
            run=self.run,
            round=number + 1,
            round_id=round_id,
            epsilon=0.0,
            purpose=purpose,
        )

    def _epsilon(self, made: Sequence[int], purpose: str) -> float:
        """ε of the releases of a purpose in the rounds with these numbers (from 1)."""
        if purpose == "metrics":
            return metrics_epsilon(self.plan, measurements=len(made))
        return self.spent(made)


def _presumed(reason: str, run: str, number: int, purpose: str) -> str:
    """What stands on the ledger for the round id of a release that nobody remembers."""
    text = f"sumus presumed/{reason}/{run}/{number}/{purpose}"
    return f"{hashlib.sha256(text.encode()).hexdigest()}{PRESUMED}"


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

    def reserve(self) -> None:
        """See `Releases.reserve`: whoever plays all silos has done it for the run."""

    def end(self, why: str) -> None:
        """See `Releases.end`: likewise."""
