"""Ledger: entered before it leaves, never counted too low, every change noticed, several writers at
once.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import shutil
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from files.test_storage import under_file_limit
from sumus.books import Ledger, LedgerEntry, Total, dataset_of, state_directory, without_bound
from sumus.errors import PolicyError, StorageError
from support.synthetic_runs import made_account, made_plan

PLAN = "ab" * 32


def made_entry(
    run: str = "one", number: int = 1, epsilon: float = 0.5, **changes: object
) -> LedgerEntry:
    values: dict[str, object] = {
        "run": run,
        "round": number,
        "round_id": f"{run}/{number}",
        "plan_hash": PLAN,
        "epsilon": epsilon,
        "delta": 1e-5,
        "proved": True,
        "analysis": "convex-pass",
        "accountant": "pld",
        "unit": "record",
        "neighbours": "one record of one silo, add or remove",
        "trust": "4 of 5 silos present and honest; server honest-but-curious",
    }
    return LedgerEntry(**(values | changes))  # type: ignore[arg-type]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.of_dataset("visits", state=tmp_path)


def again(ledger: Ledger) -> Ledger:
    """The same ledger as another process sees it."""
    return Ledger(ledger.dataset, ledger.path)


def test_metrics_are_entered_with_an_analysis_and_a_trust_of_their_own() -> None:
    """A model may rest on its silo's own noise alone; the counts of test records never do."""
    others, nobody = (
        "4 of 5 silos present and honest; server honest-but-curious",
        "no other silo: the silo's own noise alone",
    )
    account = made_account(
        made_plan(), analysis="local", trust=nobody, metrics_epsilon=0.9, metrics_trust=others
    )
    names = {"run": "one", "round": 1, "round_id": "one/1"}
    model = LedgerEntry.of(account, **names, epsilon=0.5)
    metrics = LedgerEntry.of(account, **names, epsilon=0.9, purpose="metrics")
    assert (model.purpose, model.analysis, model.trust, model.epsilon) == (
        "model",
        "local",
        nobody,
        0.5,
    )
    assert (metrics.purpose, metrics.analysis, metrics.trust, metrics.epsilon) == (
        "metrics",
        "counts",
        others,
        0.9,
    )
    assert LedgerEntry.of(account, **names, epsilon=0.9, purpose="metrics") == metrics
    assert "counts on 4 of 5 silos" in next(
        line for line in str(account).splitlines() if line.startswith("  metrics")
    )


# -- counting


def test_a_sum_without_a_bound_says_which_runs_protect_less() -> None:
    assert without_bound("record") == "not all of them added noise"
    assert without_bound("person").startswith("some of them protect records instead of persons, or")


def test_an_unused_data_set_has_spent_nothing(ledger: Ledger) -> None:
    assert ledger.entries() == []
    assert ledger.total("record") == Total(
        unit="record", epsilon=0.0, delta=0.0, proved=True, runs=0, releases=0
    )
    assert not ledger.path.exists()  # looking does not create it


def test_rounds_of_a_run_count_by_their_last_and_runs_add_up(ledger: Ledger) -> None:
    for number, epsilon in enumerate((0.25, 0.375, 0.5), start=1):
        ledger.enter(made_entry("one", number, epsilon))
    ledger.enter(made_entry("two", 1, 0.75, delta=1e-6))
    total = again(ledger).total("record")
    assert total.epsilon == 1.25
    assert total.delta == pytest.approx(1.1e-5)
    assert (total.runs, total.releases, total.proved) == (2, 4, True)
    assert ledger.total("record", without="two").epsilon == 0.5


def test_a_repeated_round_counts_once(ledger: Ledger) -> None:
    for number in (1, 2, 2, 3):  # round 2 was interrupted and repeated bit for bit
        ledger.enter(made_entry("one", number, 0.1 * number))
    assert ledger.total("record").epsilon == pytest.approx(0.3)
    assert ledger.total("record").releases == 3
    assert {(entry.round_id, entry.purpose) for entry in ledger.entries()} == {
        (f"one/{number}", "model") for number in (1, 2, 3)
    }


@pytest.mark.parametrize(
    "trick", ["same name", "same name, replayed round in between", "same name, other plan"]
)
def test_a_server_that_gives_two_runs_one_name_saves_no_epsilon(ledger: Ledger, trick: str) -> None:
    """The attacker wants a second run on the same records without the ledger noticing."""
    for number in (1, 2, 3):
        ledger.enter(made_entry("one", number, 0.25 * number))
    if trick == "same name, replayed round in between":
        ledger.enter(made_entry("one", 1, 0.25))
    plan, start = ("cd" * 32, 4) if trick == "same name, other plan" else (PLAN, 1)
    for number in (0, 1, 2):
        ledger.enter(
            made_entry(
                "one",
                start + number,
                0.25 * (number + 1),
                round_id=f"second/{number}",
                plan_hash=plan,
            )
        )
    assert ledger.total("record").epsilon == 1.5


