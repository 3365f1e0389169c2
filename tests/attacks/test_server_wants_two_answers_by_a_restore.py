"""A server has a silo answer rounds, waits until the silo's people restore an older backup, and asks
for the same rounds again: two noisy answers to one round, or the same masks once more.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sumus.parties.memory import SiloState
from sumus.secagg.messages import MaskedInput, Refusal
from support.local_federation import LocalFederation, plan, refused
from support.restoring import SILO, LosingSilo, cheap_passphrases

__all__ = ["cheap_passphrases"]

pytestmark = pytest.mark.deep
ROUNDS = 6


@pytest.fixture
def silo(tmp_path: Path) -> Iterator[LosingSilo]:
    across = LocalFederation(tmp_path, plan({"federation.rounds": ROUNDS}))
    yield LosingSilo(tmp_path, across)
    across.close()


def test_by_a_copy_of_the_files(silo: LosingSilo) -> None:
    """The control: plain files that are put back answer again, with other noise."""
    silo.answers(0)
    copies = silo.copy()
    before = silo.ask(1)
    silo.lose(ledger=True)
    silo.put_back(copies)
    silo.pass_keys()
    again = silo.ask(1, attempt=1)
    assert isinstance(before, MaskedInput)
    assert isinstance(again, MaskedInput)
    assert again.vector != before.vector
    assert silo.rounds_on_ledger() == [0, 1]  # two answers to round 2 left, one is counted


@pytest.mark.parametrize("since", [0, 1, 3])
def test_after_everything_was_lost(silo: LosingSilo, since: int) -> None:
    """However many rounds were answered since the backup, none of the plan is answered again."""
    assert silo.answers(0)
    backup = silo.back_up()
    for number in range(1, 1 + since):
        assert silo.answers(number)
    silo.lose(ledger=True)
    silo.restore(backup)
    greeted = silo.across.ask(SILO, silo.across.greeting())
    assert "counts every round of plan" in refused(greeted)
    for number in range(ROUNDS):
        assert isinstance(silo.ask(number, attempt=1), Refusal)


def test_with_an_invitation_before_any_greeting(silo: LosingSilo) -> None:
    """The first message that the restored process hears is the old invitation, word for word."""
    silo.answers(0)
    backup = silo.back_up()
    _, invitation = silo.invite(1)
    assert isinstance(silo.across.ask(SILO, invitation), MaskedInput)
    silo.lose(ledger=True)
    silo.restore(backup)
    assert "counts every round" in refused(silo.across.ask(SILO, invitation))


def test_where_the_ledger_survived(silo: LosingSilo) -> None:
    """The silo goes on behind what its ledger has, and with keys that nobody had before."""
    silo.answers(0)
    backup = silo.back_up()
    _, invitation = silo.invite(2)
    silo.answers(1)
    before = silo.across.ask(SILO, invitation)
    assert isinstance(before, MaskedInput)
    silo.lose(ledger=False)
    silo.restore(backup, ledger_survived=True)
    assert "not one that this silo has agreed on" in refused(silo.across.ask(SILO, invitation))
    silo.pass_keys()
    for number in (0, 1, 2):
        assert "already" in refused(silo.ask(number, attempt=1))
    assert silo.answers(3)
    assert silo.rounds_on_ledger() == [0, 1, 2, 3]


def test_by_a_plan_that_the_backup_does_not_know(tmp_path: Path) -> None:
    """A plan that was approved after the backup is not run until the silo's people vouch for it."""
    across = LocalFederation(tmp_path, plan({"federation.rounds": 2}))
    silo = LosingSilo(tmp_path, across)
    path = silo.vault / "plans" / "plan.toml"
    approved = path.read_text()
    path.unlink()
    backup = silo.back_up()
    path.write_text(approved)
    assert silo.answers(0)
    silo.lose(ledger=True)
    silo.restore(backup)
    (silo.vault / "plans" / "plan.toml").write_text(approved)
    _, invitation = silo.invite(0, attempt=1)
    assert "does not know plan" in refused(silo.across.ask(SILO, invitation))
    assert "does not know plan" in refused(across.ask(SILO, across.greeting()))
    across.close()


def test_no_root_of_before_is_in_a_restored_vault(silo: LosingSilo) -> None:
    """What masked the rounds before is gone: no key set, no key of the round in flight."""
    silo.answers(0)
    backup = silo.back_up()
    (kept,) = silo.vault.glob("sessions/*/keys")
    lost = kept.read_bytes()
    state = SiloState(silo.vault)
    silo.lose(ledger=False)
    silo.restore(backup, ledger_survived=True)
    session = bytes.fromhex(kept.parent.name)
    ring = state.session(session, bytes.fromhex(silo.plan_hash)).ring
    assert (ring.sets, ring.pending, ring.round.pair_keys) == ((), b"", {})
    assert ring.round.sequence == 0
    assert len(kept.read_bytes()) < len(lost)
