"""`sumus join` and `sumus federation start` as processes: one of each, what they write and where,
and what they refuse in one line.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

pytest.importorskip("nvflare")

from books.test_ledger import made_entry
from sumus.books import Ledger
from sumus.cli import main
from sumus.engines import FederationFolder, UnixUser, train_across
from sumus.engines.engine import Outcome, told_outcome
from sumus.engines.processes import free_port
from sumus.errors import DataError, EngineError, StorageError
from sumus.events import read_trail
from sumus.files import FolderLock
from sumus.parties import SiloState, vault_folder
from support.local_federation import plan
from support.loggers import logged
from support.service_manager import read_unit, words as unit_words

SILO = "silo-0"
PARTS = ("vault", "relay")


@pytest.fixture
def federation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> FederationFolder:
    """Kits for three silos, and a state folder of its own for whoever joins."""
    monkeypatch.setenv("SUMUS_STATE", str(tmp_path / "state"))
    (tmp_path / "plan.toml").write_text(plan({"federation.silos": 3}).to_toml())
    words = ["--silos", "silo-0,silo-1,silo-2", "--server", f"localhost:{free_port()}"]
    words += ["--plan", str(tmp_path / "plan.toml"), "--engine", "nvflare"]
    assert main(["federation", "init", str(tmp_path / "federation"), *words]) == 0
    capsys.readouterr()
    made = FederationFolder.open(tmp_path / "federation")
    pin = f'roster_fingerprint = "{made.roster.digest().hex()}"\n'
    (tmp_path / "policy.toml").write_text(pin)
    return made


def words(federation: FederationFolder, *options: object) -> list[str]:
    place = federation.folder.parent
    own = ["--data", "digits", "--policy", place / "policy.toml", "--plan", place / "plan.toml"]
    return [str(word) for word in ("join", federation.kit(SILO), *own, *options)]


def vault(federation: FederationFolder) -> Path:
    return vault_folder(federation.roster, SILO)


def wait_for(what: Callable[[], bool], seconds: float = 90.0) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.1)


def is_held(folder: Path) -> bool:
    try:
        with FolderLock(folder):
            return False
    except StorageError:
        return True


def commanded(pid: int, words: str) -> list[psutil.Process]:
    """What a process has started with these words."""
    family = psutil.Process(pid).children(recursive=True)
    return [each for each in family if words in " ".join(each.cmdline())]


@contextlib.contextmanager
def running(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [sys.executable, "-m", "sumus", *command], stdout=output, stderr=output
        ) as process,
    ):
        try:
            yield process
        finally:
            process.terminate()
            process.wait(timeout=60.0)


# -- a silo's two processes


def test_a_second_join_of_a_running_kit_ends_at_once_and_the_first_takes_everything_down(
    federation: FederationFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kit, log = federation.kit(SILO), tmp_path / "log"
    with running(words(federation), log) as process:
        wait_for(lambda: vault(federation).is_dir() and is_held(kit))
        assert is_held(vault(federation))
        key = ("--identity", vault(federation) / "identity.key")
        for options in ((), ("--vault", tmp_path / "other", *key)):
            capsys.readouterr()
            assert main(words(federation, *options)) == StorageError.exit_code
            told = capsys.readouterr().err.splitlines()
            assert told == [
                f"error: {kit} is in use by another process. Wait until it ends, or stop it."
            ]
        assert not (tmp_path / "other" / "identity.key").exists()
        for wanted in ("sumus.parties.vault", "sumus.engines.nvflare.start silo"):
            wait_for(lambda wanted=wanted: len(commanded(process.pid, wanted)) == 1)
        family = psutil.Process(process.pid).children(recursive=True)
        assert process.poll() is None
    assert process.returncode == 0
    assert not any(psutil.pid_exists(each.pid) for each in family)
    assert not is_held(kit)
    assert not is_held(vault(federation))
    told = log.read_text()
    assert "the engine runs under the same user: keys and records are protected by file" in told
    assert f"logs and refusals in {vault(federation)}" in told


def test_a_trials_key_moves_into_the_vault_and_is_found_there_again(
    federation: FederationFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    brought = federation.state(SILO) / "identity.key"
    secret = brought.read_text()
    with running(words(federation), tmp_path / "log"):
        wait_for(lambda: (vault(federation) / "plans").is_dir() and not brought.exists())
    kept = vault(federation) / "identity.key"
    assert kept.read_text() == secret
    assert kept.stat().st_mode & 0o777 == 0o600
    assert vault(federation).stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    assert main(words(federation, "--check")) == 0
    assert "ready to join" in capsys.readouterr().out


def test_a_check_writes_nothing_anywhere(federation: FederationFolder, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    assert main(words(federation, "--check")) == 0
    assert sorted(tmp_path.rglob("*")) == before


# -- the ledger


def test_a_new_kit_on_known_data_shows_what_was_spent(
    federation: FederationFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(federation, "--check")) == 0
    assert "ledger              nothing was released from digits here so far" in (
        capsys.readouterr().out
    )
    Ledger.of_dataset("digits").enter(made_entry("earlier", 1, 0.75))
    assert main(words(federation, "--check")) == 0
    shown = capsys.readouterr().out
    assert "ledger              ε ≤ 0.75 at δ = 1e-05 for digits so far, 1 run" in shown
    assert shown.index("ledger  ") < shown.index("plan hash")


def test_a_ledger_that_the_vault_remembers_and_that_is_gone_or_older_must_be_confirmed(
    federation: FederationFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from sumus.parties import SeenLedger

    ledger = Ledger.of_dataset("digits")
    ledger.enter(made_entry("earlier", 1, 0.5))
    backup = {path: path.read_bytes() for path in (tmp_path / "state").iterdir()}
    ledger.enter(made_entry("earlier", 2, 0.75))
    SiloState(vault(federation))
    SeenLedger(vault(federation), ledger).note()
    assert main(words(federation, "--check")) == 0
    for path, content in backup.items():
        path.write_bytes(content)  # an older copy came back
    for gone in (False, True):
        if gone:
            for path in backup:
                path.unlink()
        capsys.readouterr()
        assert main(words(federation, "--check")) == StorageError.exit_code
        (told,) = capsys.readouterr().err.splitlines()
        assert "lacks entries: this vault has seen 2 lines of 'digits'" in told
        assert "--new-ledger" in told
        assert main(words(federation, "--check", "--new-ledger")) == 0


def test_a_ledger_below_the_kit_is_not_forgotten(
    federation: FederationFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    old = Ledger.of_dataset("digits", state=federation.state(SILO))
    old.enter(made_entry("old", 1, 0.375))
    assert main(words(federation, "--check")) == StorageError.exit_code
    (told,) = capsys.readouterr().err.splitlines()
    assert told.endswith(f"Run: sumus ledger move {old.path}")
    Ledger.of_dataset("digits").enter(made_entry("other", 1, 0.125))
    assert main(["ledger", "move", str(old.path)]) == 0
    capsys.readouterr()
    assert main(words(federation, "--check")) == 0
    assert "ε ≤ 0.5 at δ = 2e-05 for digits so far, 2 runs" in capsys.readouterr().out
    assert not old.path.exists()
    assert old.path.with_name(f"moved-{old.path.name}").exists()


# -- another user


def test_a_user_that_is_not_there_is_refused(
    federation: FederationFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(federation, "--user", "no-such-user")) == DataError.exit_code
    assert "--user must be a user of this machine, got 'no-such-user'" in capsys.readouterr().err


@pytest.mark.skipif(os.getuid() != 0, reason="only root starts processes of another user")
def test_what_the_engines_user_could_read_is_refused_and_a_kit_gives_nothing_else_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody = UnixUser.named(pwd.getpwuid(65534).pw_name)
    open_file, closed = Path("/etc/passwd"), tmp_path / "closed"
    closed.mkdir(mode=0o700)
    monkeypatch.setattr(sys, "executable", "/usr/bin/python3")  # which everybody may run
    if not Path(sys.executable).exists():
        pytest.skip("no Python that every user may run")
    assert nobody.readable([open_file, closed]) == [open_file]
    with pytest.raises(StorageError, match=r"/etc/passwd is readable for user \w+, who runs the"):
        nobody.require_blind([closed, open_file])
    monkeypatch.setattr(sys, "executable", str(closed / "python"))
    with pytest.raises(EngineError, match=r"cannot run .*Install Sumus where every user may read"):
        nobody.readable([closed])


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_attack_have_root_give_a_file_away_through_a_link_in_the_kit(tmp_path: Path) -> None:
    nobody, kit, treasure = UnixUser("nobody", 65534, 65534), tmp_path / "kit", tmp_path / "key"
    (kit / "local").mkdir(parents=True)
    treasure.write_text("secret")
    (kit / "local" / "link").symlink_to(treasure)
    (kit / "folder").symlink_to(tmp_path)
    with contextlib.suppress(StorageError, EngineError):  # it cannot reach the kit here
        nobody.take_over(kit)
    assert (kit / "local").stat().st_uid == 65534
    assert treasure.stat().st_uid == tmp_path.stat().st_uid == 0
    os.link(treasure, kit / "local" / "hard")
    with pytest.raises(StorageError, match="has another name elsewhere"):
        nobody.take_over(kit)
    assert treasure.stat().st_uid == 0
    os.chown(kit / "local" / "hard", 65534, 65534)  # the control: what the refusal prevents
    assert treasure.stat().st_uid == 65534


# -- units


def test_units_separate_two_users(
    federation: FederationFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, received = tmp_path / "units", tmp_path / "received"
    assert main(words(federation, "--units", folder)) == DataError.exit_code
    assert "--units needs --user" in capsys.readouterr().err
    apart = ["--units", folder, "--user", "daemon", "--received", received]
    for option in (["--watch"], ["--notify", "/bin/true"], ["--alert", "budget_percent=90"]):
        assert main(words(federation, *apart, *option)) == 2
        assert f"{option[0]} is for a silo that this command starts" in capsys.readouterr().err
    assert main(words(federation, *apart)) == 0
    told = capsys.readouterr().out
    assert "systemctl enable --now sumus-vault-silo-0.service sumus-relay-silo-0.service" in told
    vaults, relays = (read_unit(folder / f"sumus-{part}-silo-0.service") for part in PARTS)
    (guarded,), (relay,) = vaults["Service"]["User"], relays["Service"]["User"]
    assert relay == "daemon" != guarded
    path = "/run/sumus-silo-0/vault"
    assert f"SUMUS_VAULT={path}" in relays["Service"]["Environment"]
    assert vaults["Service"]["ExecStart"][0].split()[-2:] == [path, "daemon"]
    assert f"-{vault(federation)}" in relays["Service"]["InaccessiblePaths"][0].split()
    assert str(vault(federation)) not in relays["Service"]["ReadWritePaths"][0]
    assert received.is_dir()
    assert str(received) in vaults["Service"]["ReadWritePaths"][0].split()
    assert str(received) not in relays["Service"]["ReadWritePaths"][0]


def test_units_of_server_and_operator_are_written_instead_of_serving(
    federation: FederationFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    units = ["--units", str(tmp_path / "units")]
    start = ["federation", "start", str(federation.folder)]
    watch = ["federation", "watch", "--kit", str(federation.kit("admin"))]
    if os.getuid() == 0:  # who owns the kits here
        for command in (start, [*watch, "--watch-port", "8765"]):
            assert main([*command, *units]) == DataError.exit_code
            assert "a service does not run as root" in capsys.readouterr().err
    for command in (start, watch):
        assert main([*command, "--user", "daemon"]) == 2
        assert "--user is for --units" in capsys.readouterr().err
    assert main([*watch, *units, "--user", "daemon"]) == 2
    assert "--watch-port must be given with --units" in capsys.readouterr().err
    told = ["--watch", "--watch-port", "8765", "--log-level", "debug", "--audit-to", "syslog"]
    listen = ["--listen", "127.0.0.2"]
    alert = ["--notify", "/bin/true 1 2", "--alert", "budget_percent=90"]
    assert main([*start, *units, "--user", "daemon", *listen, *told, *alert]) == 0
    page_words = [*watch, *units, "--watch-port", "8766", *alert]
    assert main([*page_words, "--user", "sumus-nobody"]) == 0
    said = capsys.readouterr().out
    assert "useradd --system --no-create-home --shell /usr/sbin/nologin sumus-nobody" in said
    assert f"chown -hR daemon {federation.kit('server').resolve()}" in said
    server = read_unit(tmp_path / "units" / "sumus-server.service")["Service"]
    line = unit_words(server["ExecStart"][0])
    kit = str(federation.kit("server").resolve())
    assert line[line.index(kit) :] == [kit, *listen, *told[3:], *told[:3], *alert]
    page = read_unit(tmp_path / "units" / "sumus-watch.service")["Service"]
    kept = federation.state("admin").resolve() / "watch.token"
    assert unit_words(page["ExecStart"][0])[-6:] == ["--token-file", str(kept), *alert]
    assert not is_held(federation.kit("server"))


# -- the server


def test_a_second_start_ends_at_once_and_serving_is_said_when_the_port_is_open(
    federation: FederationFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, command = tmp_path / "log", ["federation", "start", str(federation.folder)]
    with running(command, log):
        wait_for(lambda: "serving at localhost" in log.read_text())
        port = int(log.read_text().rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)):
            pass
        assert main(command) == StorageError.exit_code
        (told,) = capsys.readouterr().err.splitlines()
        assert told.endswith("is in use by another process. Wait until it ends, or stop it.")
        other = tmp_path / "other-kit"
        shutil.copytree(federation.kit("server"), other)
        assert main(["federation", "start", str(other)]) == EngineError.exit_code
        (told,) = capsys.readouterr().err.splitlines()
        assert told.startswith(f"error: port {port} is taken: another process listens on it")
    assert log.read_text().startswith("starting from")
    kit = federation.kit("server")
    counts = read_trail(kit / "sumus").counts
    for event in ("certificates.changed", "roster.changed", "server.started", "server.stopped"):
        assert counts[event] == 1
    assert "server.serving" in [line["event"] for line in logged(kit / "server.log")]
    assert not [*kit.glob("*log*.txt"), *kit.glob("audit.log"), *kit.glob("log.json")]


STUB = """
import sys
from pathlib import Path
from sumus.engines import silo_processes as silo
from sumus.events import LogChoice, configure
kit, vault = map(Path, sys.argv[1:])
LISTEN = "import socket, sys, time; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); time.sleep(600)"
SPEAK = "import time; print('Successfully registered client \\x1b[31m', flush=True); time.sleep(1.5); print('and gone')"
silo.vault_command = lambda vault, path, user=None: [sys.executable, "-c", LISTEN, str(path)]
silo.relay_command = lambda kit: [sys.executable, "-c", SPEAK]
configure(LogChoice(), party="silo", process="join", by_default=vault / "join.log")
sys.exit(silo.keep_silo(kit, vault, say=silo._say))
"""


def test_a_silo_logs_when_it_is_let_in_and_when_its_engine_dies(
    federation: FederationFolder, tmp_path: Path
) -> None:
    folder = tmp_path / "vault"
    folder.mkdir(mode=0o700)
    (folder / "refusals.log").touch()
    command = [sys.executable, "-c", STUB, str(federation.kit(SILO)), str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "connected to the server\n"
            assert process.stdout.readline() == "the engine ended (and gone) and is started again\n"
            with (folder / "refusals.log").open("a") as refusals:
                refusals.write('{"reason": "row 17: Smith is no number"}\n')
            said = next(line for line in process.stdout if line.startswith("refused"))
        finally:
            process.terminate()
    assert said == "refused: the reason is in refusals.log\n"
    events = [line["event"] for line in logged(folder / "join.log")]
    assert events[:2] == ["silo.connected", "process.restarted"]
    engine = logged(folder / "engine.log")
    assert engine[0]["said"] == "Successfully registered client \\u001b[31m"


# -- what became of a job


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ({"phase": "finished", "rounds": [1, 2]}, "finished"),
        ({"phase": "paused", "rounds": [1, 2]}, "paused after 2 rounds"),
        ({"phase": "failed", "rounds": [], "error": "no answer"}, "lost: no answer"),
        (
            {"phase": "failed", "rounds": [], "error": "x", "refusals": {"b": "why", "a": "this"}},
            "refused by a, b (a: this)",
        ),
    ],
)
def test_a_jobs_outcome_is_what_happened(state: dict[str, object], told: str) -> None:
    assert told_outcome(state) == told


def test_a_plan_that_the_silos_refuse_is_not_submitted_again(tmp_path: Path) -> None:
    class Refused:
        jobs, PATIENCE = 0, None

        def run(self, *arguments: object, **options: object) -> Outcome:
            self.jobs += 1
            return Outcome(finished=False, reason="silo-0: not approved", run=None, refused=True)

    operator = Refused()
    with pytest.raises(EngineError, match=r"the silos refuse this plan\. silo-0: not approved"):
        train_across(operator, None, out=tmp_path, watch=lambda news: None)  # type: ignore[arg-type]
    assert operator.jobs == 1
