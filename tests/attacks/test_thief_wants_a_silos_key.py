"""Whoever steals a silo's disk wants to sign in its name. Under a passphrase the file opens nothing,
and the passphrase is in no file, no argument and no variable of any process.
"""

from __future__ import annotations

import base64
import io
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import given, strategies as st

from sumus.cli import main
from sumus.engines import Relay
from sumus.engines.processes import KeptProcess
from sumus.engines.silo_processes import vault_command
from sumus.errors import DataError
from sumus.events import Piped, log_file
from sumus.parties import handed_passphrase, open_party
from sumus.randomness import RandomSource
from sumus.secagg import Identity, is_protected, open_identity, protect, public_key_of
from support.local_federation import LocalFederation, federation_of_folders

PASSPHRASE = b"correct horse battery"
SEED = 3


def secret_of(identity: Identity) -> bytes:
    return base64.b64decode(identity.secret_text().rpartition(":")[2])


@pytest.fixture(scope="module")
def me() -> Identity:
    return Identity.generate("Graz", RandomSource())


@pytest.fixture(scope="module")
def sealed(me: Identity) -> str:
    return protect(me, PASSPHRASE)


def test_a_stolen_file_holds_no_key_in_any_spelling(me: Identity, sealed: str) -> None:
    """The control is the file without a passphrase."""
    secret = secret_of(me)
    spellings = {secret, base64.b64encode(secret), secret.hex().encode()}
    assert not any(each in sealed.encode() for each in spellings)
    assert base64.b64encode(secret) in me.secret_text().encode()
    assert is_protected(sealed)
    assert not is_protected(me.secret_text())


def test_the_passphrase_opens_it_and_no_other_does(me: Identity, sealed: str) -> None:
    assert secret_of(open_identity(sealed, PASSPHRASE)) == secret_of(me)
    for wrong in (b"", b"correct horse batterz", PASSPHRASE + b"\n"):
        with pytest.raises(DataError, match="does not open the key of 'Graz'"):
            open_identity(sealed, wrong)
    with pytest.raises(DataError, match="protected by a passphrase, and none was given"):
        open_identity(sealed, None)
    with pytest.raises(DataError):
        Identity.parse(sealed)


def test_name_and_public_key_are_bound_to_the_secret(me: Identity, sealed: str) -> None:
    assert public_key_of(sealed) == public_key_of(me.secret_text()) == me.public_key
    other = Identity.generate("Graz", RandomSource())
    words = sealed.split(" ")[1].split(":")
    swapped = f"Graz {words[0]}:{base64.b64encode(other.public_key).decode()}:{words[2]}"
    for forged in (sealed.replace("Graz", "Oulu"), swapped):
        with pytest.raises(DataError, match="does not open"):
            open_identity(forged, PASSPHRASE)


def test_no_two_files_are_alike(me: Identity, sealed: str) -> None:
    assert protect(me, PASSPHRASE).split(":")[-1] != sealed.split(":")[-1]


@given(st.text(max_size=200), st.integers(0, 150))
def test_a_file_that_is_no_key_is_refused_in_words(sealed: str, text: str, cut: int) -> None:
    for damaged in (text, f"Graz ed25519-protected:{text}", sealed[:cut]):
        with pytest.raises(DataError):
            public_key_of(damaged)
        with pytest.raises(DataError):
            open_identity(damaged, None)


# -- on the command line


def passphrase_file(folder: Path, text: bytes = PASSPHRASE) -> str:
    path = folder / "passphrase"
    path.write_bytes(text + b"\n")
    path.chmod(0o600)
    return str(path)


