"""What the entries of a ledger add up to."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import final

from sumus.books.ledger_entry import LedgerEntry

__all__ = [
    "RunSpending",
    "RunningTotal",
    "Total",
    "added",
    "rounds_with",
    "seen_from",
    "spendings",
    "sum_up",
    "without_bound",
]

_Run = tuple[str, str, str, str]
_MORE_THAN = {"record": ("person", "silo"), "person": ("silo",)}  # units that hold others whole


@final
@dataclass(frozen=True, kw_only=True)
class RunSpending:
    """What one run has released for one purpose: its largest ε and δ on the ledger."""

    run: str
    purpose: str
    epsilon: float
    delta: float
    proved: bool
    analysis: str
    unit: str
    neighbours: str
    trust: str
    releases: int
    plan_hash: str
    last: str
    rounds: tuple[int, ...] = ()
    """Of the releases, from 1, ascending."""


@final
@dataclass(frozen=True, kw_only=True)
class Total:
    """(ε, δ) of everything on the ledger for one unit, by simple addition over runs; `proved` if
    every part is.

    Args:
        reserved: what of ε is set aside by runs that have not ended, and not spent.
    """

    unit: str
    epsilon: float
    delta: float
    proved: bool
    runs: int
    releases: int
    reserved: float = 0.0


def spendings(entries: list[LedgerEntry]) -> list[RunSpending]:
    """The largest ε and δ of each run and purpose; an unproved entry makes its run unproved.

    A new round whose number was passed before is no continuation, whatever it calls its run: it
        starts a run of its own that is added,
    and so does another plan. Nobody saves ε by giving several runs one name.
    """
    return [_spending(group) for of_run in _passes(entries).values() for group in of_run]


def rounds_with(entry: LedgerEntry, entries: list[LedgerEntry]) -> tuple[int, ...]:
    """The rounds, ascending, of the releases of its run and purpose that a new entry continues, its
    own last: its own alone, if its number was passed before.
    """
    groups = _passes([*entries, entry])[_run_of(entry)]
    return tuple({past.round_id: past.round for past in groups[-1]}.values())


def _run_of(entry: LedgerEntry) -> _Run:
    return entry.run, entry.plan_hash, entry.purpose, entry.unit


def _passes(entries: list[LedgerEntry]) -> dict[_Run, list[list[LedgerEntry]]]:
    """By run, the entries of each time that its rounds were gone through."""
    passes: dict[_Run, list[list[LedgerEntry]]] = {}
    pass_of: dict[tuple[_Run, str], list[LedgerEntry]] = {}
    reached: dict[_Run, int] = {}
    for entry in entries:
        key = _run_of(entry)
        of_run = passes.setdefault(key, [[]])
        group = pass_of.get((key, entry.round_id))
        if group is None:
            if entry.round <= reached.get(key, -1):
                of_run.append([])
            reached[key] = entry.round
            group = pass_of[key, entry.round_id] = of_run[-1]
        group.append(entry)
    return passes


def _spending(group: list[LedgerEntry]) -> RunSpending:
    last = group[-1]
    return RunSpending(
        run=last.run,
        purpose=last.purpose,
        unit=last.unit,
        epsilon=max(entry.epsilon for entry in group),
        delta=max(entry.delta for entry in group),
        proved=all(entry.proved for entry in group),
        analysis=last.analysis,
        neighbours=last.neighbours,
        trust=last.trust,
        releases=len({entry.round_id for entry in group}),
        plan_hash=last.plan_hash,
        last=last.time,
        rounds=tuple({entry.round_id: entry.round for entry in group}.values()),
    )


@final
class RunningTotal:
    """The same total, an entry at a time, for whoever looks again and again.

    Guarantee: after any entries, `total` is that of `added` over their `spendings`; an entry takes
        constant time, however many there were.
    """

    def __init__(self) -> None:
        self._passes: dict[_Run, list[RunSpending]] = {}
        self._pass_of: dict[tuple[_Run, str], int] = {}
        self._reached: dict[_Run, int] = {}

    def add(self, entry: LedgerEntry) -> None:
        """The next entry of the ledger."""
        key = _run_of(entry)
        of_run = self._passes.setdefault(key, [])
        place = self._pass_of.get((key, entry.round_id))
        repeated = place is not None
        if place is None:
            if not of_run or entry.round <= self._reached[key]:
                of_run.append(replace(_spending([entry]), releases=0, rounds=()))
            self._reached[key] = entry.round
            place = self._pass_of[key, entry.round_id] = len(of_run) - 1
        known = of_run[place]
        of_run[place] = replace(
            known,
            epsilon=max(known.epsilon, entry.epsilon),
            delta=max(known.delta, entry.delta),
            proved=known.proved and entry.proved,
            releases=known.releases + (not repeated),
            last=entry.time,
        )

    def total(self, unit: str) -> Total:
        """Of everything so far, for one unit."""
        return added([spent for of_run in self._passes.values() for spent in of_run], unit)


def added(spent_by_runs: list[RunSpending], unit: str) -> Total:
    """By simple addition over runs."""
    parts = [
        seen_from(unit, of=spent.unit, epsilon=spent.epsilon, delta=spent.delta)
        for spent in spent_by_runs
    ]
    return Total(
        unit=unit,
        epsilon=sum_up(epsilon for epsilon, _ in parts),
        delta=min(1.0, sum_up(delta for _, delta in parts)),
        proved=all(spent.proved for spent in spent_by_runs),
        runs=len({(spent.run, spent.plan_hash) for spent in spent_by_runs}),
        releases=sum(spent.releases for spent in spent_by_runs),
    )


def without_bound(unit: str) -> str:
    """Why the runs on a data set have no bound together, as far as their sum tells.

    Args:
        unit: that the sum is for.
    """
    less = {"person": "records", "silo": "records or persons"}.get(unit)
    noise = "not all of them added noise"
    return noise if less is None else f"some of them protect {less} instead of {unit}s, or {noise}"


def seen_from(unit: str, *, of: str, epsilon: float, delta: float) -> tuple[float, float]:
    """(ε, δ) of what protects units of kind `of`, for a unit that may be another."""
    if of == unit:
        return epsilon, delta
    if of in _MORE_THAN.get(unit, ()):
        return 2.0 * epsilon, (1.0 + math.exp(min(epsilon, 700.0))) * delta
    return math.inf, 1.0


def sum_up(values: Iterable[float]) -> float:
    """The sum, rounded up if it has to be rounded."""
    listed = list(values)
    if not all(map(math.isfinite, listed)):
        return math.inf
    exact = sum(map(Fraction, listed), Fraction(0))
    nearest = float(exact)
    return nearest if Fraction(nearest) >= exact else math.nextafter(nearest, math.inf)
