"""The same plan over a real SuperLink and real SuperNodes; in `make test-network`, because every
exchange starts processes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")

from sumus.books import RunFolder
from sumus.cli import main
from sumus.data import load
from sumus.engines import FederationFolder
from sumus.engines.processes import PartyProcesses, free_port
from sumus.parties import vault_folder
from sumus.training import prepare
from support.notes import IN_TEST_NETWORK, LOOPBACK, Notes, agreed
from support.small_federation import simulated

pytestmark = IN_TEST_NETWORK


def sumus(*words: object) -> list[str]:
    return [sys.executable, "-m", "sumus", *map(str, words)]


def test_the_model_is_bit_identical_over_superlink_and_supernodes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every party is started by its own command, as an administrator would."""
    agreement, notes = agreed(federation__silos=3, federation__rounds=2), Notes(tmp_path / "notes")
    plan, policy, root = tmp_path / "plan.toml", tmp_path / "policy.toml", tmp_path / "federation"
    plan.write_text(agreement.plan.to_toml())
    policy.write_text("")
    names = ",".join(silo.name for silo in agreement.design.silos)
    place = f"localhost:{free_port()}"
    words = ["--engine", "flower", "--silos", names, "--server", place, "--plan", str(plan)]
    assert main(["federation", "init", str(root), *words]) == 0
    federation = FederationFolder.open(root)
    environment = {"SUMUS_SIMULATION_SEED": "5", **notes.environment}
    with PartyProcesses(tmp_path, environment) as processes:
        processes._run("server", sumus("federation", "start", root))
        for name in federation.roster.names:
            state = tmp_path / f"state-{name}"  # of an organisation of its own
            vault = vault_folder(federation.roster, name, state=state)
            vault.mkdir(parents=True, mode=0o700)
            (vault / "SIMULATION").touch()
            own = ("--data", "digits", "--policy", policy, "--plan", plan)
            own += ("--fingerprint", federation.roster.digest().hex())
            command = sumus("join", federation.kit(name), *own)
            processes._run(name, ["env", f"SUMUS_STATE={state}", *command])
        kit = ("--kit", federation.kit("admin"))
        done = subprocess.run(
            sumus("federation", "train", plan, *kit, "--out", tmp_path / "runs", "--json"),
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **environment},
        )
        assert done.returncode == 0, done.stderr
        capsys.readouterr()
        assert main(["federation", "status", "--kit", str(federation.kit("admin")), "--json"]) == 0
        status = json.loads(capsys.readouterr().out)
    assert set(status["silos"]) == set(federation.roster.names)
    assert [job["status"] for job in status["jobs"]] == ["finished:completed"]
    for name in federation.roster.names:
        assert "connected to the server" in processes.log(name).read_text()
    run = RunFolder.open(json.loads(done.stdout.splitlines()[-1])["run"])
    run.verify()
    assert run.void is not None
    alone = simulated(agreement.design, prepare(agreement.plan, load(agreement.plan)), 5)
    list(alone.rounds())
    checkpoint = run.read_checkpoint()
    assert checkpoint is not None
    assert np.array_equal(checkpoint[0]["iterate"], alone.server.parameters)
    assert notes.called, "nobody took notes"
    assert notes.called <= LOOPBACK  # nothing phones home
