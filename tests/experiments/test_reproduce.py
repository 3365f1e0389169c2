"""Table 1 to the digit; an experiment that is measured once, resumed, drawn and written."""

from __future__ import annotations

import json
from pathlib import Path
from unittest import mock

import pytest

from sumus.experiments import settings
from sumus.experiments.averaging import PAPER_TABLE, AveragingRow, averaging_rows, averaging_table, train_and_average
from sumus.experiments.measure import Benches, measure
from sumus.experiments.reproduce import Options, reproduce
from sumus.experiments.settings import Experiment, _Line, settings_of

_BASE = {"privacy.epsilon": 1.0, "privacy.delta": 1e-4, "data.name": "digits", "federation.silos": 5}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> str:
    """A digits experiment with one setting of each kind."""
    lines = (
        _Line(
            name="convex-pass",
            label="convex pass",
            group="proved",
            changes={"training.algorithm": "convex-pass", "federation.local_steps": 100, "training.learning_rate": 0.35},
        ),
        _Line(
            name="paper-epoch",
            label="1 epoch",
            group="paper",
            changes={"training.algorithm": "dp-sgd", "training.sampling_rate": 0.25, "federation.local_epochs": 1.0}
            | {"privacy.accountant": "renyi-mironov", "privacy.calibrate_to": "per-step", "aggregation.modulus_bits": 40},
        ),
        _Line(
            name="alone",
            label="each silo alone",
            group="no privacy",
            alone=True,
            changes={"training.algorithm": "fedavg", "training.sampling_rate": 0.1, "federation.local_epochs": 1.0},
        ),
    )
    made = Experiment(title="digits", base=_BASE, rounds=(2,), fewer={"convex-pass": (1,)}, lines=lines)
    monkeypatch.setitem(settings.EXPERIMENTS, "digits", made)
    return "digits"


def test_table_1_of_the_paper_to_the_digit() -> None:
    rows = averaging_rows()
    assert {(row.steps, row.parties) for row in rows} == set(PAPER_TABLE)
    for row in rows:
        sigma, epsilon = PAPER_TABLE[row.steps, row.parties]
        assert f"{row.paper_multiplier:.2f}" == f"{sigma:.2f}"
        assert f"{row.paper_epsilon:.2f}" == f"{epsilon:.2f}"
    assert "NO" not in averaging_table(rows)
    assert all(4.99 < row.proved_epsilon <= 5.0 for row in rows if row.steps > 1)


def test_averaging_real_models_is_better_than_one_model() -> None:
    row = AveragingRow(
        steps=50, parties=10, paper_multiplier=3.73, paper_epsilon=1.03, pld_multiplier=3.5, pld_epsilon=0.89, proved_epsilon=5.0
    )
    found = train_and_average(row, seeds=2)
    assert found.averaged > found.alone + 0.05
    assert found.proved_epsilon == 5.0
    assert found.claimed_epsilon < 2.0


def test_measured_once_then_resumed(small: str, tmp_path: Path) -> None:
    options = Options(out=tmp_path, seeds=2)
    first = reproduce(small, options)
    names = {path.name for path in first.files}
    assert {"table.md", "summary.json", "digits-2-rounds.png", "digits-2-rounds.svg", "digits-1-rounds.png"} <= names
    body = json.loads((tmp_path / small / "summary.json").read_text())
    assert [each["seeds"] for each in body["settings"]] == [2, 2, 2, 2]
    gone = tmp_path / small / "measurements" / "convex-pass-2-rounds-seed-1.json"
    gone.unlink()
    with mock.patch("sumus.experiments.reproduce.measure", wraps=measure) as measured:
        again = reproduce(small, options)
    assert measured.call_count == 1
    assert gone.is_file()
    assert [line.split("|")[3] for line in again.table.splitlines()] == [line.split("|")[3] for line in first.table.splitlines()]


def test_the_same_seed_gives_the_same_run_and_another_seed_another(small: str) -> None:
    setting, benches = settings_of(small)[0], Benches()
    one, two = measure(setting, 0, benches=benches), measure(setting, 0, benches=Benches())
    assert one.accuracies == two.accuracies
    assert measure(setting, 1, benches=benches).losses != one.losses


def test_the_trusted_sum_and_the_secure_sum_give_the_same_model(small: str) -> None:
    from dataclasses import replace

    setting = settings_of(small)[0]
    trusted = replace(setting, plan=setting.plan.replace("aggregation", protocol="trusted"))
    benches = Benches()
    assert measure(setting, 3, benches=benches).losses == measure(trusted, 3, benches=benches).losses


def test_the_claimed_epsilon_is_never_the_proved_one(small: str) -> None:
    setting = next(each for each in settings_of(small) if each.name == "paper-epoch")
    found = measure(setting, 0, benches=Benches())
    assert found.claimed_epsilon is not None
    assert found.claimed_epsilon <= 1.0
    assert found.epsilon is not None
    assert found.epsilon > found.claimed_epsilon
    assert found.analysis == "local"
