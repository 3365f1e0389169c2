"""Processes that are started again when they die, and taken down with all they started."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from sumus.engines.processes import KeptProcess, OwnedProcess
from sumus.events import Piped
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


# -- one that hangs

SIGNS = """
import sys, time
from sumus.service import Signs
signs = Signs.of_environment()
print('here', flush=True)
for _ in range(int(sys.argv[1])):
    signs.turned(ready=True)
    time.sleep(0.01)
time.sleep(600)
"""


def tended(kept: KeptProcess, seconds: float, *, until: Callable[[], bool]) -> bool:
    """Look after a process; returns whether it came to that."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        kept.tend()
        if until():
            return True
        time.sleep(0.02)
    return False


def test_a_process_that_hangs_is_killed_and_started_again(tmp_path: Path) -> None:
    log = Piped(logging.NullHandler())
    kept = KeptProcess([sys.executable, "-c", SIGNS, "3"], log=log, patience_seconds=0.5)
    try:
        assert tended(kept, 60.0, until=lambda: kept.ready)
        first = kept.pid
        assert tended(kept, 60.0, until=lambda: bool(kept.why))
        assert kept.why == "it hung"
        assert kept.code == -signal.SIGKILL
        assert not psutil.pid_exists(first)
        assert tended(kept, 60.0, until=lambda: kept.restarts == 1 and kept.ready)
    finally:
        kept.stop()


def test_a_process_that_never_spoke_is_left_alone(tmp_path: Path) -> None:
    """An engine of another release may give no signs."""
    log = Piped(logging.NullHandler())
    kept = KeptProcess([sys.executable, "-c", SIGNS, "0"], log=log, patience_seconds=0.0)
    try:
        assert tended(kept, 60.0, until=lambda: bool([*log]))
        assert not tended(kept, 0.5, until=lambda: bool(kept.why))
        assert kept.running
        assert not kept.ready
    finally:
        kept.stop()


def job_process(parent: int) -> subprocess.Popen[str]:
    """A job's process of the engine, told who has started it."""
    script = (
        "from sumus.engines.nvflare.orphans import end_with_parent\n"
        "end_with_parent()\n"
        "print('begun', flush=True)\n"
        "import time\n"
        "time.sleep(120)\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", script],
        env=os.environ | {"SUMUS_PARENT": str(parent)},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_job_process_whose_site_died_before_it_began_does_not_hold_the_kit_for_ever() -> None:
    """It has inherited the lock of the kit, so a silo that is started again would find it held."""
    orphan, kept = job_process(parent=1), job_process(parent=os.getpid())
    try:
        assert orphan.wait(timeout=120.0) == 1
        assert kept.stdout is not None
        assert kept.stdout.readline() == "begun\n"
        with pytest.raises(subprocess.TimeoutExpired):
            kept.wait(timeout=1.2)  # the control: whose site lives goes on
    finally:
        for process in (orphan, kept):
            process.kill()
            process.communicate()


TIDIED = """
import gc, sys, threading, time, weakref
from sumus.engines.nvflare.tidying import tidy_every

class Cycle:
    def __init__(self):
        self.own = self

gc.disable()  # as good as a collector that waits for a quarter of a million objects
if sys.argv[1] == "tidied":
    tidy_every(0.05)
left = weakref.ref(Cycle())
until = time.monotonic() + float(sys.argv[2])
while left() is not None and time.monotonic() < until:
    time.sleep(0.01)
print(left() is None, gc.get_freeze_count() > 0)
"""


@pytest.mark.parametrize(
    ("begun", "seconds", "said"), [("tidied", 120.0, "True True"), ("not", 0.5, "False False")]
)
def test_what_messages_leave_behind_is_freed_while_the_process_lives(
    begun: str, seconds: float, said: str
) -> None:
    """The control: without it a cycle stays until the collector is moved to look."""
    done = subprocess.run(
        [sys.executable, "-c", TIDIED, begun, str(seconds)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == said
