"""`sumus doctor`: every check passes what is well, and names what is broken and what mends it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("nvflare")

from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from books.test_ledger import made_entry
from sumus.care import Finding, diagnose, installation as installation_module, machine
from sumus.care.finding import looked
from sumus.care.installation import examine_installation, unfit
from sumus.care.kit_health import certificates, connection
from sumus.care.server_health import ServerHealth
from sumus.care.vault_health import SiloHealth
from sumus.cli import main
from sumus.engines import Kit
from sumus.engines.transport_keys import read_key
from sumus.events import ServerStarted
from sumus.files import FileLock, FolderLock
from sumus.noise import Law
from sumus.parties import SeenLedger, Site, server_trail
from sumus.randomness import RandomSource
from sumus.secagg import Identity
from support.healthy import SILO, Healthy, made_federation, of, settled, tls_server

pytestmark = pytest.mark.deep


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    own = tmp_path_factory.getbasetemp()
    shared = (own.parent if own.name.startswith("popen-") else own) / "doctors-federation"
    shared.mkdir(exist_ok=True)
    with FileLock(shared.with_suffix(".lock")).waiting():  # one for all workers: it takes a while
        return shared if (shared / "plan.toml").is_file() else made_federation(shared)


@pytest.fixture
def silo(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Healthy:
    monkeypatch.setattr(machine, "synchronised", lambda: True)
    healthy = settled(made, tmp_path)
    ledger = Site.of_folder(healthy.vault).ledger
    ledger.enter(made_entry())
    SeenLedger(healthy.vault, ledger).note()
    return healthy


def health(silo: Healthy) -> SiloHealth:
    return SiloHealth(silo.vault, Kit.open(silo.kit, "silo"))


def server(silo: Healthy) -> ServerHealth:
    return ServerHealth(Kit.open(silo.server, "server"))


def digest(folder: Path) -> dict[str, str]:
    return {
        str(
            path.relative_to(folder)
        ): f"{path.stat().st_mtime_ns} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


# -- well


def test_a_silo_and_its_server_that_are_well_pass_and_nothing_is_changed(
    silo: Healthy, capsys: pytest.CaptureFixture[str]
) -> None:
    before = digest(silo.root)
    with tls_server(silo.server, silo.port):
        diagnosis = diagnose(silo.kit, vault=silo.vault)
    assert diagnosis.passed, diagnosis.failed
    warned = {finding.check for finding in diagnosis.findings if finding.state == "warn"}
    assert warned <= {"separation", "backup", "disk", "packages", "compiled loops"}
    assert {"kit", "connection", "certificates", "ledger", "trail", "sampler"} <= {
        finding.check for finding in diagnosis.findings
    }
    found = server(silo).examine()
    assert [finding for finding in found if finding.state == "fail"] == []
    assert digest(silo.root) == before


def test_the_command_says_it_in_a_table_in_json_and_by_its_exit_code(
    silo: Healthy, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sumus.care.doctor.examine_installation", list)
    assert main(["doctor", str(silo.vault)]) == 0
    said = capsys.readouterr().out
    assert "ok" in said
    assert "ledger" in said
    assert main(["doctor", str(silo.server), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["passed"] is True
    # nobody serves: the silo's kit has a failing connection
    assert main(["doctor", str(silo.kit), "--vault", str(silo.vault), "--json"]) == 1
    facts = json.loads(capsys.readouterr().out)
    (broken,) = [check for check in facts["checks"] if check["state"] == "fail"]
    assert broken["check"] == "connection"
    assert "sumus federation start" in broken["fix"]
    assert main(["doctor", str(silo.root)]) == 5
    assert "neither a kit nor a vault" in capsys.readouterr().err


# -- the installation


def test_an_installation_that_is_well_passes() -> None:
    found = examine_installation()
    assert [finding for finding in found if finding.state == "fail"] == []


@pytest.mark.parametrize(
    ("version", "ranges", "wrong"),
    [
        ("2.0.0", ">=2.0,<3", False),
        ("1.26.4", ">=2.0,<3", True),
        ("3.0", ">=2.0,<3", True),
        ("2.13.0+cpu", ">=2.13,<3", False),
        ("3.10.4", ">=3.11", True),
        ("44.0", ">=44", False),
    ],
)
def test_versions_are_compared_with_their_ranges(version: str, ranges: str, wrong: bool) -> None:
    assert unfit(version, ranges) is wrong


def test_packages_out_of_their_ranges_or_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = ["numpy>=99", 'torch<1; extra == "train"', "no-such-package>=1"]
    monkeypatch.setattr(installation_module.metadata, "requires", lambda name: declared)
    found = of(examine_installation(), "packages")
    assert found.state == "fail"
    for said in ("numpy", ">=99", "torch", "no-such-package is missing", "pip install"):
        assert said in found.line


def test_a_python_that_is_too_old_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"Requires-Python": ">=99"}
    monkeypatch.setattr(installation_module.metadata, "metadata", lambda name: told)
    found = of(examine_installation(), "python")
    assert found.state == "fail"
    assert "is not >=99" in found.line


def test_machine_code_that_cannot_be_kept_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = SimpleNamespace(stats=SimpleNamespace(cache_path=None))
    monkeypatch.setattr(installation_module, "compiled", lambda function: nowhere)
    found = of(examine_installation(), "compiled loops")
    assert (found.state, "NUMBA_CACHE_DIR" in found.line) == ("warn", True)


def test_random_bits_that_are_stuck_or_missing_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getrandom", lambda count, flags=0: bytes(count))
    assert of(examine_installation(), "random bits").state == "fail"

    def blocked(count: int, flags: int = 0) -> bytes:
        raise BlockingIOError

    monkeypatch.setattr(os, "getrandom", blocked)
    found = of(examine_installation(), "random bits")
    assert (found.state, "entropy" in found.line) == ("fail", True)


def test_a_sampler_that_draws_too_little_noise_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = Law.sample

    def quieter(self: Law, size: int, source: RandomSource) -> object:
        drawn = np.array(sample(self, size, source))
        drawn[::50] = 0  # one draw in fifty is lost
        return drawn

    monkeypatch.setattr(Law, "sample", quieter)
    found = of(examine_installation(), "sampler")
    assert (found.state, "Release nothing" in found.line) == ("fail", True)


# -- a silo


def widen(silo: Healthy) -> None:
    (silo.vault / "identity.key").chmod(0o644)


def widen_vault(silo: Healthy) -> None:
    silo.vault.chmod(0o750)


def other_key(silo: Healthy) -> None:
    stranger = Identity.generate(SILO, RandomSource())
    (silo.vault / "identity.key").write_text(stranger.secret_text())


def broken_key(silo: Healthy) -> None:
    (silo.vault / "identity.key").write_text("silo-0 nonsense\n")


def unpin(silo: Healthy) -> None:
    (silo.vault / "policy.toml").write_text(f'roster_fingerprint = "{"0" * 64}"\n')


def broken_policy(silo: Healthy) -> None:
    (silo.vault / "policy.toml").write_text("max_epsilon = -1\n")


def small_budget(silo: Healthy) -> None:
    with (silo.vault / "policy.toml").open("a") as file:
        file.write("max_epsilon = 0.1\n")


def no_plan(silo: Healthy) -> None:
    for path in (silo.vault / "plans").glob("*"):
        path.unlink()


def broken_plan(silo: Healthy) -> None:
    (path,) = (silo.vault / "plans").glob("*")
    path.write_text("rounds = many\n")


def lost_records(silo: Healthy) -> None:
    Site(data=str(silo.root / "gone.csv"), ledgers=silo.state).write(silo.vault)


def empty_records(silo: Healthy) -> None:
    (silo.root / "empty.csv").touch()
    Site(data=str(silo.root / "empty.csv"), ledgers=silo.state).write(silo.vault)


def unknown_records(silo: Healthy) -> None:
    Site(data="no-such-set", ledgers=silo.state).write(silo.vault)


def changed_ledger(silo: Healthy) -> None:
    path = Site.of_folder(silo.vault).ledger.path
    path.write_bytes(path.read_bytes().replace(b"0.5", b"0.1", 1))


def cut_ledger(silo: Healthy) -> None:
    shutil.rmtree(silo.state)
    silo.state.mkdir(mode=0o700)


def cut_trail(silo: Healthy) -> None:
    path = silo.vault / "audit.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


def retired(silo: Healthy) -> None:
    (silo.vault / "retired").write_text("2026-01-01\n")


def clock_behind(silo: Healthy) -> None:
    path = silo.vault / "audit.jsonl"
    path.unlink()
    from sumus.events import segments
    from sumus.parties import silo_trail

    later, now = (datetime.now(UTC) + timedelta(days=2)).isoformat(), segments.now
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sumus.events.trail.now", lambda: later)
        (silo.state / next(silo.state.glob("audit-*.head.json")).name).unlink()
        silo_trail(silo.vault).notice(policy="0" * 64)
    assert segments.now is now


BROKEN: list[tuple[Callable[[Healthy], None], str, str]] = [
    (widen, "permissions", "chmod go-rwx"),
    (widen_vault, "permissions", "chmod go-rwx"),
    (other_key, "key", "whose silo-0.pub is on the roster"),
    (broken_key, "key", "silo-0"),
    (unpin, "roster", "--fingerprint"),
    (broken_policy, "policy", "max_epsilon"),
    (small_budget, "policy", "max_epsilon"),
    (no_plan, "plans", "--plan"),
    (broken_plan, "plans", "Remove it"),
    (lost_records, "records", "join with --data"),
    (empty_records, "records", "Put the records there"),
    (unknown_records, "records", "no-such-set"),
    (changed_ledger, "ledger", "line 1"),
    (cut_ledger, "ledger", "--new-ledger"),
    (cut_trail, "trail", "sumus audit evidence"),
    (clock_behind, "clock", "timedatectl"),
    (retired, "vault", "new key on a new roster"),
]


@pytest.mark.parametrize(("harm", "check", "fix"), BROKEN, ids=[row[0].__name__ for row in BROKEN])
def test_what_is_broken_at_a_silo_fails_its_check_and_says_what_mends_it(
    silo: Healthy, harm: Callable[[Healthy], None], check: str, fix: str
) -> None:
    look = "found" if check == "vault" else check
    assert getattr(health(silo), look)().state == "ok"
    harm(silo)
    found = looked(check, getattr(health(silo), look))
    assert found.state == "fail", found
    assert fix in found.line
    assert "\n" not in found.line


def test_no_vault_is_told_and_nothing_else_is_looked_at(silo: Healthy) -> None:
    (found,) = replace(health(silo), vault=silo.root / "elsewhere").examine()
    assert (found.check, found.state) == ("vault", "fail")
    assert "--vault" in found.fix


def test_what_deserves_a_thought_is_a_warning(silo: Healthy) -> None:
    found = health(silo).examine()
    assert of(found, "separation").state == "warn"  # one user for both, as in every trial
    assert "--user" in of(found, "separation").fix
    assert "sumus silo backup" in of(found, "backup").fix
    path = silo.root / "records.csv"
    path.write_text("a\n1\n")
    path.chmod(0o644)
    Site(data=str(path), ledgers=silo.state).write(silo.vault)
    assert "chmod o-rwx" in health(silo).records().fix
    path.chmod(0o600)
    assert health(silo).records().state == "ok"


def test_another_users_engine_must_not_enter_the_vault(
    silo: Healthy, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit = silo.kit
    monkeypatch.setattr(
        "sumus.care.vault_health.owner", lambda path: os.getuid() + (1 if path == kit else 0)
    )
    assert health(silo).separation().state == "ok"
    silo.vault.chmod(0o755)
    assert health(silo).separation().state == "fail"


def test_whether_a_silo_runs_is_seen_at_its_lock(silo: Healthy) -> None:
    assert "does not run" in health(silo).running().said
    with FolderLock(silo.vault):
        assert health(silo).running().said == "the vault runs"
    with FolderLock(silo.kit):
        assert health(silo).running().state == "warn"
    with FolderLock(silo.vault):  # the look has let go
        pass


def test_a_full_disk_fails_and_a_nearly_full_one_is_told(
    silo: Healthy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: (10**12, 0, 1 << 20))
    found = health(silo).disk()
    assert (found.state, "1 MiB free" in found.said) == ("fail", True)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: (10**12, 0, 10**10))
    assert health(silo).disk().state == "warn"
    monkeypatch.setattr(shutil, "disk_usage", lambda path: (10**12, 0, 10**11))
    assert health(silo).disk().state == "ok"
    about = SimpleNamespace(f_files=10, f_favail=3)
    monkeypatch.setattr(os, "statvfs", lambda path: about)
    assert "3 more files" in health(silo).disk().said


def test_a_clock_that_follows_nobody_is_told(
    silo: Healthy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "synchronised", lambda: False)
    assert health(silo).clock().state == "warn"
    monkeypatch.setattr(machine, "synchronised", lambda: None)
    assert health(silo).clock().state == "ok"


# -- certificates and the way to the server


def reissued(kit: Path, begin: timedelta, end: timedelta) -> None:
    """The same certificate for another time, signed by nobody in particular."""
    path = kit / "startup" / "client.crt"
    old, now = x509.load_pem_x509_certificate(path.read_bytes()), datetime.now(UTC)
    key = read_key(path.with_suffix(".key"))
    builder = x509.CertificateBuilder().subject_name(old.subject).issuer_name(old.subject)
    new = (
        builder.public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(now + begin)
        .not_valid_after(now + end)
        .sign(key, SHA256())
    )
    path.write_bytes(new.public_bytes(Encoding.PEM))


def test_certificates_that_end_have_not_begun_or_are_another_keys_are_told(silo: Healthy) -> None:
    kit, day = Kit.open(silo.kit, "silo"), timedelta(days=1)
    assert certificates(kit).state == "ok"
    reissued(silo.kit, -day, 12.5 * day)
    found = certificates(kit)
    assert (found.state, "ends in 12 days" in found.said) == ("warn", True)
    assert "sumus federation renew" in found.fix
    reissued(silo.kit, -3 * day, -day)
    assert (certificates(kit).state, "renew" in certificates(kit).fix) == ("fail", True)
    reissued(silo.kit, day, 400 * day)
    assert (certificates(kit).state, "clock" in certificates(kit).fix) == ("fail", True)
    startup = silo.kit / "startup"
    shutil.copy(silo.folder.kit("silo-1") / "startup" / "client.crt", startup / "client.crt")
    with pytest.raises(Exception, match="is for another key"):
        certificates(kit)
    (startup / "client.crt").write_text("nonsense")
    found = of(diagnose_kit(silo), "certificates")
    assert (found.state, "no certificate" in found.said) == ("fail", True)


def diagnose_kit(silo: Healthy) -> list[Finding]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sumus.care.doctor.examine_installation", list)
        return list(diagnose(silo.kit, vault=silo.vault).findings)


def test_a_server_that_is_away_strange_or_unwilling_is_told_apart(
    silo: Healthy, tmp_path_factory: pytest.TempPathFactory
) -> None:
    kit = Kit.open(silo.kit, "silo")
    assert "nobody answers" in connection(kit).said
    with tls_server(silo.server, silo.port):
        assert connection(kit).state == "ok"
        # a certificate that the authority has not signed
        kept = (silo.kit / "startup" / "client.crt").read_bytes()
        reissued(silo.kit, timedelta(days=-1), timedelta(days=100))
        found = connection(kit)
        assert (found.state, "refuses this kit's certificate" in found.said) == ("fail", True)
        (silo.kit / "startup" / "client.crt").write_bytes(kept)
        # another authority than whoever answers has
        root = silo.kit / "startup" / "rootCA.pem"
        root.write_bytes((silo.kit / "startup" / "client.crt").read_bytes())
        found = connection(kit)
        assert (found.state, "not this federation's server" in found.said) == ("fail", True)


def test_an_operators_kit_is_looked_at_too(silo: Healthy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sumus.care.doctor.examine_installation", list)
    with tls_server(silo.server, silo.port):
        assert diagnose(silo.folder.kit("admin")).passed
    assert not diagnose(silo.folder.kit("admin")).passed


# -- a server


def strange_server_key(silo: Healthy) -> None:
    stranger = Identity.generate("server", RandomSource())
    (silo.server / "sumus" / "server.key").write_text(stranger.secret_text())


def wide_server_key(silo: Healthy) -> None:
    (silo.server / "startup" / "server.key").chmod(0o640)


def cut_server_trail(silo: Healthy) -> None:
    path = silo.server / "sumus" / "audit.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


def broken_journal(silo: Healthy) -> None:
    run = silo.server / "sumus" / "runs" / "a" / "b"
    run.mkdir(parents=True)
    (run / "journal.jsonl").write_text("{}\n")


@pytest.mark.parametrize(
    ("harm", "check", "fix"),
    [
        (strange_server_key, "key", "server.pub"),
        (wide_server_key, "permissions", "chmod go-rwx"),
        (cut_server_trail, "trail", "sumus audit evidence"),
        (broken_journal, "journals", "b"),
    ],
)
def test_what_is_broken_at_a_server_fails_its_check(
    silo: Healthy, harm: Callable[[Healthy], None], check: str, fix: str
) -> None:
    trail = server_trail(silo.server / "sumus")
    trail.append(ServerStarted(build="0.2.0+000000000000"))
    trail.append(ServerStarted(build="0.2.0+000000000000"))
    assert of(server(silo).examine(), check).state == "ok"
    harm(silo)
    found = of(server(silo).examine(), check)
    assert (found.state, fix in found.line) == ("fail", True), found


def test_a_port_is_free_served_taken_or_silent(silo: Healthy) -> None:
    assert "free" in server(silo).port().said
    with FolderLock(silo.server):
        assert server(silo).port().state == "fail"
    with socket.create_server(("127.0.0.1", silo.port)):
        found = server(silo).port()
        assert (found.state, "taken by another" in found.said) == ("fail", True)
        with FolderLock(silo.server):
            assert "served" in server(silo).port().said


def test_a_server_without_room_or_time_is_told(
    silo: Healthy, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert server(silo).clock().state == "ok"
    monkeypatch.setattr(shutil, "disk_usage", lambda path: (10**12, 0, 1 << 20))
    assert server(silo).disk().state == "fail"