def test_purposes_of_one_run_add_up(ledger: Ledger) -> None:
    ledger.enter(made_entry("one", 1, 0.5))
    ledger.enter(made_entry("one", 1, 0.25, purpose="metrics"))
    assert ledger.total("record").epsilon == 0.75


def test_one_unproved_release_makes_the_total_unproved(ledger: Ledger) -> None:
    ledger.enter(made_entry("one", 1, 0.1, proved=False))
    ledger.enter(made_entry("one", 2, 0.2))
    assert not ledger.total("record").proved


def test_a_silo_run_costs_a_record_twice_and_a_record_run_says_nothing_about_a_silo(
    ledger: Ledger,
) -> None:
    ledger.enter(made_entry("one", 1, 0.5, unit="silo"))
    assert ledger.total("silo").epsilon == 0.5
    record = ledger.total("record")
    assert record.epsilon == 1.0
    assert record.delta == pytest.approx((1.0 + math.exp(0.5)) * 1e-5)
    ledger.enter(made_entry("two", 1, 0.25))
    assert ledger.total("record").epsilon == 1.25
    assert ledger.total("silo").epsilon == math.inf


def test_what_runs_of_other_units_say_about_a_person(ledger: Ledger) -> None:
    ledger.enter(made_entry("one", 1, 0.5, unit="person"))
    assert ledger.total("person").epsilon == 0.5
    assert ledger.total("record").epsilon == 1.0  # the person without rows lies in between
    assert ledger.total("silo").epsilon == math.inf
    ledger.enter(made_entry("two", 1, 0.25, unit="silo"))
    assert ledger.total("person").epsilon == 1.0
    assert ledger.total("person").delta == pytest.approx(1e-5 + (1.0 + math.exp(0.25)) * 1e-5)
    ledger.enter(made_entry("three", 1, 0.25, unit="record"))
    assert ledger.total("person").epsilon == math.inf


def test_a_run_without_noise_spends_everything(ledger: Ledger) -> None:
    ledger.enter(made_entry("one", 1, 0.5))
    ledger.enter(
        LedgerEntry.without_noise(
            made_plan(training__algorithm="fedavg"), run="two", round=1, round_id="x"
        )
    )
    total = again(ledger).total("record")
    assert total.epsilon == math.inf
    assert not total.proved


@pytest.mark.parametrize("epsilon", [math.nan, -0.1])
def test_a_negative_or_missing_epsilon_is_refused(ledger: Ledger, epsilon: float) -> None:
    with pytest.raises(StorageError, match="epsilon must be"):
        ledger.enter(made_entry("one", 1, epsilon))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(0.0, 1e6), max_size=12))
def test_the_sum_is_never_rounded_down(values: list[float]) -> None:
    from sumus.books.spending import sum_up

    exact = sum(map(Fraction, values), Fraction(0))
    assert Fraction(sum_up(values)) >= exact
    assert sum_up(values) <= math.nextafter(math.nextafter(math.fsum(values), math.inf), math.inf)


def test_an_entry_takes_everything_that_must_stand_beside_an_epsilon_from_the_account(
    ledger: Ledger,
) -> None:
    plan = made_plan()
    account = made_account(plan)
    (entered,) = ledger.enter(LedgerEntry.of(account, run="r", round=1, round_id="x", epsilon=0.3))
    assert (entered.unit, entered.neighbours, entered.trust) == (
        account.unit,
        account.neighbours,
        account.trust,
    )
    assert (entered.analysis, entered.proved, entered.plan_hash) == (
        account.analysis,
        account.proved,
        plan.hash,
    )
    assert entered.time
    assert again(ledger).entries() == [entered]


# -- crashes, damage, full disks


class Killed(BaseException):
    """Stands for kill -9."""


@pytest.mark.parametrize("point", range(45))
def test_a_crash_at_any_system_call_never_forgets_a_release_that_may_have_left(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, point: int
) -> None:
    ledger.enter(made_entry("one", 1, 0.5))
    left = point
    for name in ("write", "fsync", "replace", "ftruncate", "open", "close", "lseek"):
        original = getattr(os, name)

        def call(*arguments: object, original: object = original, **named: object) -> object:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            return original(*arguments, **named)  # type: ignore[operator]

        monkeypatch.setattr(os, name, call)
    may_have_left = False
    try:
        ledger.enter(made_entry("two", 1, 0.25))
        may_have_left = True
    except Killed:
        pass
    monkeypatch.undo()
    ledger._lock.release()
    after = again(ledger)
    assert after.total("record").epsilon == 0.75 or (
        not may_have_left and after.total("record").epsilon == 0.5
    )
    after.enter(made_entry("three", 1, 0.25))
    assert after.total("record").epsilon >= (1.0 if may_have_left else 0.75)
    after.verify()


