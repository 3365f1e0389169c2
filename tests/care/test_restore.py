"""What a restore makes of ledgers that are older, longer, other or gone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sumus.books import Ledger, LedgerEntry
from sumus.care.backup import KEY, LEDGER, Backup, BackupNote, Manifest
from sumus.care.restore import _Past
from sumus.errors import StorageError
from sumus.parties import Restored, last_sum, run_on_ledger, sums_of
from sumus.plan import TrainingPlan

HASH = "ab" * 32


def entry(round: int, *, plan_hash: str = HASH, purpose: str = "model") -> LedgerEntry:
    return LedgerEntry(
        run=run_on_ledger(plan_hash, "graz"),
        round=round,
        round_id=f"{purpose}{round}",
        plan_hash=plan_hash,
        epsilon=0.1 * round,
        delta=1e-5,
        proved=True,
        analysis="convex-pass",
        accountant="pld",
        unit="record",
        neighbours="add or remove",
        trust="everybody",
        purpose=purpose,
    )


def ledger_with(folder: Path, *entries: LedgerEntry, dataset: str = "visits") -> Ledger:
    ledger = Ledger.of_dataset(dataset, state=folder)
    for each in entries:
        ledger.enter(each)
    return ledger


def test_the_latest_entry_says_where_a_run_is_and_not_the_largest(tmp_path: Path) -> None:
    """A plan that began anew after its vault was lost is in its first rounds again."""
    again = replace(entry(1), round_id="again")
    past = _Past("graz", ledger_with(tmp_path, entry(1), entry(5), again), tmp_path)
    assert past.latest(HASH) == 0
    assert past.answered_by_plan() == {HASH: 8}


def test_other_ledgers_count_for_what_was_answered(tmp_path: Path) -> None:
    """The silo may have had other records for a while; a round is answered once all the same."""
    own = ledger_with(tmp_path, entry(2))
    ledger_with(tmp_path, entry(4, purpose="metrics"), dataset="other")
    ledger_with(tmp_path, replace(entry(9), run="somebody's"), dataset="third")
    assert _Past("graz", own, tmp_path).answered_by_plan() == {HASH: 7}
    assert _Past("oulu", own, tmp_path).answered_by_plan() == {}


@pytest.mark.parametrize(("here", "there"), [(0, 3), (1, 3), (3, 3), (4, 3)])
def test_a_ledger_takes_in_a_copy_of_itself(tmp_path: Path, here: int, there: int) -> None:
    entries = [entry(number, plan_hash=HASH) for number in range(1, 5)]
    timed = [replace(each, time="2026-08-01T00:00:00+00:00") for each in entries]
    mine = ledger_with(tmp_path / "mine", *timed[:here])
    theirs = ledger_with(tmp_path / "theirs", *timed[:there])
    assert mine.take_in(theirs.path) == max(0, there - here)
    assert len(Ledger.of_dataset("visits", state=tmp_path / "mine").entries()) == max(here, there)
    assert mine.contains(theirs.path)
    assert theirs.contains(mine.path) is (here <= there)
    mine.verify()


def test_ledgers_that_parted_are_not_mixed(tmp_path: Path) -> None:
    mine = ledger_with(tmp_path / "mine", entry(1), entry(2))
    theirs = ledger_with(tmp_path / "theirs", entry(1), replace(entry(2), round_id="another"))
    head = mine.head
    with pytest.raises(StorageError, match="both have entries that the other lacks"):
        mine.take_in(theirs.path)
    assert mine.head == head
    other = ledger_with(tmp_path / "theirs", entry(1), dataset="other")
    with pytest.raises(StorageError):
        mine.take_in(other.path)


def test_no_number_falls_and_nothing_unknown_becomes_known() -> None:
    first = Restored(backup="a", made="m", restored="r", answered={"p": 5, "q": 1}, known_only=True)
    later = Restored(
        backup="b", made="n", restored="s", answered={"p": 3, "x": 2}, known_only=False
    )
    merged = first.merged(later)
    assert merged.answered == {"p": 5, "q": 1, "x": 2}
    assert (merged.backup, merged.known_only) == ("b", True)


def test_sums_of_a_plan_have_an_order_and_an_end() -> None:
    plan = TrainingPlan.from_toml("[federation]\nrounds = 3\n[evaluation]\nmetrics = 'none'\n")
    assert sums_of(plan) == [(0, "model"), (1, "model"), (2, "model")]
    assert last_sum(plan) == 4
    measured = plan.replace("evaluation", metrics="secure", every=2)
    assert sums_of(measured) == [
        (0, "model"),
        (1, "model"),
        (1, "metrics"),
        (2, "model"),
        (2, "metrics"),
    ]
    assert last_sum(measured) == 5


def test_a_vault_knows_when_its_backup_is_behind(tmp_path: Path) -> None:
    (tmp_path / "plans").mkdir()
    texts = {"roster.toml": b"r", "site.toml": b"s", "policy.toml": b"p", "plans/a.toml": b"plan"}
    for name, content in texts.items():
        (tmp_path / name).write_bytes(content)
    manifest = Manifest(silo="graz", made="now", sumus="0", dataset="visits", files={})
    backup = Backup(manifest, {**texts, LEDGER: b"one\ntwo\n", KEY: b"graz key"})
    note = BackupNote.of(backup)
    assert note.entries == 2
    assert not note.is_behind(tmp_path)
    (tmp_path / "plans" / "b.toml").write_bytes(b"another plan")
    assert note.is_behind(tmp_path)
    (tmp_path / "plans" / "b.toml").unlink()
    (tmp_path / "policy.toml").write_bytes(b"looser")
    assert note.is_behind(tmp_path)
