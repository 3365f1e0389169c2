"""Plans that a federation runs one after the other, in the operator's folder.

KIT/queue/
  queue.json      every plan with its place and what became of it; replaced whole
  plan-N.toml     a plan as it runs, for the silos to approve; gone when it is finished
  queue.lock      one change at a time
  (the folder itself is held by the process that runs the queue)

    waiting ──► running ──► finished
       ▲           │
       └── retry ──┴─► set aside, with the reason

A change is on the disk when a method returns, and whoever is killed leaves the queue as it was
before or after one. A plan that was running when its process died is gone on with: its run is with
the server, which goes on after the last finished round.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, final

from sumus.errors import DataError, PlanError, StorageError
from sumus.files import (
    FORMATS,
    FileLock,
    FolderLock,
    from_json,
    make_directory,
    read_bytes,
    replace_atomically,
)
from sumus.plan import PLAN_START, TrainingPlan

__all__ = ["STATES", "PlanQueue", "QueuedPlan"]

STATES = ("waiting", "running", "finished", "set aside")
_FORMAT = FORMATS["queue"]
_MOST_TRIES = 3
_MOST_FINISHED = 500
"""That are still listed; what they did stands in the history of the runs."""
_FIX = "Restore it from a backup, or move it away and add the plans again: their runs go on."


@final
@dataclass(frozen=True, kw_only=True)
class QueuedPlan:
    """A plan in a queue.

    Args:
        number: by which commands name it; never given to another.
        plan_hash: that silos approve.
        text: the plan as it runs, TOML; empty once it is finished.
        words: what it learns from what.
        rounds: of the plan; `done`: the last one that ended, as far as is known here.
        why: it was set aside, or is tried again.
        tries: that ended without a new round.
        run: the folder with what it released.
        added, began, ended: UTC; empty: not yet.
    """

    number: int
    plan_hash: str
    text: str
    words: str
    rounds: int
    state: str = "waiting"
    done: int = 0
    why: str = ""
    tries: int = 0
    run: str = ""
    added: str = ""
    began: str = ""
    ended: str = ""

    def __post_init__(self) -> None:
        if self.state not in STATES:
            raise DataError(f"a plan in a queue is {', '.join(STATES)}, got {self.state!r:.40}.")

    @property
    def plan(self) -> TrainingPlan:
        """As it runs."""
        return TrainingPlan.from_toml(self.text)

    @property
    def starts_from(self) -> str:
        """Hash of the plan whose released model it starts from; empty: it names none."""
        named = "" if not self.text else self.plan.training.start_from or ""
        return named.removeprefix(PLAN_START) if named.startswith(PLAN_START) else ""


@final
@dataclass(frozen=True, kw_only=True)
class _Stored:
    """What `queue.json` says."""

    format: int
    next: int
    entries: tuple[QueuedPlan, ...]


@final
class PlanQueue:
    """The queue of an operator's folder.

    Guarantee: `queue.json` is at every moment what it was before or after one change, whatever is
        killed; two processes do not change it at once, and one at a time runs it.

    Args:
        folder: of the queue; comes into being with its first plan.
        clock: the time, for what is written down.
    """

    def __init__(
        self, folder: Path, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self.folder, self._clock = folder, clock
        self._path = folder / "queue.json"

    # -- reading

    def entries(self) -> tuple[QueuedPlan, ...]:
        """All of them, in their order; those that are over first."""
        return self._read().entries

    def entry(self, number: int) -> QueuedPlan:
        """One of them."""
        return _of(self.entries(), number)

    def file_of(self, entry: QueuedPlan) -> Path:
        """The plan that the silos approve."""
        return self.folder / f"plan-{entry.number}.toml"

    def next(self) -> QueuedPlan | None:
        """What to run now: the one that was running, or else the first that waits and whose start
        is there.
        """
        entries = self.entries()
        running = [each for each in entries if each.state == "running"]
        return next(iter([*running, *self._ready(entries)]), None)

    def orphans(self) -> list[QueuedPlan]:
        """Plans that wait for the model of one which was set aside."""
        entries = self.entries()
        aside = {each.plan_hash for each in entries if each.state == "set aside"}
        return [each for each in entries if each.state == "waiting" and each.starts_from in aside]

    @staticmethod
    def _ready(entries: Sequence[QueuedPlan]) -> Iterator[QueuedPlan]:
        """Those that wait, and not for the model of another one here."""
        unfinished = {each.plan_hash for each in entries if each.state != "finished"}
        for each in entries:
            if each.state == "waiting" and each.starts_from not in unfinished:
                yield each

    # -- changing

    def add(self, *plans: TrainingPlan, words: Callable[[TrainingPlan], str]) -> list[QueuedPlan]:
        """Put plans at the end: all of them, or none.

        Args:
            plans: resolved and calibrated.
            words: what is said of a plan in a few words.
        """
        with self._changing() as (stored, keep):
            entries, number, added = list(stored.entries), stored.next, []
            for plan in plans:
                _require_new(plan, entries)
                added.append(
                    QueuedPlan(
                        number=number,
                        plan_hash=plan.hash,
                        text=plan.to_toml(),
                        words=words(plan),
                        rounds=plan.federation.rounds,
                        added=self._now(),
                    )
                )
                entries.append(added[-1])
                number += 1
            for each in added:
                replace_atomically(self.file_of(each), each.text.encode())
            keep(replace(stored, entries=tuple(entries), next=number))
        return added

    def remove(self, number: int) -> QueuedPlan:
        """Take a plan out; the one that a process runs at this moment stays."""
        with self._changing() as (stored, keep):
            removed = _of(stored.entries, number)
            if removed.state == "running" and self.is_run:
                raise StorageError(
                    f"plan {number} of the queue runs at this moment. Stop `sumus federation queue "
                    "run` first; its run stays with the server."
                )
            keep(replace(stored, entries=tuple(e for e in stored.entries if e != removed)))
        self.file_of(removed).unlink(missing_ok=True)
        return removed

    def move(self, number: int, place: int) -> None:
        """Give a plan that waits another place among those that wait, counted from 1."""
        with self._changing() as (stored, keep):
            moved = _of(stored.entries, number)
            waiting = [each for each in stored.entries if each.state == "waiting"]
            if moved.state != "waiting":
                rule = f"must be a plan that waits, and plan {number} is {moved.state}"
                raise PlanError("NUMBER", number, rule, "`sumus federation queue list` shows them.")
            if not 1 <= place <= len(waiting):
                rule = f"must be a place among the {len(waiting)} that wait"
                raise PlanError("PLACE", place, rule, "1 is the next one to run.")
            order = [each for each in waiting if each != moved]
            order.insert(place - 1, moved)
            others = [each for each in stored.entries if each.state != "waiting"]
            keep(replace(stored, entries=(*others, *order)))

    def retry(self, *numbers: int) -> list[QueuedPlan]:
        """Have plans that were set aside wait again, behind the others; none named: all of them."""
        with self._changing() as (stored, keep):
            aside = [each for each in stored.entries if each.state == "set aside"]
            wanted = [_of(stored.entries, number) for number in numbers] or aside
            for each in wanted:
                if each not in aside:
                    rule = (
                        f"must be a plan that was set aside, and plan {each.number} is {each.state}"
                    )
                    fix = "`sumus federation queue list` shows them."
                    raise PlanError("NUMBER", each.number, rule, fix)
            again = tuple(replace(each, state="waiting", why="", tries=0) for each in wanted)
            kept = tuple(each for each in stored.entries if each not in wanted)
            keep(replace(stored, entries=(*kept, *again)))
        return list(again)

    def begin(self, number: int) -> None:
        """A plan is run from now on, or again."""
        began = self.entry(number).began or self._now()
        self._change(number, state="running", began=began)

    def progress(self, number: int, done: int) -> None:
        """Rounds of it have ended."""
        if done > self.entry(number).done:
            self._change(number, done=done)

    def finish(self, number: int, *, run: str, done: int) -> None:
        """It is over, and what it released is in a folder here."""
        self._change(
            number, state="finished", run=run, done=done, text="", why="", ended=self._now()
        )
        self.file_of(self.entry(number)).unlink(missing_ok=True)

    def set_aside(self, number: int, why: str) -> None:
        """It is not run any more, for this reason."""
        self._change(number, state="set aside", why=why, ended=self._now())

    def give_way(self, number: int, why: str) -> bool:
        """It ended without a new round: the others come first, then it is tried again, three times
        in all; returns whether it will be.
        """
        entry = self.entry(number)
        if entry.tries + 1 >= _MOST_TRIES:
            self.set_aside(number, why)
            return False
        with self._changing() as (stored, keep):
            known = _of(stored.entries, number)
            later = replace(known, state="waiting", why=why, tries=known.tries + 1)
            keep(replace(stored, entries=(*(e for e in stored.entries if e != known), later)))
        return True

    # -- who runs it

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Hold the queue for the duration of a block: one process at a time runs it."""
        make_directory(self.folder)
        with FolderLock(self.folder):
            yield

    @property
    def is_run(self) -> bool:
        """Whether a process runs it at this moment."""
        if not self.folder.is_dir():
            return False
        try:
            with FolderLock(self.folder):
                return False
        except StorageError:
            return True

    # -- inside

    def _now(self) -> str:
        return self._clock().isoformat(timespec="seconds")

    def _change(self, number: int, **changes: Any) -> None:
        with self._changing() as (stored, keep):
            entries = [
                replace(each, **changes) if each.number == number else each
                for each in stored.entries
            ]
            _of(entries, number)
            keep(replace(stored, entries=tuple(entries)))

    @contextlib.contextmanager
    def _changing(self) -> Iterator[tuple[_Stored, Callable[[_Stored], None]]]:
        make_directory(self.folder)
        with FileLock(self.folder / "queue.lock").waiting():
            yield self._read(), self._keep

    def _keep(self, stored: _Stored) -> None:
        over = [each for each in stored.entries if each.state == "finished"]
        rest = tuple(each for each in stored.entries if each.state != "finished")
        kept = replace(stored, entries=(*over[-_MOST_FINISHED:], *rest))
        content = json.dumps(asdict(kept), indent=1, sort_keys=True) + "\n"
        replace_atomically(self._path, content.encode())

    def _read(self) -> _Stored:
        if not self._path.exists():
            return _Stored(format=_FORMAT.version, next=1, entries=())
        told = _FORMAT.require_field(self._path, read_bytes(self._path), fix=_FIX)
        try:
            stored = from_json(_Stored, told, where=str(self._path))
        except (ValueError, DataError):
            raise StorageError(f"{self._path} is damaged: not as it was written. {_FIX}") from None
        numbers = [each.number for each in stored.entries]
        if len(set(numbers)) < len(numbers) or any(not 0 < n < stored.next for n in numbers):
            raise StorageError(f"{self._path} is damaged: its numbers are no numbers of it. {_FIX}")
        return stored


def _of(entries: Sequence[QueuedPlan], number: int) -> QueuedPlan:
    for each in entries:
        if each.number == number:
            return each
    rule = "must be the number of a plan in the queue"
    raise PlanError("NUMBER", number, rule, "`sumus federation queue list` shows them.")


def _require_new(plan: TrainingPlan, entries: Sequence[QueuedPlan]) -> None:
    """A plan runs once in a federation."""
    for each in entries:
        if each.plan_hash == plan.hash:
            rule = (
                f"is plan {each.number} of the queue already ({each.state}), and a plan runs once"
            )
            fix = "Change something, for example training.init_seed; or `queue retry` it."
            raise PlanError("PLAN", plan.hash[:16], rule, fix)
