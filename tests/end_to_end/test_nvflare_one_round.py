"""Normal equations over NVIDIA FLARE with real processes: one round, a model, and one release on
every ledger; the next plan begins with that model.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("nvflare")

from sumus import TrainingPlan
from sumus.books import Ledger, RunFolder
from sumus.data import load
from sumus.engines import LocalProcesses, Operator, train_across
from sumus.parties import Agreement, agree_on, approve
from sumus.runs import Start, with_start
from sumus.training import prepare
from support.running import PATIENCE
from support.small_federation import simulated

pytestmark = [pytest.mark.network, pytest.mark.long, pytest.mark.timeout(600)]

SEED = 12
PLAN = """
[privacy]
epsilon = 4.0
delta = 1e-4
[federation]
silos = 3
[training]
algorithm = "normal-equations"
model = "softmax"
[aggregation]
modulus_bits = 40
[data]
name = "digits"
[evaluation]
metrics = "none"
"""
LATER = """
[privacy]
epsilon = 2.0
delta = 1e-4
[federation]
silos = 3
rounds = 2
[training]
algorithm = "convex-pass"
model = "softmax"
learning_rate = 0.01
[data]
name = "digits"
[evaluation]
metrics = "none"
"""


@pytest.fixture
def agreement() -> Agreement:
    return agree_on(TrainingPlan.from_toml(PLAN))


@pytest.fixture
def running(agreement: Agreement, tmp_path: Path) -> Iterator[tuple[LocalProcesses, Operator]]:
    made = LocalProcesses(
        tmp_path / "federation",
        agreement,
        data="digits",
        policies=dict.fromkeys(
            [silo.name for silo in agreement.design.silos], "max_epsilon_per_run = 5.0\n"
        ),
        environment={"SUMUS_SIMULATION_SEED": str(SEED)},
    )
    for name in made.federation.roster.names:
        (made.vault(name) / "SIMULATION").touch()
    operator = made.start_all(seconds=120.0)
    yield made, operator
    operator.close()
    made.close()


def test_one_round_is_that_of_one_process_and_a_later_plan_begins_with_its_model(
    agreement: Agreement, running: tuple[LocalProcesses, Operator], tmp_path: Path
) -> None:
    processes, operator = running
    path = train_across(
        operator, agreement, out=tmp_path / "runs", watch=lambda news: None, patience=PATIENCE
    )
    alone = simulated(agreement.design, prepare(agreement.plan, load(agreement.plan)), SEED)
    for _ in alone.rounds():
        pass
    run = RunFolder.open(path)
    run.verify()
    assert len(run.rounds()) == 1
    checkpoint = run.read_checkpoint()
    assert checkpoint is not None
    assert np.array_equal(checkpoint[0]["iterate"], alone.server.parameters)
    assert np.linalg.norm(alone.server.parameters) > 0.1

    start = Start.read(path)
    later = agree_on(with_start(TrainingPlan.from_toml(LATER), start))
    for name in processes.federation.roster.names:
        (entry,) = Ledger.of_dataset("digits", state=processes.state(name)).entries()
        assert entry.plan_hash == agreement.plan.hash
        approve(processes.vault(name), [later.plan])
    second = RunFolder.open(
        train_across(
            operator,
            later,
            out=tmp_path / "runs",
            watch=lambda news: None,
            patience=PATIENCE,
            start=start,
        )
    )
    second.verify()
    moved = second.read_checkpoint()
    assert moved is not None
    # two short rounds leave the model near to where it began
    assert np.linalg.norm(moved[0]["iterate"] - alone.server.parameters) < np.linalg.norm(
        alone.server.parameters
    )
    for name in processes.federation.roster.names:
        ledger = Ledger.of_dataset("digits", state=processes.state(name))
        assert len(ledger.entries()) == 3
