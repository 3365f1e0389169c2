"""What is watched, told by those who run it: a run in this process, a federation's operator, the
server and a silo, over real parties in one process.
"""

from __future__ import annotations

import json
import math
import os
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sumus.books import Ledger, LedgerEntry, Policy, RunFolder, RunningTotal
from sumus.engines import Address, Kit, Looking
from sumus.engines.live_file import LIVE, read_live
from sumus.engines.own_sockets import connects, listens
from sumus.engines.presence import PresenceFile, read_presence
from sumus.engines.watched_server import ServerWatch, server_board
from sumus.engines.watched_silo import SiloWatch, silo_board
from sumus.plan import DEFAULT_PLAN, TrainingPlan
from sumus.watching import FederationWatcher, LiveState, TrainingWatcher, training_board
from sumus.watching.federation import federation_board
from support.live import NOON, until
from support.synthetic_runs import made_account, made_plan
from support.watched_federation import WatchedFederation

NAMES = ("north", "south", "east", "west", "centre")


# -- a training in this process


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[LiveState], Any]:
    """Every state of a short run, and the run."""
    from sumus.runs import RunOptions, train

    root = tmp_path_factory.mktemp("trained")
    board = training_board("")
    states: list[LiveState] = []
    post = board.post

    def noted(state: LiveState) -> None:
        states.append(state)
        post(state)

    board.post = noted  # type: ignore[method-assign]
    plan = TrainingPlan.load(DEFAULT_PLAN).with_overrides({"federation.rounds": 3})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUMUS_STATE", str(root / "state"))
        watcher = TrainingWatcher(board)
        run = train(plan, options=RunOptions(root=root), callbacks=[watcher])
        watcher.reported(run.path / "report.html")
    return states, run


def test_a_run_is_told_round_by_round_and_stage_by_stage(
    trained: tuple[list[LiveState], Any],
) -> None:
    states, run = trained
    stages = list(dict.fromkeys(state.stage for state in states))
    assert stages == ["starting", "greeting", "local", "survivors", "unmasking", "finished"]
    last, entries = states[-1], RunFolder.open(run.path).rounds()
    assert (last.round, last.rounds, last.lost_rounds) == (3, 3, 0)
    assert last.plan is not None
    assert last.plan.hash == run.plan.hash
    assert last.promise is not None
    assert last.promise.verdict == "proved"
    assert last.promise.spent == entries[-1].epsilon_spent
    assert last.history.epsilon == tuple(entry.epsilon_spent for entry in entries)
    assert last.history.value == tuple(entry.metrics["accuracy"] for entry in entries)
    assert last.measured is not None
    assert (last.measured.how, last.measured.round) == ("simulation-only", 3)
    assert last.costs.total_bytes_up == sum(entry.bytes_up for entry in entries)
    assert last.result is not None
    assert last.result.run == str(run.path)
    assert last.result.report.endswith("report.html")
    assert last.books is not None
    assert last.books.spent == run.spent.epsilon


def test_a_run_that_fails_or_is_stopped_says_so() -> None:
    board = training_board("digits")
    watcher = TrainingWatcher(board)
    watcher.ends(ValueError("the disk\nis full"))
    assert (board.state.stage, board.state.said) == ("failed", "the disk is full")
    watcher.ends(KeyboardInterrupt("after round 3"))
    assert (board.state.stage, board.state.said) == ("stopped", "after round 3")


