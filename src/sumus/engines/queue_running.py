"""Plan after plan of a queue, each to its end; what is refused is set aside and the next one runs."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, final

from sumus.books import RunFolder
from sumus.engines.engine import NoProgressError, Operator, ServerAwayError
from sumus.engines.plan_queue import PlanQueue, QueuedPlan
from sumus.engines.training import train_across
from sumus.errors import EngineError, PlanError, StorageError, SumusError
from sumus.events import QueueSetAside, TrainingEnded, TrainingStarted, tell
from sumus.parties import Agreement, agree_on
from sumus.runs import Start, find_start

__all__ = ["QueueRunner", "QueueWatcher"]

_LOOK_SECONDS = 2.0
_BREATH_SECONDS = 0.2
_WRITE_SECONDS = 5.0
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_MOST_FAILURES = 20
"""Of the operator's own disk, about a quarter of an hour."""


class QueueWatcher(Protocol):
    """Who is told how a queue goes; none of it can change what is run."""

    def begins(self, entry: QueuedPlan, agreement: Agreement) -> None:
        """A plan is run."""
        ...

    def told(self, news: Mapping[str, Any]) -> None:
        """How its job goes; see `Watch`."""
        ...

    def waits(self, why: str) -> None:
        """Something is missing that may come back: it is tried again."""
        ...

    def ended(self, entry: QueuedPlan) -> None:
        """A plan is finished, set aside or gives way."""
        ...

    def idle(self) -> None:
        """Nothing is left to run."""
        ...


@final
@dataclass(kw_only=True)
class QueueRunner:
    """Runs a queue.

    Guarantee: at most one plan runs at a time, in the order of the queue; a plan that silos refuse
        is set aside with their reason, and costs the others nothing. A server that is away is
        waited for, and so is room on the operator's disk for a while.

    Args:
        queue: held by this process (`PlanQueue.running`).
        operator: who starts jobs.
        out: where run folders are copied to.
        watcher: who is told.
        rounds_per_job: of one job of the engine.
        stop_at_first: end at the first plan that is not finished.
        stay: look for further plans when none is left, instead of ending.
        stopped: whether somebody asked to stop; looked at between plans and while waiting.
    """

    queue: PlanQueue
    operator: Operator
    out: Path
    watcher: QueueWatcher
    rounds_per_job: int = 50
    patience: Mapping[str, float] | None = None
    stop_at_first: bool = False
    stay: bool = False
    stopped: Callable[[], bool] = lambda: False
    sleep: Callable[[float], None] = time.sleep

    def run(self) -> None:
        """Until nothing is left, or for ever (`stay`)."""
        while not self.stopped():
            for orphan in self.queue.orphans():
                why = (
                    f"it starts from the model of plan {orphan.starts_from[:8]}, which is set aside"
                )
                self._set_aside(orphan, why)
            entry = self.queue.next()
            if entry is None:
                self.watcher.idle()
                if not self.stay:
                    return
                self._pause(_LOOK_SECONDS)
                continue
            if not self._run(entry) and self.stop_at_first:
                return

    def _run(self, entry: QueuedPlan) -> bool:
        """One plan to its end, or aside; returns whether it is finished."""
        pause, failures = _FIRST_PAUSE, 0
        while not self.stopped():
            try:
                return self._try(entry)
            except (ServerAwayError, StorageError, OSError) as error:  # each may come back
                failures += not isinstance(error, ServerAwayError)
                if failures > _MOST_FAILURES:
                    return self._set_aside(entry, str(error))
                self.watcher.waits(str(error))
                self._pause(pause)
                pause = min(2.0 * pause, _LONGEST_PAUSE)
            except NoProgressError as error:
                if self.queue.give_way(entry.number, str(error)):
                    self.watcher.ended(self.queue.entry(entry.number))
                    return False
                return self._aside(entry, str(error))
            except SumusError as error:
                return self._set_aside(entry, str(error))
            except Exception as error:  # a plan that the program stumbles over stops no other
                return self._set_aside(entry, f"{type(error).__name__}: {error}")
        return False

    def _try(self, entry: QueuedPlan) -> bool:
        agreement = agree_on(entry.plan)
        if agreement.plan.hash != entry.plan_hash:
            raise EngineError(
                f"this release of Sumus makes plan {agreement.plan.hash[:8]} of it. Add the plan "
                "anew, and have the silos approve it."
            )
        start = _start_of(agreement, self.out)
        self.queue.begin(entry.number)
        self.watcher.begins(self.queue.entry(entry.number), agreement)
        began, rounds = time.monotonic(), agreement.plan.federation.rounds
        tell(TrainingStarted(plan=agreement.plan.hash, rounds=rounds))
        path = train_across(
            self.operator,
            agreement,
            out=self.out,
            watch=_Noting(self.queue, entry.number, self.watcher),
            rounds_per_job=self.rounds_per_job,
            patience=self.patience,
            start=start,
        )
        run = RunFolder.open(path)
        run.verify()
        self.queue.finish(entry.number, run=str(path), done=run.last_round)
        tell(TrainingEnded(rounds=run.last_round, seconds=time.monotonic() - began))
        self.watcher.ended(self.queue.entry(entry.number))
        return True

    def _set_aside(self, entry: QueuedPlan, why: str) -> bool:
        self.queue.set_aside(entry.number, why)
        return self._aside(entry, why)

    def _aside(self, entry: QueuedPlan, why: str) -> bool:
        tell(QueueSetAside(plan=entry.plan_hash, number=entry.number, reason=why))
        self.watcher.ended(self.queue.entry(entry.number))
        return False

    def _pause(self, seconds: float) -> None:
        for _ in range(math.ceil(seconds / _BREATH_SECONDS)):
            if self.stopped():
                return
            self.sleep(_BREATH_SECONDS)


@final
class _Noting:
    """Passes the news of a job on, and now and then writes down how far it is."""

    def __init__(self, queue: PlanQueue, number: int, watcher: QueueWatcher) -> None:
        self._queue, self._number, self._watcher = queue, number, watcher
        self._written = float("-inf")

    def __call__(self, news: Mapping[str, Any]) -> None:
        self._watcher.told(news)
        rounds = [int(record["round"]) for record in news["rounds"]]
        if rounds and time.monotonic() - self._written > _WRITE_SECONDS:
            with contextlib.suppress(StorageError):  # what is shown of a run cannot stop it
                self._queue.progress(self._number, max(rounds))
            self._written = time.monotonic()


def _start_of(agreement: Agreement, runs: Path) -> Start | None:
    """The released model that a plan starts from, if a run of this machine has it; otherwise the
    server looks among its own.
    """
    if agreement.plan.training.start_from is None:
        return None
    try:
        start = find_start(agreement.plan, runs)
    except PlanError:
        return None
    start.require_fit(agreement.design, void=None)
    return start
