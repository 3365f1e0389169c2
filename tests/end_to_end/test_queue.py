"""A queue of plans with real processes over NVIDIA FLARE: further plans are approved while the silos
run, the operator is killed in the middle, and what silos refuse is set aside.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare")

from sumus.books import Ledger, RunFolder
from sumus.cli import main
from sumus.engines import LocalProcesses, PlanQueue
from sumus.parties import agree_on, audit_vault
from sumus.plan import TrainingPlan
from support.notes import IN_TEST_NETWORK
from support.vault_federation import small_plan

pytestmark = IN_TEST_NETWORK


class Queueing:
    """Server and silos as processes, and an operator's queue beside them."""

    def __init__(self, root: Path, first: TrainingPlan) -> None:
        self.root = root
        self.processes = LocalProcesses(root / "federation", agree_on(first), data="digits")
        self.names = self.processes.federation.roster.names
        self.processes.start_all(seconds=180.0).close()
        self.kit = self.processes.federation.kit("admin")
        self.queue = PlanQueue(self.kit / "queue")

    def add(self, *plans: TrainingPlan, words: tuple[str, ...] = ()) -> list[Path]:
        """As the operator types it; returns the files for the silos."""
        files = []
        for number, plan in enumerate(plans):
            files.append(self.root / f"{plan.hash[:8]}-{number}.toml")
            files[-1].write_text(plan.to_toml())
        command = ["federation", "queue", "add", *map(str, files), "--kit", str(self.kit), *words]
        assert main(command) == 0
        return [self.queue.file_of(each) for each in self.queue.entries() if each.text]

    def approve(self, *files: Path) -> None:
        """As the people of every silo type it, while it runs."""
        for name in self.names:
            command = ["silo", "approve", str(self.processes.vault(name)), *map(str, files)]
            assert main(command) == 0

    def run(self) -> subprocess.Popen[bytes]:
        """`sumus federation queue run`, as a process."""
        words = ("federation", "queue", "run", "--kit", str(self.kit), "--rounds-per-job", "10")
        with (self.root / "queue.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "sumus", *words, "--out", str(self.root / "runs"), "--json"],
                stdout=log,
                stderr=log,
            )

    def rounds(self, name: str, plan_hash: str) -> list[int]:
        ledger = Ledger.of_dataset("digits", state=self.processes.state(name))
        return [each.round for each in ledger.entries() if each.plan_hash == plan_hash]

    def close(self) -> None:
        self.processes.close()


@pytest.fixture
def queueing(tmp_path: Path) -> Iterator[Queueing]:
    made = Queueing(tmp_path, small_plan(0))
    yield made
    made.close()


def wait_for(what: Any, seconds: float = 400.0) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.2)


def test_a_queue_survives_the_kill_of_its_operator_and_sets_aside_what_is_refused(
    queueing: Queueing,
) -> None:
    long, refused, last = (
        small_plan(1, federation__rounds=30),
        small_plan(2),
        small_plan(3),
    )
    queueing.add(long, refused)
    files = queueing.add(last, words=("--start-from", "1"))
    queueing.approve(files[0], files[2])
    running = queueing.run()
    wait_for(lambda: queueing.queue.entry(1).done >= 3)
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    assert queueing.queue.entry(1).state == "running"
    assert not queueing.queue.is_run
    assert queueing.run().wait(timeout=600.0) == 6
    facts = json.loads((queueing.root / "queue.log").read_text().splitlines()[-2])
    ended = {each["number"]: each for each in facts["plans"]}
    assert {number: each["state"] for number, each in ended.items()} == {
        1: "finished",
        3: "finished",
        2: "set aside",
    }
    assert "has approved" in ended[2]["why"]
    first, third = (RunFolder.open(Path(ended[number]["run"])) for number in (1, 3))
    assert third.start is not None
    assert first.summary is not None
    assert third.start.model == first.summary["model_hash"]
    for name in queueing.names:
        assert queueing.rounds(name, first.plan_hash) == list(range(1, 31))
        assert queueing.rounds(name, third.plan_hash) == [1, 2]
        assert queueing.rounds(name, refused.hash) == []
        assert not audit_vault(queueing.processes.vault(name)).findings
    for run in (first, third):
        roster = str(queueing.processes.federation.folder / "roster.toml")
        assert main(["audit", "evidence", str(run.path), "--roster", roster]) == 0
