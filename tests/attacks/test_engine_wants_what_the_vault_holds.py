"""Code in the engine's process, run by the vault's own user, wants keys and records out of the
vault's memory; and an answer that the server was never given.

What code of another user finds is tested with real processes in
tests/end_to_end/test_another_user.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sumus.engines import Relay
from support.local_federation import LocalFederation, federation_of_folders
from support.vaults import VaultInThread

ORDINARY = 65534
HOLDER = """
import ctypes, os, sys, time
from sumus.parties.vault import seal_process
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(int(sys.argv[2]))
    os.setuid(int(sys.argv[2]))
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # as a process is that was started by its user
if sys.argv[1] == "sealed":
    seal_process()
print("ready", flush=True)
time.sleep(120)
"""


def readable_by_its_own_user(pid: int) -> bool:
    """Whether a process of the same ordinary user can open another's memory."""
    child = os.fork()
    if child == 0:
        if os.getuid() == 0:
            os.setgroups([])
            os.setgid(ORDINARY)
            os.setuid(ORDINARY)
        try:
            os.close(os.open(f"/proc/{pid}/mem", os.O_RDONLY))
            os._exit(0)
        except OSError:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


@pytest.mark.skipif(sys.platform != "linux", reason="how Linux shows a process's memory")
@pytest.mark.parametrize("how", ["sealed", "open"])
def test_a_process_of_the_same_user_opens_the_vaults_memory_only_where_it_is_not_sealed(
    how: str,
) -> None:
    """The control is a vault that was not sealed."""
    user = str(ORDINARY if os.getuid() == 0 else os.getuid())
    command = [sys.executable, "-c", HOLDER, how, user]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            assert readable_by_its_own_user(process.pid) is (how == "open")
        finally:
            process.kill()


def test_whatever_a_relay_sends_it_gets_what_a_server_would_get(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The socket speaks nothing but the protocol: paths, commands and pickles are refusals of the
    party's own, and nothing in them comes from the folder.
    """
    monkeypatch.setenv("SUMUS_SIMULATION_SEED", "3")
    federation: LocalFederation = federation_of_folders(tmp_path, seed=3)
    folder = federation.folder("silo-0")
    secrets = [
        path.read_bytes().split()[-1] for path in (folder / "identity.key", folder / "site.toml")
    ]
    vault = VaultInThread(folder)
    relay = Relay(str(vault.path))
    try:
        for sent in (
            b"GET /identity.key HTTP/1.1\r\n\r\n",
            str(folder / "identity.key").encode(),
            b"\x80\x04\x95cos\nsystem\n(S'id'\ntR.",
            b'{"get": "identity.key"}',
            b"",
            bytes(1000),
        ):
            answer = relay.handle(sent)
            assert answer is not None
            assert not any(secret in answer for secret in secrets)
            assert str(folder).encode() not in answer
    finally:
        vault.close()
