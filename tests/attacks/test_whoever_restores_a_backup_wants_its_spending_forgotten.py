"""Somebody at a silo restores yesterday's backup, so that what was released today costs nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sumus.books import LedgerReleases
from sumus.errors import StorageError
from sumus.parties import agree_on, approve
from support.local_federation import LocalFederation, plan
from support.restoring import LosingSilo, cheap_passphrases

__all__ = ["cheap_passphrases"]

pytestmark = pytest.mark.deep
ROUNDS = 4


@pytest.fixture
def silo(tmp_path: Path) -> Iterator[LosingSilo]:
    across = LocalFederation(tmp_path, plan({"federation.rounds": ROUNDS}))
    yield LosingSilo(tmp_path, across)
    across.close()


def test_by_a_copy_of_the_files(silo: LosingSilo) -> None:
    """The control: plain files that are put back have forgotten what was spent since."""
    silo.answers(0)
    copies = silo.copy()
    silo.answers(1)
    spent = silo.epsilon()
    silo.lose(ledger=True)
    silo.put_back(copies)
    assert silo.epsilon() < spent


@pytest.mark.parametrize("since", [0, 1, 3])
def test_a_restored_ledger_counts_all_that_may_have_left(silo: LosingSilo, since: int) -> None:
    silo.answers(0)
    backup = silo.back_up()
    for number in range(1, 1 + since):
        silo.answers(number)
    spent = silo.epsilon()
    silo.lose(ledger=True)
    (charge,) = silo.restore(backup).charges
    assert (charge.presumed, charge.is_over) == (ROUNDS - 1, True)
    assert silo.rounds_on_ledger() == list(range(ROUNDS))
    whole = silo.across.agreement.account.epsilon
    assert silo.epsilon() == pytest.approx(whole, rel=1e-9)
    assert silo.epsilon() >= spent
    silo.ledger.verify()


def test_a_backup_made_between_claim_and_entry_misses_no_release(
    silo: LosingSilo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The vault runs while it is backed up: round 2 is claimed already, and not entered yet."""
    backups, enter = [], LedgerReleases.enter

    def entered_late(releases: LedgerReleases, number: int, *rest: Any) -> None:
        backups.append(silo.back_up())
        enter(releases, number, *rest)

    silo.answers(0)
    monkeypatch.setattr(LedgerReleases, "enter", entered_late)
    assert silo.answers(1)
    monkeypatch.undo()
    silo.lose(ledger=True)
    (charge,) = silo.restore(backups[0]).charges
    assert silo.rounds_on_ledger() == list(range(ROUNDS))
    assert charge.presumed == ROUNDS - 1


def test_nothing_is_presumed_of_a_ledger_that_survived(silo: LosingSilo) -> None:
    silo.answers(0)
    backup = silo.back_up()
    silo.answers(1)
    head, spent = silo.ledger.head, silo.epsilon()
    silo.lose(ledger=False)
    (charge,) = silo.restore(backup, ledger_survived=True).charges
    assert (charge.presumed, charge.is_over) == (0, False)
    assert (silo.ledger.head, silo.epsilon()) == (head, spent)


def test_an_old_copy_does_not_pass_for_a_ledger_that_survived(silo: LosingSilo) -> None:
    """It lacks what even the backup knows."""
    copies = silo.copy()
    silo.answers(0)
    backup = silo.back_up()
    silo.lose(ledger=True)
    copies[1].rename(silo.state)
    with pytest.raises(StorageError, match="lacks entries that the backup has"):
        silo.restore(backup, ledger_survived=True)
    assert not silo.vault.exists()


def test_restoring_twice_charges_once(silo: LosingSilo) -> None:
    """A restore that was interrupted is made again; so is one whose vault is thrown away."""
    silo.answers(0)
    backup = silo.back_up()
    silo.lose(ledger=True)
    silo.restore(backup)
    spent, entries = silo.epsilon(), len(silo.ledger.entries())
    silo.lose(ledger=False)
    (charge,) = silo.restore(backup).charges
    assert charge.presumed == 0
    assert charge.is_over
    assert (silo.epsilon(), len(silo.ledger.entries())) == (spent, entries)


def test_a_later_loss_forgets_no_earlier_one(silo: LosingSilo) -> None:
    """A backup of a restored vault, restored with a ledger that survived, still answers nothing."""
    silo.answers(0)
    backup = silo.back_up()
    silo.answers(1)
    silo.lose(ledger=True)
    silo.restore(backup)
    later = silo.back_up()
    silo.lose(ledger=False)
    (charge,) = silo.restore(later, ledger_survived=True).charges
    assert charge.is_over
    unknown = agree_on(plan({"federation.rounds": 1})).plan
    with pytest.raises(StorageError, match="may have been answered since"):
        approve(silo.vault, [unknown])


def test_a_plan_approved_since_is_charged_when_it_is_named(silo: LosingSilo) -> None:
    backup = silo.back_up()
    later = plan({"federation.rounds": 2})
    silo.lose(ledger=True)
    charges = silo.restore(backup, also=[later]).charges
    assert [charge.presumed for charge in charges] == [ROUNDS, 2]
    whole = silo.across.agreement.account.epsilon + agree_on(later).account.epsilon
    assert silo.epsilon() == pytest.approx(whole, rel=1e-9)


def test_a_plan_is_vouched_for_by_the_silos_people_alone(silo: LosingSilo) -> None:
    backup = silo.back_up()
    silo.lose(ledger=True)
    silo.restore(backup)
    unknown = plan({"federation.rounds": 2})
    with pytest.raises(StorageError, match="--never-run"):
        approve(silo.vault, [unknown])
    assert not list((silo.vault / "plans").glob(f"{unknown.hash}*"))
    approve(silo.vault, [unknown], never_run=True)
    approve(silo.vault, [unknown])  # said once
