"""A backup and a restore stand in the silo's audit trail, with the gap that they leave."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sumus.parties import audit_vault
from support.local_federation import LocalFederation, plan
from support.restoring import LosingSilo, cheap_passphrases

__all__ = ["cheap_passphrases"]

pytestmark = pytest.mark.deep


@pytest.fixture
def silo(tmp_path: Path) -> Iterator[LosingSilo]:
    across = LocalFederation(tmp_path, plan({"federation.rounds": 4}))
    yield LosingSilo(tmp_path, across)
    across.close()


@pytest.mark.parametrize("ledger", [False, True])
def test_a_backup_and_a_restore_are_in_the_trail(silo: LosingSilo, ledger: bool) -> None:
    silo.answers(0)
    backup = silo.back_up()
    silo.answers(1)
    silo.lose(ledger=ledger)
    restored = silo.restore(backup)
    audit = audit_vault(silo.vault)
    assert audit.passed, audit.findings
    counts = audit.reading.counts
    # the backup's own line is younger than what the backup holds
    assert (counts.get("backup.made", 0), counts["backup.restored"]) == (0, 1)
    # whoever kept the state folder remembers the line that is gone
    assert counts.get("trail.gap", 0) == (0 if ledger else 1)
    presumed = [line for line in audit.reading.of("release") if line.get("presumed")]
    assert len(presumed) == sum(charge.presumed for charge in restored.charges) > 0
    silo.back_up()
    assert audit_vault(silo.vault).reading.counts["backup.made"] == 1
