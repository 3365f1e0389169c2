"""`sumus new`: what it writes, prints and refuses; questions at a terminal, and none elsewhere."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sumus.cli import main
from sumus.data import write_patients
from sumus.plan import TrainingPlan

TEN_MINUTES = 600.0  # for a machine that is busy; nothing is measured
ASKED = ["--silo", "hospital", "--label", "readmitted"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_patients(tmp_path / "patients.csv", records=400)
    return tmp_path


def test_a_plan_is_written_and_every_value_has_its_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["new", "patients.csv", *ASKED]) == 0
    out = capsys.readouterr().out
    text = Path("plan.toml").read_text()
    values = [line for line in text.splitlines() if " = " in line and not line.startswith("#")]
    for line in values:
        above = text.splitlines()[text.splitlines().index(line) - 1]
        assert "  # " in line or above.startswith("# "), line
    assert "sumus describe plan.toml --fill" in text
    assert "sumus describe plan.toml --fill" in out
    assert "sumus train plan.toml" in out
    assert "400 rows, 6 silos" in out
    assert "(said here only)" in out
    assert "proved (convex-pass)" in out
    for fact in ("names of the silos", "the classes of readmitted", "how many training records"):
        assert fact in text
        assert fact in out


def test_json_has_kinds_and_choices_and_no_counts(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--list", "ward", "--bounds", "age=0,110", "--leave-out", "sex", "--epsilon", "2"]
    assert main(["new", "patients.csv", *ASKED, *options, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["plan"] == "plan.toml"
    assert told["plan_hash"] == TrainingPlan.load("plan.toml").hash
    assert told["columns"]["age"] == {"kind": "number", "bounds": [0.0, 110.0], "categories": None}
    assert told["columns"]["ward"]["categories"][0] == "cardiology"
    assert told["left_out"]["sex"]["why"] == "as you said (--leave-out)"
    assert told["choices"]["privacy.epsilon"]["value"] == 2.0
    assert "stay_days" in told["unbounded"]
    assert told["unlisted"] == ["smoker"]
    assert {each["fact"] for each in told["read_off"]} >= {"names of the silos"}


def test_bounds_of_a_target_are_learned_by_a_plan_that_only_describes(
    monkeypatch: pytest.MonkeyPatch, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SUMUS_STATE", str(folder / "state"))
    # noise of the total: 15·√220 = 218 records; a tenth of these is more than six times as many
    write_patients(folder / "patients.csv", records=14_000)
    target = ["--silo", "hospital", "--label", "stay_days"]
    assert main(["new", "patients.csv", *target]) == 2
    assert "Give --bounds stay_days=LOW,HIGH" in capsys.readouterr().err
    page = (Path(__file__).parent.parent.parent / "docs" / "first-model.md").read_text()
    (recipe,) = re.findall(r"```toml\n(# learn\.toml.*?)```", page, re.S)
    Path("learn.toml").write_text(recipe)
    assert main(["describe", "learn.toml", "--no-report", "--json"]) == 0
    learned = json.loads(capsys.readouterr().out.splitlines()[-1])["bounds_file"]
    assert main(["new", "patients.csv", *target, "--schema", learned]) == 0
    assert set(TrainingPlan.load("plan.toml").data.bounds or {}) == {"stay_days"}


def test_the_table_is_found_from_the_plans_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "plans").mkdir()
    assert main(["new", "patients.csv", *ASKED, "--out", "plans/p.toml"]) == 0
    plan = TrainingPlan.load("plans/p.toml")
    assert plan.data.path == "../patients.csv"
    (folder / "far").mkdir()
    monkeypatch.chdir(folder / "far")
    assert main(["account", "../plans/p.toml"]) == 0, capsys.readouterr().err


def test_a_schema_is_used_and_a_description_is_one() -> None:
    Path("s.toml").write_text('[data.bounds]\nage = [0, 110]  # learned\n# "ward": no bounds\n')
    assert main(["new", "patients.csv", *ASKED, "--schema", "s.toml"]) == 0
    assert dict(TrainingPlan.load("plan.toml").data.bounds or {}) == {"age": (0.0, 110.0)}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["none.csv", *ASKED], "does not exist"),
        (["patients.csv", "--label", "readmitted"], "--silo must name the column .* Columns: hosp"),
        (["patients.csv", "--silo", "hospital"], "--label must name the column"),
        (["patients.csv", "--silo", "hopsital", "--label", "age"], "Did you mean 'hospital'"),
        (["patients.csv", "--silo", "hospital", "--label", "redmitted"], "'readmitted'"),
        (["patients.csv", *ASKED, "--person", "who"], "--person: .* has no column 'who'"),
        (["patients.csv", *ASKED, "--unit", "silo"], '--unit must be "record" or "person"'),
        (["patients.csv", *ASKED, "--unit", "person"], "Give --person COLUMN"),
        (["patients.csv", *ASKED, "--task", "guess"], "--task must be one of classification"),
        (["patients.csv", *ASKED, "--time", "age", "--task", "counts"], "is for survival"),
        (["patients.csv", "--silo", "hospital", "--time", "age"], "--event must name a column"),
        (
            ["patients.csv", "--silo", "hospital", "--time", "stay_days", "--event", "smoker"],
            "--intervals must say where time is cut",
        ),
        (["patients.csv", *ASKED, "--intervals", "x"], "must be numbers with commas"),
        (["patients.csv", *ASKED, "--bounds", "age"], "must look like COLUMN=VALUES"),
        (["patients.csv", *ASKED, "--bounds", "age=9,1"], "must be two numbers"),
        (["patients.csv", *ASKED, "--bounds", "aeg=0,1"], "Did you mean age"),
        (["patients.csv", *ASKED, "--categories", "ward=a,a"], "must not repeat a category"),
        (["patients.csv", *ASKED, "--bounds", "aeg=0,1"], "^error: bounds of aeg must name"),
        (["patients.csv", *ASKED, "--categories", "ward=a,a"], "go into a --schema file"),
        (["patients.csv", *ASKED, "--encoding", "utf8"], "Did you mean utf-8"),
        (["patients.csv", *ASKED, "--list", "wrad"], "Did you mean 'ward'"),
        (["patients.csv", *ASKED, "--leave-out", "aeg"], "Did you mean 'age'"),
        (["patients.csv", *ASKED, "--schema", "no.toml"], "must be a readable TOML file"),
        (["patients.csv", *ASKED, "--epsilon", "-1"], "privacy.epsilon must be"),
        (["patients.csv", *ASKED, "--delta", "0.5"], "delta"),
        (["patients.csv", *ASKED, "--out", "no/p.toml"], "is no folder"),
        (["patients.csv", *ASKED, "--out", "."], "is a folder. Give --out a file"),
    ],
)
def test_what_is_wrong_is_one_line_and_nothing_is_written(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", *arguments]) in (2, 3, 5)
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert re.search(words, err), err
    assert "got None" not in err
    assert not Path("plan.toml").exists()


def test_values_with_commas_are_not_taken_apart(capsys: pytest.CaptureFixture[str]) -> None:
    rows = "".join(f'{"AB"[i % 2]},"{["x, y", "z"][i % 2]}",{i % 9},{i % 2}\n' for i in range(80))
    Path("t.csv").write_text("s,w,n,l\n" + rows)
    options = ["t.csv", "--silo", "s", "--label", "l", "--categories"]
    assert main(["new", *options, "w=x, y,z"]) == 2
    assert "List them in a --schema file" in capsys.readouterr().err
    assert main(["new", *options, "w=z"]) == 0


def test_text_without_a_list_is_said_to_leave_no_raw_export(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["new", "patients.csv", *ASKED]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "cannot go into an export for scikit-learn" in said
    assert "--list COLUMN or --categories" in said


def test_a_plan_that_is_there_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    Path("plan.toml").write_text("mine")
    assert main(["new", "patients.csv", *ASKED]) == 5
    assert "plan.toml is there already. Give --force" in capsys.readouterr().err
    assert Path("plan.toml").read_text() == "mine"
    assert main(["new", "patients.csv", *ASKED, "--force"]) == 0
    assert "mine" not in Path("plan.toml").read_text().splitlines()


# -- questions


def started(arguments: list[str], **streams: int) -> subprocess.Popen[bytes]:
    environment = os.environ | {"COLUMNS": "100", "TERM": "dumb", "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "sumus", "new", "patients.csv", *arguments]
    return subprocess.Popen(command, env=environment, **streams)  # type: ignore[call-overload]


def until(screen: int, words: str, seen: bytearray) -> None:
    """Read a terminal until it shows some words."""
    deadline = time.monotonic() + TEN_MINUTES
    while words.encode() not in seen:
        assert time.monotonic() < deadline, seen.decode(errors="replace")
        if select.select([screen], [], [], 1.0)[0]:
            try:
                seen += os.read(screen, 65536)
            except OSError:  # the other end is closed
                break
    assert words.encode() in seen, seen.decode(errors="replace")
    del seen[: seen.index(words.encode()) + len(words)]


ANSWERS = [
    ("whose record it is? (name or number)", "hopsital"),
    ("Did you mean 'hospital'", ""),  # asked again: an empty answer names no column either
    ("whose record it is? (name or number)", "hospital"),
    ("to be learned? (name or number)", "5"),
    ("Task (classification | regression | counts) [regression]", ""),
    ("bounds of stay_days, which is learned: low,high", "60,0"),
    ("must be two numbers", None),
    ("bounds of stay_days, which is learned: low,high", "0,60"),
    ("bounds of columns of numbers (4) one by one?", "y"),
    ("age: low,high", "0 110"),
    ("blood_pressure: low,high", ""),
    ("creatinine: low,high", ""),
    ("earlier_visits: low,high", ""),
    ("values of columns of text (4) one by one?", "n"),
    ("sumus train plan.toml", None),
]


@pytest.mark.deep
def test_a_terminal_is_asked_what_options_left_open(folder: Path) -> None:
    ours, theirs = pty.openpty()
    process = started([], stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen = bytearray()
    for words, answer in ANSWERS:
        until(ours, words, seen)
        if answer is not None:
            os.write(ours, f"{answer}\n".encode())
    assert process.wait(TEN_MINUTES) == 0
    os.close(ours)
    plan = TrainingPlan.load("plan.toml")
    assert plan.training.task == "regression"
    assert plan.data.label_column == "stay_days"
    assert dict(plan.data.bounds or {}) == {"age": (0.0, 110.0), "stay_days": (0.0, 60.0)}


@pytest.mark.deep
def test_end_of_input_at_a_question_writes_nothing(folder: Path) -> None:
    ours, theirs = pty.openpty()
    process = started(["--silo", "hospital"], stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen = bytearray()
    until(ours, "to be learned?", seen)
    os.write(ours, b"\x04")
    until(ours, "stopped", seen)
    assert process.wait(TEN_MINUTES) == 130
    os.close(ours)
    assert not Path("plan.toml").exists()


@pytest.mark.deep
@pytest.mark.parametrize("terminal", ["neither", "input", "output"])
def test_without_a_terminal_on_both_sides_nothing_is_asked(folder: Path, terminal: str) -> None:
    ours, theirs = pty.openpty()
    os.write(ours, b"\x04")  # whoever asks is told that nobody answers, and ends with 130
    ends = {"neither": (), "input": ("stdin",), "output": ("stdout",)}[terminal]
    others = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = started([], **(others | dict.fromkeys(ends, theirs)))
    os.close(theirs)
    _, err = process.communicate(timeout=TEN_MINUTES)
    os.close(ours)
    assert process.returncode == 2
    assert b"--silo must name the column" in err
