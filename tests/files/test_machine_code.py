"""Loops are compiled by one process of several, and by whoever needs them where no lock can be had."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from sumus.files import machine_code
from sumus.files.machine_code import compiled

_COMPILING = """
import sys, time
from pathlib import Path
from numba.core import event
import kernel

class Counting(event.Listener):
    compiled = 0
    def on_start(self, told):
        self.compiled += 1
    def on_end(self, told):
        pass

counting = Counting()
event.register("numba:compile", counting)
here, go = Path(sys.argv[1]), Path(sys.argv[2])
here.touch()
while not go.exists():
    time.sleep(0.001)
print(kernel.loop(2), counting.compiled)
"""
_LOOPS = """
from sumus.files.machine_code import compiled

@compiled
def inner(number):
    return number * 1.5

@compiled
def loop(number):
    return inner(number) + 4.0
"""


@pytest.mark.deep
def test_processes_that_start_together_compile_a_loop_once(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text(_LOOPS)
    paths = os.pathsep.join([str(tmp_path), str(Path(machine_code.__file__).parents[2])])
    places = [tmp_path / f"here-{number}" for number in range(2)]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _COMPILING, str(place), str(tmp_path / "go")],
            env=os.environ | {"PYTHONPATH": paths, "NUMBA_CACHE_DIR": str(tmp_path / "cache")},
            stdout=subprocess.PIPE,
            text=True,
        )
        for place in places
    ]
    while not all(place.exists() for place in places):
        assert all(process.poll() is None for process in processes)
        time.sleep(0.01)
    (tmp_path / "go").touch()
    told = [process.communicate()[0].split() for process in processes]
    assert [value for value, _ in told] == ["7.0", "7.0"]
    # both loops, by one of the two processes; the other one read them
    assert sorted(int(count) for _, count in told) == [0, 2]


def test_a_lock_that_somebody_keeps_is_waited_for_and_then_gone_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_code, "_PATIENCE", 0.05)
    lock, entered = tmp_path / "new" / "loop.lock", []
    lock.parent.mkdir()
    with open(lock, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        begin = time.monotonic()
        with machine_code._held(lock):
            entered.append(time.monotonic() - begin)
    assert entered[0] >= 0.05


def test_a_lock_keeps_others_out_until_it_is_let_go(tmp_path: Path) -> None:
    lock, order = tmp_path / "loop.lock", []

    def other() -> None:
        with machine_code._held(lock):
            order.append("other")

    with machine_code._held(lock):
        thread = threading.Thread(target=other)
        thread.start()
        time.sleep(0.1)
        order.append("this")
    thread.join()
    assert order == ["this", "other"]


def test_without_a_place_for_the_lock_a_loop_is_compiled_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with machine_code._held(tmp_path / "file" / "loop.lock"):
        pass

    def twice(number: float) -> float:
        return 2.0 * number

    loop = compiled(twice)
    machine_code._compile_once(loop, tmp_path / "file" / "loop.lock")
    assert loop(3.5) == 7.0
