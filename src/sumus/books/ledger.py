"""The privacy that a data set has spent, across all runs: one hash-chained, append-only file per
data set.

    ledger = Ledger.of_dataset("hospital-visits")
    entry = LedgerEntry.of(account, run="visits-2026…", round=1, round_id="…", epsilon=0.31)
    ledger.enter(entry)                      # before anything leaves the silo
    ledger.total("record")                   # (ε, δ) of everything, added up

Every release is entered *before* it leaves. A crash between the entry and the sending leaves an
entry for something that nobody saw: the ledger may count too much, never too little.

    ledger-visits.jsonl        the entries
    ledger-visits.head.json    how many entries there are at least, and the hash of the last: lines
                               cut off at the end are noticed
    ledger-visits.lock         one writer at a time
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import final

from sumus.books.ledger_entry import LedgerEntry
from sumus.books.spending import RunSpending, Total, added, spendings
from sumus.errors import StorageError
from sumus.files import (
    Chain,
    FileLock,
    from_json,
    make_directory,
    name_of_file,
    read_bytes,
    replace_atomically,
)
from sumus.plan import TrainingPlan

__all__ = ["Ledger", "dataset_of", "state_directory"]

_DOMAIN = "sumus-ledger-v1"
_KEEP = "Restore it from a backup; a new ledger would forget what was spent."


@final
class Ledger:
    """The ledger of one data set.

    Guarantee: an entry is on the disk when `enter` returns, and counts from then on in every
        process; a file that was changed, or cut short by a completed entry or more, is a
        `StorageError`, never a smaller total. (The chain is not signed: keep a copy of `head`
        elsewhere against somebody who may rewrite both files.)
    """

    def __init__(self, dataset: str, path: Path) -> None:
        self.dataset, self.path = dataset, path
        self._head_path = path.with_suffix(".head.json")
        self._lock = FileLock(path.with_suffix(".lock"))
        self._chain = Chain(path=path, origin=_origin(dataset))
        self._entries: list[LedgerEntry] = []

    @classmethod
    def of_dataset(cls, dataset: str, *, state: Path | None = None) -> Ledger:
        """The ledger of a data set in the state directory; it comes into being with its first
        entry.
        """
        return cls(dataset, (state or state_directory()) / f"ledger-{_slug(dataset)}.jsonl")

    @classmethod
    def at(cls, path: Path) -> Ledger:
        """The ledger in a file, whose head says of which data set it is."""
        return cls(_read_head(path.with_suffix(".head.json")).dataset, path)

    @classmethod
    def all(cls, *, state: Path | None = None) -> list[Ledger]:
        """Every ledger in the state directory."""
        folder = state or state_directory()
        names = {path.with_suffix("").with_suffix("") for path in folder.glob("ledger-*.head.json")}
        names |= {path.with_suffix("") for path in folder.glob("ledger-*.jsonl")}
        paths = [name.with_name(name.name + ".jsonl") for name in sorted(names)]
        return [cls.at(path) for path in paths]

    # -- reading

    def entries(self) -> list[LedgerEntry]:
        """Every release, oldest first."""
        for number, link in enumerate(
            self._refreshed().links[len(self._entries) :], start=len(self._entries) + 1
        ):
            self._entries.append(
                from_json(LedgerEntry, link.body, where=f"{self.path}, line {number}")
            )
        return list(self._entries)

    @property
    def head(self) -> str:
        """Hash of the last entry: whoever notes it down can later tell that nothing was changed or
        removed.
        """
        return self._refreshed().head

    def reaches(self, entries: int, last: str) -> bool:
        """Whether it has at least so many entries, the last of them with this hash: nothing that
        somebody has seen of it is gone.
        """
        links = self._refreshed().links
        return len(links) >= entries and (entries == 0 or links[entries - 1].hash == last)

    def runs(self) -> list[RunSpending]:
        """What each run has spent, by purpose."""
        return spendings(self.entries())

    def total(self, unit: str, *, without: str | None = None) -> Total:
        """Everything on the ledger for one unit, by simple addition over runs.

            ε = Σ ε_run,   δ = Σ δ_run        (basic composition; holds for runs chosen adaptively)

        A run that protects whole silos protects a record or a person of one by way of the emptied
        silo, one that protects persons a record by way of the person without rows: twice ε, (1 +
        e^ε) times δ. A run that protects less than the unit says nothing about it: infinite.

        Args:
            unit: "record", "person" (with its rows in one silo) or "silo".
            without: a run to leave out.
        """
        return added([spent for spent in self.runs() if spent.run != without], unit)

    @staticmethod
    def sum_of(runs: Sequence[RunSpending], unit: str) -> Total:
        """Some of its runs for one unit, by simple addition."""
        return added(list(runs), unit)

    def verify(self) -> str:
        """Read the whole file again and check every line; returns the head."""
        self._chain, self._entries = Chain(path=self.path, origin=_origin(self.dataset)), []
        self.entries()
        return self.head

    # -- writing

    def enter(
        self, *entries: LedgerEntry, allow: Callable[[Total], None] | None = None
    ) -> tuple[LedgerEntry, ...]:
        """Enter releases before they leave together: all of them, or none.

        Args:
            entries: of one unit.
            allow: called with the total as it would be, while other processes wait; raises to
                refuse them all.
        """
        for entry in entries:
            if math.isnan(entry.epsilon) or entry.epsilon < 0.0:
                raise StorageError(
                    f"{self.path}: epsilon must be a number that is not negative, got "
                    f"{entry.epsilon}. Account for the plan first."
                )
        make_directory(self.path.parent)
        with self._lock.waiting():
            if not self.path.exists() and not self._head_path.exists():
                self._write_head(0, _origin(self.dataset))
            before = self.entries()
            if allow is not None:
                (unit,) = {entry.unit for entry in entries}
                allow(added(spendings([*before, *entries]), unit))
            now = datetime.now(UTC).isoformat(timespec="seconds")
            stamped = tuple(replace(entry, time=entry.time or now) for entry in entries)
            self._chain = self._chain.appended("release", *map(asdict, stamped))
            self._write_head(len(self._chain.links), self._chain.head)
        return stamped

    def adopt(self, other: Ledger) -> int:
        """Enter what another ledger of the data set counts and this one does not; returns how
        much.

        Guarantee: everything that either counts is on this ledger afterwards, once; the other's
            files are set aside, under names that no ledger has.
        """
        if other.dataset != self.dataset or other.path.resolve() == self.path.resolve():
            raise StorageError(
                f"{other.path} must be another ledger of the data set {self.dataset!r}. Nothing was "
                "moved."
            )
        other.verify()
        known = set(self.entries())
        missing = [entry for entry in other.entries() if entry not in known]
        if missing:
            self.enter(*missing)
        for path in (other.path, other.path.with_suffix(".head.json")):
            path.rename(path.with_name(f"moved-{path.name}"))
        return len(missing)

    # -- inside

    def _refreshed(self) -> Chain:
        """The chain as it is on the disk now, at least as long as the head says."""
        if not self.path.exists() and not self._head_path.exists() and not self._chain.links:
            return self._chain
        head = _read_head(self._head_path)  # before the chain: a writer may be between the two
        if head.dataset != self.dataset:
            raise StorageError(
                f"{self._head_path} is of the data set {head.dataset!r}, not {self.dataset!r}. "
                f"{_KEEP}"
            )
        chain = self._chain.refreshed()
        if len(chain.links) < head.entries:
            raise StorageError(
                f"{self.path} has {len(chain.links)} complete entries, but {head.entries} were "
                f"made. {_KEEP}"
            )
        reached = chain.links[head.entries - 1].hash if head.entries else chain.origin
        if reached != head.hash:
            raise StorageError(
                f"{self.path}, line {head.entries} is not the entry that {self._head_path.name} "
                f"names. {_KEEP}"
            )
        self._chain = chain
        return chain

    def _write_head(self, entries: int, last: str) -> None:
        replace_atomically(
            self._head_path, _head_bytes(_Head(dataset=self.dataset, entries=entries, hash=last))
        )


@final
@dataclass(frozen=True, kw_only=True)
class _Head:
    """How far a ledger has come at least."""

    dataset: str
    entries: int
    hash: str


def _head_bytes(head: _Head) -> bytes:
    return (json.dumps(asdict(head), sort_keys=True) + "\n").encode()


def _read_head(path: Path) -> _Head:
    content = read_bytes(path)
    try:
        head = from_json(_Head, json.loads(content), where=str(path))
    except (ValueError, RecursionError):
        raise StorageError(f"{path} is damaged: not a JSON object. {_KEEP}") from None
    if head.entries < 0 or _head_bytes(head) != content:
        raise StorageError(f"{path} is damaged: not as it was written. {_KEEP}")
    return head


def state_directory() -> Path:
    """Where ledgers live: `SUMUS_STATE`, or `sumus` in the user's state directory."""
    chosen = os.environ.get("SUMUS_STATE")
    if chosen:
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "sumus"


def dataset_of(plan: TrainingPlan) -> str:
    """The data set whose ledger a plan spends from: its name, the name of its file, or that of
    records given in Python.

    Two files of one name share a ledger, which counts too much rather than too little. A plan
    without any means the digits.
    """
    return plan.data.name or (
        name_of_file(plan.data.path) if plan.data.path else plan.data.objects or "digits"
    )


def _origin(dataset: str) -> str:
    return hashlib.sha256(f"{_DOMAIN}\0{dataset}".encode()).hexdigest()


def _slug(dataset: str) -> str:
    """A file name for a data set; different data sets never share one."""
    if re.fullmatch(r"[a-z0-9_-]{1,60}", dataset):
        return dataset
    readable = re.sub(r"[^a-z0-9_-]+", "-", dataset.lower()).strip("-")[:40]
    return f"{readable}.{hashlib.sha256(dataset.encode()).hexdigest()[:12]}".lstrip(".")
