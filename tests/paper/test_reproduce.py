"""Table 1 to the digit; an experiment that is measured once, resumed, drawn and written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from sumus.errors import GuaranteeError
from sumus.paper import Options, reproduce
from sumus.paper.experiments import settings
from sumus.paper.experiments.averaging import (
    PAPER_TABLE,
    AveragingRow,
    averaging_rows,
    averaging_table,
    train_and_average,
)
from sumus.paper.experiments.comparison import Experiment, Line
from sumus.paper.experiments.measure import Benches, measure
from sumus.paper.experiments.settings import EXPERIMENTS

_BASE = {
    "privacy.epsilon": 1.0,
    "privacy.delta": 1e-4,
    "data.name": "digits",
    "federation.silos": 5,
}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> str:
    """A digits experiment with one setting of each kind."""
    lines = (
        Line(
            name="convex-pass",
            label="convex pass",
            group="proved",
            changes={
                "training.algorithm": "convex-pass",
                "federation.local_steps": 100,
                "training.learning_rate": 0.35,
            },
        ),
        Line(
            name="paper-epoch",
            label="1 epoch",
            group="paper",
            changes={
                "training.algorithm": "dp-sgd",
                "training.sampling_rate": 0.25,
                "federation.local_epochs": 1.0,
            }
            | {
                "privacy.accountant": "renyi-mironov",
                "privacy.calibrate_to": "per-step",
                "aggregation.modulus_bits": 40,
            },
        ),
        Line(
            name="no-noise",
            label="convex pass, no privacy",
            group="no privacy",
            changes={
                "training.algorithm": "convex-pass",
                "federation.local_steps": 100,
                "training.learning_rate": 0.35,
            }
            | {"privacy.epsilon": None, "noise.noise_multiplier": 0.001},
        ),
        Line(
            name="alone",
            label="each silo alone",
            group="no privacy",
            alone=True,
            changes={
                "training.algorithm": "fedavg",
                "training.sampling_rate": 0.1,
                "federation.local_epochs": 1.0,
            },
        ),
    )
    made = Experiment(
        name="digits",
        title="digits",
        base=_BASE,
        rounds=(2,),
        fewer={"convex-pass": (1,)},
        lines=lines,
    )
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
        steps=50,
        parties=10,
        paper_multiplier=3.73,
        paper_epsilon=1.03,
        pld_multiplier=3.5,
        pld_epsilon=0.89,
        proved_epsilon=5.0,
    )
    found = train_and_average(row, seeds=2)
    assert found.averaged > found.alone + 0.05
    assert found.proved_epsilon == 5.0
    assert found.claimed_epsilon < 2.0


def test_measured_once_then_resumed(small: str, tmp_path: Path) -> None:
    options = Options(out=tmp_path, seeds=2)
    first = reproduce(small, options)
    names = {path.name for path in first.files}
    assert {
        "table.md",
        "summary.json",
        "digits-2-rounds.png",
        "digits-2-rounds.svg",
        "digits-1-rounds.png",
    } <= names
    body = json.loads((tmp_path / small / "summary.json").read_text())
    assert [each["seeds"] for each in body["settings"]] == [2] * 5
    gone = tmp_path / small / "measurements" / "convex-pass-2-rounds-seed-1.json"
    gone.unlink()
    with mock.patch("sumus.paper.experiments.reproduce.measure", wraps=measure) as measured:
        again = reproduce(small, options)
    assert measured.call_count == 1
    assert gone.is_file()
    assert [line.split("|")[3] for line in again.table.splitlines()] == [
        line.split("|")[3] for line in first.table.splitlines()
    ]


def test_a_setting_that_cannot_be_certified_costs_the_others_nothing(
    small: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = EXPERIMENTS[small]
    weak = replace(
        made.lines[0],
        name="weak",
        label="too little noise",
        changes={**made.lines[0].changes, "noise.noise_multiplier": 0.1},
    )
    loud = replace(
        weak,
        name="loud",
        changes={**made.lines[0].changes, "privacy.epsilon": None, "noise.noise_multiplier": 1e6},
    )
    monkeypatch.setitem(
        settings.EXPERIMENTS, small, replace(made, lines=(weak, loud, made.lines[0]), fewer={})
    )
    done = reproduce(small, Options(out=tmp_path, seeds=2))
    assert [line.partition(":")[0] for line in done.left_out] == ["weak-2-rounds", "loud-2-rounds"]
    assert "Lower noise.resolution_bits by" in done.left_out[1]
    assert "convex pass" in done.table
    assert "too little noise" not in done.table
    with pytest.raises(GuaranteeError, match="no setting of digits can be certified"):
        reproduce(small, Options(out=tmp_path, seeds=1, only=("weak",)))


def test_the_frontier_is_measured_point_by_point_and_drawn(small: str, tmp_path: Path) -> None:
    options = Options(
        out=tmp_path,
        seeds=1,
        rounds=(1, 2),
        epsilons=(1.0, 8.0),
        silos=(2, 5),
        only=("convex-pass", "no-noise"),
    )
    made = reproduce(small, options)
    assert {"digits-frontier.png", "digits-frontier.svg"} <= {path.name for path in made.files}
    stored = {
        path.name.removesuffix("-seed-0.json")
        for path in (tmp_path / small / "measurements").iterdir()
    }
    star = {"1-rounds", "2-rounds", "2-rounds-2-silos"}
    assert stored == {f"{name}-{point}" for name in options.only for point in star} | {
        "convex-pass-2-rounds-epsilon-8"
    }
    by_key = {each["first"]["setting"]: each["first"] for each in made.summary["settings"]}
    assert by_key["convex-pass-2-rounds-epsilon-8"]["epsilon"] == pytest.approx(8.0, rel=0.02)
    assert (
        by_key["convex-pass-2-rounds"]["noise_multiplier"]
        > 3.0 * by_key["convex-pass-2-rounds-epsilon-8"]["noise_multiplier"]
    )


def test_without_noise_no_epsilon_is_shown_and_the_model_is_better(small: str) -> None:
    noisy, plain = (
        next(each for each in EXPERIMENTS[small].settings() if each.name == name)
        for name in ("convex-pass", "no-noise")
    )
    benches = Benches()
    clean = measure(plain, 0, benches=benches)
    assert clean.epsilon is None
    assert clean.target_epsilon is None
    assert clean.accuracy > measure(noisy, 0, benches=benches).accuracy


def test_the_same_seed_gives_the_same_run_and_another_seed_another(small: str) -> None:
    setting, benches = EXPERIMENTS[small].settings()[0], Benches()
    one, two = measure(setting, 0, benches=benches), measure(setting, 0, benches=Benches())
    assert one.accuracies == two.accuracies
    assert measure(setting, 1, benches=benches).losses != one.losses


def test_the_trusted_sum_and_the_secure_sum_give_the_same_model(small: str) -> None:
    from dataclasses import replace

    setting = EXPERIMENTS[small].settings()[0]
    trusted = replace(setting, plan=setting.plan.replace("aggregation", protocol="trusted"))
    benches = Benches()
    assert (
        measure(setting, 3, benches=benches).losses == measure(trusted, 3, benches=benches).losses
    )


def test_the_claimed_epsilon_is_never_the_proved_one(small: str) -> None:
    setting = next(each for each in EXPERIMENTS[small].settings() if each.name == "paper-epoch")
    found = measure(setting, 0, benches=Benches())
    assert found.claimed_epsilon is not None
    assert found.claimed_epsilon <= 1.0
    assert found.epsilon is not None
    assert found.epsilon > found.claimed_epsilon
    assert found.analysis == "last-step"
