"""What is measured while the federation runs: rounds as the server commits them; memory, handles and
threads of every process; the size of every folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from soaking.federation import Federation
from soaking.processes import is_of

__all__ = ["BOOKS", "Round", "Sampler", "Watched"]

_ROUNDS_SECONDS, _PROCESSES_SECONDS, _DISKS_SECONDS = 0.5, 5.0, 15.0
BOOKS = (
    "ledger",
    "audit",
    "rounds.log",
    "certificates",
    "journal",
    "evidence",
    "checkpoint",
    "plans",
)
"""What a file of a party's books is called: it grows with what was done, and with nothing else."""


@dataclass(frozen=True)
class Round:
    """A round that the server has committed.

    Args:
        at: seconds after the beginning, when it was seen.
        seconds: that it took, by the journal.
    """

    at: float
    plan: str
    number: int
    survivors: tuple[str, ...]
    seconds: float


class Watched:
    """The rounds of all runs of a server, as its journals grow.

    Args:
        runs: the folder of the server's runs.
        clock: seconds after the beginning.
    """

    def __init__(self, runs: Path, clock: Callable[[], float]) -> None:
        self._runs, self._clock = runs, clock
        self._read: dict[Path, int] = {}
        self._lock = threading.Lock()
        self.rounds: list[Round] = []

    def look(self) -> int:
        """Take in what was added since; returns how many rounds there are by now."""
        with self._lock:
            for journal in self._runs.glob("*/*/journal.jsonl"):
                with contextlib.suppress(OSError):
                    known = self._read.get(journal, 0)
                    if journal.stat().st_size > known:
                        self._take_in(journal, known)
            return len(self.rounds)

    def _take_in(self, journal: Path, known: int) -> None:
        with journal.open("rb") as file:
            file.seek(known)
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        self._read[journal] = known + len(whole)
        for line in whole.splitlines():
            entry = json.loads(line)
            if entry["kind"] == "round":
                body = entry["body"]
                self.rounds.append(
                    Round(
                        at=self._clock(),
                        plan=journal.parent.parent.name,
                        number=int(body["round"]),
                        survivors=tuple(body["survivors"]),
                        seconds=float(sum(body["seconds"].values())),
                    )
                )


class Sampler:
    """Measures in a thread of its own; everything it sees goes into `samples.jsonl` too.

    Args:
        federation: that is measured.
        out: folder of `samples.jsonl`.
    """

    def __init__(self, federation: Federation, out: Path) -> None:
        self._federation, self._file = federation, out / "samples.jsonl"
        self.began = time.monotonic()
        self.watched = Watched(federation.kit("server") / "sumus" / "runs", self.clock)
        self.processes: list[dict[str, Any]] = []
        self.disks: list[dict[str, Any]] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="sampler", daemon=True)

    def clock(self) -> float:
        """Seconds after the beginning."""
        return time.monotonic() - self.began

    @property
    def rounds(self) -> list[Round]:
        """Seen so far."""
        return self.watched.rounds

    def wait_for_first_round(self, *, seconds: float) -> None:
        """Until the server has committed a round; it opens the soak and is not counted."""
        until = time.monotonic() + seconds
        while not self.rounds:
            if time.monotonic() > until:
                raise TimeoutError("no round was finished; see the logs")
            time.sleep(_ROUNDS_SECONDS)
            self.watched.look()
        self.rounds.clear()

    def start(self) -> None:
        """The clock begins, and measuring."""
        self.began = time.monotonic()
        self._thread.start()

    def close(self) -> None:
        """Measure no more."""
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        due = {"processes": 0.0, "disks": 0.0}
        while not self._ended.wait(_ROUNDS_SECONDS):
            self.watched.look()
            now = self.clock()
            if now >= due["processes"]:
                self.processes += self._write(self._of_processes(now))
                due["processes"] = self.clock() + _PROCESSES_SECONDS
            if now >= due["disks"]:
                self.disks += self._write(self._of_disks(now))
                due["disks"] = self.clock() + _DISKS_SECONDS

    def _write(self, samples: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
        made = list(samples)
        with self._file.open("a") as file:
            file.writelines(json.dumps(each) + "\n" for each in made)
        return made

    def _of_processes(self, now: float) -> Iterator[dict[str, Any]]:
        for service in self._federation.services:
            for place, process in enumerate(service.family()):
                with contextlib.suppress(psutil.Error):
                    command = " ".join(process.cmdline()) + " "
                    kind = next(
                        (k for k in _ORDER if is_of(k, command)), "keeper" if not place else ""
                    )
                    if not kind:
                        continue
                    yield {
                        "what": "process",
                        "at": round(now, 2),
                        "rounds": len(self.rounds),
                        "party": service.name,
                        "kind": "operator" if service.name == "operator" else kind,
                        "pid": process.pid,
                        "age": round(time.time() - process.create_time(), 1),
                        "rss": process.memory_info().rss,
                        "handles": process.num_fds(),
                        "threads": process.num_threads(),
                    }

    def _of_disks(self, now: float) -> Iterator[dict[str, Any]]:
        federation = self._federation
        places = {
            f"vault and ledger of {name}": federation.state(name) for name in federation.silos
        }
        places |= {f"kit of {name}": federation.kit(name) for name in federation.silos}
        places |= {
            "kit of server": federation.kit("server"),
            "kit of operator": federation.kit("admin"),
        }
        places["runs of operator"] = federation.runs
        for name, place in places.items():
            sizes = _sizes(place)
            yield {
                "what": "disk",
                "at": round(now, 2),
                "rounds": len(self.rounds),
                "place": name,
            } | sizes


_ORDER = ("vault", "silo-job", "server-job", "relay", "server")


def _sizes(place: Path) -> dict[str, int]:
    """Bytes of a folder: its books, and the rest."""
    books = rest = files = 0
    for folder, _, names in os.walk(place):
        for name in names:
            with contextlib.suppress(OSError):
                path = os.path.join(folder, name)
                size = os.lstat(path).st_size
                files += 1
                if any(word in path[len(str(place)) :] for word in BOOKS):
                    books += size
                else:
                    rest += size
    return {"books": books, "rest": rest, "files": files}
