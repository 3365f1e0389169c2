"""`sumus ledger`: no ε without what it protects, counts on and rests on; JSON for scripts; damage
named.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from books.test_ledger import made_entry
from books.test_reservation import reservation
from guarantee.test_joint import SILOS, made_plan as composable_plan, past
from sumus.books import Ledger, LedgerEntry, RunFolder
from sumus.cli.ledger import ledger_app
from sumus.errors import PlanError, StorageError
from sumus.guarantee import NoiseDesign, PastRun, account_of, joint_epsilon
from sumus.plan import ResolvedPlan


@pytest.fixture
def state(tmp_path: Path) -> Path:
    ledger = Ledger.of_dataset("visits", state=tmp_path)
    for number in (1, 2):
        ledger.enter(made_entry("first", number, 0.5001 * number))
    ledger.enter(made_entry("[bold]second[/bold]", 1, 0.25, proved=False, analysis="per-step"))
    return tmp_path


def run_command(*arguments: str) -> str:
    result = CliRunner().invoke(
        ledger_app, list(arguments), catch_exceptions=False, env={"COLUMNS": "240"}
    )
    assert result.exit_code == 0, result.output
    return result.output


def test_show_prints_every_run_and_the_total_with_all_that_an_epsilon_needs(state: Path) -> None:
    output = run_command("show", "--state", str(state))
    assert "one record of one silo, add or remove" in output
    assert "server honest-but-curious" in output
    assert "per-step" in output
    assert "[bold]second[/bold]" in output  # names are text, not markup
    total = next(line for line in output.splitlines() if line.startswith("  total"))
    assert (
        "ε ≤ 1.251 at δ = 2e-05 for one record, add or remove; 2 runs by simple addition; NOT "
        "PROVED in part" in total
    )


def test_json_is_one_object(state: Path) -> None:
    (ledger,) = json.loads(run_command("show", "visits", "--state", str(state), "--json"))[
        "ledgers"
    ]
    assert ledger["dataset"] == "visits"
    assert ledger["totals"][0]["epsilon"] == pytest.approx(1.2502)
    assert [each["releases"] for each in ledger["runs"]] == [2, 1]


def test_verify_recomputes_the_chain(state: Path) -> None:
    ledger = Ledger.of_dataset("visits", state=state)
    assert f"3 entries, every hash holds. Last: {ledger.head}" in run_command(
        "verify", "--state", str(state)
    )
    assert (
        json.loads(run_command("verify", "--state", str(state), "--json"))["verified"][0]["entries"]
        == 3
    )
    content = ledger.path.read_bytes()
    ledger.path.write_bytes(content.replace(b"0.25", b"0.15"))
    with pytest.raises(StorageError, match=r"ledger-visits\.jsonl, line 3"):
        run_command("verify", "visits", "--state", str(state))


def test_nothing_spent_and_unknown_names_say_so(tmp_path: Path, state: Path) -> None:
    assert "nothing has been released" in run_command("show", "--state", str(tmp_path / "empty"))
    with pytest.raises(StorageError, match="Ledgers here: visits"):
        run_command("show", "vists", "--state", str(state))


def test_runs_with_metrics_are_composed_too(tmp_path: Path) -> None:
    plan = composable_plan(
        "skellam",
        evaluation__metrics="secure",
        evaluation__noise_multiplier=6.0,
        evaluation__classes=2,
    )
    account = account_of(NoiseDesign.of(ResolvedPlan.of(plan, SILOS)))
    assert account.metrics_epsilon is not None
    ledger = Ledger.of_dataset("visits", state=tmp_path / "state")
    with RunFolder.create(plan, account, tmp_path / "runs", silos=SILOS) as run:
        for number in range(1, plan.federation.rounds + 1):
            ledger.enter(
                LedgerEntry.of(
                    account,
                    run=run.name,
                    round=number,
                    round_id=f"{number}",
                    epsilon=account.epsilon,
                )
            )
    without = json.loads(
        run_command(
            "show",
            "--state",
            str(tmp_path / "state"),
            "--compose",
            str(tmp_path / "runs"),
            "--json",
        )
    )
    entry = LedgerEntry.of(
        account,
        run=run.name,
        round=10,
        round_id="m",
        epsilon=account.metrics_epsilon,
        purpose="metrics",
    )
    ledger.enter(entry)
    shown = json.loads(
        run_command(
            "show",
            "--state",
            str(tmp_path / "state"),
            "--compose",
            str(tmp_path / "runs"),
            "--json",
        )
    )
    before, (after,) = without["ledgers"][0]["composed_epsilon"]["record"], shown["ledgers"]
    delta = after["totals"][0]["delta"]
    assert after["totals"][0]["epsilon"] == pytest.approx(account.epsilon + account.metrics_epsilon)
    both = joint_epsilon(
        [past(plan), PastRun(plan=plan, silos=SILOS, rounds=0, measurements=1)], delta=delta
    )
    assert (
        before
        < after["composed_epsilon"]["record"]
        == both
        < account.epsilon + account.metrics_epsilon
    )
    text = run_command(
        "show", "--state", str(tmp_path / "state"), "--compose", str(tmp_path / "runs")
    )
    assert "a record is taken to be trained on and measured with in every run" in text


def test_runs_whose_folders_are_at_hand_are_composed(tmp_path: Path) -> None:
    plan = composable_plan("skellam")
    account = account_of(NoiseDesign.of(ResolvedPlan.of(plan, SILOS)))
    ledger = Ledger.of_dataset("visits", state=tmp_path / "state")
    for _ in range(3):
        with RunFolder.create(plan, account, tmp_path / "runs", silos=SILOS) as run:
            for number in range(1, plan.federation.rounds + 1):
                ledger.enter(
                    LedgerEntry.of(
                        account,
                        run=run.name,
                        round=number,
                        round_id=f"{run.name}/{number}",
                        epsilon=account.epsilon,
                    )
                )
    shown = run_command(
        "show", "--state", str(tmp_path / "state"), "--compose", str(tmp_path / "runs"), "--json"
    )
    (stored,) = json.loads(shown)["ledgers"]
    assert stored["totals"][0]["epsilon"] == pytest.approx(3 * account.epsilon)
    assert account.epsilon < stored["composed_epsilon"]["record"] < 2.2 * account.epsilon
    text = run_command(
        "show", "--state", str(tmp_path / "state"), "--compose", str(tmp_path / "runs")
    )
    assert (
        "for one record, add or remove; 3 runs by the analyses above, every part proved, if no plan "
        "was chosen by what an earlier run released" in text
    )
    ledger.enter(made_entry("elsewhere", 1, 0.5))
    ledger.enter(made_entry("unproved", 1, 0.25, proved=False))
    command = ("show", "--state", str(tmp_path / "state"), "--compose", str(tmp_path / "runs"))
    (more,) = json.loads(run_command(*command, "--json"))["ledgers"]
    alone = stored["composed_epsilon"]["record"]
    assert more["composed_epsilon"]["record"] >= alone + 0.75
    text = run_command(*command)
    assert "added as it is: elsewhere" in text
    assert "added as it is: unproved" in text
    assert "NOT PROVED in part" in text


def test_what_is_set_aside_is_shown_and_cancelled_by_name(state: Path) -> None:
    ledger = Ledger.of_dataset("visits", state=state)
    ledger.reserve(reservation("third", 2.0))
    ledger.enter(made_entry("third", 1, 0.5))
    shown = run_command("show", "visits", "--state", str(state))
    assert (
        "set aside: ε ≤ 2 at δ = 1e-05 for one record (proved) by third, which has spent" in shown
    )
    (told,) = json.loads(run_command("show", "--state", str(state), "--json"))["ledgers"]
    assert [(each["run"], each["spent"]) for each in told["reservations"]] == [("third", 0.5)]
    said = run_command("cancel", "third", "--state", str(state))
    assert "third had set ε ≤ 2 aside for one record and counts with the ε ≤ 0.5" in said
    assert Ledger.of_dataset("visits", state=state).reservations() == []
    with pytest.raises(PlanError, match="must be a run that has set something aside"):
        run_command("cancel", "third", "--state", str(state), "--json")
