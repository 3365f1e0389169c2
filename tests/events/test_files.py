"""Log files are bounded, for their owner, of one process, and cost nobody a round."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sumus.engines.processes import OwnedProcess
from sumus.errors import StorageError
from sumus.events import BoundedFile, Piped, RoundCommitted, log_file

ROUND = RoundCommitted(round=3, survivors=4, dropped=(), seconds=1.25)


def said(text: str) -> logging.LogRecord:
    return logging.makeLogRecord({"msg": text})


def test_rotation_bounds_the_disk(tmp_path: Path) -> None:
    file = BoundedFile(tmp_path / "server.log", file_bytes=10_000, older=3)
    for number in range(2000):
        file.handle(said(f"line {number} of some length, as an engine writes them"))
    file.close()
    logs = sorted(path for path in tmp_path.iterdir() if path.suffix != ".lock")
    assert [path.name for path in logs] == [
        "server.log",
        "server.log.1",
        "server.log.2",
        "server.log.3",
    ]
    assert sum(path.stat().st_size for path in logs) <= 4 * 10_000
    assert {path.stat().st_mode & 0o777 for path in logs} == {0o600}
    assert "line 1999 " in logs[0].read_text().splitlines()[-1]


def test_a_file_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    path = tmp_path / "vault.log"
    path.write_text("earlier\n")
    path.chmod(0o644)
    BoundedFile(path).close()
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text() == "earlier\n"


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("")
    (tmp_path / "vault.log").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="cannot be written"):
        BoundedFile(tmp_path / "vault.log")


def test_a_second_process_does_not_write_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    program = (
        "import sys; from pathlib import Path; from sumus.events import BoundedFile\n"
        "BoundedFile(Path(sys.argv[1]))"
    )
    first = BoundedFile(path)
    second = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=False
    )
    assert second.returncode
    assert "is written by another process" in second.stderr
    first.close()
    BoundedFile(path).close()


def test_a_full_disk_raises_nothing_and_the_lost_lines_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = log_file(tmp_path / "server.log", party="server", process="start")
    logging.getLogger("sumus").addHandler(file)
    try:
        with monkeypatch.context() as patch:

            def full(*_: object) -> None:
                raise OSError(28, "No space left on device")

            patch.setattr(file.stream, "write", full, raising=False)
            for _ in range(3):
                file.handle(logging.makeLogRecord({"happened": ROUND}))
        file.handle(logging.makeLogRecord({"happened": ROUND}))
    finally:
        logging.getLogger("sumus").removeHandler(file)
        file.close()
    lines = [json.loads(line) for line in (tmp_path / "server.log").read_text().splitlines()]
    assert [line["event"] for line in lines] == ["round.committed", "log.lost"]
    assert lines[1]["lines"] == 3


# -- what a kept process prints


def lines_of(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def piped(tmp_path: Path):
    file = log_file(tmp_path / "engine.log", party="relay", process="engine")
    yield Piped(file)
    file.close()


def test_what_is_printed_past_the_log_is_wrapped(piped: Piped, tmp_path: Path) -> None:
    piped.take(b"Traceback: \x1b[31mred\x1b[0m \xff\n")
    (line,) = lines_of(tmp_path / "engine.log")
    assert (line["event"], line["party"]) == ("output", "relay")
    assert line["said"] == "Traceback: \\u001b[31mred\\u001b[0m \ufffd"
    assert piped.last == "Traceback: \x1b[31mred\x1b[0m \ufffd"


def test_a_line_under_the_seal_is_kept_as_it_is(piped: Piped, tmp_path: Path) -> None:
    seal = piped.variables["SUMUS_LOG_SEAL"]
    piped.take(f'{seal}{{"event":"round.committed"}}\n'.encode())
    assert (tmp_path / "engine.log").read_text() == '{"event":"round.committed"}\n'
    assert list(piped) == ['{"event":"round.committed"}']
    assert list(piped) == []
    assert piped.last == "it said nothing"


@pytest.mark.parametrize("line", [b"\n", b"\r\n", b""])
def test_an_empty_line_is_none(piped: Piped, tmp_path: Path, line: bytes) -> None:
    piped.take(line)
    assert (tmp_path / "engine.log").read_text() == ""


def test_a_stream_without_line_feeds_takes_no_memory(piped: Piped, tmp_path: Path) -> None:
    piped._drain(io.BufferedReader(io.BytesIO(b"x" * 1_000_000)))  # type: ignore[arg-type]
    lines = lines_of(tmp_path / "engine.log")
    assert len(lines) == 16
    assert max(len(str(line["said"])) for line in lines) <= 400


def test_a_process_logs_and_prints_into_one_file(piped: Piped, tmp_path: Path) -> None:
    program = (
        "from sumus.events import LogChoice, RoundCommitted, configure, tell\n"
        "configure(LogChoice(), party='relay', process='job', by_default=True)\n"
        "print('as it is', flush=True)\n"
        "tell(RoundCommitted(round=1, survivors=2, dropped=(), seconds=0.1))\n"
    )
    process = OwnedProcess(
        [sys.executable, "-c", program], log=piped, environment={"PYTHONUNBUFFERED": "1"}
    )
    until = time.monotonic() + 60.0
    while len((tmp_path / "engine.log").read_text().splitlines()) < 2:
        assert time.monotonic() < until
        time.sleep(0.05)
    process.stop()
    first, second = lines_of(tmp_path / "engine.log")
    assert (first["event"], first["said"]) == ("output", "as it is")
    assert (second["event"], second["withheld"]) == ("event.withheld", "round.committed")
    assert second["pid"] != os.getpid()