def test_a_key_is_made_under_a_passphrase_or_put_under_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = passphrase_file(tmp_path)
    words = ["--out", str(tmp_path), "--passphrase-file", given]
    assert main(["keys", "new", "north", *words]) == 0
    assert main(["keys", "new", "south", "--out", str(tmp_path)]) == 0
    plain = (tmp_path / "south.key").read_text()
    assert main(["keys", "protect", str(tmp_path / "south.key"), "--passphrase-file", given]) == 0
    for name in ("north", "south"):
        text = (tmp_path / f"{name}.key").read_text()
        assert (
            open_identity(text, PASSPHRASE).public_text() == (tmp_path / f"{name}.pub").read_text()
        )
        assert (tmp_path / f"{name}.key").stat().st_mode & 0o777 == 0o600
    assert secret_of(Identity.parse(plain)) == secret_of(open_identity(text, PASSPHRASE))
    shown = capsys.readouterr()
    assert PASSPHRASE.decode() not in shown.out + shown.err


@pytest.mark.parametrize(
    ("content", "mode", "words"),
    [
        (b"", 0o600, "is empty"),
        (b"short", 0o600, "at least 8 characters"),
        (PASSPHRASE, 0o644, "readable for others. Run: chmod 600"),
    ],
)
def test_a_bad_passphrase_file_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, mode: int, words: str
) -> None:
    given = passphrase_file(tmp_path, content)
    Path(given).chmod(mode)
    assert main(["keys", "new", "north", "--out", str(tmp_path), "--passphrase-file", given]) != 0
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1
    assert words in said[0]
    assert not (tmp_path / "north.key").exists()


def test_without_a_terminal_nobody_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("typed by nobody\n"))
    assert main(["keys", "new", "north", "--out", str(tmp_path), "--passphrase"]) == 2
    assert "there is no terminal to ask at. Give --passphrase-file" in capsys.readouterr().err


# -- the vault


@pytest.fixture
def federation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalFederation:
    monkeypatch.setenv("SUMUS_SIMULATION_SEED", str(SEED))
    made = federation_of_folders(tmp_path, seed=SEED)
    key = made.folder("silo-0") / "identity.key"
    key.write_text(protect(Identity.parse(key.read_text()), PASSPHRASE))
    return made


def test_a_vault_without_the_passphrase_answers_nobody(federation: LocalFederation) -> None:
    folder = federation.folder("silo-0")
    for wrong in (None, b"wrong one"):
        with pytest.raises(DataError, match="passphrase"):
            open_party(folder, passphrase=wrong)
    open_party(folder, passphrase=PASSPHRASE).close()


def test_a_credential_of_the_service_manager_is_found(
    federation: LocalFederation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "credentials").mkdir()
    (tmp_path / "credentials" / "sumus-passphrase").write_bytes(PASSPHRASE + b"\n")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "credentials"))
    assert handed_passphrase(federation.folder("silo-0")) == PASSPHRASE
    assert handed_passphrase(federation.folder("silo-1")) is None  # needs none


@pytest.fixture
def kept(federation: LocalFederation, tmp_path: Path) -> Iterator[tuple[KeptProcess, Path]]:
    path = tmp_path / "vault"
    command = vault_command(federation.folder("silo-0"), path)
    log = log_file(tmp_path / "vault.log", party="silo", process="vault")
    process = KeptProcess(command, log=Piped(log), given=PASSPHRASE)
    yield process, path
    process.stop()
    log.close()


def answered(process: KeptProcess, path: Path, message: bytes, log: Path) -> bytes:
    until = time.monotonic() + 120.0
    while True:
        process.tend()
        answer = Relay(str(path)).handle(message) if path.exists() else None
        if answer is not None:
            return answer
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.2)


def test_a_vault_that_is_killed_comes_back_with_its_key_and_shows_the_passphrase_to_nobody(
    federation: LocalFederation, kept: tuple[KeptProcess, Path], tmp_path: Path
) -> None:
    process, path = kept
    greeting = federation.greeting()
    first = answered(process, path, greeting, tmp_path / "vault.log")
    assert process._child is not None
    child = psutil.Process(process._child.pid)
    assert PASSPHRASE.decode() not in " ".join(child.cmdline())
    if os.getuid() == 0:  # the process is closed to others of its own user
        assert PASSPHRASE not in Path(f"/proc/{child.pid}/environ").read_bytes()
    child.kill()
    child.wait()
    second = answered(process, path, greeting, tmp_path / "vault.log")
    assert first
    assert second
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or PASSPHRASE not in file.read_bytes()
