"""A thief has a backup's file, and wants the silo's key, its records, or what opens a round."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from sumus.care import back_up, read_backup, restore_vault
from sumus.data import load_silo
from sumus.errors import DataError, StorageError
from sumus.parties.memory import SiloState
from support.local_federation import LocalFederation, plan
from support.restoring import PASSPHRASE, LosingSilo, cheap_passphrases

__all__ = ["cheap_passphrases"]

pytestmark = pytest.mark.deep


@pytest.fixture(scope="module")
def silo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LosingSilo]:
    root = tmp_path_factory.mktemp("thief")
    across = LocalFederation(root, plan())
    losing = LosingSilo(root, across)
    assert losing.answers(0)
    yield losing
    across.close()


def secrets_of(silo: LosingSilo) -> dict[str, bytes]:
    """What opens rounds, as the running silo has it."""
    party = silo.across.parties[0]
    memory = next(iter(party._memory._sessions.values()))  # type: ignore[attr-defined]
    ring = memory.ring
    secrets = {f"root {place}": root for place, root in ring.sets[-1].roots.items()}
    secrets |= {f"pair key {place}": key for place, key in ring.round.pair_keys.items()}
    return secrets | {"own key": ring.round.own_key, "answer": ring.round.reply[-64:]}


def test_the_file_says_nothing_without_its_passphrase(silo: LosingSilo) -> None:
    silo.back_up()
    content = (silo.root / "silo.backup").read_bytes()
    text = (silo.vault / "identity.key").read_text()
    signing = base64.b64decode(text.rpartition(":")[2])
    vault = b"".join(path.read_bytes() for path in silo.vault.rglob("*") if path.is_file())
    assert text.encode() in vault  # the control: a copy of the folder has everything
    for secret in secrets_of(silo).values():
        assert secret in vault
        assert secret not in content
    for words in (signing, text.encode(), silo.name.encode(), b"digits", b"epsilon", b"[privacy]"):
        assert words not in content


@pytest.mark.parametrize("passphrase", [b"", b"correct horse batterz", PASSPHRASE + b"\n"])
def test_another_passphrase_opens_nothing(silo: LosingSilo, passphrase: bytes) -> None:
    silo.back_up()
    with pytest.raises(StorageError, match="does not open"):
        read_backup(silo.root / "silo.backup", passphrase)


def test_whoever_has_the_passphrase_opens_no_round_and_finds_no_record(silo: LosingSilo) -> None:
    """The key is in it, unless it was left out; nothing else of a round is."""
    backup = silo.back_up()
    opened = b"".join(backup.files.values())
    assert all(secret not in opened for secret in secrets_of(silo).values())
    records = load_silo(silo.across.agreement.plan, silo.name).silos[0].train
    rows = np.asarray(records.x)
    assert any(row.any() for row in rows)
    assert all(row.tobytes() not in opened for row in rows if row.any())


def test_a_key_that_was_left_out_is_not_there(silo: LosingSilo, tmp_path: Path) -> None:
    text = (silo.vault / "identity.key").read_text()
    assert text.encode() in silo.back_up().files.values()  # the control
    backup = silo.back_up(with_key=False)
    secret = base64.b64decode(text.rpartition(":")[2])
    for content in backup.files.values():
        assert secret not in content
        assert text.rpartition(":")[2].strip().encode() not in content
    with pytest.raises(DataError, match="made without the key"):
        restore_vault(backup, tmp_path / "vault", state=tmp_path / "state")
    other = silo.across.identities[silo.across.roster.names[1]].secret_text()
    with pytest.raises(DataError, match="the backup is of"):
        restore_vault(backup, tmp_path / "vault", state=tmp_path / "state", key_text=other)
    restore_vault(backup, tmp_path / "vault", state=tmp_path / "state", key_text=text)
    assert SiloState(tmp_path / "vault").name == silo.name


def test_nobody_else_may_read_the_file_or_what_it_becomes(silo: LosingSilo, tmp_path: Path) -> None:
    backup = silo.back_up()
    restore_vault(backup, tmp_path / "vault", state=tmp_path / "state")
    secret = [silo.root / "silo.backup", tmp_path / "vault", tmp_path / "vault" / "identity.key"]
    assert all(path.stat().st_mode & 0o077 == 0 for path in secret)


def test_a_changed_or_cut_file_is_refused(silo: LosingSilo, tmp_path: Path) -> None:
    silo.back_up()
    content = (silo.root / "silo.backup").read_bytes()
    changed = tmp_path / "changed"
    for place in (20, 40, len(content) // 2, len(content) - 1):
        changed.write_bytes(content[:place] + bytes((content[place] ^ 1,)) + content[place + 1 :])
        with pytest.raises(StorageError, match="does not open"):
            read_backup(changed, PASSPHRASE)
    changed.write_bytes(content[:-1])
    with pytest.raises(StorageError, match="does not open"):
        read_backup(changed, PASSPHRASE)
    changed.write_bytes(content.replace(b"backup 1", b"backup 2", 1))
    with pytest.raises(
        StorageError, match="has format 2 of a backup, this version of Sumus reads 1"
    ):
        read_backup(changed, PASSPHRASE)
    changed.write_bytes(b"something else")
    with pytest.raises(StorageError, match="is no backup of a vault"):
        read_backup(changed, PASSPHRASE)


def test_a_backup_overwrites_nothing(silo: LosingSilo, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("mine")
    with pytest.raises(StorageError, match="exists already"):
        back_up(silo.vault, taken, PASSPHRASE)
    assert taken.read_text() == "mine"
    with pytest.raises(StorageError, match="must not exist, or be an empty folder"):
        restore_vault(silo.back_up(), silo.vault, state=tmp_path / "state")
