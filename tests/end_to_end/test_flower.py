"""The same plan over a real SuperLink and real SuperNodes; in `make test-network`, because every exchange starts processes."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from sumus.data import load
from sumus.engines.agreement import agree_on
from sumus.plan import TrainingPlan
from sumus.record import RunFolder
from sumus.training.federation import Federation
from sumus.training.workbench import prepare

pytest.importorskip("flwr")
pytestmark = [
    pytest.mark.network,
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.environ.get("SUMUS_TEST_NETWORK") != "all", reason="long; runs in make test-network"),
]

PATIENCE = {"set-up": 240.0, "update": 120.0, "stage": 120.0}
PLAN = """
[privacy]
epsilon = 2.0
delta = 1e-4
[federation]
silos = 3
rounds = 2
local_steps = 20
dropouts = 1
[training]
learning_rate = 1.0
[data]
name = "digits"
[evaluation]
metrics = "none"
"""


def test_the_model_is_bit_identical_over_superlink_and_supernodes(tmp_path: Path) -> None:
    from sumus.engines.flower.local import FlowerProcesses

    agreement = agree_on(TrainingPlan.from_toml(PLAN))
    with FlowerProcesses(tmp_path / "federation", agreement, data="digits", environment={"SUMUS_SIMULATION_SEED": "5"}) as processes:
        for name in processes.roster.names:
            (processes.state(name) / "SIMULATION").touch()
        processes.start_all()
        outcome = processes.train(patience=PATIENCE, seconds=800.0)
    assert outcome["error"] is None
    run = RunFolder.open(outcome["run"])
    run.verify()
    assert run.void is not None
    alone = Federation(agreement.design, prepare(agreement.plan, load(agreement.plan)), None, seed=5)
    list(alone.rounds())
    checkpoint = run.read_checkpoint()
    assert checkpoint is not None
    assert np.array_equal(checkpoint[0]["iterate"], alone.server.parameters)
