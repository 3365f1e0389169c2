"""Processes of a federation: started, watched, started again when they die, and taken down with
everything they started.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Self, final

import psutil  # type: ignore[import-untyped]

__all__ = ["OwnedProcess", "PartyProcesses", "end_with_parent", "free_port", "supervise"]

_PARENT_DIED = 1  # PR_SET_PDEATHSIG


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def end_with_parent() -> None:
    """Have the kernel end this process when its parent dies, however it dies (Linux; elsewhere the
    engine notices later).
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PARENT_DIED, signal.SIGKILL)


@final
class OwnedProcess:
    """One process and all that it starts.

    Args:
        command: what to run.
        log: file for its output.
        environment: added to this process's own.
    """

    def __init__(
        self, command: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                list(command),
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
                preexec_fn=end_with_parent,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def descendants(self) -> list[psutil.Process]:
        """Everything it has started that still runs."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return list(psutil.Process(self.pid).children(recursive=True))
        return []

    def kill(self) -> None:
        """End it and everything it started at once, as a power cut would."""
        family = self.descendants()
        self._process.kill()
        for member in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
        self._process.wait()
        psutil.wait_procs(family, timeout=5.0)

    def stop(self, *, seconds: float = 5.0) -> None:
        """Ask it to end, and end it if it does not."""
        family = self.descendants()
        if self.running:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=seconds)
        for member in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
        if self.running:
            self._process.kill()
            self._process.wait()
        psutil.wait_procs(family, timeout=5.0)


class PartyProcesses:
    """The parties of a federation on this machine, one process each; taken down together when the
    block ends. An engine derives from it.

    Args:
        logs: folder for the parties' output.
        environment: added to every process.
    """

    def __init__(self, logs: Path, environment: Mapping[str, str]) -> None:
        self._logs, self._environment = logs, dict(environment)
        self.processes: dict[str, OwnedProcess] = {}

    def log(self, party: str) -> Path:
        """Where a party's output goes."""
        return self._logs / f"{party}.log"

    def _run(self, party: str, command: Sequence[str]) -> OwnedProcess:
        self.processes[party] = OwnedProcess(
            command, log=self.log(party), environment=self._environment
        )
        return self.processes[party]

    def kill(self, party: str) -> None:
        """End a party at once, as a power cut would."""
        self.processes.pop(party).kill()

    def close(self) -> None:
        """Take everybody down."""
        for process in self.processes.values():
            process.stop(seconds=0.0)
        self.processes.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def supervise(
    command: Sequence[str], *, log: Path, tell: Callable[[str], None] = lambda line: None
) -> int:
    """Run a command until this process is asked to stop; when it dies, start it again after a pause
    that grows to half a minute.

    Args:
        tell: called with every new line of the log.
    """
    stopping: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.append(number)

    previous = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    pause = 1.0
    log.touch()
    try:
        with log.open(errors="replace") as written:
            written.seek(0, os.SEEK_END)
            while not stopping:
                began = time.monotonic()
                child = OwnedProcess(command, log=log)
                while child.running and not stopping:
                    time.sleep(0.2)
                    for line in written:
                        tell(line)
                child.stop()
                pause = 1.0 if time.monotonic() - began > 60.0 else min(2.0 * pause, 30.0)
                until = time.monotonic() + pause
                while not stopping and time.monotonic() < until:
                    time.sleep(0.1)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    return 0
