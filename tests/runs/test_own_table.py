"""A file of one's own just works: path, silo column, label column, nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sumus.cli import main
from sumus.data import write_patients


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SUMUS_STATE", str(tmp_path / "state"))
    write_patients(tmp_path / "patients.csv", records=3000)
    (tmp_path / "plan.toml").write_text(
        '[data]\npath = "patients.csv"\nsilo_column = "hospital"\nlabel_column = "readmitted"\n'
    )


@pytest.mark.deep
def test_a_csv_plan_with_nothing_else_trains_and_says_what_was_assumed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, said = main(["train", "plan.toml", "--json", "--no-report"]), capsys.readouterr()
    assert code == 0, said.err
    result = json.loads(said.out.splitlines()[-1])
    assert result["proved"]
    assert result["epsilon"] <= 1.0
    # of 24 runs 0.770 ± 0.006, so a false alarm has probability below 1e-12; a constant has 0.66
    assert result["accuracy"] > 0.72
    assert result["assumptions"], "what was taken as public must be said"
    assert {"loss", "delta", "analysis", "rounds", "seconds", "run"} <= set(result)
    assert main(["account", "plan.toml", "--json"]) == 0
    accounted = capsys.readouterr().out
    assert json.loads(accounted.splitlines()[-1])["epsilon"] == pytest.approx(result["epsilon"])


def test_a_wrong_column_is_one_line_that_says_which(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "plan.toml", "--set", "data.label_column=readmited"]) == 2
    error = capsys.readouterr().err
    assert "readmitted" in error
    assert "Traceback" not in error
    assert len([line for line in error.splitlines() if line.startswith("error")]) == 1
