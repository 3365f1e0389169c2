"""Both parties' audit trails: every release is named before it happens, every change is noticed, and
the books say the same.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from sumus.books import Ledger, RunFolder
from sumus.errors import StorageError
from sumus.events import Trail, read_trail
from sumus.parties import (
    SeenLedger,
    approve,
    audit_server,
    audit_vault,
    noted_heads,
    open_party,
    retire,
    settle,
    silo_trail,
)
from sumus.parties.site import Site
from support.local_federation import plan
from support.trails import AuditedRun

pytestmark = pytest.mark.deep


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuditedRun]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUMUS_SIMULATION_SEED", "3")
        run = AuditedRun(tmp_path_factory.mktemp("audited"))
        run.open()
        run.parties[0].handle(b"\xff no message of ours")
        assert run.train()["phase"] == "finished"
        run.close()
        yield run


@pytest.fixture
def run(
    finished: AuditedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[AuditedRun]:
    """A copy of the finished run, to be changed."""
    monkeypatch.setenv("SUMUS_SIMULATION_SEED", "3")
    copy = object.__new__(AuditedRun)
    copy.federation, copy.parties = finished.federation, {}
    shutil.copytree(finished.federation.root, tmp_path / "copy")
    moved = tmp_path / "copy"
    copy.state = moved / "server" / "sumus"
    copy.vault = lambda silo: moved / "silos" / f"silo-{silo}"  # type: ignore[method-assign]
    for silo in range(3):
        site = copy.vault(silo) / "site.toml"
        site.write_text(site.read_text().replace(str(finished.federation.root), str(moved)))
    yield copy
    copy.close()


def folder_of_run(run: AuditedRun) -> Path:
    (journal,) = (run.state / "runs").glob("*/*/journal.jsonl")
    return journal.parent


def before_the_last_release(trail: Path) -> bytes:
    lines = trail.read_bytes().splitlines(keepends=True)
    last = max(place for place, line in enumerate(lines) if json.loads(line)["kind"] == "release")
    assert last >= len(lines) - 2  # behind it the run was received
    return b"".join(lines[:last])


def test_a_silos_trail_names_every_release_and_what_was_found_at_the_start(
    finished: AuditedRun,
) -> None:
    vault, agreement = finished.vault(0), finished.federation.agreement
    audit = audit_vault(vault)
    assert audit.passed, audit.findings
    assert (audit.releases, audit.remembered) == (2, 1)
    assert audit.reading.counts == {
        "build.changed": 1,
        "identity.changed": 1,
        "limit.changed": 1,
        "plan.approved": 1,
        "policy.changed": 1,
        "refusal": 1,
        "release": 2,
        "roster.changed": 1,
        "run.received": 1,
    }
    ledger = Ledger.of_dataset("digits", state=vault)
    for line, entry in zip(audit.reading.of("release"), ledger.entries(), strict=True):
        assert line["plan"] == agreement.plan.hash
        assert (line["round"], line["purpose"]) == (entry.round, entry.purpose)
        assert line["ledger"] == ledger.hash_of(line["entries"])


def test_a_refusal_is_named_and_its_reason_stays_where_it_was(finished: AuditedRun) -> None:
    (line,) = audit_vault(finished.vault(0)).reading.of("refusal")
    (entry,) = map(json.loads, (finished.vault(0) / "refusals.log").read_text().splitlines())
    assert (line["cause"], line["entry"]) == ("protocol", entry["entry"])
    assert set(line) == {"time", "cause", "entry", "unwritten"}


def test_a_servers_trail_names_every_sum_and_the_journal_remembers_the_trail(
    finished: AuditedRun,
) -> None:
    audit, stored = audit_server(finished.state), RunFolder.open(folder_of_run(finished))
    assert audit.passed, audit.findings
    assert audit.reading.counts["sum.opened"] == audit.releases == 2
    heads = noted_heads(stored)
    assert [head.lines for head in heads] == [3]
    assert audit.remembered == 2
    assert [line["round_id"] for line in audit.reading.of("sum.opened")] == [
        entry.round_id for entry in stored.rounds()
    ]


def test_a_server_logs_its_job_and_a_silo_that_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Two of three silos train; the third's people allow less, and the server is not told how
    little.
    """
    monkeypatch.setenv("SUMUS_SIMULATION_SEED", "3")
    run = AuditedRun(tmp_path)
    (run.vault(2) / "policy.toml").write_text("max_epsilon = 0.0625\n")
    with caplog.at_level(logging.INFO, logger="sumus"):
        assert run.train(rounds=1)["phase"] == "paused"
    run.close()
    told = [line.split(" ")[0] for line in caplog.messages]
    for event in ("job.started", "silo.refused", "round.committed", "job.ended"):
        assert told.count(event) == 1, event
    refused = audit_server(run.state).reading.of("silo.refused")
    assert [(line["silo"], "over the policy" in line["reason"]) for line in refused] == [
        ("silo-2", True)
    ]
    server = "".join(line for line in caplog.messages if not line.startswith("limit.changed"))
    assert "0.0625" not in server
    assert "0.0625" in (run.vault(2) / "refusals.log").read_text()


# -- what people change


