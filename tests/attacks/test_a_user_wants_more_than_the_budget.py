"""Whoever tries one run after another on the same records wants more ε than the data set has."""

from __future__ import annotations

import io
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import sumus
from sumus.books import Budget, BudgetFile, Ledger, LedgerEntry
from sumus.cli import main
from sumus.cli.dataset_total import before_text
from sumus.cli.terminal import Hanging
from sumus.data import write_patients
from sumus.errors import PlanError, PolicyError
from sumus.guarantee import Account
from sumus.plan import TrainingPlan
from sumus.runs import RunOptions, Simulation
from support.synthetic_runs import made_account, made_plan

PLAN = """
[privacy]
epsilon = 4.0
delta = 1e-5
[federation]
rounds = 1
local_steps = 5
[training]
algorithm = "convex-pass"
[data]
objects = "clinic"
"""


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SUMUS_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "state"


def _silos() -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [(rng.normal(size=(30, 2)).astype(np.float32), np.arange(30) % 2) for _ in range(2)]


def _account(epsilon: float = 4.0) -> tuple[TrainingPlan, Account]:
    plan = made_plan().replace("data", name=None, objects="clinic")
    return plan, replace(made_account(plan), epsilon=epsilon)


def _entry(account: Account, run: str, number: int = 1) -> LedgerEntry:
    return LedgerEntry.of(
        account, run=run, round=number, round_id=f"{run}{number}", epsilon=account.epsilon
    )


def _shown(line: Hanging) -> str:
    console = Console(width=500, file=io.StringIO(), record=True)
    console.print(line)
    return console.export_text()


def test_the_third_run_of_four_is_refused_in_one_line_before_anything_is_released(
    own_state: Path,
) -> None:
    plan = TrainingPlan.from_toml(PLAN)
    options = RunOptions(root=Path("runs"), threads=1)
    for _ in range(2):
        run = sumus.train(plan, silos=_silos(), classes=2, options=options)
    assert run.spent is not None
    assert run.spent.before is not None
    assert run.spent.epsilon == pytest.approx(2 * run.spent.before.epsilon)
    folders = list(Path("runs").iterdir())
    with pytest.raises(PolicyError) as refused:
        sumus.train(plan, silos=_silos(), classes=2, options=options)
    words = str(refused.value)
    assert "\n" not in words
    for part in (
        "clinic",
        "ε ≤ 12",
        "max_epsilon = 10",
        "--max-epsilon 12",
        "budget.toml",
        "RunOptions(max_epsilon=12)",
    ):
        assert part in words
    assert list(Path("runs").iterdir()) == folders
    assert len(Ledger.of_dataset("clinic").entries()) == 2
    # control: who says that more is meant gets it, and so does a simulation, which releases nothing
    sumus.train(plan, silos=_silos(), classes=2, options=replace(options, max_epsilon=12.0))
    sumus.train(plan, silos=_silos(), classes=2, options=options, simulation=Simulation(0))
    (own_state / "budget.toml").write_text("no_limit = true\n")
    sumus.train(plan, silos=_silos(), classes=2, options=options)


