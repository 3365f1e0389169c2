"""Policy: a silo refuses what it does not allow, in one line, whatever the plan, the account or the
ledger say.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from books.test_ledger import made_entry
from sumus.books import Ledger, Policy
from sumus.errors import PlanError, PolicyError
from support.synthetic_runs import made_account, made_plan


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.of_dataset("digits", state=tmp_path)


FULL = """
max_epsilon = 4.0
max_epsilon_per_run = 1.0
max_delta = 1e-4
min_silos = 5
min_noise_contributors = 4
allowed_analyses = ["convex-pass", "local"]
require_proved = true
units = ["record"]
"""


def test_a_policy_reads_from_toml_and_accepts_what_it_allows(
    tmp_path: Path, ledger: Ledger
) -> None:
    (tmp_path / "policy.toml").write_text(FULL)
    policy = Policy.load(tmp_path / "policy.toml")
    plan = made_plan()
    policy.check(made_account(plan), plan, ledger)
    Policy().check(made_account(plan), plan, ledger)  # no limits but proof


@pytest.mark.parametrize(
    ("changes", "account", "reason"),
    [
        ({"max_epsilon": 0.5}, {}, "max_epsilon = 0.5"),
        ({"max_epsilon_per_run": 0.999}, {}, "max_epsilon_per_run = 0.999"),
        ({"max_epsilon_per_run": 1.0}, {"tuning_epsilon": 1.7}, "only ε ≤ 1.7"),
        ({"max_epsilon_per_run": 1.0}, {"metrics_epsilon": 1.7}, "only ε ≤ 1.7"),
        ({"max_epsilon": 1.5}, {"metrics_epsilon": 0.9}, "add up to ε ≤ 1.8994"),
        ({"max_delta": 1.5e-5}, {"metrics_epsilon": 0.9}, "add up to δ = 2e-05"),
        ({"max_epsilon_per_run": 1.0}, {"epsilon": math.nan}, "max_epsilon_per_run"),
        ({"max_delta": 1e-6}, {}, "max_delta = 1e-06"),
        ({"min_silos": 6}, {}, "the plan has 5"),
        ({"min_noise_contributors": 5}, {}, "counts on 4"),
        ({"allowed_analyses": ["local"]}, {}, 'rests on "convex-pass"'),
        (
            {"allowed_analyses": ["local"]},
            {"analysis": "local", "metrics_epsilon": 0.9},
            "rest on the noise of other silos",
        ),
        ({}, {"proved": False, "analysis": "per-step"}, '"per-step" is not proved'),
        ({"units": ["silo"]}, {}, "protects one record"),
        ({"allowed_plan_hashes": ["ab" * 32]}, {}, "is not among them"),
        ({}, {"plan_hash": "cd" * 32}, "not of plan"),
    ],
)
def test_every_limit_is_enforced_in_one_line(
    ledger: Ledger, changes: dict[str, object], account: dict[str, object], reason: str
) -> None:
    plan = made_plan()
    with pytest.raises(PolicyError) as refused:
        Policy(**changes).check(made_account(plan, **account), plan, ledger)  # type: ignore[arg-type]
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)
    assert refused.value.exit_code == 3


def test_a_plan_without_a_guarantee_is_refused_by_every_policy(ledger: Ledger) -> None:
    with pytest.raises(PolicyError, match="no privacy guarantee"):
        Policy(require_proved=False).check(None, made_plan(), ledger)


def test_an_allowed_plan_is_allowed_by_its_hash(ledger: Ledger) -> None:
    plan = made_plan()
    Policy(allowed_plan_hashes=(plan.hash,)).check(made_account(plan), plan, ledger)


def test_what_was_spent_before_counts(ledger: Ledger) -> None:
    plan = made_plan()
    policy = Policy(max_epsilon=2.0)
    ledger.enter(made_entry("one", 1, 1.0))
    policy.check(made_account(plan), plan, ledger)
    ledger.enter(made_entry("two", 1, 0.25))
    with pytest.raises(PolicyError, match=r"2 earlier runs .* add up to ε ≤ 2\.2494"):
        policy.check(made_account(plan), plan, ledger)
    # resumed: its own spending is part of its account
    policy.check(made_account(plan), plan, ledger, run="two")


def test_a_silo_plan_is_refused_where_records_were_protected_before(ledger: Ledger) -> None:
    plan = made_plan(privacy__unit="silo", training__algorithm="silo")
    ledger.enter(made_entry("one", 1, 0.1))
    with pytest.raises(PolicyError, match="add up to ε ≤ inf"):
        Policy(max_epsilon=100.0).check(made_account(plan, analysis="silo"), plan, ledger)


def test_two_runs_that_fit_alone_cannot_both_spend(ledger: Ledger) -> None:
    """Both are checked before either spends; the check at the release is the one that holds."""
    plan = made_plan()
    policy = Policy(max_epsilon=1.5)
    for _ in range(2):
        policy.check(made_account(plan), plan, ledger)
    ledger.enter(made_entry("one", 1, 0.9994), allow=policy.check_total)
    with pytest.raises(PolicyError, match="all 2 runs"):
        ledger.enter(made_entry("two", 1, 0.9994), allow=policy.check_total)
    ledger.enter(made_entry("two", 1, 0.5), allow=policy.check_total)


@pytest.mark.parametrize("changes", [{"proved": False}, {"unit": "silo"}])
def test_a_release_is_checked_for_unit_and_proof_too(
    ledger: Ledger, changes: dict[str, object]
) -> None:
    with pytest.raises(PolicyError):
        ledger.enter(
            made_entry("one", 1, 0.1, **changes), allow=Policy(units=("record",)).check_total
        )
    assert ledger.entries() == []


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(limit=st.floats(0.1, 3.0), spent=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8))
def test_no_sequence_of_releases_exceeds_the_limit(
    tmp_path: Path, limit: float, spent: list[float]
) -> None:
    ledger = Ledger.of_dataset(f"{limit}-{spent}", state=tmp_path)
    policy = Policy(max_epsilon=limit)
    for number, epsilon in enumerate(spent):
        try:
            ledger.enter(made_entry(f"run{number}", 1, epsilon), allow=policy.check_total)
        except PolicyError:
            assert ledger.total("record").epsilon + epsilon > limit - 1e-9
    assert ledger.total("record").epsilon <= limit


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("max_epsilonn = 1.0", "Did you mean max_epsilon?"),
        ("colour = 1", "Known: max_epsilon"),
        ("max_epsilon = -1.0", "policy.max_epsilon must be"),
        ("max_epsilon = nan", "policy.max_epsilon must be"),
        ("require_proved = 1", "policy.require_proved must be true or false"),
        ('allowed_analyses = ["magic"]', "policy.allowed_analyses[0] must be one of"),
        ('allowed_plan_hashes = ["ABC"]', "64 hexadecimal digits"),
        ("min_silos = 0", "policy.min_silos must be"),
        ("max_epsilon = ", "must be valid TOML"),
    ],
)
def test_a_malformed_policy_is_refused(source: str, message: str) -> None:
    with pytest.raises(PlanError) as refused:
        Policy.from_toml(source)
    assert message in str(refused.value)


def test_a_missing_policy_file_is_named_not_ignored(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"nowhere\.toml"):
        Policy.load(tmp_path / "nowhere.toml")
