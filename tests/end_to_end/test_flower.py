"""The same plan over a real SuperLink and real SuperNodes; in `make test-network`, because every
exchange starts processes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")

from sumus.books import RunFolder
from sumus.data import load
from sumus.engines.flower.on_this_machine import FlowerProcesses
from sumus.parties import Federation
from sumus.training import prepare
from support.notes import IN_TEST_NETWORK, LOOPBACK, Notes, agreed

pytestmark = IN_TEST_NETWORK
PATIENCE = {"set-up": 240.0, "update": 120.0, "stage": 120.0}


def test_the_model_is_bit_identical_over_superlink_and_supernodes(tmp_path: Path) -> None:
    agreement, notes = agreed(federation__silos=3, federation__rounds=2), Notes(tmp_path / "notes")
    environment = {"SUMUS_SIMULATION_SEED": "5", **notes.environment}
    with FlowerProcesses(
        tmp_path / "federation", agreement, data="digits", environment=environment
    ) as processes:
        for name in processes.roster.names:
            (processes.state(name) / "SIMULATION").touch()
        processes.start_all()
        outcome = processes.train(patience=PATIENCE, seconds=800.0)
    assert outcome["error"] is None
    run = RunFolder.open(outcome["run"])
    run.verify()
    assert run.void is not None
    alone = Federation(
        agreement.design, prepare(agreement.plan, load(agreement.plan)), None, seed=5
    )
    list(alone.rounds())
    checkpoint = run.read_checkpoint()
    assert checkpoint is not None
    assert np.array_equal(checkpoint[0]["iterate"], alone.server.parameters)
    assert notes.called, "nobody took notes"
    assert notes.called <= LOOPBACK  # nothing phones home
