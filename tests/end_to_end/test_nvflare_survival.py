"""Three dialysis centres learn who dies first: a federation of real processes over NVIDIA FLARE, with
times and events read at home and measures through the secure sum.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("nvflare")

from sumus.books import Ledger, RunFolder
from sumus.data import load
from sumus.engines import LocalProcesses, train_across
from sumus.parties import agree_on
from sumus.plan import TrainingPlan
from sumus.training import prepare
from support.running import PATIENCE
from support.small_federation import simulated

pytestmark = [pytest.mark.network, pytest.mark.long, pytest.mark.timeout(600)]

SEED, CENTRES = 6, ("Belem", "Curitiba", "Recife")
HEADER = "centre,age,diabetes,months,died\n"


def people() -> list[tuple[str, str]]:
    """(centre, line) of everybody: the older die earlier, and some are lost."""
    draw, rows = np.random.default_rng(1), []
    for person in range(900):
        centre, age = CENTRES[person % 3], int(draw.integers(20, 90))
        diabetes = int(draw.random() < 0.3)
        died = draw.exponential(40.0 * np.exp(-0.03 * (age - 55) - 0.5 * diabetes))
        lost = draw.uniform(2, 48)
        word = "yes" if died <= lost else "no"
        rows.append((centre, f"{centre},{age},{diabetes},{min(died, lost):.2f},{word}\n"))
    return rows


def plan_of(path: str) -> TrainingPlan:
    return TrainingPlan.from_table(
        {
            "privacy": {"epsilon": 4.0, "delta": 1e-4},
            "federation": {"rounds": 3},
            "training": {"task": "survival", "learning_rate": 2.0},
            "evaluation": {"metrics": "secure"},
            "data": {
                "path": path,
                "silo_column": "centre",
                "time_column": "months",
                "event_column": "died",
                "intervals": [6, 12, 24],
                "columns": ["age", "diabetes"],
                "bounds": {"age": [18, 99]},
                "categories": {"centre": list(CENTRES), "diabetes": ["0", "1"]},
                "records_per_silo": [300, 300, 300],
            },
        }
    )


def test_survival_is_learned_across_machines_as_in_one_process(tmp_path: Path) -> None:
    rows, files = people(), {}
    for centre in CENTRES:
        file = tmp_path / f"{centre}.csv"
        file.write_text(HEADER + "".join(line for place, line in rows if place == centre))
        files[centre] = str(file)
    (tmp_path / "all.csv").write_text(HEADER + "".join(line for _, line in rows))
    agreement = agree_on(plan_of("all.csv"))
    together = load(agreement.plan.replace("data", path=str(tmp_path / "all.csv")))
    alone = simulated(agreement.design, prepare(agreement.plan, together), SEED)
    for _ in alone.rounds():
        pass
    processes = LocalProcesses(
        tmp_path / "federation",
        agreement,
        data=files,
        policies=dict.fromkeys(CENTRES, "max_epsilon_per_run = 4.0\n"),
        environment={"SUMUS_SIMULATION_SEED": str(SEED)},
    )
    try:
        for name in CENTRES:
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
        assert run.guarantee.analysis == "convex-pass"
        last = run.rounds()[-1]
        assert 0.0 <= last.metrics["c_index"] <= 1.0
        assert 0.0 < last.metrics_plus_minus["c_index"] <= 0.5
        curve = last.metrics_tables["kaplan_meier"]
        assert tuple(curve["time"]) == (0.0, 6.0, 12.0, 24.0)
        assert all(0.0 <= value <= 1.0 for value in curve["survival"])
        for name in CENTRES:
            ledger = Ledger.of_dataset(name, state=processes.state(name))
            assert len(ledger.entries()) == 4  # three models, one measurement
    finally:
        processes.close()
