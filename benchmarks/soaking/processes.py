"""Processes as a service manager keeps them: started again when they die, found by what they are."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil  # type: ignore[import-untyped]

__all__ = ["Service", "Services", "is_of"]

_PAUSE_SECONDS = 2.0
_KINDS = {
    "vault": ("sumus.parties.vault",),
    "relay": ("sumus.engines.carrier", "sumus.engines.nvflare.start silo "),
    "silo-job": ("silo-job",),
    "server": ("sumus.engines.nvflare.start server ",),
    "server-job": ("server-job",),
}
"""What the command line of a process holds, by what the process is."""


def is_of(kind: str, command: str) -> bool:
    """Whether a command line is that of a kind of process."""
    return any(words in command for words in _KINDS[kind])


class Service:
    """One command that is kept alive.

    Args:
        name: of the party.
        command: as it is started, and started again.
        environment: its own, all of it.
        log: file for what it prints.
    """

    def __init__(
        self, name: str, command: Sequence[str], *, environment: Mapping[str, str], log: Path
    ) -> None:
        self.name, self.command, self.environment, self._log = name, list(command), environment, log
        self._process: subprocess.Popen[bytes] | None = None
        self.starts, self._not_before = 0, 0.0

    @property
    def pid(self) -> int | None:
        """While it runs."""
        process = self._process
        return None if process is None or process.poll() is not None else process.pid

    def start(self) -> None:
        """Start it, whatever became of it before."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                env=dict(self.environment),
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self.starts += 1

    def tend(self) -> None:
        """Start it if it has ended, after a pause."""
        now = time.monotonic()
        if self.pid is not None:
            self._not_before = now + _PAUSE_SECONDS
        elif now >= self._not_before:
            self._not_before = now + _PAUSE_SECONDS
            self.start()

    def family(self) -> list[psutil.Process]:
        """Itself and everything that it has started."""
        if self.pid is None:
            return []
        with contextlib.suppress(psutil.Error):
            own = psutil.Process(self.pid)
            return [own, *own.children(recursive=True)]
        return []

    def find(self, kind: str) -> psutil.Process | None:
        """Its process of a kind."""
        for process in self.family():
            with contextlib.suppress(psutil.Error):
                if is_of(kind, " ".join(process.cmdline()) + " "):
                    return process
        return None

    def kill(self) -> None:
        """End it and all that it started at once, as a power cut would."""
        family = self.family()
        for process in family:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(family, timeout=10.0)
        self._reap()

    def stop(self, *, seconds: float = 30.0) -> None:
        """Ask it to end, and end it if it does not."""
        family = self.family()
        if self.pid is not None:
            os.kill(self.pid, signal.SIGTERM)
        _, left = psutil.wait_procs(family, timeout=seconds)
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=10.0)
        self._reap()

    def _reap(self) -> None:
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=10.0)


class Services:
    """All services, tended by a thread of its own; whoever stops one first says so."""

    def __init__(self) -> None:
        self._services: dict[str, Service] = {}
        self._resting: set[str] = set()
        self._lock, self._ended = threading.RLock(), threading.Event()
        self._thread = threading.Thread(target=self._tend, name="services", daemon=True)
        self._thread.start()

    def __getitem__(self, name: str) -> Service:
        return self._services[name]

    def __iter__(self) -> Iterator[Service]:
        return iter(list(self._services.values()))

    def add(self, service: Service, *, start: bool = True) -> None:
        """Keep another one."""
        with self._lock:
            self._services[service.name] = service
            if start:
                service.start()
            else:
                self._resting.add(service.name)

    def drop(self, *names: str) -> None:
        """Stop some for good."""
        with self.resting(*names):
            for name in names:
                self._services.pop(name)

    @contextlib.contextmanager
    def resting(self, *names: str) -> Iterator[None]:
        """Services that are stopped, and started again when the block ends."""
        with self._lock:
            self._resting |= set(names)
        with ThreadPoolExecutor(max(1, len(names))) as pool:
            list(pool.map(lambda name: self._services[name].stop(), names))
        try:
            yield
        finally:
            with self._lock:
                self._resting -= set(names)

    def close(self) -> None:
        """Stop everything."""
        self._ended.set()
        self._thread.join()
        with ThreadPoolExecutor(max(1, len(self._services))) as pool:
            list(pool.map(Service.stop, self))

    def _tend(self) -> None:
        while not self._ended.wait(0.5):
            with self._lock:
                for service in self:
                    if service.name not in self._resting:
                        service.tend()
