"""`sumus audit evidence` of a run, a vault, a server's kit and archived segments."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sumus.cli import main
from sumus.engines import Address
from sumus.engines.kit import write_kit_file
from sumus.events import Trail
from sumus.parties import silo_trail
from support.trails import AuditedRun

pytestmark = pytest.mark.deep


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuditedRun]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUMUS_SIMULATION_SEED", "3")
        run = AuditedRun(tmp_path_factory.mktemp("audited"))
        address = Address("localhost", 8002)
        write_kit_file(run.state.parent, engine="nvflare", party="server", address=address)
        assert run.train()["phase"] == "finished"
        run.close()
        yield run


def told(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, dict[str, Any]]:
    code = main(["audit", "evidence", *map(str, words), "--json"])
    return code, json.loads(capsys.readouterr().out.splitlines()[-1])


def shown(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    code = main(["audit", "evidence", *map(str, words)])
    out, err = capsys.readouterr()
    return code, out + err


def test_a_vault_and_a_kit_are_compared_with_their_books(
    finished: AuditedRun, capsys: pytest.CaptureFixture[str]
) -> None:
    code, vault = told(capsys, finished.vault(0))
    assert (code, vault["passed"], vault["releases"], vault["remembered"]) == (0, True, 2, 1)
    head = silo_trail(finished.vault(0)).head
    assert (vault["lines"], vault["head"]) == (head.lines, head.last)
    code, kit = told(capsys, finished.state.parent)
    assert (code, kit["passed"], kit["releases"]) == (0, True, 2)
    code, text = shown(capsys, finished.vault(0), "--head", head.last)
    assert code == 0
    assert f"head           {head.last}" in text
    assert "compared with  2 entries of the ledger" in text
    assert "the trail is whole, and the books say the same" in text


def test_a_copy_of_the_run_shows_and_remembers_the_servers_trail(
    finished: AuditedRun, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (journal,) = (finished.state / "runs").glob("*/*/journal.jsonl")
    code, text = shown(capsys, journal.parent)
    assert code == 0
    assert "the server's audit trail had 3 lines, the last " in text
    kit = shutil.copytree(finished.state.parent, tmp_path / "kit")
    shutil.rmtree(kit / "sumus" / "runs")
    for path in (kit / "sumus").glob("audit*"):
        path.unlink()
    assert told(capsys, kit)[0] == 0
    code, found = told(capsys, kit, "--run", journal.parent)
    assert code == 3
    assert "which was seen, is missing" in found["findings"][0]


def test_a_trail_that_was_changed_ends_with_3_and_says_what_contradicts(
    finished: AuditedRun, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    vault = shutil.copytree(finished.vault(0), tmp_path / "silo-0")
    trail = vault / "audit.jsonl"
    trail.write_text(trail.read_text().replace('"round":1,', '"round":2,', 1))
    code, text = shown(capsys, vault)
    assert code == 3
    assert "contradiction: " in text
    assert "does not match its own hash" in text
    code, found = told(capsys, finished.vault(0), "--head", "ab" * 32)
    assert (code, found["findings"]) == (3, [f"no line has the hash {'ab' * 32}"])


def test_archived_segments_are_checked_by_themselves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trail = Trail(tmp_path, party="silo", segment_bytes=400)
    for number in range(6):
        trail.notice(policy=f"{number:064x}")
    (tmp_path / "audit.jsonl").unlink()
    code, found = told(capsys, tmp_path)
    assert (code, found["passed"]) == (0, True)
    (tmp_path / "audit-000002.jsonl").unlink()
    assert told(capsys, tmp_path)[0] == 3


@pytest.mark.parametrize(
    ("words", "told_in"),
    [
        (("--roster", "roster.toml"), "is for a run"),
        (("--run", "runs/x"), "is for a kit"),
        (("--head", "abc"), "must be 64 hexadecimal digits"),
    ],
)
def test_options_that_do_not_fit_are_one_line(
    finished: AuditedRun, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], told_in: str
) -> None:
    assert main(["audit", "evidence", str(finished.vault(0)), *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert told_in in line


def test_a_folder_of_another_kind_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", "evidence", str(tmp_path)]) == 5
    (line,) = capsys.readouterr().err.splitlines()
    assert "is neither a run folder nor a vault nor a kit" in line
