"""What a release has written is read by this one, or refused in one line that names both versions;
never taken for damaged, and never at the price of a second answer to one round.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from sumus import __version__
from sumus.books import Ledger, RunFolder
from sumus.care import read_backup
from sumus.care.vault_health import SiloHealth
from sumus.data import load_silo
from sumus.errors import StorageError
from sumus.parties import agree_on, audit_evidence, audit_server, audit_vault, received_by
from sumus.parties.received import DeliveryNote
from sumus.plan import TrainingPlan
from sumus.predicting import Model
from sumus.secagg import Roster, head_of
from support.stored import INVITATION, PASSPHRASE, RELEASES, StoredFederation

each_release = pytest.mark.parametrize("release", RELEASES)


def bytes_below(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.match("*.lock")
    }


def ledger_of(stored: StoredFederation, name: str) -> Ledger:
    return Ledger.of_dataset("digits", state=stored.folder(name))


def test_there_are_files_of_this_release() -> None:
    assert __version__ in RELEASES


@each_release
def test_a_received_run_is_proved_and_predicts_what_it_did(release: str, tmp_path: Path) -> None:
    stored = StoredFederation(release, tmp_path)
    run, facts = RunFolder.open(stored.received), stored.facts["finished"]
    assert run.verify() == facts["head"]
    roster = Roster.parse(facts["roster"])
    audit = audit_evidence(run, agree_on(run.plan), [roster])
    assert audit.passed
    assert audit.certificates >= 2
    assert list(received_by(stored.received, [roster]).values()) == [roster.names]
    assert DeliveryNote.of_folder(stored.received).head == facts["head"]
    rows = load_silo(run.plan, "silo-0").silos[0].test.x[:5]
    assert np.array_equal(Model.of_run(stored.received).predict(rows), facts["predictions"])


@each_release
def test_books_and_backup_say_what_they_said(release: str, tmp_path: Path) -> None:
    stored = StoredFederation(release, tmp_path)
    ledger = ledger_of(stored, "silo-0")
    ledger.verify()
    assert ledger.total("record").epsilon == pytest.approx(stored.facts["spent"], rel=1e-9)
    assert stored.server_run.verify() == stored.facts["head"]
    for audit in (audit_vault(stored.folder("silo-0")), audit_server(stored.state)):
        assert audit.findings == ()
        assert audit.releases > 0
    backup = read_backup(stored.backup, PASSPHRASE)
    assert list(backup.plans) == [f"plans/{stored.facts['plan']}.toml"]


def gone_on(stored: StoredFederation) -> tuple[str, dict[str, str]]:
    """How the next job ends, and a digest of what each silo said to its first invitation."""
    answered: dict[str, str] = {}

    def heard(name: str, message: bytes) -> bytes | None:
        reply = stored.party(name).handle(message)
        if head_of(message).kind == INVITATION:
            answered.setdefault(name, hashlib.sha256(reply).hexdigest())
        return reply

    stored.heard = heard
    phase = str(stored.run()["phase"])
    stored.close()
    return phase, answered


@pytest.mark.deep
@each_release
def test_an_interrupted_round_is_finished_with_the_very_bytes_that_were_answered(
    release: str, tmp_path: Path
) -> None:
    """Or, where this release hashes plans otherwise, no round of it is answered at all."""
    stored = StoredFederation(release, tmp_path)
    before = ledger_of(stored, "silo-0").entries()
    phase, answered = gone_on(stored)
    if stored.agreement.plan.hash != stored.facts["plan"]:
        assert (phase, answered) == ("failed", {})
        assert ledger_of(stored, "silo-0").entries() == before
        return
    assert phase == "finished"
    assert stored.server_run.last_round == 3
    assert answered == stored.facts["answered"]
    *known, measured = ledger_of(stored, "silo-0").entries()
    assert known == list(before)  # the third round was entered before its answer, and once
    assert (measured.round, measured.purpose) == (3, "metrics")


def test_under_another_protocol_a_round_that_was_answered_has_no_second_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kept bytes go out again, of which that server makes nothing; the round is lost."""
    monkeypatch.setattr("sumus.secagg.envelope._VERSION", 3)
    stored = StoredFederation(__version__, tmp_path)
    _, answered = gone_on(stored)
    assert answered == stored.facts["answered"]
    assert stored.server_run.last_round == 2


def test_a_release_that_hashes_plans_otherwise_answers_nothing_and_reads_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one with another key would: what a silo answered is remembered under the former hash."""
    monkeypatch.setattr("sumus.plan.plan._HASH_DOMAIN", "sumus-plan-v2")
    stored = StoredFederation(__version__, tmp_path)
    kept = {name: bytes_below(stored.folder(name)) for name in stored.roster.names}
    runs = bytes_below(stored.state / "runs")
    assert stored.agreement.plan.hash != stored.facts["plan"]
    state = stored.run()
    stored.close()
    assert state["phase"] == "failed"
    for name, files in kept.items():
        now = bytes_below(stored.folder(name))
        assert {each: now[each] for each in files if "audit" not in each} == {
            each: content for each, content in files.items() if "audit" not in each
        }
        assert {path for path in now if path.startswith(("ledger", "sessions", "received"))} == {
            path for path in files if path.startswith(("ledger", "sessions", "received"))
        }
    assert bytes_below(stored.state / "runs").items() >= runs.items()
    (plans,) = [
        each for each in SiloHealth(stored.folder("silo-0")).examine() if each.check == "plans"
    ]
    assert f"plan {stored.facts['plan'][:8]} was approved under a version" in plans.said
    assert audit_vault(stored.folder("silo-0")).findings == ()
    with pytest.raises(StorageError, match=r"was begun with sumus .* Resume it with that version"):
        RunFolder.open(stored.server_run.path, resume=True)
    # what is finished stays of use, and is proved by the release that signed it
    run = RunFolder.open(stored.received)
    assert run.verify() == stored.facts["finished"]["head"]
    with pytest.raises(StorageError, match=r"knows other plan keys\. Audit it with that version"):
        audit_evidence(run, agree_on(run.plan), [])
    plan = TrainingPlan.load(stored.plan_file)
    rows = load_silo(plan, "silo-0").silos[0].test.x[:5]
    predicted = Model.of_run(stored.received).predict(rows)
    assert np.array_equal(predicted, stored.facts["finished"]["predictions"])
