"""Patients with several visits, each in one or two of three clinics: a federation of real processes
over NVIDIA FLARE that protects persons.
"""

from __future__ import annotations

import json
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

SEED, CLINICS = 5, ("Aachen", "Basel", "Como")
HEADER = "clinic,patient,age,pressure,ill\n"


def visits() -> list[tuple[str, str]]:
    """(clinic, line) of every visit; every tenth patient is seen in a second clinic too."""
    rng, rows = np.random.default_rng(0), []
    for patient in range(300):
        places = [CLINICS[patient % 3]]
        if patient % 10 == 0:
            places.append(CLINICS[(patient + 1) % 3])
        for place in places:
            for _ in range(rng.integers(1, 5)):
                age, pressure = int(rng.integers(20, 90)), int(rng.integers(90, 180))
                ill = int(age + rng.normal(0, 10) > 55)
                rows.append((place, f"{place},p{patient},{age},{pressure},{ill}\n"))
    return rows


def plan_of(path: str) -> TrainingPlan:
    return TrainingPlan.from_table(
        {
            "privacy": {"unit": "person", "silos_per_person": 2, "epsilon": 2.0, "delta": 1e-4},
            "federation": {"rounds": 3},
            "evaluation": {"metrics": "secure"},
            "data": {
                "path": path,
                "silo_column": "clinic",
                "label_column": "ill",
                "person_column": "patient",
                "records_per_person": 3,
                "columns": ["age", "pressure"],
                "bounds": {"age": [0, 100], "pressure": [50, 200]},
                "categories": {"clinic": list(CLINICS), "ill": ["0", "1"]},
                "records_per_silo": [120, 120, 120],
            },
        }
    )


def test_persons_are_protected_across_machines_as_in_one_process(tmp_path: Path) -> None:
    rows, files = visits(), {}
    for clinic in CLINICS:
        file = tmp_path / f"{clinic}.csv"
        file.write_text(HEADER + "".join(line for place, line in rows if place == clinic))
        files[clinic] = str(file)
    (tmp_path / "visits.csv").write_text(HEADER + "".join(line for _, line in rows))
    agreement = agree_on(plan_of("visits.csv"))
    together = load(agreement.plan.replace("data", path=str(tmp_path / "visits.csv")))
    alone = simulated(agreement.design, prepare(agreement.plan, together), SEED)
    for _ in alone.rounds():
        pass
    policy = 'units = ["person"]\nmax_epsilon_per_run = 2.0\n'
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
        guarantee = run.guarantee
        assert guarantee is not None
        assert (guarantee.unit, guarantee.analysis) == ("person", "convex-pass")
        assert "one person with all its rows in up to 2 silos" in guarantee.neighbours
        assert run.rounds()[-1].metrics["accuracy"] > 0.5
        for name in CLINICS:
            ledger = Ledger.of_dataset(name, state=processes.state(name))
            entries = ledger.entries()
            assert [entry.unit for entry in entries] == ["person"] * 4  # three models, one count
            assert ledger.total("person").epsilon <= 4.0
            assert ledger.total("silo").epsilon == float("inf")
        # whose rows they are stays with the clinics
        server = processes.federation.kit("server")
        seen = b"".join(file.read_bytes() for file in server.rglob("*") if file.is_file())
        assert b"pressure" in seen  # the search finds what is public
        assert not any(f"p{patient},".encode() in seen for patient in range(100, 300))
        assert b'"p1' not in json.dumps(run.summary).encode()
    finally:
        processes.close()