@pytest.mark.deep
@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_ledger_cut_at_any_byte_is_an_error_and_never_a_smaller_total(
    tmp_path: Path, data: st.DataObject
) -> None:
    original = Ledger.of_dataset("visits", state=tmp_path / "original")
    if not original.path.exists():
        for number in (1, 2, 3, 4):
            original.enter(made_entry(f"run{number}", 1, 0.25))
    shutil.rmtree(tmp_path / "copy", ignore_errors=True)
    shutil.copytree(tmp_path / "original", tmp_path / "copy")
    cut = Ledger.of_dataset("visits", state=tmp_path / "copy")
    content = cut.path.read_bytes()
    length = data.draw(st.integers(0, len(content)))
    cut.path.write_bytes(content[:length])
    if length >= len(content) - 1:  # only the last line feed is missing: every entry is there
        assert cut.total("record").epsilon == 1.0
    else:
        with pytest.raises(StorageError, match=r"ledger-visits\.jsonl"):
            cut.total("record")


def test_a_torn_entry_that_was_never_completed_is_recovered(ledger: Ledger) -> None:
    """The head is not yet written when an append is torn, so nothing of it can have left."""
    ledger.enter(made_entry("one", 1, 0.5))
    whole = ledger.path.read_bytes()
    head = ledger._head_path.read_bytes()
    ledger.enter(made_entry("two", 1, 0.25))
    longer = ledger.path.read_bytes()
    for length in range(len(whole), len(longer) + 1, 7):
        ledger.path.write_bytes(longer[:length])
        ledger._head_path.write_bytes(head)
        fresh = again(ledger)
        assert fresh.total("record").epsilon == (0.75 if length >= len(longer) - 1 else 0.5)
        fresh.enter(made_entry("three", 1, 0.25))
        assert again(ledger).total("record").epsilon == (1.0 if length >= len(longer) - 1 else 0.75)


@pytest.mark.deep
@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_every_changed_byte_of_either_file_is_noticed(tmp_path: Path, data: st.DataObject) -> None:
    original = Ledger.of_dataset("visits", state=tmp_path / "original")
    if not original.path.exists():
        for number in (1, 2, 3):
            original.enter(made_entry(f"run{number}", 1, 0.25))
    shutil.rmtree(tmp_path / "copy", ignore_errors=True)
    shutil.copytree(tmp_path / "original", tmp_path / "copy")
    changed = Ledger.of_dataset("visits", state=tmp_path / "copy")
    file = data.draw(st.sampled_from([changed.path, changed._head_path]))
    content = bytearray(file.read_bytes())
    place = data.draw(st.one_of(st.integers(0, len(content) - 1), st.just(len(content) - 1)))
    content[place] ^= data.draw(st.integers(1, 255))
    file.write_bytes(bytes(content))
    with pytest.raises(StorageError, match="ledger-visits"):
        changed.verify()


@pytest.mark.parametrize("gone", ["jsonl", "head.json"])
def test_a_missing_half_of_a_ledger_is_an_error_not_a_fresh_start(
    ledger: Ledger, gone: str
) -> None:
    ledger.enter(made_entry())
    (ledger.path if gone == "jsonl" else ledger._head_path).unlink()
    with pytest.raises(StorageError, match="ledger-visits"):
        again(ledger).total("record")
    with pytest.raises(StorageError, match="ledger-visits"):
        again(ledger).enter(made_entry("two"))


def test_the_ledger_of_another_data_set_under_this_name_is_refused(
    ledger: Ledger, tmp_path: Path
) -> None:
    ledger.enter(made_entry())
    with pytest.raises(StorageError, match="is of the data set 'visits'"):
        Ledger("other", ledger.path).entries()


@pytest.mark.deep
def test_a_full_disk_refuses_the_release_and_keeps_the_ledger(ledger: Ledger) -> None:
    ledger.enter(made_entry("one", 1, 0.5))
    done = under_file_limit(
        5000,
        f"""
        import sys
        sys.path[:0] = {[str(Path(__file__).parent.parent)]!r}
        from pathlib import Path
        from books.test_ledger import made_entry
        from sumus.errors import StorageError
        from sumus.books import Ledger
        entered = 0
        try:
            for number in range(100):
                Ledger("visits", Path({str(ledger.path)!r})).enter(made_entry(f"more{{number}}", 1, 0.25))
                entered += 1
        except StorageError as error:
            print(entered, error)
        """,
    )
    assert done.returncode == 0, done.stderr
    entered, message = done.stdout.split(" ", 1)
    assert "ledger-visits.jsonl cannot be written: no space left" in message
    assert again(ledger).total("record").epsilon == 0.5 + 0.25 * int(entered)
    assert int(entered) > 0


