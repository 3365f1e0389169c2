from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sumus.errors import PeerProtocolError, StorageError
from sumus.files import Chain
from sumus.secagg import FileRoundGuard, MemoryRoundGuard, RoundGuard

ROUND = bytes(range(32))


@pytest.fixture(params=["memory", "file"])
def guard(request: pytest.FixtureRequest, tmp_path: Path) -> RoundGuard:
    return MemoryRoundGuard() if request.param == "memory" else FileRoundGuard(tmp_path / "rounds")


def test_a_step_is_bound_once(guard: RoundGuard) -> None:
    assert guard.claimed(ROUND, "input") is None
    guard.claim(ROUND, "input", b"one")
    guard.claim(ROUND, "input", b"one")
    guard.claim(ROUND, "transcript", b"two")
    assert guard.claimed(ROUND, "input") == b"one"
    with pytest.raises(PeerProtocolError, match="already has another input"):
        guard.claim(ROUND, "input", b"two")


def test_claims_outlive_the_process(tmp_path: Path) -> None:
    path = tmp_path / "rounds"
    program = (
        "import os, pathlib; from sumus.secagg import FileRoundGuard;"
        f"FileRoundGuard(pathlib.Path({str(path)!r})).claim(bytes(range(32)), 'input', b'one'); "
        "os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 9
    again = FileRoundGuard(path)
    with pytest.raises(PeerProtocolError, match="already has another input"):
        again.claim(ROUND, "input", b"two")


def test_a_line_that_a_crash_cut_short_is_dropped_and_the_rest_kept(tmp_path: Path) -> None:
    path = tmp_path / "rounds"
    first = FileRoundGuard(path)
    first.claim(ROUND, "transcript", b"one")
    whole = path.stat().st_size
    first.claim(ROUND, "input", b"two")
    first.close()
    for size in range(whole + 1, path.stat().st_size, 7):
        torn = tmp_path / f"torn-{size}"
        torn.write_bytes(path.read_bytes()[:size])
        again = FileRoundGuard(torn)
        assert again.claimed(ROUND, "transcript") == b"one"
        assert again.claimed(ROUND, "input") is None
        again.claim(ROUND, "input", b"three")
        again.close()
        assert FileRoundGuard(torn).claimed(ROUND, "input") == b"three"


@pytest.mark.parametrize("place", [0, 40, 70, 90])
def test_any_other_damage_is_refused(tmp_path: Path, place: int) -> None:
    path = tmp_path / "rounds"
    first = FileRoundGuard(path)
    first.claim(ROUND, "input", b"\7" * 16)
    first.close()
    raw = bytearray(path.read_bytes())
    raw[place] ^= 1
    path.write_bytes(raw)
    with pytest.raises(StorageError, match="damaged"):
        FileRoundGuard(path)


def test_a_line_that_was_taken_out_is_missed(tmp_path: Path) -> None:
    path = tmp_path / "rounds"
    first = FileRoundGuard(path)
    for step in ("transcript", "input", "survivors"):
        first.claim(ROUND, step, b"one")
    first.close()
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[2])
    with pytest.raises(StorageError, match=r"damaged.*fresh keys"):
        FileRoundGuard(path)


def test_a_chain_that_holds_no_claims_is_refused(tmp_path: Path) -> None:
    FileRoundGuard(tmp_path / "rounds").close()
    Chain.read(tmp_path / "rounds", origin="sumus round memory 1").appended("claim", {"round": 7})
    with pytest.raises(StorageError, match="damaged"):
        FileRoundGuard(tmp_path / "rounds")


def test_one_process_at_a_time(tmp_path: Path) -> None:
    holder = FileRoundGuard(tmp_path / "rounds")
    with pytest.raises(StorageError, match="in use"):
        FileRoundGuard(tmp_path / "rounds")
    holder.close()
    FileRoundGuard(tmp_path / "rounds").close()


def test_the_claim_is_on_disk_before_it_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[bytes] = []
    path = tmp_path / "rounds"
    guard = FileRoundGuard(path)
    monkeypatch.setattr(os, "fsync", lambda _: synced.append(path.read_bytes()))
    guard.claim(ROUND, "input", b"one")
    assert len(synced) == 1
    assert synced[0].endswith(b"\n")
    assert b"input" in synced[0]


def test_nobody_else_reads_it(tmp_path: Path) -> None:
    FileRoundGuard(tmp_path / "rounds").close()
    assert (tmp_path / "rounds").stat().st_mode & 0o077 == 0


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="nowhere"):
        FileRoundGuard(tmp_path / "nowhere" / "rounds")