def test_a_run_that_goes_on_begins_with_the_rounds_that_it_had(
    trained: tuple[list[LiveState], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUMUS_STATE", str(tmp_path))
    _, run = trained
    board = training_board("")
    watcher = TrainingWatcher(board, before=RunFolder.open(run.path).rounds())
    watcher.on_run_begin(run.plan, run.account)
    assert board.state.round == 3
    assert len(board.state.history.round) == 3


@pytest.mark.parametrize("policy", [None, "max_epsilon = 2.5\n"], ids=["budget", "policy"])
def test_the_limit_of_a_data_set_is_the_policys_or_the_budgets(
    policy: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUMUS_STATE", str(tmp_path))
    file = None if policy is None else tmp_path / "policy.toml"
    if file is not None and policy is not None:
        file.write_text(policy)
    board = training_board("")
    plan = made_plan(data__name=None, data__objects="visits")
    TrainingWatcher(board, policy=file).on_run_begin(plan, made_account(plan))
    books = board.state.books
    assert books is not None
    assert (books.dataset, books.spent) == ("visits", 0.0)
    assert books.limit == (10.0 if policy is None else 2.5)
    assert books.said_by == ("the default" if policy is None else str(file))


# -- a federation


def _watcher(**more: Any) -> FederationWatcher:
    watcher = FederationWatcher(
        federation_board("operator", "fl.example.org:8002"), clock=lambda: NOON
    )
    plan = made_plan()
    watcher.agreed(plan, made_account(plan), names=NAMES, needed=4, **more)
    return watcher


def _news(**changes: Any) -> Mapping[str, Any]:
    return {"phase": "training", "stage": "local", "rounds": [], "refusals": {}} | changes


def _awaited(silo: str, *, seconds: float = 10.0, away: bool = False) -> dict[str, Any]:
    return {"silo": silo, "seconds": seconds, "left": 5.0, "away": away}


@pytest.mark.parametrize(
    ("news", "stage", "said"),
    [
        (_news(phase="starting"), "starting", ""),
        (_news(phase="greeting"), "greeting", ""),
        (_news(stage="survivors"), "survivors", ""),
        (_news(stage="measuring"), "measuring", ""),
        (_news(stage="something new"), "local", ""),
        (_news(waiting=[_awaited("south")]), "local", "waiting for south"),
        (_news(waiting=[_awaited(name) for name in NAMES]), "local", ""),
        (_news(waiting=[_awaited("south", seconds=0.5)]), "local", ""),
        (_news(phase="paused"), "paused", ""),
        (_news(phase="finished"), "finished", ""),
        (_news(phase="failed", error="no\nspace"), "failed", "no space"),
        (
            _news(phase="failed", error="refused", refusals=dict.fromkeys(NAMES, "not approved")),
            "refused",
            "refused",
        ),
    ],
)
def test_what_a_job_says_becomes_a_stage(news: Mapping[str, Any], stage: str, said: str) -> None:
    watcher = _watcher()
    watcher.told(news)
    assert (watcher.follow.state.stage, watcher.follow.state.said) == (stage, said)


def test_who_is_there_and_who_is_missing_is_told_with_its_time() -> None:
    watcher = _watcher()
    watcher.connected({"north": NOON - 60.0, "south": NOON - 50.0, "east": None, "stranger": 1.0})
    watcher.told(
        _news(
            waiting=[_awaited("south", seconds=30.0)],
            refusals={"west": "its policy forbids the plan", "stranger": "hello"},
        )
    )
    state = watcher.follow.state
    told = [(each.name, each.presence, each.since, each.why) for each in state.presences]
    assert told == [
        ("west", "refused", NOON, "its policy forbids the plan"),
        ("centre", "away", NOON, ""),
        ("south", "waited for", NOON - 30.0, ""),
        ("east", "connected", NOON, ""),
        ("north", "connected", NOON - 60.0, ""),
    ]
    assert (state.connected, state.silos, state.needed) == (3, 5, 4)
    assert (state.ready, state.unready) == (False, "3 silos are there, a round needs 4")
    assert [(each.who, each.reason) for each in state.refusals] == [
        ("west", "its policy forbids the plan")
    ]


def test_without_the_engines_word_a_jobs_own_account_counts() -> None:
    watcher = _watcher()
    watcher.told(_news(phase="waiting for silos", waiting=[_awaited("south", away=True)]))
    assert watcher.follow.state.stage == "waiting"
    assert watcher.follow.state.connected == 4
    watcher.told(_news(present=["north", "south", "east"]))
    assert watcher.follow.state.connected == 3
    assert {each.name for each in watcher.follow.state.presences if each.presence == "away"} == {
        "west",
        "centre",
    }


def test_a_run_that_turns_out_to_be_void_shows_no_epsilon() -> None:
    watcher = _watcher()
    line = {"round": 1, "epsilon_spent": None, "seconds": {"local": 1.0}}
    watcher.told(_news(void="the silos' noise comes from a public seed", rounds=[line]))
    promise = watcher.follow.state.promise
    assert promise is not None
    assert (promise.verdict, promise.epsilon) == ("void", None)
    assert "public seed" in promise.why


def test_a_server_that_is_lost_is_counted_and_found_again() -> None:
    watcher = _watcher()
    watcher.answered()
    for tries in (1, 2):
        watcher.unanswered("refused", next_try=NOON + 5.0)
        connection = watcher.follow.state.connection
        assert connection is not None
        assert (connection.up, connection.tries, connection.why) == (False, tries, "refused")
        assert not watcher.follow.state.ready
    watcher.answered()
    assert watcher.follow.state.connection is not None
    assert watcher.follow.state.connection.up


class _Absent:
    """An operator whose server is away so many times."""

    def __init__(self, times: int) -> None:
        self.times = times

    def look(self, known: str | None, after: int) -> Any:
        from sumus.engines import Look
        from sumus.errors import EngineError

        self.times -= 1
        if self.times >= 0:
            raise EngineError("the server does not answer.")
        return Look(silos=("north",))


def test_a_server_that_is_away_is_asked_later_and_later() -> None:
    watcher = _watcher()
    looking = Looking(_Absent(6), watcher)  # type: ignore[arg-type]
    assert [looking.once() for _ in range(7)] == [2.0, 4.0, 8.0, 15.0, 15.0, 15.0, 2.0]
    assert watcher.follow.state.stage == "idle"


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedFederation]:
    """A federation whose only job has ended."""
    federation = WatchedFederation(
        tmp_path_factory.mktemp("watched"), rounds=4, policy="max_epsilon = 9.0\n"
    )
    federation.start_job().let_all()
    federation.wait()
    yield federation
    federation.close()


@pytest.mark.deep
def test_an_operator_who_looks_late_sees_the_whole_run(ran: WatchedFederation) -> None:
    board = federation_board("operator", "here")
    looking = Looking(ran, FederationWatcher(board))  # type: ignore[arg-type]
    until(lambda: looking.once() >= 0.0 and board.state.stage == "finished")
    path = next((ran.state / "runs").glob("*/*/journal.jsonl")).parent
    entries = RunFolder.open(path).rounds()
    state = board.state
    assert (state.round, state.rounds, state.silos, state.connected) == (4, 4, 3, 3)
    assert state.promise is not None
    assert state.promise.spent == entries[-1].epsilon_spent
    assert state.measured is not None
    assert state.measured.how == "secure"
    assert state.measured.plus_minus == entries[-1].metrics_plus_minus["accuracy"]
    assert state.costs.total_bytes_up == sum(entry.bytes_up for entry in entries)


def test_rounds_are_asked_for_in_small_pieces(ran: WatchedFederation) -> None:
    assert ran.job is not None
    first = ran.job.state(after=0, most=3)
    assert [line["round"] for line in first["rounds"]] == [1, 2, 3]
    assert "plan" not in first
    rest = ran.job.state(after=3, most=3, about=True)
    assert [line["round"] for line in rest["rounds"]] == [4]
    assert TrainingPlan.from_toml(rest["plan"]).hash == ran.agreement.plan.hash
    assert ran.job.state(after=100)["rounds"] == []


# -- the server's own page


class _Kept:
    """A process that is kept alive: this one."""

    running, since, restarts = True, NOON, 2
    pid = os.getpid()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        opened.listen()
        yield opened


def _server(ran: WatchedFederation, port: int) -> tuple[ServerWatch, Any]:
    kit = Kit(ran.state.parent, "nvflare", "server", Address("localhost", port))
    board = server_board(kit)
    return ServerWatch(kit, board), board


def test_a_server_reads_its_own_files(ran: WatchedFederation, listener: socket.socket) -> None:
    watch, board = _server(ran, listener.getsockname()[1])
    watch.look()
    assert (board.state.stage, board.state.ready) == ("starting", False)
    PresenceFile(ran.state.parent, lambda: dict.fromkeys(ran.names, time.time())).write(time.time())
    watch.tended(_Kept())  # type: ignore[arg-type]
    watch.look()
    state = board.state
    assert (state.stage, state.round, state.rounds) == ("finished", 4, 4)
    assert (state.ready, state.connected) == (True, 3)
    assert state.measured is not None
    assert state.measured.how == "secure"
    assert state.parts[0].restarts == 2
    entries = RunFolder.open(Path(str((read_live(ran.state) or {})["run"]))).rounds()
    assert state.history.value[-1] == entries[-1].metrics["accuracy"]
    assert state.promise is not None
    assert state.promise.spent == entries[-1].epsilon_spent


def test_a_job_whose_process_is_gone_is_not_said_to_compute(
    ran: WatchedFederation, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = {**(read_live(ran.state) or {}), "phase": "training", "stage": "local"}
    monkeypatch.setattr(
        "sumus.engines.watched_server.read_live", lambda folder: {**live, "at": time.time() - 60.0}
    )
    watch, board = _server(ran, listener.getsockname()[1])
    watch.tended(_Kept())  # type: ignore[arg-type]
    watch.look()
    assert board.state.stage == "paused"
    monkeypatch.setattr(
        "sumus.engines.watched_server.read_live", lambda folder: {**live, "at": time.time()}
    )
    watch.look()
    assert board.state.stage == "local"


@pytest.mark.parametrize("content", ["", "[1]", '{"at": "now"}', "{" + "x" * 100, None])
def test_a_file_that_is_damaged_says_nothing(content: str | None, tmp_path: Path) -> None:
    (tmp_path / "sumus").mkdir()
    if content is not None:
        (tmp_path / "sumus" / "connected.json").write_text(content)
        (tmp_path / LIVE).write_text(content.replace('{"at": "now"}', "null"))
    assert read_presence(tmp_path) is None
    assert read_live(tmp_path) is None


def test_silos_that_are_silent_or_of_a_dead_server_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "sumus").mkdir()
    heard = {"north": NOON, "south": NOON - 100.0}
    file = PresenceFile(tmp_path, lambda: heard)
    file.write(NOON)
    assert read_presence(tmp_path, now=NOON + 1.0) == {"north": NOON}
    heard["north"] = NOON + 10.0
    file.write(NOON + 10.0)
    assert read_presence(tmp_path, now=NOON + 11.0) == {"north": NOON}
    assert read_presence(tmp_path, now=NOON + 60.0) is None


def test_own_sockets_are_told_apart(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    assert listens(os.getpid(), port)
    assert not connects(os.getpid(), port)
    with socket.create_connection(("127.0.0.1", port)):
        assert connects(os.getpid(), port)
    assert not listens(os.getpid(), 1)


# -- a silo's own page


def test_a_silo_reads_its_own_books(ran: WatchedFederation, listener: socket.socket) -> None:
    name, port = ran.names[0], listener.getsockname()[1]
    kit = Kit(ran.state.parent, "nvflare", name, Address("localhost", port))
    board = silo_board(name)
    watch = SiloWatch(kit, ran.vault(name), board)
    watch.tended(vault=_Kept(), relay=_Kept())
    watch.look()
    state = board.state
    assert (state.stage, state.ready, state.unready) == ("connecting", False, "the server is away")
    ledger = Ledger.of_dataset("digits", state=ran.vault(name))
    assert (state.round, state.rounds, state.lost_rounds) == (4, 4, 0)
    assert state.books is not None
    assert state.books.spent == ledger.total("record").epsilon
    assert state.books.limit == Policy.load(ran.vault(name) / "policy.toml").max_epsilon == 9.0
    assert state.promise is not None
    spent = [entry.epsilon for entry in ledger.entries() if entry.purpose == "model"]
    assert state.history.epsilon == tuple(spent)
    assert state.promise.spent == spent[-1]
    (ran.vault(name) / "refusals.log").write_text(
        json.dumps({"time": "now", "reason": "this silo's policy\nmax_epsilon = 9.0"}) + "\n"
    )
    with socket.create_connection(("127.0.0.1", port)):
        watch.look()
    assert (board.state.stage, board.state.ready) == ("ready", True)
    assert board.state.said == "every round of this plan is answered"
    assert [each.reason for each in board.state.refusals] == ["max_epsilon = 9.0"]
    watch.tended(
        vault=SimpleNamespace(running=False, since=NOON, restarts=1, pid=None), relay=_Kept()
    )
    watch.look()
    assert (board.state.ready, board.state.unready) == (False, "vault down")


def test_a_running_total_is_the_ledgers_after_every_entry(ran: WatchedFederation) -> None:
    ledger = Ledger.of_dataset("digits", state=ran.vault(ran.names[0]))
    running, entries = RunningTotal(), ledger.entries()
    assert len(entries) > 4
    again = [_again(entry, number) for number, entry in enumerate(entries)]
    from sumus.books.spending import added, spendings

    for number, entry in enumerate([*entries, *again], start=1):
        running.add(entry)
        past = [*entries, *again][:number]
        for unit in ("record", "person", "silo"):
            assert running.total(unit) == added(spendings(past), unit)
    assert math.isfinite(running.total("record").epsilon)


def _again(entry: LedgerEntry, number: int) -> LedgerEntry:
    """The same round once more: repeated, drawn anew, or of another run."""
    from dataclasses import replace

    return (
        entry,
        replace(entry, round_id=f"{entry.round_id}/2", epsilon=entry.epsilon * 1.5),
        replace(entry, run="another", proved=False),
    )[number % 3]