# -- several writers


def _enter_many(path: Path, name: str) -> None:
    ledger = Ledger("visits", path)
    for number in range(1, 11):
        ledger.enter(made_entry(f"{name}{number}", 1, 0.25))


def test_writers_in_several_processes_lose_nothing(ledger: Ledger) -> None:
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=_enter_many, args=(ledger.path, name)) for name in "abc"]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0, 0, 0]
    assert ledger.total("record").epsilon == 7.5
    assert ledger.verify() == again(ledger).head


def test_a_refused_total_leaves_no_entry(ledger: Ledger) -> None:
    ledger.enter(made_entry("one", 1, 0.5))
    seen: list[Total] = []

    def refuse(total: Total) -> None:
        seen.append(total)
        raise PolicyError("too much")

    with pytest.raises(PolicyError):
        ledger.enter(made_entry("two", 1, 0.25), allow=refuse)
    assert seen[0].epsilon == 0.75
    assert ledger.total("record").epsilon == 0.5
    ledger.enter(made_entry("three", 1, 0.125))  # the lock was let go
    assert ledger.total("record").epsilon == 0.625


def test_releases_that_leave_together_are_entered_together_or_not_at_all(ledger: Ledger) -> None:
    pair = (made_entry("one", 1, 0.25, purpose="metrics"), made_entry("one", 1, 0.5))

    def below_a_half(total: Total) -> None:
        if total.epsilon > 0.5:
            raise PolicyError(f"{total.epsilon} is too much")

    with pytest.raises(PolicyError, match=r"0\.75"):
        ledger.enter(*pair, allow=below_a_half)
    assert ledger.entries() == []
    ledger.enter(*pair)
    assert again(ledger).entries() == ledger.entries()
    assert [entry.purpose for entry in ledger.entries()] == ["metrics", "model"]
    assert ledger.total("record").epsilon == 0.75
    ledger.enter(*pair)  # a round that was entered in part and is entered again counts once
    assert ledger.total("record").epsilon == 0.75
    assert ledger.verify() == again(ledger).head


def test_a_pair_of_which_only_the_first_reached_the_disk_counts_that_one(ledger: Ledger) -> None:
    ledger.enter(made_entry("one", 1, 0.25))
    before = ledger.path.with_suffix(".head.json").read_bytes()
    ledger.enter(made_entry("one", 2, 0.25, purpose="metrics"), made_entry("one", 2, 0.5))
    lines = ledger.path.read_bytes().splitlines(keepends=True)
    # the power failed: half a line, and the head of before
    ledger.path.write_bytes(b"".join(lines[:2]) + lines[2][:9])
    ledger.path.with_suffix(".head.json").write_bytes(before)
    assert [entry.purpose for entry in again(ledger).entries()] == ["model", "metrics"]
    after = again(ledger)
    after.enter(made_entry("one", 2, 0.25, purpose="metrics"), made_entry("one", 2, 0.5))
    assert after.total("record").epsilon == 0.75


# -- where ledgers live


@settings(max_examples=200, deadline=None)
@given(one=st.text(min_size=1, max_size=30), two=st.text(min_size=1, max_size=30))
def test_different_data_sets_have_different_files_inside_the_state_directory(
    one: str, two: str
) -> None:
    state = Path("/state")
    paths = []
    for name in (one, two):
        try:
            name.encode()
        except UnicodeEncodeError:
            return
        paths.append(Ledger.of_dataset(name, state=state).path)
    assert (paths[0] == paths[1]) == (one == two)
    assert all(path.parent == state for path in paths)


def test_the_state_directory_can_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SUMUS_STATE", str(tmp_path))
    assert state_directory() == tmp_path
    monkeypatch.delenv("SUMUS_STATE")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/someone")
    assert state_directory() == Path("/home/someone/.local/state/sumus")


def test_a_plan_spends_from_the_ledger_of_its_data() -> None:
    assert dataset_of(made_plan()) == "digits"
    by_file = made_plan(data__name=None).with_overrides(
        {
            "data.path": "/a/patients.parquet",
            "data.silo_column": "hospital",
            "data.label_column": "y",
        }
    )
    assert dataset_of(by_file) == "patients"


def test_all_ledgers_are_found(tmp_path: Path) -> None:
    for name in ("visits", "Größe / 2"):
        Ledger.of_dataset(name, state=tmp_path).enter(made_entry())
    assert sorted(ledger.dataset for ledger in Ledger.all(state=tmp_path)) == [
        "Größe / 2",
        "visits",
    ]
