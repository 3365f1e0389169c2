"""All runs of a folder: nothing is told of a run that its journal does not say, no ε stands alone,
and one damaged run hides no other.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from sumus.books import Ledger, RunFolder
from sumus.cli import main
from sumus.report import History, rows_of, spent_words, write_history
from sumus.report.lineage import Lineage, drawn_lineage
from sumus.report.timeline import step_chart, time_axis
from support.past_runs import made_history
from support.synthetic_runs import SILOS, made_account, made_plan


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("history")
    made_history(root)
    return root


@pytest.fixture(scope="module")
def history(folder: Path) -> History:
    return History.of_folder(folder / "runs", state=folder / "state")


def test_a_row_says_what_its_journal_says(folder: Path, history: History) -> None:
    rows = rows_of(history)
    assert [row.run.started for row in rows] == sorted((r.run.started for r in rows), reverse=True)
    for row in rows:
        run = RunFolder.open(row.run.path)
        assert row.run.plan_hash == run.plan_hash
        assert row.run.rounds == len(run.rounds())
        assert row.run.model == (run.summary or {}).get("model_hash", "")
        survivors = [len(entry.survivors) for entry in run.rounds()]
        assert row.run.took_part == (min(survivors), max(survivors))
    newest, before, oldest = rows[0], rows[1], rows[-1]
    assert (newest.rounds, before.rounds) == ("3 of 3, under way", "2 of 3, 1 lost")
    assert (newest.measured, newest.model) == ("not measured", "")
    assert "accuracy" in oldest.measured
    assert "± 1.3%" in oldest.measured
    assert oldest.bound == "ε ≤ 0.25 at δ = 1e-05"
    assert {row.verdict for row in rows} == {"proved", "NOT PROVED"}


def test_an_epsilon_is_never_without_what_it_rests_on(folder: Path, history: History) -> None:
    page = folder / "kinds.html"
    write_history(history, page)
    text = page.read_text()
    for kind in history.kinds:
        for part in (kind.protects, kind.trust, kind.analysis):
            assert part in text
    assert len(history.kinds) == 2
    assert text.count("NOT PROVED [") + text.count("NOT PROVED</span>") >= 1


def test_a_run_whose_guarantee_is_void_has_no_epsilon(tmp_path: Path) -> None:
    plan = made_plan()
    RunFolder.create(plan, made_account(plan), tmp_path, silos=SILOS, void="a public seed").close()
    history = History.of_folder(tmp_path, state=tmp_path / "state")
    (row,) = rows_of(history)
    assert (row.run.epsilon, row.bound, row.verdict) == (None, "no bound", "VOID")
    assert [spent.steps for spent in history.spent] == [()]


def test_metrics_are_part_of_what_is_promised(tmp_path: Path) -> None:
    plan = made_plan()
    account = made_account(plan, epsilon=0.5, metrics_epsilon=0.25)
    RunFolder.create(plan, account, tmp_path, silos=SILOS).close()
    history = History.of_folder(tmp_path, state=tmp_path / "state")
    assert [spent.steps[-1].after for spent in history.spent] == [0.75]
    assert rows_of(history)[0].bound == "ε ≤ 0.5 + 0.25 at δ = 1e-05"


def test_who_began_with_whose_model_is_found_by_name_and_by_hash(history: History) -> None:
    names = [run.name for run in history.runs]
    assert history.parents == {names[1]: names[0], names[2]: names[1], names[3]: names[0]}
    places = {place.name: place for place in Lineage.of(names, history.parents).places}
    assert [places[name].generation for name in names[:4]] == [0, 1, 2, 1]
    assert places[names[3]].row > places[names[0]].row


def test_the_sum_over_time_is_the_ledgers(folder: Path, history: History) -> None:
    (spent,) = history.spent
    ledger = Ledger.of_dataset("digits", state=folder / "state")
    assert spent.steps[-1].after == pytest.approx(ledger.total("record").epsilon)
    assert spent.limit == 10.0
    assert "ε ≤ 1.5 of at most 10 for one record, 6 runs, NOT PROVED in part" in spent_words(spent)


def test_where_silos_keep_the_ledgers_the_sum_is_of_what_is_promised(folder: Path) -> None:
    told = History.of_folder(folder / "runs", state=folder / "nowhere").spent
    assert [spent.steps[-1].after for spent in told] == [1.5]
    assert all(math.isinf(spent.limit) for spent in told)
    assert "the ledgers are with the silos" in spent_words(told[0])


def test_a_damaged_run_is_named_and_hides_no_other(tmp_path: Path) -> None:
    runs = made_history(tmp_path, runs=3)
    journal = runs[0].path / "journal.jsonl"
    journal.write_bytes(journal.read_bytes().replace(b"0.25", b"0.15"))
    history = History.of_folder(tmp_path / "runs", state=tmp_path / "state")
    assert [run.name for run in history.runs] == [run.name for run in runs[1:]]
    ((name, why),) = history.unread
    assert name == runs[0].name
    assert "does not match its own hash" in why
    write_history(history, tmp_path / "page.html")
    assert "does not match its own hash" in (tmp_path / "page.html").read_text()


def test_runs_of_a_server_lie_one_folder_deeper(folder: Path, history: History) -> None:
    assert len(History.of_folder(folder, state=folder / "state").runs) == len(history.runs)
    one = history.runs[0].path
    assert [run.name for run in History.of_folder(one).runs] == [one.name]


def test_the_command_shows_a_table_writes_a_page_and_tells_scripts_everything(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = [str(folder / "runs"), "--state", str(folder / "state")]
    assert main(["history", *where, "--html", "--out", str(folder / "out.html")]) == 0
    shown = capsys.readouterr().out
    for part in ("[1] proved, at δ = 1e-05", "counts on    4 of 5 silos", "0.25 [1]", "out.html"):
        assert part in shown
    page = (folder / "out.html").read_text()
    assert "http:" not in page
    assert "https:" not in page
    assert page.count('<tr id="run-') == 6
    assert main(["history", *where, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [run["parent"] is not None for run in told["runs"]] == [
        False,
        True,
        True,
        True,
        False,
        False,
    ]
    assert told["spent"][0]["steps"][-1]["after"] == 1.5
    assert main(["history", str(folder / "nowhere")]) == 5
    assert "is not a folder" in capsys.readouterr().err
    (folder / "empty").mkdir()
    assert main(["history", str(folder / "empty")]) == 0
    assert "No run is in" in capsys.readouterr().out


_FORESTS = st.lists(st.integers(min_value=-1, max_value=30), max_size=25)


@given(parents=_FORESTS)
def test_no_two_runs_have_one_place_and_children_are_right_of_their_parents(
    parents: list[int],
) -> None:
    names = [f"run {number}" for number in range(len(parents))]
    edges = {
        names[number]: names[parent % number]
        for number, parent in enumerate(parents)
        if number and parent >= 0
    }
    lineage = Lineage.of(names, edges)
    assert {place.name for place in lineage.places} == set(edges) | set(edges.values())
    assert len({(place.row, place.generation) for place in lineage.places}) == len(lineage.places)
    places = {place.name: place for place in lineage.places}
    for child, parent in edges.items():
        assert places[child].generation == places[parent].generation + 1
        assert places[child].row >= places[parent].row
    drawing, hidden = drawn_lineage(lineage, {name: name for name in names})
    assert drawing.count("<circle") == len(places) - hidden


@given(moments=st.lists(st.floats(min_value=0.0, max_value=4e9, allow_nan=False), max_size=8))
def test_every_moment_and_tick_lies_on_the_axis(moments: list[float]) -> None:
    axis, formatter = time_axis(moments)
    assert all(axis.low <= each <= axis.high for each in (*moments, *axis.ticks))
    assert len(axis.ticks) <= 12
    assert len({formatter(tick) for tick in axis.ticks}) == len(axis.ticks)


def test_a_sum_without_a_bound_is_left_out_of_the_drawing() -> None:
    points = [("2026-01-01T00:00:00+00:00", 1.0, "a"), ("2026-01-02T00:00:00+00:00", math.inf, "b")]
    drawn = step_chart(points, label="sum", formatter=str, limit=(2.0, "limit 2"))
    assert drawn.count("<circle") == 1
    assert "limit 2" in drawn
    assert "No run yet" in step_chart([], label="sum", formatter=str)
