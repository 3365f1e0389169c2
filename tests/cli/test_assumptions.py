"""What had to be assumed about a table stands wherever its guarantee does, on the page that is
signed above all.
"""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest

import sumus
from sumus.books import RunFolder
from sumus.cli import main
from sumus.data import public_facts
from sumus.runs import RunOptions

COLUMNS = ("age", "<ward>")


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table about which the plan says nothing but which columns are silo and label."""
    folder = tmp_path_factory.mktemp("table")
    rows = [
        f"{'AB'[i % 2]},{20 + i % 50},{['east', 'west'][i % 3 % 2]},{['no', 'yes'][i % 5 % 2]}"
        for i in range(400)
    ]
    (folder / "visits.csv").write_text("clinic,age,<ward>,again\n" + "\n".join(rows) + "\n")
    table = f'path = "{folder / "visits.csv"}"\nsilo_column = "clinic"\nlabel_column = "again"\n'
    (folder / "plan.toml").write_text(
        "[privacy]\nepsilon = 3.0\ndelta = 1e-4\n[federation]\nrounds = 1\n[data]\n" + table
    )
    return folder / "plan.toml"


@pytest.fixture(scope="module")
def expected(plan_file: Path) -> tuple[str, ...]:
    assumptions = public_facts(sumus.TrainingPlan.load(plan_file)).assumptions
    assert len(assumptions) >= 5  # kinds, numbers, text, silos, classes, counts
    return assumptions


@pytest.fixture(scope="module")
def trained(plan_file: Path) -> sumus.runs.run.TrainedRun:
    return sumus.train(
        sumus.TrainingPlan.load(plan_file),
        options=RunOptions(root=plan_file.parent / "runs", threads=1),
    )


def _shown(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    assert main([str(word) for word in arguments]) == 0
    return capsys.readouterr().out


def _json(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(_shown(capsys, *arguments, "--json").splitlines()[-1])
    return body


@pytest.mark.deep
@pytest.mark.parametrize("command", ["account", "plan"])
def test_account_and_plan_show_what_is_assumed(
    command: str, plan_file: Path, expected: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    shown = _shown(capsys, command, plan_file)
    assert [line for line in expected if f"  assumed      {line}\n" not in shown] == []
    assert "  columns      age, <ward>\n" in shown
    assert re.search(r"  records      at most \d{3} for training, ", shown)
    body = _json(capsys, command, plan_file)
    account = body if command == "account" else body["account"]
    assert tuple(account["assumptions"]) == expected
    assert tuple(account["columns"]) == COLUMNS
    assert sum(account["records_per_silo"]) < 400


@pytest.mark.parametrize("as_json", [False, True])
def test_training_shows_what_is_assumed(
    as_json: bool,
    plan_file: Path,
    expected: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    command = ("train", plan_file, "--out", tmp_path, "--no-ledger")
    if as_json:
        assert tuple(_json(capsys, *command)["assumptions"]) == expected
    else:
        shown = _shown(capsys, *command)
        assert [line for line in expected if shown.count(f"  assumed      {line}\n") != 1] == []


def test_the_record_the_account_of_the_run_and_the_notebook_show_it_without_the_table(
    trained: sumus.runs.run.TrainedRun,
    plan_file: Path,
    expected: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
) -> None:
    guarantee = RunFolder.open(trained.path).guarantee
    assert guarantee is not None
    assert (guarantee.assumptions, guarantee.columns) == (expected, COLUMNS)
    table = plan_file.parent / "visits.csv"
    table.rename(table.with_suffix(".away"))
    try:
        assert tuple(_json(capsys, "account", trained.path)["assumptions"]) == expected
        assert all(
            f"  assumed      {line}\n" in _shown(capsys, "account", trained.path)
            for line in expected
        )
    finally:
        table.with_suffix(".away").rename(table)
    assert trained.account is not None
    for page in (trained._repr_html_(), trained.account._repr_html_()):
        assert all(html.escape(line) in page for line in expected)
        assert "<ward>" not in page


def test_the_page_that_is_signed_shows_what_is_assumed(
    trained: sumus.runs.run.TrainedRun,
    expected: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
) -> None:
    _shown(capsys, "report", trained.path)
    page = (trained.path / "report.html").read_text(encoding="utf-8")
    (section,) = re.findall(r'<section class="assumptions".*?</section>', page, re.DOTALL)
    rows = re.findall(r"<dt[^>]*>(.*?)</dt><dd[^>]*>(.*?)</dd>", section, re.DOTALL)
    assert [line for line in expected if ("Assumed", html.escape(line)) not in rows] == []
    assert ("Columns", "age, &lt;ward&gt;") in rows
    assert any(name == "Records" and value.startswith("at most ") for name, value in rows)


@pytest.mark.deep
def test_what_the_data_set_has_spent_stands_beside_a_new_guarantee(
    plan_file: Path,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SUMUS_STATE", str(tmp_path / "state"))
    assert "  ledger       nothing was released from visits here so far" in _shown(
        capsys, "account", plan_file
    )
    assert _json(capsys, "plan", plan_file)["ledger"] is None
    trained = _json(capsys, "train", plan_file, "--out", tmp_path / "runs")
    assert trained["ledger"]["runs"] == 1
    page = (Path(trained["run"]) / "report.html").read_text(encoding="utf-8")
    total = '<th scope="row">With this run</th><td class="n">ε\u00a0≤\u00a03 at δ\u00a0=\u00a00.0001</td>'
    assert f'{total}<td class="n">1</td>' in page
    assert "Ledger of visits" in page
    for command in ("account", "plan"):
        total = _json(capsys, command, plan_file)["ledger"]
        assert (total["dataset"], total["runs"]) == ("visits", 1)
        assert "  ledger       ε ≤ 3 at δ = 0.0001 for visits so far, 1 run" in _shown(
            capsys, command, plan_file
        )