def test_a_policy_that_was_edited_by_hand_is_noticed_at_the_next_start(run: AuditedRun) -> None:
    path = run.vault(0) / "policy.toml"
    before = audit_vault(run.vault(0)).reading.known["policy"]
    path.write_text("max_epsilon = 8.0\n")
    open_party(run.vault(0)).close()
    open_party(run.vault(0)).close()
    reading = audit_vault(run.vault(0)).reading
    first, second = reading.of("policy.changed")
    assert (second["before"], second["after"]) == (before, reading.known["policy"])
    assert first["after"] == before != second["after"]
    assert [(line.get("before"), line["after"]) for line in reading.of("limit.changed")] == [
        (None, "inf"),
        ("inf", 8.0),
    ]


def test_plans_that_come_and_go_are_noticed_whoever_moves_the_files(run: AuditedRun) -> None:
    vault = run.vault(0)
    (old,) = (vault / "plans").iterdir()
    (other,) = approve(vault, [plan({"federation.silos": 3, "federation.rounds": 1})])
    approve(vault, [other.plan])
    old.unlink()
    (vault / "plans" / "damaged.toml").write_text("not a plan")
    open_party(vault).close()
    reading = audit_vault(vault).reading
    first = run.federation.agreement.plan.hash
    assert [line["plan"] for line in reading.of("plan.approved")] == [first, other.plan.hash]
    assert [line["plan"] for line in reading.of("plan.withdrawn")] == [first]


def test_joining_again_with_the_same_leaves_no_line(run: AuditedRun) -> None:
    vault, names = run.vault(0), run.federation
    before = silo_trail(vault).head
    settle(
        vault,
        identity=names.identities["silo-0"],
        roster=names.roster,
        data="digits",
        policy=None,
        policy_text="",
        ledgers=vault,
    )
    assert silo_trail(vault).head == before


def test_a_ledger_that_is_begun_anew_is_told_and_its_releases_are_not_missed(
    run: AuditedRun,
) -> None:
    vault = run.vault(0)
    ledger = Site.of_folder(vault).ledger
    for path in (ledger.path, ledger.path.with_suffix(".head.json")):
        path.unlink()
    assert not audit_vault(vault).passed
    SeenLedger(vault, Site.of_folder(vault).ledger).forget(silo_trail(vault))
    audit = audit_vault(vault)
    assert audit.passed, audit.findings
    assert audit.reading.of("ledger.begun")[0]["entries"] == 4  # reserved, two releases, ended


def test_a_retired_vault_says_so_and_is_still_audited(run: AuditedRun) -> None:
    destroyed = retire(run.vault(0))
    audit = audit_vault(run.vault(0))
    assert audit.passed, audit.findings
    assert [line["destroyed"] for line in audit.reading.of("vault.retired")] == [len(destroyed)]


# -- crash and contradiction


def test_a_crash_between_ledger_and_trail_is_made_good_at_the_next_start(
    run: AuditedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault = run.vault(0)
    trail = vault / "audit.jsonl"
    trail.write_bytes(before_the_last_release(trail))
    next(vault.glob("audit-*.head.json")).unlink()  # written after the line
    assert any("in no line of the trail" in finding for finding in audit_vault(vault).findings)
    open_party(vault).close()
    audit = audit_vault(vault)
    assert audit.passed, audit.findings
    assert audit.reading.counts["release"] == 2


def test_without_the_trail_nothing_is_released(
    finished: AuditedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUMUS_SIMULATION_SEED", "3")
    run = AuditedRun(tmp_path)
    run.open()

    def full(trail: Trail, *events: object) -> None:
        raise StorageError("audit.jsonl cannot be written: no space left for it.")

    with monkeypatch.context() as patch:
        patch.setattr(Trail, "append", full)
        assert run.train()["phase"] == "failed"
    run.close()
    for silo in range(3):
        assert not list((run.vault(silo) / "sessions").glob("*/certificates/*"))
        assert "release" not in read_trail(run.vault(silo)).counts


def test_a_release_that_is_taken_out_of_trail_and_memory_is_missed_by_the_ledger(
    run: AuditedRun,
) -> None:
    vault = run.vault(0)
    trail, memory = vault / "audit.jsonl", next(vault.glob("audit-*.head.json"))
    trail.write_bytes(before_the_last_release(trail))
    assert not audit_vault(vault).passed  # the memory
    memory.unlink()
    (finding,) = audit_vault(vault).findings
    assert finding.startswith("entry 2 of ")


def test_a_sum_that_is_taken_out_of_the_servers_trail_is_missed_by_evidence_and_journals(
    run: AuditedRun,
) -> None:
    trail = run.state / "audit.jsonl"
    trail.write_bytes(b"".join(trail.read_bytes().splitlines(keepends=True)[:-1]))
    (run.state / "audit.head.json").unlink()
    findings = audit_server(run.state).findings
    assert any(finding.startswith("line 3 (") for finding in findings)
    assert any("is in no line of the trail" in finding for finding in findings)


def test_a_copy_of_a_run_remembers_a_trail_whose_server_forgot_it(
    run: AuditedRun, tmp_path: Path
) -> None:
    shutil.copytree(folder_of_run(run), tmp_path / "mine")
    shutil.rmtree(run.state / "runs")
    for path in run.state.glob("audit*"):
        path.unlink()
    assert audit_server(run.state).passed  # the control: nothing is left to contradict
    seen = noted_heads(RunFolder.open(tmp_path / "mine"))
    assert not audit_server(run.state, seen=seen).passed
