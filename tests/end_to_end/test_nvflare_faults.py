"""Real kills in a federation of real processes, with their recovery times; all of it in `make test-network`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from sumus.engines.agreement import Agreement, agree_on
from sumus.engines.local import LocalProcesses
from sumus.engines.nvflare.jobs import Operator
from sumus.engines.nvflare.training import train_across
from sumus.engines.site import approve
from sumus.ledger import Ledger
from sumus.plan import TrainingPlan
from sumus.record import RunFolder

pytest.importorskip("nvflare")
pytestmark = [
    pytest.mark.network,
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.environ.get("SUMUS_TEST_NETWORK") != "all", reason="long; runs in make test-network"),
]

PATIENCE = {"set_up_seconds": 120.0, "update_seconds": 30.0, "stage_seconds": 30.0}
PLAN = """
[privacy]
epsilon = 2.0
delta = 1e-4
[federation]
silos = 4
rounds = 24
local_steps = 20
dropouts = 1
[training]
learning_rate = 1.0
[data]
name = "digits"
[evaluation]
metrics = "none"
"""


class Running:
    """A federation that can be hurt."""

    def __init__(self, root: Path) -> None:
        self._seed = 0
        self.processes = LocalProcesses(root, self.agreed(), data="digits")
        self.names = self.processes.federation.roster.names
        self.operator: Operator = self.processes.start_all(seconds=180.0)

    def agreed(self) -> Agreement:
        """A plan that was never run before."""
        self._seed += 1
        return agree_on(TrainingPlan.from_toml(PLAN).with_overrides({"training.init_seed": self._seed}))

    def job_process(self, party: str) -> Any:
        """The party's process of the running job."""
        wanted = "runner_process" if party == "server" else "worker_process"
        return next(each for each in self.processes.processes[party].descendants() if wanted in " ".join(each.cmdline()))

    def train(self, tmp_path: Path, hurt: Callable[[], None], *, after: int = 2, rounds_per_job: int = 50) -> tuple[RunFolder, float]:
        """Train a fresh plan, hurt the federation once after some rounds; the run, and the seconds until the next finished round."""
        agreement = self.agreed()
        for name in self.names:
            approve(self.processes.federation.state(name), [agreement.plan])
        moments: list[float] = []

        def watch(news: Mapping[str, Any]) -> None:
            reached = max([0, *(record["round"] for record in news["rounds"])])
            if len(moments) == 1 and reached:
                moments.append(time.monotonic())
            if not moments and reached >= after:
                hurt()
                moments.append(time.monotonic())

        path = train_across(self.operator, agreement, out=tmp_path, watch=watch, patience=PATIENCE, rounds_per_job=rounds_per_job)
        run = RunFolder.open(path)
        run.verify()
        for name in self.names:  # whatever happened: no round id and no round number was ever answered twice
            entries = Ledger.of_dataset("digits", state=self.processes.federation.state(name)).entries()
            mine = [(entry.round, entry.round_id) for entry in entries if entry.plan_hash == agreement.plan.hash]
            assert len({number for number, _ in mine}) == len({identifier for _, identifier in mine}) == len(mine)
            assert len(mine) <= agreement.plan.federation.rounds
        assert run.summary is not None
        assert all(len(record.survivors) >= agreement.terms.minimum_survivors for record in run.rounds())
        return run, moments[1] - moments[0] if len(moments) > 1 else float("nan")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    made = Running(tmp_path_factory.mktemp("faults") / "federation")
    yield made
    made.operator.close()
    made.processes.close()


def report(capsys: pytest.CaptureFixture[str], what: str, run: RunFolder, seconds: float) -> None:
    summary = run.summary or {}
    with capsys.disabled():
        sys.stdout.write(f"\n| {what} | {summary['rounds']} rounds, {summary['lost_rounds']} lost | {seconds:.1f} s |\n")


def test_a_silos_job_process_is_killed(running: Running, tmp_path: Path, capsys) -> None:
    run, seconds = running.train(tmp_path, lambda: running.job_process(running.names[0]).kill())
    assert (run.summary or {})["lost_rounds"] == 0
    assert run.rounds()[-1].survivors == running.names
    report(capsys, "a silo's job process killed", run, seconds)


def test_a_silo_hangs(running: Running, tmp_path: Path, capsys) -> None:
    stopped: list[Any] = []

    def hurt() -> None:
        stopped.append(running.job_process(running.names[1]))
        stopped[0].suspend()

    try:
        run, seconds = running.train(tmp_path, hurt)
    finally:
        for process in stopped:
            if process.is_running():
                process.kill()
    assert any(record.dropped == (running.names[1],) for record in run.rounds())
    report(capsys, "a silo hangs", run, seconds)


def test_a_whole_silo_is_killed_and_comes_back_in_a_later_job(running: Running, tmp_path: Path, capsys) -> None:
    victim = running.names[2]

    def hurt() -> None:
        running.processes.kill(victim)
        running.processes.start(victim)

    run, seconds = running.train(tmp_path, hurt, rounds_per_job=10)
    assert any(victim in record.dropped for record in run.rounds())
    assert run.rounds()[-1].survivors == running.names
    report(capsys, "a whole silo killed and restarted", run, seconds)


def test_the_servers_job_process_is_killed(running: Running, tmp_path: Path, capsys) -> None:
    run, seconds = running.train(tmp_path, lambda: running.job_process("server").kill())
    assert any(event == "resumed" for event, _ in run.events)
    report(capsys, "the server's job process killed", run, seconds)


def test_the_whole_server_is_killed_and_started_again(running: Running, tmp_path: Path, capsys) -> None:
    def hurt() -> None:
        running.processes.kill("server")
        running.processes.start("server")

    run, seconds = running.train(tmp_path, hurt)
    assert any(event == "resumed" for event, _ in run.events)
    report(capsys, "the whole server killed and restarted", run, seconds)
