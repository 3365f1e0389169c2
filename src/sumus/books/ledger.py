"""The privacy that a data set has spent, across all runs: one hash-chained, append-only file per
data set.

    ledger = Ledger.of_dataset("hospital-visits")
    entry = LedgerEntry.of(account, run="visits-2026…", round=1, round_id="…", epsilon=0.31)
    ledger.enter(entry)                      # before anything leaves the silo
    ledger.total("record")                   # (ε, δ) of everything, added up
    ledger.committed("record")               # and of what runs have set aside (`reservation`)

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, final

from sumus.books.ledger_entry import LedgerEntry
from sumus.books.reservation import Ending, Reservation, RunKey, committed
from sumus.books.spending import RunSpending, Total, added, spendings
from sumus.errors import PolicyError, StorageError
from sumus.files import (
    FORMATS,
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
        self._chain = _chain_at(path, dataset)
        self._forget()

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

    def entries(self, *, after: int = 0) -> list[LedgerEntry]:
        """Every release, oldest first, but for the first `after`."""
        self._read()
        return self._entries[after:]

    def reservations(self) -> list[Reservation]:
        """Of the runs that have not ended, oldest first."""
        self._read()
        return list(self._reserved.values())

    def ended(self, run: str, plan_hash: str) -> Ending | None:
        """How a run ended; None where it has not, or was never set aside."""
        self._read()
        return self._endings.get((run, plan_hash))

    @property
    def lines(self) -> int:
        """How many lines it has: releases, reservations and their ends."""
        return len(self._refreshed().links)

    @property
    def head(self) -> str:
        """Hash of the last entry: whoever notes it down can later tell that nothing was changed or
        removed.
        """
        return self._refreshed().head

    def reaches(self, lines: int, last: str) -> bool:
        """Whether it has at least so many lines, the last of them with this hash: nothing that
        somebody has seen of it is gone.
        """
        links = self._refreshed().links
        return len(links) >= lines and (lines == 0 or links[lines - 1].hash == last)

    def hash_of(self, number: int) -> str:
        """The hash of a release, counted from 1."""
        self._read()
        return self._hashes[number - 1]

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

    def committed(self, unit: str, *, without: str | None = None) -> Total:
        """The same, and what runs that have not ended have set aside: what a limit looks at.

        Args:
            unit: see `total`.
            without: a run to leave out.
        """
        return committed(
            [spent for spent in self.runs() if spent.run != without],
            {key: each for key, each in self._reserved.items() if each.run != without},
            unit,
        )

    @staticmethod
    def sum_of(runs: Sequence[RunSpending], unit: str) -> Total:
        """Some of its runs for one unit, by simple addition."""
        return added(list(runs), unit)

    def verify(self) -> str:
        """Read the whole file again and check every line; returns the head."""
        self._chain = _chain_at(self.path, self.dataset)
        self._forget()
        self.entries()
        return self.head

    # -- writing

    def enter(
        self,
        *entries: LedgerEntry,
        allow: Callable[[Total], None] | None = None,
        presumed: bool = False,
    ) -> tuple[LedgerEntry, ...]:
        """Enter releases before they leave together: all of them, or none.

        Args:
            entries: of one unit.
            allow: called with the total as it would be, while other processes wait; raises to
                refuse them all.
            presumed: they may have left already, so they count whether or not their run is
                cancelled.
        """
        for entry in entries:
            if math.isnan(entry.epsilon) or entry.epsilon < 0.0:
                raise StorageError(
                    f"{self.path}: epsilon must be a number that is not negative, got "
                    f"{entry.epsilon}. Account for the plan first."
                )
        with self._writing():
            for run, plan_hash in {(each.run, each.plan_hash) for each in entries if not presumed}:
                self._require_not_cancelled(run, plan_hash)
            if allow is not None:
                (unit,) = {entry.unit for entry in entries}
                allow(committed(spendings([*self._entries, *entries]), self._reserved, unit))
            now = _now()
            stamped = tuple(replace(entry, time=entry.time or now) for entry in entries)
            self._append("release", *map(asdict, stamped))
        return stamped

    def reserve(
        self,
        reservation: Reservation,
        *,
        allow: Callable[[Total], None] | None = None,
        again: bool = False,
    ) -> None:
        """Set the whole of a run aside before its first release; what is set aside already stays.

        Guarantee: of runs that reserve at the same time, in whatever processes, those that do not
            fit what `allow` looks at are refused, and the ledger is as it was.

        Args:
            allow: called with everything that is committed, this run included; raises to refuse.
            again: the run's own people begin it, even if they have cancelled it before.
        """
        with self._writing():
            known = self._reserved.get(reservation.key)
            if not again:
                self._require_not_cancelled(*reservation.key)
            if known is not None and known == replace(reservation, time=known.time):
                return
            held = self._reserved | {reservation.key: reservation}
            if allow is not None:
                allow(committed(spendings(self._entries), held, reservation.unit))
            self._append("reservation", asdict(replace(reservation, time=_now())))

    def end(self, run: str, plan_hash: str, *, why: str, cancelled: bool = False) -> bool:
        """Let go of what a run has set aside and not spent; returns whether there was anything.

        Args:
            cancelled: nothing more is entered for the run until its people begin it again.
        """
        if not self.path.exists():
            return False
        with self._writing():
            if (run, plan_hash) not in self._reserved:
                return False
            ending = Ending(run=run, plan_hash=plan_hash, why=why, cancelled=cancelled, time=_now())
            self._append("end", asdict(ending))
        return True

    def adopt(self, other: Ledger) -> int:
        """Enter what another ledger of the data set counts and this one does not, with what is set
        aside there; returns how many releases.

        Guarantee: everything that either counts is on this ledger afterwards, once; the other's
            files are set aside, under names that no ledger has.
        """
        if other.dataset != self.dataset or other.path.resolve() == self.path.resolve():
            raise StorageError(
                f"{other.path} must be another ledger of the data set {self.dataset!r}. Nothing was "
                "moved."
            )
        other.verify()
        with self._writing():
            known = set(self._entries)
            missing = [entry for entry in other.entries() if entry not in known]
            held = [each for each in other.reservations() if each.key not in self._reserved]
            if missing:
                self._append("release", *map(asdict, missing))
            if held:
                self._append("reservation", *map(asdict, held))
        for path in (other.path, other.path.with_suffix(".head.json")):
            path.rename(path.with_name(f"moved-{path.name}"))
        return len(missing)

    def copied(self) -> bytes:
        """Its complete lines as they stand, checked; also while another process writes."""
        size = self._refreshed().size
        return read_bytes(self.path)[:size] if size else b""

    def contains(self, copy: Path) -> bool:
        """Whether everything in a copy of it is still there."""
        theirs = _chain_at(copy, self.dataset).refreshed().links
        return self.reaches(len(theirs), theirs[-1].hash if theirs else "")

    def take_in(self, copy: Path) -> int:
        """Go on to the end of an earlier or a later copy of this ledger; returns how many entries
        came from it.

        Guarantee: every entry of both is on this ledger afterwards, with its hash; a copy that
            parts from it anywhere is refused, and nothing is written.
        """
        theirs = _chain_at(copy, self.dataset).refreshed().links
        make_directory(self.path.parent)
        with self._lock.waiting():
            fresh = not self.path.exists() and not self._head_path.exists()
            mine = () if fresh else self._refreshed().links
            for own, other in zip(mine, theirs, strict=False):
                if own.hash != other.hash:
                    raise StorageError(
                        f"{self.path} and the copy of it both have entries that the other lacks. "
                        "Move it aside and restore again, then adopt it: `sumus ledger move`."
                    )
            missing = theirs[len(mine) :]
            if fresh:
                self._write_head(0, self._chain.origin)
            for link in missing:
                self._chain = self._chain.appended(link.kind, link.body)
            if missing:
                self._write_head(len(self._chain.links), self._chain.head)
        return len(missing)

    # -- inside

    def _forget(self) -> None:
        """What was read of the chain so far: nothing."""
        self._lines = 0
        self._entries: list[LedgerEntry] = []
        self._hashes: list[str] = []
        self._reserved: dict[RunKey, Reservation] = {}
        self._endings: dict[RunKey, Ending] = {}

    def _read(self) -> None:
        """Take in the lines that were added since."""
        for link in self._refreshed().links[self._lines :]:
            where = f"{self.path}, line {self._lines + 1}"
            if link.kind == "release":
                self._entries.append(from_json(LedgerEntry, link.body, where=where))
                self._hashes.append(link.hash)
            elif link.kind == "reservation":
                reservation = from_json(Reservation, link.body, where=where)
                self._reserved[reservation.key] = reservation
                self._endings.pop(reservation.key, None)
            elif link.kind == "end":
                ending = from_json(Ending, link.body, where=where)
                self._endings[ending.key] = ending
                self._reserved.pop(ending.key, None)
            else:
                raise StorageError(
                    f"{where} is a line of another version ({link.kind!r:.40}). Use the release of "
                    "Sumus that wrote it."
                )
            self._lines += 1

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One writer at a time, who has read everything."""
        make_directory(self.path.parent)
        with self._lock.waiting():
            if not self.path.exists() and not self._head_path.exists():
                self._write_head(0, self._chain.origin)
            self._read()
            yield

    def _append(self, kind: str, *bodies: Mapping[str, Any]) -> None:
        self._chain = self._chain.appended(kind, *bodies)
        self._write_head(len(self._chain.links), self._chain.head)

    def _require_not_cancelled(self, run: str, plan_hash: str) -> None:
        ending = self._endings.get((run, plan_hash))
        if ending is not None and ending.cancelled:
            raise PolicyError(
                f"run {run} of plan {plan_hash[:8]} was cancelled on the ledger of {self.dataset} "
                f"({ending.time}) and releases nothing more. Join or resume it to begin it again."
            )

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


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


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


def _chain_at(path: Path, dataset: str) -> Chain:
    """The ledger in a file, nothing of it read yet; one of another data set does not continue it."""

    def origin(mark: str) -> str:
        return hashlib.sha256(f"{mark}\0{dataset}".encode()).hexdigest()

    return Chain.of(FORMATS["ledger"], path, origin_of=origin)


def _slug(dataset: str) -> str:
    """A file name for a data set; different data sets never share one."""
    if re.fullmatch(r"[a-z0-9_-]{1,60}", dataset):
        return dataset
    readable = re.sub(r"[^a-z0-9_-]+", "-", dataset.lower()).strip("-")[:40]
    return f"{readable}.{hashlib.sha256(dataset.encode()).hexdigest()[:12]}".lstrip(".")
