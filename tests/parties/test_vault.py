"""The vault: the party behind a socket, and what it does with peers that are not as they should be."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from sumus.engines import Relay
from sumus.errors import DataError, PeerProtocolError, StorageError
from sumus.events import read_trail
from sumus.files import receive_sized, send_sized
from sumus.parties import SecureSum, ServerParty, listen, open_party
from sumus.parties.vault import _LOOK_SECONDS, _MESSAGE_SECONDS, most_bytes, uid_of
from sumus.service import PATIENCE_SECONDS
from support.local_federation import QUICK, LocalFederation, federation_of_folders
from support.vaults import VaultInThread

ONE = frozenset({os.getuid()})


@pytest.fixture
def federation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalFederation:
    monkeypatch.setenv("SUMUS_SIMULATION_SEED", "3")
    return federation_of_folders(tmp_path, seed=3)


@pytest.fixture
def vault(federation: LocalFederation) -> Iterator[VaultInThread]:
    served = VaultInThread(federation.folder("silo-0"), seconds=2.0)
    yield served
    served.close()


def connected(vault: VaultInThread) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(str(vault.path))
    return connection


def refusals(federation: LocalFederation) -> str:
    path = federation.folder("silo-0") / "refusals.log"
    return path.read_text() if path.exists() else ""


class Watched:
    """A driver that keeps the length of every message."""

    def __init__(self, relays: dict[int, Relay]) -> None:
        self._relays, self.lengths = relays, list[int]()

    def exchange(self, messages, *, deadline_seconds):
        self.lengths += [len(message) for message in messages.values()]
        answers = {silo: self._relays[silo].handle(each) for silo, each in messages.items()}
        return {silo: answer for silo, answer in answers.items() if answer is not None}

    def close(self) -> None:
        pass


def test_a_whole_run_goes_through_vaults_and_no_message_comes_near_their_bound(
    federation: LocalFederation,
) -> None:
    vaults = [VaultInThread(federation.folder(name)) for name in federation.roster.names]
    driver = Watched({number: Relay(str(each.path)) for number, each in enumerate(vaults)})
    server = ServerParty(
        federation.agreement,
        SecureSum(
            federation.agreement,
            federation.roster,
            driver,
            identity=federation.identity,
            patience=QUICK,
        ),
    )
    server.greet()
    with federation.run_folder(void="public seed") as run:
        records = list(server.train(run))
    for each in vaults:
        each.close()
    assert [record.survivors for record in records] == [federation.roster.names] * 2
    assert max(driver.lengths) < 0.9 * most_bytes(federation.agreement)


def test_the_answer_is_the_partys_own(federation: LocalFederation, vault: VaultInThread) -> None:
    answer = Relay(str(vault.path)).handle(b"\xff no message of ours")
    vault.close()
    party = open_party(federation.folder("silo-0"))
    assert answer == party.handle(b"\xff no message of ours")
    party.close()


def test_a_message_longer_than_any_plans_is_refused_before_memory_is_taken(
    federation: LocalFederation, vault: VaultInThread
) -> None:
    assert Relay(str(vault.path)).handle(b"\xff") is not None  # everything is loaded
    tracemalloc.start()
    try:
        with connected(vault) as connection:
            connection.sendall((1 << 40).to_bytes(8, "little"))
            assert connection.recv(1) == b""  # hung up
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert "longer than any that is expected" in refusals(federation)
    assert Relay(str(vault.path)).handle(b"\xff") is not None


def test_a_bound_follows_the_plans_that_are_approved_meanwhile(
    federation: LocalFederation, vault: VaultInThread
) -> None:
    plans = federation.folder("silo-0") / "plans"
    (kept,) = plans.iterdir()
    assert vault.vault.most_bytes() == most_bytes(federation.agreement)
    text = kept.read_text()
    kept.unlink()
    smallest = vault.vault.most_bytes()
    assert smallest < most_bytes(federation.agreement)
    (plans / "damaged.toml").write_text("not a plan")
    assert vault.vault.most_bytes() == smallest
    kept.write_text(text)
    assert vault.vault.most_bytes() == most_bytes(federation.agreement)


@pytest.mark.parametrize("sent", [b"", b"\x05", (5).to_bytes(8, "little") + b"abc"])
def test_a_peer_that_stops_in_the_middle_is_not_waited_for(
    vault: VaultInThread, sent: bytes
) -> None:
    with connected(vault) as connection:
        connection.sendall(sent)  # and nothing more, without hanging up
        assert Relay(str(vault.path)).handle(b"\xff") is not None


def test_a_peer_that_is_gone_when_the_answer_is_ready_harms_nobody(vault: VaultInThread) -> None:
    for _ in range(3):
        connection = connected(vault)
        send_sized(connection, b"\xff", seconds=5.0)
        connection.close()
    assert Relay(str(vault.path)).handle(b"\xff") is not None


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to speak as another user")
def test_a_process_of_another_user_is_hung_up_on(
    federation: LocalFederation, vault: VaultInThread
) -> None:
    vault.path.parent.chmod(0o711)
    vault.path.chmod(0o666)  # so that the kernel's word alone decides
    child = os.fork()
    if child == 0:
        os.setgid(65534)
        os.setuid(65534)
        with connected(vault) as connection:
            connection.settimeout(20.0)
            os._exit(0 if connection.recv(1) == b"" else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert "a process of user 65534 may not speak" in refusals(federation)
    assert Relay(str(vault.path)).handle(b"\xff") is not None


# -- the relay


def test_a_vault_that_is_away_is_no_answer(tmp_path: Path) -> None:
    assert Relay(str(tmp_path / "nobody")).handle(b"\xff") is None


def test_a_vault_that_hangs_is_no_answer_and_is_not_asked_by_more_and_more(
    tmp_path: Path,
) -> None:
    path = Path(os.path.relpath(tmp_path)) / "s"
    with listen(path, uids=ONE):  # connects, and never reads
        relay = Relay(str(path), seconds=60.0)
        threads = [threading.Thread(target=relay.handle, args=(b"\xff",)) for _ in range(16)]
        for thread in threads:
            thread.start()
        while len(relay._open) < 16:
            time.sleep(0.01)
        assert relay.handle(b"\xff") is None  # at once: sixteen wait already
        relay.close()
        for thread in threads:
            thread.join(timeout=10.0)
            assert not thread.is_alive()
        assert relay.handle(b"\xff") is None
        assert Relay(str(path), seconds=0.1).handle(b"\xff") is None


def test_no_process_of_an_engine_loads_party_protocol_or_torch() -> None:
    """What is not loaded holds no key, record or vector; the control is the server's side."""
    code = (
        "import sys, importlib\n"
        "for name in sys.argv[1:]: importlib.import_module(name)\n"
        "print(sorted(name for name in sys.modules if name.split('.')[0] in ('torch', 'numpy') or "
        "name.startswith(('sumus.secagg.', 'sumus.parties.', 'sumus.books.', 'sumus.data.'))))"
    )

    def loaded(*modules: str) -> str:
        command = [sys.executable, "-c", code, *modules]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    silo = ["sumus.engines.carrier", "sumus.engines.relay"]
    pytest.importorskip("nvflare")
    ours = [f"sumus.engines.nvflare.{name}" for name in ("executor", "launcher", "start", "kits")]
    found = loaded(*silo, *ours)
    assert "sumus" not in found
    assert "torch" not in found
    assert "sumus.parties.server" in loaded(
        "sumus.engines.nvflare.controller", "sumus.parties.server"
    )
    pytest.importorskip("flwr")
    ours = [f"sumus.engines.flower.{name}" for name in ("client_app", "start", "kits")]
    assert "sumus" not in loaded(*silo, *ours)


