"""A file of one's own just works: path, silo column, label column, nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sumus.data import write_patients


def sumus(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"SUMUS_STATE": str(folder / "state")}
    return subprocess.run(
        [sys.executable, "-m", "sumus", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("own")
    write_patients(path / "patients.csv", records=3000)
    (path / "plan.toml").write_text(
        '[data]\npath = "patients.csv"\nsilo_column = "hospital"\nlabel_column = "readmitted"\n'
    )
    return path


@pytest.mark.deep
def test_a_csv_plan_with_nothing_else_trains_and_says_what_was_assumed(folder: Path) -> None:
    done = sumus("train", "plan.toml", "--json", "--no-report", folder=folder)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["proved"]
    assert result["epsilon"] <= 1.0
    # of 24 runs 0.770 ± 0.006, so a false alarm has probability below 1e-12; a constant has 0.66
    assert result["accuracy"] > 0.72
    assert result["assumptions"], "what was taken as public must be said"
    assert {"loss", "delta", "analysis", "rounds", "seconds", "run"} <= set(result)
    accounted = sumus("account", "plan.toml", "--json", folder=folder)
    assert json.loads(accounted.stdout.splitlines()[-1])["epsilon"] == pytest.approx(
        result["epsilon"]
    )


def test_a_wrong_column_is_one_line_that_says_which(folder: Path) -> None:
    done = sumus("train", "plan.toml", "--set", "data.label_column=readmited", folder=folder)
    assert done.returncode == 2
    assert "readmitted" in done.stderr
    assert "Traceback" not in done.stderr
    assert len([line for line in done.stderr.splitlines() if line.startswith("error")]) == 1
