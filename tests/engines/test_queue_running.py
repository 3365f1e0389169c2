"""A queue that runs: plan after plan over the real sockets of running vaults, with an operator that
can be killed, a server that goes away, and silos that refuse.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from sumus.books import RunFolder, plan_words
from sumus.engines import PlanQueue, QueuedPlan, QueueRunner
from sumus.engines.engine import NoProgressError, Outcome, ServerAwayError
from sumus.engines.queue_running import _MOST_FAILURES
from sumus.errors import StorageError
from sumus.parties import Agreement
from sumus.plan import TrainingPlan
from support.synthetic_runs import made_run
from support.vault_federation import OperatorInProcess, VaultFederation, small_plan


def short_plan(seed: int, **changes: object) -> TrainingPlan:
    """Of one round: what is tested happens between plans."""
    return small_plan(seed, federation__rounds=1, **changes)


FIRST, SECOND = short_plan(0), short_plan(1)


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[VaultFederation]:
    made = VaultFederation(tmp_path)
    yield made
    made.close()


class Watching:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def begins(self, entry: QueuedPlan, agreement: Agreement) -> None:
        self.said.append(f"{entry.number} {entry.state}")

    def told(self, news: Mapping[str, Any]) -> None:
        pass

    def waits(self, why: str) -> None:
        self.said.append(f"waits: {why}")

    def ended(self, entry: QueuedPlan) -> None:
        self.said.append(f"{entry.number} {entry.state}")

    def idle(self) -> None:
        self.said.append("idle")


def queue_of(federation: VaultFederation, *plans: TrainingPlan) -> PlanQueue:
    queue = PlanQueue(federation.root / "queue")
    queue.add(*plans, words=plan_words)
    return queue


def runner(federation: VaultFederation, queue: PlanQueue, **options: Any) -> QueueRunner:
    chosen: dict[str, Any] = {
        "operator": OperatorInProcess(federation),
        "out": federation.root / "runs",
        "watcher": Watching(),
        "sleep": lambda seconds: None,
    }
    return QueueRunner(queue=queue, **(chosen | options))


def states(queue: PlanQueue) -> dict[int, str]:
    return {each.number: each.state for each in queue.entries()}


# -- in order


def test_plans_run_one_after_the_other_and_may_go_on_from_each_others_models(
    federation: VaultFederation,
) -> None:
    chained = short_plan(2, training__start_from=f"plan:{FIRST.hash}")
    federation.approve(FIRST, SECOND, chained)  # before any model of them is known
    queue = queue_of(federation, FIRST, SECOND, chained)
    run = runner(federation, queue)
    run.run()
    assert states(queue) == dict.fromkeys((1, 2, 3), "finished")
    assert run.watcher.said == [  # type: ignore[attr-defined]
        *("1 running", "1 finished", "2 running", "2 finished", "3 running", "3 finished", "idle")
    ]
    start, first = federation.run_of(chained).start, federation.run_of(FIRST)
    assert start is not None
    assert first.summary is not None
    assert (start.model, start.run) == (first.summary["model_hash"], first.name)
    for name, plan in itertools.product(federation.names, (FIRST, SECOND, chained)):
        assert federation.rounds(name, plan) == [1]
    for entry in queue.entries():
        assert RunFolder.open(Path(entry.run)).plan_hash == entry.plan_hash
        assert (entry.done, entry.rounds) == (1, 1)


# -- set aside


def test_what_silos_have_not_approved_is_set_aside_and_the_next_one_runs(
    federation: VaultFederation, caplog: pytest.LogCaptureFixture
) -> None:
    federation.approve(SECOND)
    queue = queue_of(federation, FIRST, SECOND)
    runner(federation, queue).run()
    assert states(queue) == {2: "finished", 1: "set aside"}
    assert "is not one that silo 'silo-0' has approved" in queue.entry(1).why
    (told,) = [
        record.happened  # type: ignore[attr-defined]
        for record in caplog.records
        if record.name == "sumus.queue"
    ]
    assert told.name == "queue.set_aside"
    assert (told.number, told.plan) == (1, FIRST.hash)
    federation.approve(FIRST)
    runner(federation, queue).run()
    assert states(queue)[1] == "set aside"  # until somebody says so
    queue.retry(1)
    runner(federation, queue).run()
    assert states(queue) == {2: "finished", 1: "finished"}


def test_what_is_over_the_silos_budget_is_set_aside_and_a_smaller_one_runs(tmp_path: Path) -> None:
    """Of ε = 2 each there is room for one, and for one of ε = 0.5 beside it."""
    limits = dict.fromkeys(("silo-0", "silo-1", "silo-2"), "max_epsilon = 2.75\n")
    federation = VaultFederation(tmp_path, policies=limits)
    small = short_plan(3, privacy__epsilon=0.5)
    federation.approve(FIRST, SECOND, small)
    queue = queue_of(federation, FIRST, SECOND, small)
    runner(federation, queue).run()
    federation.close()
    assert states(queue) == {1: "finished", 3: "finished", 2: "set aside"}
    assert "is over the policy of silo" in queue.entry(2).why
    assert "2.75" not in queue.entry(2).why  # a silo's numbers stay with it
    for name in federation.names:
        assert federation.rounds(name, SECOND) == []
        assert federation.ledger(name).committed("record").epsilon <= 2.75


def test_told_to_stop_it_ends_at_the_first_that_is_not_finished(
    federation: VaultFederation,
) -> None:
    federation.approve(SECOND)
    queue = queue_of(federation, FIRST, SECOND)
    runner(federation, queue, stop_at_first=True).run()
    assert states(queue) == {1: "set aside", 2: "waiting"}


def test_a_plan_whose_start_was_set_aside_is_set_aside_too(federation: VaultFederation) -> None:
    chained = short_plan(2, training__start_from=f"plan:{FIRST.hash}")
    further = short_plan(3, training__start_from=f"plan:{chained.hash}")
    federation.approve(SECOND, chained, further)
    queue = queue_of(federation, FIRST, chained, further, SECOND)
    runner(federation, queue).run()
    assert states(queue) == {4: "finished", 1: "set aside", 2: "set aside", 3: "set aside"}
    assert f"the model of plan {FIRST.hash[:8]}, which is set aside" in queue.entry(2).why
    federation.approve(FIRST)
    queue.retry()
    runner(federation, queue).run()
    assert set(states(queue).values()) == {"finished"}


# -- what may come back


class Failing:
    """An operator whose first jobs fail in a way."""

    PATIENCE: Mapping[str, float] = {}

    def __init__(self, real: OperatorInProcess, failures: list[Exception]) -> None:
        self.real, self.failures = real, failures

    def run(self, agreement: Agreement, **options: Any) -> Outcome:
        if self.failures:
            raise self.failures.pop(0)
        return self.real.run(agreement, **options)

    def close(self) -> None:
        pass


def test_a_server_that_is_away_and_a_full_disk_are_waited_for(federation: VaultFederation) -> None:
    federation.approve(FIRST, SECOND)
    queue = queue_of(federation, FIRST, SECOND)
    failures: list[Exception] = [ServerAwayError("away")] * 30
    failures += [StorageError("no space left"), OSError(28, "No space left on device")]
    operator = Failing(OperatorInProcess(federation), failures)
    run = runner(federation, queue, operator=operator)
    run.run()
    assert states(queue) == {1: "finished", 2: "finished"}
    waits = [line for line in run.watcher.said if line.startswith("waits")]  # type: ignore[attr-defined]
    assert len(waits) == 32


@pytest.mark.long
def test_a_disk_that_stays_full_sets_the_plan_aside_in_the_end(
    federation: VaultFederation,
) -> None:
    federation.approve(SECOND)
    queue = queue_of(federation, FIRST, SECOND)
    failures: list[Exception] = [StorageError("no space left")] * (_MOST_FAILURES + 1)
    operator = Failing(OperatorInProcess(federation), failures)
    runner(federation, queue, operator=operator).run()
    assert states(queue) == {2: "finished", 1: "set aside"}
    assert queue.entry(1).why == "no space left"


def test_a_plan_without_progress_gives_way_and_is_tried_again(
    federation: VaultFederation,
) -> None:
    federation.approve(FIRST, SECOND)
    queue = queue_of(federation, FIRST, SECOND)
    operator = Failing(OperatorInProcess(federation), [NoProgressError("3 jobs finished no round")])
    run = runner(federation, queue, operator=operator)
    run.run()
    assert states(queue) == {1: "finished", 2: "finished"}
    assert run.watcher.said[:4] == [  # type: ignore[attr-defined]
        *("1 running", "1 waiting", "2 running", "2 finished")
    ]


def test_a_plan_that_the_program_stumbles_over_stops_no_other(federation: VaultFederation) -> None:
    federation.approve(SECOND)
    queue = queue_of(federation, FIRST, SECOND)
    operator = Failing(OperatorInProcess(federation), [ZeroDivisionError("by zero")])
    runner(federation, queue, operator=operator).run()
    assert states(queue) == {2: "finished", 1: "set aside"}
    assert queue.entry(1).why == "ZeroDivisionError: by zero"


def test_it_stays_for_plans_that_are_added_meanwhile(federation: VaultFederation) -> None:
    federation.approve(FIRST, SECOND)
    queue = queue_of(federation, FIRST)
    idle: list[int] = []

    def sleep(seconds: float) -> None:
        if not idle:
            queue.add(SECOND, words=plan_words)
        idle.append(1)

    def stopped() -> bool:
        return set(states(queue).values()) == {"finished"} and len(states(queue)) == 2

    runner(federation, queue, stay=True, sleep=sleep, stopped=stopped).run()
    assert idle
    assert states(queue) == {1: "finished", 2: "finished"}


# -- kills


class Server:
    """The rounds that are done of every plan, whatever becomes of the operator; its silos refuse one
    plan.
    """

    PATIENCE: Mapping[str, float] = {}

    def __init__(self, run: Path, refused: TrainingPlan) -> None:
        self._run, self._refused = run, refused
        self.done: dict[str, list[int]] = {}

    def run(self, agreement: Agreement, *, rounds: int, watch: Any, **options: Any) -> Outcome:
        if agreement.plan.hash == self._refused.hash:
            return Outcome(finished=False, reason="not approved", run=None, refused=True)
        done = self.done.setdefault(agreement.plan.hash, [])
        first, last = len(done) + 1, agreement.plan.federation.rounds
        done += list(range(first, min(first + rounds, last + 1)))
        watch({"phase": "training", "rounds": [{"round": each} for each in done], "refusals": {}})
        return Outcome(finished=len(done) == last, reason="paused", run=self._run)

    def close(self) -> None:
        pass


class Dying:
    """The operator's process dies at the n-th moment: before or after a job, or before or after a
    change of the queue.
    """

    def __init__(self, moment: int) -> None:
        self._left = moment

    def moment(self) -> None:
        self._left -= 1
        if self._left == 0:
            raise KeyboardInterrupt

    def around(self, act: Callable[..., Any]) -> Callable[..., Any]:
        def acted(*arguments: Any, **options: Any) -> Any:
            self.moment()
            done = act(*arguments, **options)
            self.moment()
            return done

        return acted


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.long)])
def test_killed_at_any_moment_it_goes_on_where_it_was_and_runs_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    first, second, refused = (small_plan(seed) for seed in range(3))
    chained = small_plan(3, training__start_from=f"plan:{first.hash}")
    monkeypatch.setattr("os.fsync", lambda descriptor: None)  # no power is cut here
    finished, moment, died = made_run(tmp_path / "runs"), 0, True
    while died:
        moment += step
        queue, dying = PlanQueue(tmp_path / f"queue-{moment}"), Dying(moment)
        queue.add(first, refused, second, chained, words=plan_words)
        server = Server(finished, refused)
        options: dict[str, Any] = {
            "operator": server,
            "out": tmp_path / "out",
            "watcher": Watching(),
            "rounds_per_job": 1,
        }
        with monkeypatch.context() as patch:
            patch.setattr(server, "run", dying.around(server.run))
            patch.setattr(PlanQueue, "_keep", dying.around(PlanQueue._keep))
            try:
                QueueRunner(queue=queue, **options).run()
                died = False
            except KeyboardInterrupt:
                died = True
        QueueRunner(queue=PlanQueue(queue.folder), **options).run()
        kept = {1: "finished", 3: "finished", 4: "finished", 2: "set aside"}
        assert states(queue) == kept, moment
        assert server.done == {plan.hash: [1, 2] for plan in (first, second, chained)}, moment
        assert list(server.done) == [first.hash, second.hash, chained.hash]
    assert moment > 30  # of every `step`-th of them
