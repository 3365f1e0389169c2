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
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Self, final

import psutil  # type: ignore[import-untyped]

from sumus.events import Piped, ProcessRestarted, tell
from sumus.service import PATIENCE_SECONDS, Heard, Signs

__all__ = [
    "KeptProcess",
    "NewLines",
    "OwnedProcess",
    "PartyProcesses",
    "end_with_parent",
    "free_port",
    "supervise",
    "until_stopped",
]

_PARENT_DIED = 1  # PR_SET_PDEATHSIG
_LONG_SECONDS = 20.0
"""A process that lived so long was well; one that dies earlier is started again later and later."""


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
        log: file for its output, or what takes it in.
        environment: added to this process's own.
        without: variables that it does not get.
        given: what it reads from its standard input; None: nothing.
        heard: takes its signs of life; None: nobody does.
        options: of `subprocess.Popen`, such as the user.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path | Piped,
        environment: Mapping[str, str] | None = None,
        without: Collection[str] = (),
        given: bytes | None = None,
        heard: Heard | None = None,
        **options: Any,
    ) -> None:
        inherited = {name: value for name, value in os.environ.items() if name not in without}
        sealed = dict(log.variables) if isinstance(log, Piped) else {}
        if heard is not None:
            sealed |= heard.variables
            options["pass_fds"] = heard.inherited
        with contextlib.ExitStack() as opened:
            self._process = subprocess.Popen(
                list(command),
                stdout=subprocess.PIPE
                if isinstance(log, Piped)
                else opened.enter_context(log.open("ab")),
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL if given is None else subprocess.PIPE,
                env={**inherited, **(environment or {}), **sealed},
                start_new_session=True,
                preexec_fn=end_with_parent,
                **options,
            )
        if heard is not None:
            heard.begun()
        if isinstance(log, Piped) and self._process.stdout is not None:
            log.drain(self._process.stdout)
        if given is not None and self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError), self._process.stdin as entrance:
                entrance.write(given)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def code(self) -> int | None:
        """With which it ended, minus the signal that ended it; None while it runs."""
        return self._process.poll()

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
        self._logs, self.environment = logs, dict(environment)
        self.processes: dict[str, OwnedProcess] = {}

    def log(self, party: str) -> Path:
        """Where a party's output goes."""
        return self._logs / f"{party}.log"

    def _run(self, party: str, command: Sequence[str]) -> OwnedProcess:
        self.processes[party] = OwnedProcess(
            command, log=self.log(party), environment=self.environment
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


@final
class KeptProcess:
    """A process that is started again when it dies or hangs, after a pause that grows to half a
    minute while it dies early.

    Args:
        command: what to run.
        log: takes in what it prints.
        patience_seconds: one that has given signs of life, and then none for so long, hangs.
        options: of `OwnedProcess`.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Piped,
        patience_seconds: float = PATIENCE_SECONDS,
        **options: Any,
    ) -> None:
        self._command, self._log, self._options = command, log, options
        self._patience = patience_seconds
        self._child: OwnedProcess | None = None
        self._heard: Heard | None = None
        self.why = ""
        self.code: int | None = None
        self._began = self._not_before = 0.0
        self._pause = 1.0
        self._starts, self._changed = 0, time.time()

    @property
    def running(self) -> bool:
        """Whether it is there."""
        return self._child is not None and self._child.running

    @property
    def pid(self) -> int | None:
        """Of the process, while there is one."""
        return None if self._child is None else self._child.pid

    @property
    def since(self) -> float:
        """When it was last started or seen to have ended, Unix time."""
        return self._changed

    @property
    def restarts(self) -> int:
        """How often it was started again."""
        return max(0, self._starts - 1)

    @property
    def ready(self) -> bool:
        """Whether it runs and has said that it can do its work."""
        return self.running and self._heard is not None and self._heard.ready

    def tend(self) -> bool:
        """Start it if it is not running and its pause is over; returns whether it has just ended:
        `why` says by what, `code` with which code.
        """
        hangs = self._hangs()
        if self._child is not None and self._child.running and not hangs:
            return False
        now, ended = time.monotonic(), self._child is not None
        if self._child is not None:
            if hangs:
                self._child.kill()
            self._child.stop()  # what it has started
            self.code = self._child.code
            self.why = "it hung" if hangs else self._log.last
            self._child, self._changed = None, time.time()
            self._pause = 1.0 if now - self._began > _LONG_SECONDS else min(2 * self._pause, 30.0)
            self._not_before = now + self._pause
        elif now >= self._not_before:
            self._began = now
            self._starts, self._changed = self._starts + 1, time.time()
            if self._heard is not None:
                self._heard.close()
            self._heard = Heard()
            self._child = OwnedProcess(
                self._command, log=self._log, heard=self._heard, **self._options
            )
        return ended

    def stop(self) -> None:
        """End it with everything it started."""
        if self._child is not None:
            self._child.stop()
            self._child = None
        if self._heard is not None:
            self._heard.close()
            self._heard = None

    def _hangs(self) -> bool:
        if self._child is None or self._heard is None:
            return False
        silent = self._heard.silent_seconds()
        return silent is not None and silent > self._patience


@final
class NewLines:
    """The lines that are added to a file from now on, even if it is cut or replaced."""

    def __init__(self, path: Path) -> None:
        self._path, self._rest = path, b""
        self._inode, self._at = self._about()

    def _about(self) -> tuple[int, int]:
        try:
            about = self._path.stat()
        except OSError:
            return 0, 0
        return about.st_ino, about.st_size

    def __iter__(self) -> Iterator[str]:
        inode, size = self._about()
        if inode != self._inode or size < self._at:
            self._inode, self._at, self._rest = inode, 0, b""
        if size == self._at:
            return
        with self._path.open("rb") as file:
            file.seek(self._at)
            added = file.read(size - self._at)
        self._at += len(added)
        *lines, self._rest = (self._rest + added).split(b"\n")
        yield from (line.decode(errors="replace") for line in lines)


@contextlib.contextmanager
def until_stopped() -> Iterator[Callable[[], bool]]:
    """A block that ends in order when this process is asked to stop: yields whether it was."""
    stopping: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.append(number)

    previous = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield lambda: bool(stopping)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def supervise(
    command: Sequence[str],
    *,
    log: Piped,
    told: Callable[[str], None] = lambda line: None,
    watch: Callable[[KeptProcess], None] = lambda process: None,
    signs: Signs | None = None,
) -> int:
    """Run a command until this process is asked to stop, and start it again when it dies or hangs.

    Args:
        log: takes in what it prints.
        told: called with every line that it prints.
        watch: called several times a second with the process that is kept.
        signs: of this process; `watch` gives them.
    """
    kept = KeptProcess(command, log=log)
    with until_stopped() as stopped:
        try:
            while not stopped():
                if kept.tend():
                    tell(ProcessRestarted(child="engine"))
                time.sleep(0.2)
                watch(kept)
                for line in log:
                    told(line)
        finally:
            if signs is not None:
                signs.stopping()
            kept.stop()
    return 0
