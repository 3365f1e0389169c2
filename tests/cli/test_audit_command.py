"""`sumus audit` from the outside: last line of JSON, files, exit codes.

False alarms: 1e-8 for a run (its checks of silent directions; the bounds cannot exceed ε at this
    confidence), none for the samplers, whose keys are the same in every run; the
theorem is not refuted by 600,000 trials with probability 2e-20.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import json
import os
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from sumus.cli import main
from sumus.cli.audit import audit_app
from sumus.noise import Law, Skellam

PLAN = """
[privacy]
epsilon = 3.0
delta = 1e-4
[federation]
silos = 3
rounds = 2
local_steps = 40
[training]
learning_rate = 0.5
[aggregation]
protocol = "trusted"
[data]
name = "digits"
"""


@pytest.fixture(name="plan")
def _plan(tmp_path: Path) -> str:
    file = tmp_path / "plan.toml"
    file.write_text(PLAN, encoding="utf-8")
    return str(file)


@pytest.fixture
def same_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same keys of random bits in every run: no false alarm by chance."""
    numbers = itertools.count()
    monkeypatch.setattr(
        os, "urandom", lambda size: hashlib.shake_256(b"%d" % next(numbers)).digest(size)
    )


def _run(*arguments: str) -> tuple[int, dict[str, object]]:
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        code = main(["audit", *arguments, "--json"])
    return code, json.loads(shown.getvalue().splitlines()[-1])


@pytest.mark.deep
def test_theorem(tmp_path: Path) -> None:
    code, found = _run(
        "theorem",
        "--silos",
        "10",
        "--local-steps",
        "2",
        "--epsilon",
        "1",
        "--trials",
        "600000",
        "--code-trials",
        "10",
        "--workers",
        "1",
        "--plot",
        str(tmp_path),
    )
    assert code == 0
    assert found["claimed_epsilon"] == pytest.approx(1.0, abs=1e-3)
    assert found["lower_bound"] > 1.0  # type: ignore[operator]
    assert found["confidence"] == 0.999
    assert {each["analysis"] for each in found["proved"]} == {
        "last-step",
        "local",
        "split-noise",
        "convex-pass",
        "tangent-pass",
        "newton",
    }  # type: ignore[attr-defined]
    assert found["models"] == ["logistic", "least-squares"]
    assert (tmp_path / "roc.svg").exists()


@pytest.mark.deep
def test_theorem_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "audit",
        "theorem",
        "--silos",
        "3",
        "--model",
        "least-squares",
        "--trials",
        "10000",
        "--code-trials",
        "2",
        "--workers",
        "1",
    ]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    for text in (
        "per-step",
        "not proved",
        "least-squares",
        "threshold (A)",
        "forgetting (B)",
        "split-noise",
        "own code alone",
        "worst case",
    ):
        assert text in shown, text
    assert "rates differ" not in shown


@pytest.mark.deep
def test_run_writes_bounds_and_passes(plan: str, tmp_path: Path) -> None:
    options = (
        "--runs",
        "4",
        "--canaries",
        "16",
        "--confidence",
        "0.999999",
        "--no-final-model",
    )
    code, found = _run("run", plan, *options, "--plot", str(tmp_path / "plots"))
    assert code == 0
    assert found["passed"] is True
    assert found["lower_bound"] <= found["epsilon"] <= 3.0  # type: ignore[operator]
    assert (tmp_path / "plots" / "bounds.png").exists()


def test_run_exits_with_3_when_noise_is_missing(plan: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Law.sample
    monkeypatch.setattr(
        Skellam, "sample", lambda self, size, source: np.asarray(real(self, size, source) // 4)
    )
    code, found = _run("run", plan, "--runs", "4", "--canaries", "16", "--no-final-model")
    assert code == 3
    assert found["findings"]


@pytest.mark.usefixtures("same_keys")
def test_noise_with_and_without_a_plan(plan: str) -> None:
    for arguments in (("noise", plan), ("noise",)):
        code, found = _run(*arguments, "--draws", "100000")
        assert code == 0
        assert found["passed"] is True
        assert 0.0 < found["false_alarm_rate"] < 1e-6  # type: ignore[operator]


def test_noise_exits_with_3_when_a_sampler_is_wrong(
    plan: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Law.sample
    monkeypatch.setattr(Skellam, "sample", lambda self, size, source: real(self, size, source) // 2)
    code, found = _run("noise", plan, "--draws", "100000")
    assert code == 3
    assert found["passed"] is False


@pytest.mark.usefixtures("same_keys")
def test_tables_for_people(plan: str) -> None:
    result = CliRunner().invoke(audit_app, ["noise", plan, "--draws", "100000"])
    assert "declared law" in result.stdout
    # at the default confidence a correct pipeline may fail once in a hundred runs
    options = ["--runs", "2", "--canaries", "8", "--confidence", "0.999999", "--no-final-model"]
    result = CliRunner().invoke(audit_app, ["run", plan, *options])
    assert "nothing contradicts the account" in result.stdout


def test_membership_of_what_is_not_there_names_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["audit", "membership", str(tmp_path / "nothere")]) == 5
    assert "nothere is not a run folder" in capsys.readouterr().err
    assert main(["audit", "membership", str(tmp_path), "--set", "privacy.epsilon=2"]) == 2
    assert "--set cannot stand beside a run" in capsys.readouterr().err
