"""A description over NVIDIA FLARE with real processes: written by the command, agreed to by silos
with files of their own, on their ledgers, and the same numbers as in one process.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("nvflare")

from sumus.books import Ledger, RunFolder
from sumus.cli import main
from sumus.data import load
from sumus.describing import Description
from sumus.engines import LocalProcesses, train_across
from sumus.parties import agree_on
from sumus.plan import TrainingPlan
from sumus.training import prepare
from support.running import PATIENCE
from support.small_federation import simulated

pytestmark = [pytest.mark.network, pytest.mark.long, pytest.mark.timeout(600)]

SEED, CLINICS = 5, ("Aachen", "Basel", "Como")
HEADER = "clinic,age,cost,ward,ill\n"
PLAN = """
[privacy]
epsilon = 8.0
[data]
path = "visits.csv"
silo_column = "clinic"
label_column = "ill"
columns = ["age", "ward"]
bounds = {age = [0, 100]}
records_per_silo = [300, 300, 300]
[data.categories]
clinic = ["Aachen", "Basel", "Como"]
ward = ["burns", "general"]
ill = ["0", "1"]
"""


def test_a_description_across_machines_is_that_of_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rng, files = np.random.default_rng(0), {}
    lines = {
        clinic: [
            f"{clinic},{rng.integers(0, 100)},{rng.exponential(900):.0f},"
            f"{('burns', 'general', 'other', '')[rng.integers(4)]},{rng.integers(2)}\n"
            for _ in range(250)
        ]
        for clinic in CLINICS
    }
    for clinic in CLINICS:
        (tmp_path / f"{clinic}.csv").write_text(HEADER + "".join(lines[clinic]))
        files[clinic] = str(tmp_path / f"{clinic}.csv")
    (tmp_path / "plan.toml").write_text(PLAN)
    arguments = ["describe", "plan.toml", "--write", "describe.toml", "--numbers", "cost"]
    assert main(arguments) == 0, capsys.readouterr().err
    agreement = agree_on(TrainingPlan.load("describe.toml"))  # no records are here
    (tmp_path / "visits.csv").write_text(HEADER + "".join(map("".join, lines.values())))
    together = load(agreement.plan.replace("data", path=str(tmp_path / "visits.csv")))
    alone = simulated(agreement.design, prepare(agreement.plan, together), SEED)
    for _ in alone.rounds():
        pass
    policy = 'allowed_analyses = ["describe"]\nmax_epsilon_per_run = 2.0\n'
    processes = LocalProcesses(
        tmp_path / "federation",
        agreement,
        data=files,
        policies=dict.fromkeys(CLINICS, policy),
        environment={"SUMUS_SIMULATION_SEED": str(SEED)},
    )
    try:
        for name in CLINICS:
            (processes.vault(name) / "SIMULATION").touch()
        operator = processes.start_all(seconds=180.0)
        try:
            path = train_across(
                operator,
                agreement,
                out=tmp_path / "runs",
                watch=lambda news: None,
                patience=PATIENCE,
            )
        finally:
            operator.close()
        run = RunFolder.open(path)
        run.verify()
        checkpoint = run.read_checkpoint()
        assert checkpoint is not None
        assert np.array_equal(checkpoint[0]["iterate"], alone.server.parameters)
        assert run.guarantee is not None
        assert run.guarantee.analysis == "describe"
        for name in CLINICS:
            entries = Ledger.of_dataset(name, state=processes.state(name)).entries()
            assert [entry.analysis for entry in entries] == ["describe"]
    finally:
        processes.close()
    assert main(["describe", str(path)]) == 0
    found = Description.of_run(RunFolder.open(path))
    assert found.records.low <= 750 <= found.records.high
    assert found.columns["cost"].learned
    bounds = tomllib.loads((path / "bounds.toml").read_text())["data"]["bounds"]
    assert bounds["age"] == [0.0, 100.0]
    assert bounds["cost"][0] == 0.0
    assert 2000.0 <= bounds["cost"][1] <= 20_000.0
    assert (path / "description.html").is_file()