def test_leaving_out_columns_or_names_begins_no_new_ledger() -> None:
    """By handing in other columns, other silos and other kinds of objects of the same people."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(90, 3)).astype(np.float32), np.arange(90) % 2
    fit = sumus.Classifier(epsilon=4.0, options=RunOptions(root=Path("runs"), threads=1))
    plan = TrainingPlan.from_toml(PLAN).replace("data", objects=None)

    def halves(width: int) -> list[tuple[np.ndarray, np.ndarray]]:
        return [(x[:45, :width], y[:45]), (x[45:, :width], y[45:])]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit.fit(x, y, silos=2)
    with pytest.warns(sumus.estimators.SpendingWarning, match="2 fits on the data set own-data"):
        fit.fit(x[:, :2], y, silos=3)
    with pytest.raises(PolicyError, match=r"own-data would have .* or name= where these are other"):
        fit.fit(x[:, :1], y)
    for width in (1, 2):
        with pytest.raises(PolicyError, match="own-data would have"):
            sumus.train(plan, silos=halves(width), classes=2, options=fit.options)
    # control: by a name of its own everything begins at zero
    for width in (1, 2, 3):
        told = {"silos": halves(width), "classes": 2, "options": fit.options}
        run = sumus.train(plan, name=f"columns-{width}", **told)
        assert run.spent is not None
        assert run.spent.runs == 1


def test_two_runs_at_once_do_not_pass_below_the_limit_together() -> None:
    """Both were checked before either had entered anything."""
    plan, account = _account(6.0)
    ledger = Ledger.of_dataset("clinic")
    budget = Budget.of(plan, ledger)
    assert budget is not None
    budget.check(account)
    budget.check(account)
    ledger.enter(_entry(account, "one"), allow=budget.check_total)
    with pytest.raises(PolicyError, match="max_epsilon = 10"):
        ledger.enter(_entry(account, "two"), allow=budget.check_total)
    assert len(ledger.entries()) == 1


def test_a_run_without_noise_does_not_lift_the_limit() -> None:
    plan, account = _account(1.0)
    ledger = Ledger.of_dataset("clinic")
    ledger.enter(LedgerEntry.without_noise(plan, run="plain", round=1, round_id="a"))
    budget = Budget.of(plan, ledger)
    assert budget is not None
    with pytest.raises(PolicyError, match=r"no bound .*--max-epsilon inf"):
        budget.check(account)


def test_a_run_of_another_unit_is_refused_with_the_unit_of_the_earlier_runs() -> None:
    plan, account = _account(1.0)
    ledger = Ledger.of_dataset("clinic")
    ledger.enter(_entry(account, "records"))
    budget = Budget.of(plan, ledger)
    assert budget is not None
    with pytest.raises(PolicyError) as refused:
        budget.check(replace(account, unit="person"))
    words = str(refused.value)
    advice, way_out = words.index('privacy.unit = "record"'), words.index("--max-epsilon inf")
    assert advice < words.index("no_limit = true") < way_out
    assert "protect records instead of persons" in words
    assert "RunOptions(max_epsilon=math.inf)" in words


def test_a_run_of_records_says_why_earlier_runs_of_persons_count_twice() -> None:
    plan, account = _account(1.25)
    Ledger.of_dataset("clinic").enter(_entry(replace(account, unit="person"), "persons"))
    told = _shown(before_text(plan, account))
    assert "has spent ε ≤ 2.5 so far, 1 run (those that protect persons count twice" in told
    # control: nothing is explained where nothing is doubled
    assert "twice" not in _shown(before_text(plan, replace(account, unit="person")))


def test_one_runs_own_epsilon_stands_in_its_plan_and_what_it_resumes_counts_once() -> None:
    plan, account = _account(30.0)
    ledger = Ledger.of_dataset("clinic")
    budget = Budget.of(plan, ledger)
    assert budget is not None
    budget.check(account)
    ledger.enter(_entry(account, "one"), allow=budget.check_total)
    budget.check(account, run="one")
    with pytest.raises(PolicyError):
        budget.check(account)


@pytest.mark.parametrize("asked", [0.0, -1.0, float("nan")])
def test_a_limit_that_is_none_is_refused(asked: float) -> None:
    plan, _ = _account()
    with pytest.raises(PlanError, match="--max-epsilon"):
        Budget.of(plan, Ledger.of_dataset("clinic"), asked=asked)


@pytest.mark.parametrize(
    "text", ["max_epsilon = nan", "max_epsilon = 0", "limit = 3", "no_limit = 1"]
)
def test_a_budget_file_with_a_slip_is_refused_and_never_means_no_limit(
    text: str, own_state: Path
) -> None:
    own_state.mkdir()
    (own_state / "budget.toml").write_text(f"{text}\n")
    with pytest.raises(PlanError, match="budget"):
        Budget.of(_account()[0], Ledger.of_dataset("clinic"))


def test_named_data_sets_are_public_and_have_no_limit() -> None:
    assert (
        Budget.of(made_plan().replace("data", name="digits"), Ledger.of_dataset("digits")) is None
    )
    assert BudgetFile().max_epsilon == 10.0


def test_commands_show_what_was_spent_before_and_after(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_patients(Path("patients.csv"), records=300)
    table = PLAN.replace(
        'objects = "clinic"',
        'path = "patients.csv"\nsilo_column = "hospital"\nlabel_column = "readmitted"',
    )
    Path("plan.toml").write_text(table.replace("epsilon = 4.0", "epsilon = 6.0"))
    quiet = ["--no-report", "--threads", "1"]
    assert main(["train", "plan.toml", *quiet]) == 0
    first = capsys.readouterr().out
    assert (
        "nothing was released from patients here so far; ε ≤ 6 with this one, of at most 10"
        in first
    )
    assert main(["describe", "plan.toml", "--epsilon", "1", *quiet]) == 0
    told = capsys.readouterr().out
    assert "patients has spent ε ≤ 6 so far, 1 run; ε ≤ 7 with this one" in told
    assert "patients: ε ≤ 7 at" in told
    assert main(["train", "plan.toml", *quiet]) == 3
    shown = capsys.readouterr()
    assert shown.err.count("\n") == 1
    assert "--max-epsilon 13" in shown.err
    assert main(["train", "plan.toml", *quiet, "--max-epsilon", "13"]) == 0
    assert "; ε ≤ 7 before" in capsys.readouterr().out
    assert main(["ledger", "--compose", "runs", "--json"]) == 0
    import json

    (ledger,) = json.loads(capsys.readouterr().out)["ledgers"]
    assert ledger["max_epsilon"] == 10.0
    steps = ledger["steps"]["record"]
    assert [round(step["after"]) for step in steps] == [6, 7, 13]
    assert ledger["composed_epsilon"]["record"] < ledger["totals"][0]["epsilon"]
