"""`sumus silo backup` and `sumus silo restore`, as somebody types them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sumus.cli import main
from sumus.parties import Restored
from support.local_federation import LocalFederation, plan
from support.restoring import LosingSilo, cheap_passphrases

__all__ = ["cheap_passphrases"]

pytestmark = pytest.mark.deep


@pytest.fixture
def silo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LosingSilo]:
    across = LocalFederation(tmp_path, plan({"federation.rounds": 3}))
    losing = LosingSilo(tmp_path, across)
    monkeypatch.setenv("SUMUS_STATE", str(losing.state))
    (tmp_path / "passphrase").write_text("correct horse battery\n")
    (tmp_path / "passphrase").chmod(0o600)
    yield losing
    across.close()


def run(silo: LosingSilo, *words: object) -> int:
    return main(["silo", *map(str, words), "--passphrase-file", str(silo.root / "passphrase")])


def test_a_backup_is_made_restored_and_told_in_words(
    silo: LosingSilo, capsys: pytest.CaptureFixture[str]
) -> None:
    silo.answers(0)
    file = silo.root / "graz.backup"
    assert run(silo, "backup", silo.vault, file) == 0
    said = capsys.readouterr().out
    assert f"{silo.name}, with its key, 1 approved plans, its ledger" in said
    silo.lose(ledger=True)
    assert run(silo, "restore", file, silo.vault) == 0
    said = capsys.readouterr().out
    assert f"plan {silo.plan_hash[:8]}: 2 releases presumed" in said
    assert "for one record" in said
    assert "counts on" in said
    assert "proved, convex-pass" in said
    restored = Restored.of_folder(silo.vault)
    assert restored is not None
    assert restored.answered == {silo.plan_hash: 4}
    assert restored.known_only
    silo.start()


def test_a_rehearsal_writes_nothing(silo: LosingSilo, capsys: pytest.CaptureFixture[str]) -> None:
    silo.answers(0)
    file = silo.root / "graz.backup"
    assert run(silo, "backup", silo.vault, file, "--without-key", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["key"], facts["plans"], facts["dataset"]) == (False, 1, "digits")
    key = silo.root / "kept.key"
    key.write_text((silo.vault / "identity.key").read_text())
    head = silo.ledger.head
    silo.lose(ledger=False)
    words = ("restore", file, silo.vault, "--identity", key, "--check", "--json")
    assert run(silo, *words) == 0
    facts = json.loads(capsys.readouterr().out)
    (charged,) = facts["plans"]
    assert (charged["presumed_releases"], charged["is_over"], facts["written"]) == (2, True, False)
    assert not silo.vault.exists()
    assert silo.ledger.head == head
    assert run(silo, *words, "--ledger-survived") == 0
    (charged,) = json.loads(capsys.readouterr().out)["plans"]
    assert (charged["presumed_releases"], charged["rounds_answered"]) == (0, 1)


def test_what_is_wrong_is_one_line_and_nothing_is_lost(
    silo: LosingSilo, capsys: pytest.CaptureFixture[str]
) -> None:
    file = silo.root / "graz.backup"
    assert run(silo, "backup", silo.vault, file) == 0
    before = file.read_bytes()
    assert run(silo, "backup", silo.vault, file) == 5
    assert run(silo, "backup", silo.root / "nowhere", silo.root / "b") == 2
    assert run(silo, "backup", silo.root, silo.root / "b") == 5
    assert run(silo, "restore", file, silo.vault) == 5
    assert run(silo, "restore", silo.root / "passphrase", silo.root / "new") == 5
    (silo.root / "passphrase").write_text("another one\n")
    assert run(silo, "restore", file, silo.root / "new") == 5
    lines = [line for line in capsys.readouterr().err.splitlines() if line]
    assert len(lines) == 6
    assert [line.startswith("error: ") for line in lines] == [True] * 6
    for line, words in zip(
        lines,
        (
            "exists already",
            "must be a folder, or the name of one vault",
            "is no silo's vault",
            "must not exist, or be an empty folder",
            "is no backup of a vault",
            "does not open",
        ),
        strict=True,
    ):
        assert words in line
    assert file.read_bytes() == before
    assert not (silo.root / "new").exists()
