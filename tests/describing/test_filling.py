"""Learned bounds go into a plan's own file, and nothing else of it changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sumus.cli import main
from sumus.data import write_patients
from sumus.describing import Description, describing_plan, fill_bounds
from sumus.errors import StorageError
from sumus.plan import TrainingPlan
from sumus.runs import RunOptions, describe

HEAD = """\
# why we do this
[privacy]
epsilon = 8.0   # much
[data]
path = "patients.csv"
silo_column = "hospital"
label_column = "readmitted"
columns = ["age", "ward", "stay_days"]   # two numbers
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("filling")
    write_patients(folder / "patients.csv", records=1500)
    return folder


@pytest.fixture(scope="module")
def description(folder: Path) -> Description:
    (folder / "plan.toml").write_text(HEAD)
    plan = describing_plan(TrainingPlan.load(folder / "plan.toml"))
    return describe(plan, options=RunOptions(root=folder / "runs", ledger=False))


@pytest.mark.parametrize(
    ("table", "kept"),
    [
        ("", {}),
        ("\n[data.bounds]  # public\nage = [0, 120]\n\n[noise]\nresolution_bits = 16\n", {"age"}),
        ("\n[ data . bounds ]\n[training]\nlearning_rate = 0.5\n", {}),
        ("# [data.bounds]  # public\n# nothing is known", {}),
    ],
)
def test_comments_stay_and_only_bounds_are_added(
    table: str, kept: set[str], folder: Path, description: Description
) -> None:
    plan = folder / "own.toml"
    plan.write_text(HEAD + table)
    before = TrainingPlan.load(plan)
    learned = fill_bounds(plan, description)
    assert set(learned) == {"age", "stay_days"} - set(kept)
    text, after = plan.read_text(), TrainingPlan.load(plan)
    bounds = {**(before.data.bounds or {}), **learned}
    assert after.hash == before.replace("data", bounds=bounds).hash
    assert all(line in text for line in (HEAD + table).strip().splitlines())
    low, high = after.data.bounds["stay_days"]  # type: ignore[index]
    assert 0.0 <= low < 5.0 < high < 60.0
    assert fill_bounds(plan, description) == {}  # what is there stays
    assert plan.read_text() == text


def test_a_plan_that_cannot_be_continued_is_left_alone(
    folder: Path, description: Description
) -> None:
    plan = folder / "inline.toml"
    plan.write_text(text := HEAD + "bounds = {age = [0, 120]}\n")
    with pytest.raises(StorageError, match=r"left as it is.*bounds\.toml"):
        fill_bounds(plan, description)
    assert plan.read_text() == text


def test_bounds_of_a_void_run_are_not_written(folder: Path, description: Description) -> None:
    plan = folder / "void.toml"
    plan.write_text(HEAD)
    with pytest.raises(StorageError, match="not private"):
        fill_bounds(plan, replace(description, void="its noise is public"))
    assert plan.read_text() == HEAD


def test_the_command_fills_its_plan(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("SUMUS_STATE", str(folder / "state"))
    (folder / "p.toml").write_text(HEAD)
    assert main(["describe", "p.toml", "--fill", "--seed", "1"]) == 2
    assert "--fill cannot stand beside --seed" in capsys.readouterr().err
    assert main(["describe", "--fill"]) == 2
    assert "--fill needs a plan's file" in capsys.readouterr().err
    assert (folder / "p.toml").read_text() == HEAD
    assert main(["describe", "p.toml", "--fill", "--no-report"]) == 0
    assert "bounds written into the plan: age, stay_days" in capsys.readouterr().out
    assert set(TrainingPlan.load("p.toml").data.bounds or {}) == {"age", "stay_days"}