# -- its process


def test_a_folder_is_served_by_one_process_that_cannot_be_read_by_its_own_user(
    federation: LocalFederation, tmp_path: Path
) -> None:
    folder, path = federation.folder("silo-0"), Path(os.path.relpath(tmp_path)) / "s"
    command = [sys.executable, "-m", "sumus.parties.vault", str(folder), str(path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            until = time.monotonic() + 60.0
            while Relay(str(path)).handle(b"\xff") is None:
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < until
                time.sleep(0.1)
            second = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=60.0
            )
            assert second.returncode == StorageError.exit_code
            assert second.stderr.splitlines()[-1] == (
                f"error: {folder} is in use by another process. Wait until it ends, or stop it."
            )
            if sys.platform == "linux":  # what is not dumpable belongs to root
                assert os.stat(f"/proc/{process.pid}/mem").st_uid == 0
                limits = Path(f"/proc/{process.pid}/limits").read_text()
                assert "Max core file size        0 " in limits
        finally:
            process.terminate()
    assert process.returncode == 0
    counts = read_trail(folder).counts
    assert (counts["vault.started"], counts["vault.stopped"]) == (1, 1)


def test_a_socket_whose_path_is_too_long_is_refused_with_its_length(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="at most 107 bytes"):
        listen(tmp_path / ("x" * 120), uids=ONE)
    with pytest.raises(StorageError, match="cannot be made"):
        listen(Path("no-such-folder/s"), uids=ONE)


def test_a_user_is_known_by_name_or_number() -> None:
    assert uid_of("root") == 0
    assert uid_of("65534") == 65534
    with pytest.raises(DataError, match="there is no user 'no-such-user'"):
        uid_of("no-such-user")


# -- pieces over a socket


def test_pieces_arrive_as_they_were_sent_and_never_above_their_bound() -> None:
    left, right = socket.socketpair()
    with left, right:
        for piece in (b"", b"x", bytes(70_000)):
            sender = threading.Thread(
                target=send_sized, args=(left, piece), kwargs={"seconds": 10.0}
            )
            sender.start()
            assert receive_sized(right, most=70_000, seconds=10.0) == piece
            sender.join()
        send_sized(left, b"four", seconds=1.0)
        with pytest.raises(PeerProtocolError, match="a message of 4 bytes is longer"):
            receive_sized(right, most=3, seconds=1.0)


def test_attack_a_slow_relay_has_the_watchdog_end_the_vault() -> None:
    """It may be as slow as the vault's patience lets it, in sending and in taking: signs of life come
    before and after.
    """
    assert 2.0 * _MESSAGE_SECONDS + _LOOK_SECONDS < PATIENCE_SECONDS
