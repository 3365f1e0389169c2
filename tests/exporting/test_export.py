"""Runs are exported with their cards: what is written, said, and refused."""

from __future__ import annotations

import csv
import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import sumus  # noqa: E402
from sumus.cli import main  # noqa: E402
from sumus.data import ColumnRule, Encoding  # noqa: E402
from sumus.exporting import FORMATS, export_run  # noqa: E402
from sumus.exporting.card import _plain  # noqa: E402
from sumus.exporting.export import _behind_encoding  # noqa: E402
from sumus.predicting import Model  # noqa: E402
from sumus.runs import RunOptions, Simulation  # noqa: E402

ENDINGS = {
    "safetensors": "safetensors",
    "onnx": "onnx",
    "sklearn": "joblib",
    "torch": "pt2",
    "card": "md",
}


def _plan(path: Path, **sections) -> Path:
    tables = {
        "privacy": {"epsilon": 3.0, "delta": 1e-3},
        "federation": {"rounds": 1, "local_steps": 2},
        "training": {"model": "logistic"},
        "data": {
            "path": str(path / "visits.csv"),
            "silo_column": "clinic",
            "label_column": "ill",
            "columns": ["age", "ward"],
            "bounds": {"age": [0, 100]},
            "categories": {"ward": ["eyes", "heart"], "ill": ["no", "yes"]},
        },
    }
    return sumus.TrainingPlan.from_table({**tables, **sections})


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A table, a run with a guarantee, and one that is void."""
    path = tmp_path_factory.mktemp("made")
    rng = np.random.default_rng(3)
    with (path / "visits.csv").open("w", newline="") as file:
        write = csv.writer(file)
        write.writerow(["clinic", "age", "ward", "ill"])
        for n in range(240):
            age, ward = int(rng.integers(0, 100)), str(rng.choice(["eyes", "heart"]))
            ill = "yes" if age + 40 * (ward == "heart") > 70 else "no"
            write.writerow([f"clinic {n % 3}", age, ward, ill])
    options = RunOptions(root=path / "runs", state=path / "state", threads=1)
    kept = sumus.train(_plan(path), options=options)
    void = sumus.train(_plan(path), options=options, simulation=Simulation(seed=1))
    return path, Path(kept.path), Path(void.path)


def _run(capsys, *arguments):
    code = main([str(each) for each in arguments])
    told = capsys.readouterr()
    return code, told.out, told.err


@pytest.mark.deep
@pytest.mark.parametrize("name", FORMATS)
def test_a_run_becomes_a_file_and_a_card(made, tmp_path, capsys, name):
    out = tmp_path / f"model.{ENDINGS[name]}"
    code, told, _ = _run(capsys, "export", made[1], "--format", name, "--out", out, "--json")
    assert code == 0
    said = json.loads(told)
    card = Path(said["card"]).read_text()
    if name == "card":
        assert (said["file"], Path(said["card"])) == (None, out)
    else:
        assert said["sha256"] in card
        assert f"{out.name} ({name})" in card.replace("\\", "")
        assert Path(said["card"]).name == f"{out.name}.card.md"
        assert out.stat().st_size > 0
    assert said["void"] is None


def test_the_card_says_what_a_report_says(made, tmp_path):
    done = export_run(made[1], "card", tmp_path / "card.md")
    card = done.card.read_text().replace("\\", "").replace("\xa0", " ")
    assert "NO GUARANTEE" not in card
    for words in (
        "ε ≤ 3",
        "δ = 0.001",
        "(proved)",
        "one record of one silo, add or remove",
        "Counts on",
        "convex-pass",
        "### Not protected",
        "Accuracy",
        "a constant answer",
        "measured in the clear",
        "from 0 to 100; beyond, the nearest of them",
        "one of eyes, heart; anything else is other",
        "no, yes",
        "## Limits",
    ):
        assert words in card, words


def test_the_card_of_a_void_run_begins_with_that(made, tmp_path, capsys):
    code, told, _ = _run(
        capsys, "export", made[2], "--format", "safetensors", "--out", tmp_path / "m.safetensors"
    )
    assert code == 0
    assert "NO GUARANTEE" in told
    lines = [line for line in (tmp_path / "m.safetensors.card.md").read_text().splitlines() if line]
    assert lines[1].startswith("> **NO GUARANTEE.** This run is void")
    assert "ε\xa0≤" not in "\n".join(lines[:12])
    assert b"VOID" in (tmp_path / "m.safetensors").read_bytes()[:20_000]


def test_names_cannot_write_markdown():
    assert _plain("a|b\n# c <script> [x](y) `z` *") == (r"a\|b \# c \<script\> \[x\](y) \`z\` \*")


def test_what_is_there_stays_unless_forced(made, tmp_path, capsys):
    out = tmp_path / "model.safetensors"
    (tmp_path / "model.safetensors.card.md").write_text("mine")
    arguments = ("export", made[1], "--format", "safetensors", "--out", out)
    code, _, error = _run(capsys, *arguments)
    assert (code, out.exists()) == (2, False)
    assert (
        "model.safetensors.card.md exists. Name another file, or replace it with --force." in error
    )
    assert _run(capsys, *arguments, "--force")[0] == 0
    out.write_bytes(b"mine")
    assert _run(capsys, *arguments)[0] == 2
    assert out.read_bytes() == b"mine"


def test_without_a_name_it_goes_by_the_run(made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = export_run(made[1], "safetensors")
    assert done.file.name == f"{made[1].name}.safetensors"
    assert {path.name for path in tmp_path.iterdir()} == {done.file.name, done.card.name}


def test_a_graph_that_begins_behind_the_encoding_says_so():
    age, word = ColumnRule("age", "scaled", low=0.0, high=1.0), ColumnRule("word", "hashed")
    (line,) = _behind_encoding(SimpleNamespace(encoding=Encoding((age, word))))
    assert "begins behind the encoding: its input is features, not columns, as word" in line
    assert _behind_encoding(SimpleNamespace(encoding=Encoding((age,)))) == ()


def test_formats_of_one_run_stand_side_by_side(made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cards = {export_run(made[1], name).card.name for name in ("safetensors", "onnx", "card")}
    assert len(cards) == 3


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (["--format", "pickle"], "got 'pickle'. Known: safetensors, onnx"),
        (["--format", "onxn"], "Did you mean onnx?"),
        (["--format", "onnx", "--out", "missing/m.onnx"], "there is no folder missing"),
        (["--format", "onnx", "--out", "."], "is a folder. Name a file in it."),
        (["--format", "onnx", "--out", "m.joblib"], "must end in .onnx for --format onnx"),
        (["--format", "card", "--out", "m.onnx"], "must end in .md for --format card"),
        (["--format", "card", "--model", "torch.nn:Linear"], "Leave it out."),
    ],
)
def test_what_cannot_be_written_is_said_in_one_line(
    made, tmp_path, monkeypatch, capsys, change, complaint
):
    monkeypatch.chdir(tmp_path)
    code, told, error = _run(capsys, "export", made[1], *change)
    assert (code, told) == (2, "")
    assert complaint in error
    assert len(error.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_runs_that_have_no_model_are_refused(made, tmp_path, capsys):
    begun = tmp_path / "begun"
    shutil.copytree(made[1], begun)
    (begun / "summary.json").unlink()
    journal = begun / "journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(lines[:-1]))
    code, _, error = _run(capsys, "export", begun, "--format", "onnx", "--out", tmp_path / "m.onnx")
    assert code == 5
    assert "is not finished" in error
    code, _, error = _run(capsys, "export", tmp_path / "none", "--format", "card")
    assert code == 5
    assert len(error.strip().splitlines()) == 1
    assert not (tmp_path / "m.onnx").exists()


def test_a_changed_run_is_not_exported(made, tmp_path, capsys):
    changed = tmp_path / "changed"
    shutil.copytree(made[1], changed)
    weights = changed / "model.pt"
    state = torch.load(weights, weights_only=True)
    torch.save({name: tensor + 1 for name, tensor in state.items()}, weights)
    code, _, error = _run(
        capsys, "export", changed, "--format", "onnx", "--out", tmp_path / "m.onnx"
    )
    assert code == 5
    assert "is not the model that the run wrote" in error
    assert not (tmp_path / "m.onnx").exists()


def test_without_the_extra_nothing_is_written(made, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "onnx", None)
    code, _, error = _run(
        capsys, "export", made[1], "--format", "onnx", "--out", tmp_path / "m.onnx"
    )
    assert code == 2
    assert "pip install 'sumus[export]'" in error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.deep
def test_the_code_of_the_cards_predicts_what_the_run_predicts(made, tmp_path, monkeypatch):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    frame = pandas.read_csv(made[0] / "visits.csv")[["age", "ward"]]
    model = Model.of_run(made[1])
    wanted = model.predict(frame, warn=False)
    held = model.rows(frame)
    records = torch.from_numpy(held.part(np.arange(len(frame))))
    for name, last in (
        ("onnx", "session.run(None, inputs)"),
        ("sklearn", "pipeline.predict(frame)"),
    ):
        done = export_run(made[1], name, tmp_path / f"model.{ENDINGS[name]}")
        code = done.card.read_text().split("```python\n")[1].split("```")[0]
        assert last in code
        scope = {"frame": frame}
        exec(code.replace(last, f"result = {last}"), scope)  # noqa: S102 - our own card
        told = scope["result"][0][:, 0] if name == "onnx" else scope["result"]
        np.testing.assert_array_equal(told, wanted)
    done = export_run(made[1], "torch", tmp_path / "model.pt2")
    code = done.card.read_text().split("```python\n")[1].split("```")[0]
    scope = {"records": records}
    exec(code.replace("program(records)", "result = program(records)"), scope)  # noqa: S102
    np.testing.assert_array_equal(
        np.array(model.labels.names)[scope["result"]["prediction"].numpy()], wanted
    )
