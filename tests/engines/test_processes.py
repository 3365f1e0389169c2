"""Processes that are started again when they die, and taken down with all they started."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from sumus.engines.processes import OwnedProcess
from support.loggers import logged

CHILD = "import time; print('up', flush=True); time.sleep(60)"
FAMILY = (
    f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {CHILD!r}]); "
    "time.sleep(60)"
)
SUPERVISOR = """
import sys
from pathlib import Path
from sumus.engines.processes import supervise
from sumus.events import LogChoice, Piped, configure
log = Piped(*configure(LogChoice(file=Path(sys.argv[1])), party="server", process="start"))
told = lambda line: print("told", line, flush=True)
sys.exit(supervise([sys.executable, "-c", sys.argv[2]], log=log, told=told))
"""


def wait_for(what: Callable[[], bool], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.05)


def alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


@pytest.fixture
def supervisor(tmp_path: Path):
    command = [sys.executable, "-c", SUPERVISOR, str(tmp_path / "log"), CHILD]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        wait_for(lambda: (tmp_path / "log").exists() and "up" in (tmp_path / "log").read_text())
        yield process
        process.kill()


def test_a_process_that_dies_is_started_again_and_ends_when_asked(
    supervisor: subprocess.Popen[str], tmp_path: Path
) -> None:
    (first,) = psutil.Process(supervisor.pid).children()
    first.kill()
    assert supervisor.stdout is not None
    # of either process; waits until the line is there, or fails at the end of the output
    for _ in range(2):
        next(line for line in supervisor.stdout if line == "told up\n")
    (second,) = psutil.Process(supervisor.pid).children()
    supervisor.send_signal(signal.SIGTERM)
    shown, _ = supervisor.communicate(timeout=60)
    assert supervisor.returncode == 0
    assert "told up" not in shown
    assert not alive(second.pid)
    events = [line["event"] for line in logged(tmp_path / "log")]
    assert events == ["output", "process.restarted", "output"]


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's signal for orphans is Linux's")
def test_a_process_does_not_outlive_a_supervisor_that_was_killed(
    supervisor: subprocess.Popen[str],
) -> None:
    (child,) = psutil.Process(supervisor.pid).children()
    supervisor.kill()
    wait_for(lambda: not alive(child.pid))


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_process_is_taken_down_with_what_it_started(tmp_path: Path, end: str) -> None:
    process = OwnedProcess(
        [sys.executable, "-c", FAMILY], log=tmp_path / "log", environment={"PYTHONUNBUFFERED": "1"}
    )
    wait_for(lambda: "up" in (tmp_path / "log").read_text())
    (grandchild,) = process.descendants()
    process.kill() if end == "kill" else process.stop()
    assert not process.running
    wait_for(lambda: not alive(grandchild.pid))
    assert process.descendants() == []
