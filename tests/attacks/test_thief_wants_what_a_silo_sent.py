"""Whoever gets a silo's disk after the federation has ended wants to open what it sent. `sumus keys
retire` leaves nothing that could, and everything that counts what was released.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from sumus.cli import main
from sumus.errors import StorageError
from sumus.files import FolderLock
from sumus.parties import open_party, require_unchanged
from sumus.secagg import Identity
from support.local_federation import LocalFederation, federation_of_folders


@pytest.fixture
def federation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalFederation:
    monkeypatch.setenv("SUMUS_SIMULATION_SEED", "3")
    made = federation_of_folders(tmp_path, seed=3)
    for number in range(3):
        made.start(number)
    server = made.server()
    server.greet()
    assert len(list(server.train(made.run_folder(void="a public seed")))) == 2
    for number in range(3):
        made.stop(number)
    return made


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_of_a_retired_vault_nothing_secret_is_left_and_everything_counted_is(
    federation: LocalFederation, capsys: pytest.CaptureFixture[str]
) -> None:
    vault = federation.folder("silo-0")
    before = files_of(vault)
    in_sessions = {name for name in before if name.startswith("sessions/")}
    assert any(not name.endswith("rounds.log") for name in in_sessions)  # the control
    assert main(["keys", "retire", str(vault), "--yes"]) == 0
    after = files_of(vault)
    left = {name for name in after if name.startswith("sessions/")}
    assert left
    counted = ("rounds.log", "evidence.jsonl", "certificates")
    assert all(any(part in counted for part in name.split("/")) for name in left)
    assert "identity.key" not in after
    kept = [name for name in before if name.startswith(("ledger", "plans/", "roster", "refusals"))]
    assert any(name.startswith("ledger") for name in kept)
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}
    assert "identity.key" in capsys.readouterr().out


def test_a_retired_vault_never_opens_again(federation: LocalFederation) -> None:
    vault = federation.folder("silo-0")
    me = Identity.parse((vault / "identity.key").read_text())
    assert main(["keys", "retire", str(vault), "--yes"]) == 0
    with pytest.raises(StorageError, match="was retired on"):
        open_party(vault)
    with pytest.raises(StorageError, match="was retired on"):
        require_unchanged(vault, identity=me, roster=federation.roster)
    assert main(["keys", "retire", str(vault), "--yes"]) == 0  # again: nothing is left to destroy


def test_it_asks_and_a_running_vault_is_not_touched(
    federation: LocalFederation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    vault = federation.folder("silo-0")
    before = files_of(vault)
    monkeypatch.setattr("typer.confirm", lambda *words, **options: False)
    assert main(["keys", "retire", str(vault)]) != 0
    with FolderLock(vault):
        assert main(["keys", "retire", str(vault), "--yes"]) != 0
    assert main(["keys", "retire", str(tmp_path), "--yes"]) != 0
    assert main(["keys", "retire", "nobody", "--yes"]) == 2
    after = files_of(vault)
    assert {name: after[name] for name in before} == before
