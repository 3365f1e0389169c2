"""What a run may come to spend is set aside before it begins: two that do not fit together do not
both begin, and whatever happens in between counts too much rather than too little.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from books.test_ledger import PLAN, again, made_entry
from sumus.books import (
    Budget,
    Ledger,
    LedgerReleases,
    NoLedger,
    Policy,
    Reservation,
    Total,
)
from sumus.errors import PolicyError, StorageError
from support.synthetic_runs import made_account, made_plan


def reservation(run: str, epsilon: float, **changes: object) -> Reservation:
    values: dict[str, object] = {"unit": "record", "delta": 1e-5, "proved": True}
    return Reservation(run=run, plan_hash=PLAN, epsilon=epsilon, **(values | changes))  # type: ignore[arg-type]


def at_most(limit: float) -> Callable[[Total], None]:
    def allow(total: Total) -> None:
        if total.epsilon > limit:
            raise PolicyError(f"{total.epsilon} is above {limit}")

    return allow


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.of_dataset("visits", state=tmp_path)


def test_a_run_counts_whole_until_it_ends_and_then_with_what_it_has_spent(ledger: Ledger) -> None:
    ledger.reserve(reservation("one", 1.0))
    assert (ledger.total("record").epsilon, again(ledger).committed("record").epsilon) == (0.0, 1.0)
    ledger.enter(made_entry("one", 1, 0.25))
    held = ledger.committed("record")
    assert (held.epsilon, held.reserved, held.runs, held.releases) == (1.0, 0.75, 1, 1)
    assert ledger.end("one", PLAN, why="finished")
    left = again(ledger).committed("record")
    assert (left.epsilon, left.reserved, left.runs) == (0.25, 0.0, 1)
    assert not ledger.end("one", PLAN, why="twice")
    assert ledger.verify() == again(ledger).head


def test_the_second_of_two_that_do_not_fit_together_is_refused_before_it_begins(
    ledger: Ledger,
) -> None:
    ledger.reserve(reservation("one", 1.0), allow=at_most(1.5))
    lines = ledger.lines
    with pytest.raises(PolicyError, match=r"2\.0 is above"):
        again(ledger).reserve(reservation("two", 1.0), allow=at_most(1.5))
    assert again(ledger).lines == lines
    ledger.enter(made_entry("one", 1, 1.0), allow=at_most(1.5))  # the first can end
    ledger.end("one", PLAN, why="finished")
    ledger.reserve(reservation("two", 0.5), allow=at_most(1.5))


def _begin(path: Path, name: str) -> None:
    try:
        Ledger("visits", path).reserve(reservation(name, 1.0), allow=at_most(2.0))
    except PolicyError:
        os._exit(3)
    os._exit(0)


def test_of_many_processes_at_once_as_many_begin_as_fit(ledger: Ledger) -> None:
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=_begin, args=(ledger.path, f"run-{i}")) for i in range(6)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert sorted(child.exitcode or 0 for child in children) == [0, 0, 3, 3, 3, 3]
    assert ledger.committed("record").epsilon == 2.0


def _begin_and_die(path: Path) -> None:
    plan = made_plan()
    account = made_account(plan)
    releases = LedgerReleases(
        ledger=Ledger("visits", path),
        policy=None,
        plan=plan,
        account=account,
        run="killed",
        spent=lambda numbers: 0.1 * len(numbers),
    )
    with releases.reserved():
        releases.enter(0, bytes(32))
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_run_that_is_killed_counts_whole_until_its_people_cancel_it(ledger: Ledger) -> None:
    child = multiprocessing.get_context("fork").Process(target=_begin_and_die, args=(ledger.path,))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    (held,) = ledger.reservations()
    assert ledger.total("record").epsilon == 0.1 < ledger.committed("record").epsilon
    ledger.end(held.run, held.plan_hash, why="cancelled")
    assert ledger.committed("record").epsilon == 0.1


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_run_that_is_interrupted_lets_go_of_what_it_has_not_spent(
    ledger: Ledger, error: type[BaseException]
) -> None:
    plan = made_plan()
    releases = LedgerReleases(
        ledger=ledger,
        policy=None,
        plan=plan,
        account=made_account(plan),
        run="one",
        spent=lambda numbers: 0.1 * len(numbers),
        repeatable=True,
    )

    def interrupted() -> None:
        with releases.reserved():
            releases.enter(0, b"a" * 32)
            raise error

    with pytest.raises(error):
        interrupted()
    assert ledger.committed("record").epsilon == 0.1
    assert ledger.ended("one", plan.hash) is not None
    with releases.reserved():  # resumed: it begins again
        assert ledger.committed("record").reserved > 0.0
        releases.enter(1, b"b" * 32)
    assert ledger.committed("record").epsilon == pytest.approx(0.2)


def test_a_run_that_was_cancelled_releases_nothing_until_its_people_begin_it_again(
    ledger: Ledger,
) -> None:
    ledger.reserve(reservation("one", 1.0))
    ledger.end("one", PLAN, why="cancelled", cancelled=True)
    for attempt in (
        lambda: ledger.enter(made_entry("one", 1, 0.1)),
        lambda: ledger.reserve(reservation("one", 1.0)),
    ):
        with pytest.raises(PolicyError, match="was cancelled on the ledger of visits"):
            attempt()
    assert ledger.entries() == []
    ledger.reserve(reservation("one", 1.0), again=True)
    ledger.enter(made_entry("one", 1, 0.1))


def test_whoever_joins_again_begins_a_cancelled_run_and_no_other(ledger: Ledger) -> None:
    plan = made_plan()
    releases = LedgerReleases(
        ledger=ledger,
        policy=None,
        plan=plan,
        account=made_account(plan),
        run="one",
        spent=lambda numbers: 0.1 * len(numbers),
    )
    releases.begin_again()
    assert ledger.lines == 0
    releases.reserve()
    ledger.end("one", plan.hash, why="cancelled", cancelled=True)
    with pytest.raises(PolicyError, match="was cancelled"):
        releases.enter(0, bytes(32))
    releases.begin_again()
    releases.enter(0, bytes(32))
    assert ledger.committed("record").reserved > 0.0


def test_setting_aside_twice_is_setting_aside_once(ledger: Ledger) -> None:
    for _ in range(3):
        ledger.reserve(reservation("one", 1.0))
    assert (ledger.lines, ledger.committed("record").epsilon) == (1, 1.0)


def test_policy_and_budget_look_at_what_is_set_aside(ledger: Ledger) -> None:
    plan = made_plan().replace("data", name=None, objects="visits")
    account = replace(made_account(plan), epsilon=1.0)
    whole = Reservation.of(account, "one")
    ledger.reserve(whole)
    with pytest.raises(PolicyError, match=r"add up to ε ≤ 2\.") as refused:
        Policy(max_epsilon=1.5).check(account, plan, ledger)
    assert "sumus ledger cancel" in str(refused.value)
    Policy(max_epsilon=1.5).check(account, plan, ledger, run="one")  # its own is no other's
    budget = Budget.of(plan, ledger, asked=1.5)
    assert budget is not None
    with pytest.raises(PolicyError, match="set aside by runs that have not ended"):
        budget.check(account)
    budget.check(account, run="one")


def test_measurements_and_tuning_are_set_aside_too() -> None:
    plan = made_plan()
    account = replace(
        made_account(plan), epsilon=1.0, tuning_epsilon=1.5, metrics_epsilon=0.25, delta=1e-5
    )
    whole = Reservation.of(account, "one")
    assert (whole.epsilon, whole.delta) == (1.75, 2e-5)


def test_a_reservation_of_silos_counts_twice_for_a_record_and_one_of_records_bounds_no_silo(
    ledger: Ledger,
) -> None:
    ledger.reserve(reservation("one", 1.0, unit="silo"))
    assert ledger.committed("record").epsilon == 2.0
    ledger.reserve(reservation("two", 1.0))
    assert math.isinf(ledger.committed("silo").epsilon)


def test_a_moved_ledger_brings_what_is_set_aside_there(tmp_path: Path, ledger: Ledger) -> None:
    old = Ledger.of_dataset("visits", state=tmp_path / "old")
    old.reserve(reservation("one", 1.0))
    old.enter(made_entry("one", 1, 0.25))
    assert ledger.adopt(old) == 1
    assert ledger.committed("record").epsilon == 1.0


def test_a_line_of_another_version_is_an_error_and_no_smaller_total(ledger: Ledger) -> None:
    ledger.reserve(reservation("one", 1.0))
    ledger._append("gift", {"run": "one"})
    with pytest.raises(StorageError, match=r"line 2 is a line of another version \('gift'\)"):
        again(ledger).committed("record")


def test_who_has_no_ledger_sets_nothing_aside() -> None:
    NoLedger("test").reserve()
    NoLedger("test").end("finished")


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["reserve", "enter", "end"]),
        st.sampled_from("abc"),
        st.integers(min_value=1, max_value=8),
    ),
    max_size=12,
)


@pytest.mark.deep
@settings(max_examples=60, deadline=None)
@given(steps=_STEPS)
def test_what_is_committed_is_the_larger_of_spent_and_set_aside_run_by_run(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, int]]
) -> None:
    """Against a dictionary; eighths are exact."""
    ledger = Ledger.of_dataset("visits", state=tmp_path_factory.mktemp("ledger"))
    spent, held, over = dict.fromkeys("abc", 0.0), dict.fromkeys("abc", 0.0), set[str]()
    for number, (what, run, eighths) in enumerate(steps, start=1):
        if what == "reserve":
            ledger.reserve(reservation(run, eighths / 8), again=True)
            held[run] = eighths / 8
            over.discard(run)
        elif what == "end":
            if held[run]:
                over.add(run)
            ledger.end(run, PLAN, why="cancelled", cancelled=True)
            held[run] = 0.0
        elif run in over:
            with pytest.raises(PolicyError):
                ledger.enter(made_entry(run, number, eighths / 8))
        else:
            ledger.enter(made_entry(run, number, eighths / 8))
            spent[run] = max(spent[run], eighths / 8)
    expected = sum(max(spent[run], held[run]) for run in "abc")
    assert again(ledger).committed("record").epsilon == expected
