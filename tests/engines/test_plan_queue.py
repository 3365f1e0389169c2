"""The queue's file: whatever is done to it and wherever a process is killed, it is what a list in
memory would be, before or after the one change that was under way.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from sumus.books import plan_words
from sumus.engines import PlanQueue, QueuedPlan
from sumus.errors import PlanError, StorageError, SumusError
from support.vault_federation import small_plan

NOON = datetime(2026, 8, 1, 12, tzinfo=UTC)
PLANS = [small_plan(seed) for seed in range(4)]
PLANS += [
    small_plan(4, training__start_from=f"plan:{PLANS[0].hash}"),
    small_plan(5, training__start_from=f"plan:{PLANS[3].hash}"),
]
ACTS = ("add", "remove", "move", "retry", "begin", "progress", "finish", "aside", "way")


def made(folder: Path) -> PlanQueue:
    return PlanQueue(folder, clock=lambda: NOON)


class Model:
    """What a queue should be, as plain lists: [number, plan, state, tries]."""

    def __init__(self) -> None:
        self.next, self.rows = 1, list[list[object]]()

    def act(self, act: str, number: int, more: int) -> None:
        """Raises KeyError where the queue must refuse."""
        if act == "add":
            if any(row[1] == more % len(PLANS) for row in self.rows):
                raise KeyError(act)
            self.rows.append([self.next, more % len(PLANS), "waiting", 0])
            self.next += 1
        elif act == "retry":
            aside = [row for row in self.rows if row[2] == "set aside"]
            for row in aside:
                self.rows.remove(row)
                self.rows.append([*row[:2], "waiting", 0])
        else:
            (row,) = [row for row in self.rows if row[0] == number] or [None]
            if row is None:
                raise KeyError(act)
            self.change(act, row, more)
        # what is over stands first
        self.rows.sort(key=lambda row: row[2] != "finished")

    def change(self, act: str, row: list[object], more: int) -> None:
        if act == "remove":
            self.rows.remove(row)
        elif act == "move":
            waiting = [each for each in self.rows if each[2] == "waiting"]
            if row not in waiting or not 1 <= more <= len(waiting):
                raise KeyError(act)
            waiting.remove(row)
            waiting.insert(more - 1, row)
            self.rows = [each for each in self.rows if each[2] != "waiting"] + waiting
        elif act == "begin":
            row[2] = "running"
        elif act == "finish":
            row[2] = "finished"
        elif act == "aside" or (act == "way" and row[3] == 2):
            row[2] = "set aside"
        elif act == "way":
            self.rows.remove(row)
            self.rows.append([*row[:2], "waiting", int(str(row[3])) + 1])


def applied(queue: PlanQueue, act: str, number: int, more: int) -> None:
    if act == "add":
        queue.add(PLANS[more % len(PLANS)], words=plan_words)
    elif act == "move":
        queue.move(number, more)
    elif act == "retry":
        queue.retry()
    elif act == "progress":
        queue.progress(number, more)
    elif act == "finish":
        queue.finish(number, run="runs/x", done=more)
    elif act == "aside":
        queue.set_aside(number, "too few silos — “nein”\n<b>")
    elif act == "way":
        queue.give_way(number, "lost")
    else:
        getattr(queue, act)(number)


def rows(queue: PlanQueue) -> list[list[object]]:
    hashes = [plan.hash for plan in PLANS]
    return [
        [each.number, hashes.index(each.plan_hash), each.state, each.tries]
        for each in queue.entries()
    ]


steps = st.lists(
    st.tuples(st.sampled_from(ACTS), st.integers(1, 7), st.integers(0, 7), st.booleans()),
    max_size=30,
)


@settings(max_examples=60)
@given(steps)
def test_a_queue_is_what_a_list_would_be_whoever_reads_it_and_wherever_it_is_killed(
    tmp_path_factory: pytest.TempPathFactory, acts: list[tuple[str, int, int, bool]]
) -> None:
    folder, model = tmp_path_factory.mktemp("queue"), Model()
    for act, number, more, killed in acts:
        before = [list(row) for row in model.rows]
        known = model.next
        try:
            model.act(act, number, more)
            refused = False
        except KeyError:
            refused = True
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", lambda descriptor: None)
            if killed:
                patch.setattr(
                    os, "replace", lambda *names: (_ for _ in ()).throw(KeyboardInterrupt)
                )
            try:
                applied(made(folder), act, number, more)
                assert not refused
            except PlanError:
                assert refused
            except KeyboardInterrupt:  # nothing had taken the file's name
                model.rows, model.next = before, known
        queue = made(folder)  # another process
        assert rows(queue) == model.rows
        following = queue.next()
        assert following is None or following.state in ("waiting", "running")
        assert all(each.text for each in queue.entries() if each.state != "finished")


@given(
    st.builds(
        QueuedPlan,
        number=st.integers(1, 2**53),
        plan_hash=st.text(max_size=70),
        text=st.text(max_size=200),
        words=st.text(max_size=40),
        rounds=st.integers(0, 2**53),
        state=st.sampled_from(["waiting", "running", "finished", "set aside"]),
        done=st.integers(0, 2**53),
        why=st.text(max_size=200),
        run=st.text(max_size=40),
    )
)
def test_whatever_a_plan_says_survives_the_file(
    tmp_path_factory: pytest.TempPathFactory, entry: QueuedPlan
) -> None:
    queue = made(tmp_path_factory.mktemp("queue"))
    stored = {"format": 1, "next": entry.number + 1, "entries": [asdict(entry)]}
    queue.folder.joinpath("queue.json").write_text(json.dumps(stored))
    assert queue.entries() == (entry,)
    queue.set_aside(entry.number, "why")
    (again,) = made(queue.folder).entries()
    assert (again.text, again.words, again.state) == (entry.text, entry.words, "set aside")


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_a_damaged_file_is_one_error_and_stays_as_it_is(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    queue = made(tmp_path_factory.mktemp("queue"))
    (queue.folder / "queue.json").write_bytes(content)
    with pytest.raises(StorageError, match=r"queue\.json"):
        queue.entries()
    with pytest.raises(StorageError):
        queue.add(PLANS[0], words=plan_words)
    assert (queue.folder / "queue.json").read_bytes() == content


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"next": 1},
        {"next": "2"},
        {"more": 1},
        {"entries": {}},
        {"state": "done"},
        {"number": 0},
        {"text": None},
    ],
)
def test_a_file_that_says_something_else_is_refused(
    tmp_path: Path, change: dict[str, object]
) -> None:
    queue = made(tmp_path)
    queue.add(PLANS[0], words=plan_words)
    stored = json.loads((tmp_path / "queue.json").read_text())
    key = next(iter(change))
    if key in ("state", "number", "text"):
        stored["entries"][0] |= change
    else:
        stored |= change
    (tmp_path / "queue.json").write_text(json.dumps(stored))
    with pytest.raises(StorageError, match=r"queue\.json"):
        made(tmp_path).entries()


# -- order


@pytest.fixture
def queue(tmp_path: Path) -> PlanQueue:
    made_queue = made(tmp_path / "queue")
    made_queue.add(*PLANS[:4], words=plan_words)
    return made_queue


def numbers(entries: object) -> list[int]:
    return [each.number for each in entries]  # type: ignore[attr-defined]


def test_the_one_that_was_running_goes_first_and_then_the_order_counts(queue: PlanQueue) -> None:
    assert queue.next() == queue.entry(1)
    queue.move(3, 1)
    assert numbers(queue.entries()) == [3, 1, 2, 4]
    queue.begin(1)
    assert queue.next() == queue.entry(1)
    queue.move(4, 1)
    assert queue.next() == queue.entry(1)
    queue.finish(1, run="runs/x", done=2)
    assert queue.next() == queue.entry(4)
    assert queue.entry(1).text == ""
    assert not queue.file_of(queue.entry(1)).exists()
    assert queue.file_of(queue.entry(2)).read_text() == PLANS[1].to_toml()


def test_a_plan_waits_for_the_model_that_it_starts_from(queue: PlanQueue) -> None:
    queue.add(PLANS[4], PLANS[5], words=plan_words)  # from the models of 1 and of 4
    queue.move(6, 1)
    queue.move(5, 1)
    assert numbers(queue.entries()) == [5, 6, 1, 2, 3, 4]
    assert queue.next() == queue.entry(1)
    queue.finish(1, run="runs/x", done=2)
    assert queue.next() == queue.entry(5)
    queue.set_aside(4, "refused")
    assert queue.orphans() == [queue.entry(6)]
    queue.set_aside(6, "its start is missing")
    queue.retry(4, 6)
    assert queue.orphans() == []
    assert numbers(queue.entries()) == [1, 5, 2, 3, 4, 6]


def test_a_plan_runs_once_and_what_is_added_together_is_added_whole_or_not(
    queue: PlanQueue,
) -> None:
    with pytest.raises(PlanError, match=r"is plan 2 of the queue already \(waiting\)"):
        queue.add(PLANS[4], PLANS[1], words=plan_words)
    assert len(queue.entries()) == 4
    queue.finish(2, run="runs/x", done=2)
    with pytest.raises(PlanError, match=r"already \(finished\)"):
        queue.add(PLANS[1], words=plan_words)
    queue.remove(2)
    (again,) = queue.add(PLANS[1], words=plan_words)
    assert again.number == 5


def test_a_plan_that_ends_without_a_round_gives_way_twice(queue: PlanQueue) -> None:
    queue.begin(1)
    assert queue.give_way(1, "lost")
    assert numbers(queue.entries()) == [2, 3, 4, 1]
    assert (queue.entry(1).why, queue.entry(1).tries) == ("lost", 1)
    assert queue.give_way(1, "lost again")
    assert not queue.give_way(1, "lost for good")
    assert (queue.entry(1).state, queue.entry(1).why) == ("set aside", "lost for good")


def test_one_process_runs_a_queue_and_what_it_runs_stays(queue: PlanQueue) -> None:
    queue.begin(1)
    with queue.running():
        assert queue.is_run
        with pytest.raises(StorageError, match="in use by another process"), queue.running():
            pass
        with pytest.raises(StorageError, match="runs at this moment"):
            queue.remove(1)
        queue.remove(2)  # the others may be changed meanwhile
    assert not queue.is_run
    assert queue.remove(1).state == "running"
    assert numbers(queue.entries()) == [3, 4]


def test_finished_plans_are_forgotten_one_day(
    queue: PlanQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sumus.engines.plan_queue._MOST_FINISHED", 2)
    for number in (1, 2, 3):
        queue.finish(number, run="runs/x", done=2)
    assert numbers(queue.entries()) == [2, 3, 4]
    (added,) = queue.add(PLANS[0], words=plan_words)
    assert added.number == 5


def test_a_full_disk_leaves_the_queue_as_it_was(
    queue: PlanQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = queue.entries()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(SumusError, match="no space left"):
            queue.set_aside(1, "why")
    assert queue.entries() == before
