"""Loaded by every Python process of a federation under test: the engine's process of a silo turns
hostile, the vault's keeps its latest vector in memory for it to find.

In the folder SUMUS_TEST_LOOT, which everybody may write:
    files     what the engine's process could read of the folders SUMUS_TEST_WANTED, one after the other
    memory    the writable memory of every process that it could open
    attempts  JSON: its user, modules that it has loaded, files and processes that it was refused, what else it tried
In the folder SUMUS_TEST_NEEDLES, which only the vault's user may enter:
    vector    the latest unmasked vector
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

LOOT = Path(os.environ["SUMUS_TEST_LOOT"])
ANSWERS_BEFORE = 8  # well into the second round
kept: list[Any] = []


def memory_of(pid: int) -> bytes:
    """The writable memory of a process; raises if it cannot be opened."""
    found = bytearray()
    with open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            match = re.match(r"([0-9a-f]+)-([0-9a-f]+) rw", line)
            if match:
                start, stop = (int(part, 16) for part in match.groups())
                try:
                    memory.seek(start)
                    found += memory.read(stop - start)
                except (OSError, ValueError):
                    continue
    return bytes(found)


def tried(what: Callable[[], Any]) -> str:
    try:
        return f"it worked: {what()!r}"
    except OSError as error:
        return type(error).__name__


def plunder(socket_path: str) -> None:
    refused: dict[str, str] = {}
    with (LOOT / "files").open("wb") as loot:
        for wanted in os.environ["SUMUS_TEST_WANTED"].split(os.pathsep):
            for folder, _, names in os.walk(
                wanted, onerror=lambda error: refused.update({error.filename: str(error)})
            ):
                for name in names:
                    path = os.path.join(folder, name)
                    try:
                        loot.write(Path(path).read_bytes())
                    except OSError as error:
                        refused[path] = str(error)
            if os.path.isfile(wanted) or not os.access(wanted, os.R_OK):
                try:
                    loot.write(Path(wanted).read_bytes())
                except OSError as error:
                    refused[wanted] = str(error)
    processes: dict[str, str] = {}
    with (LOOT / "memory").open("wb") as loot:
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    loot.write(memory_of(int(entry)))
                    processes[entry] = "read"
                except OSError as error:
                    processes[entry] = type(error).__name__
    vault = next(
        int(entry)
        for entry in processes
        if b"sumus.parties.vault" in Path(f"/proc/{entry}/cmdline").read_bytes()
    )
    attempts = {
        "uid": os.getuid(),
        "modules": sorted(sys.modules),
        "refused": refused,
        "processes": processes,
        "become root": tried(lambda: os.setuid(0)),
        "end the vault": tried(lambda: os.kill(vault, signal.SIGKILL)),
        "take the socket's place": tried(lambda: os.rename(socket_path, f"{socket_path}.old")),
        "environment": dict(os.environ),
    }
    (LOOT / "attempts.part").write_text(json.dumps(attempts))
    (LOOT / "attempts.part").rename(LOOT / "attempts")


def in_relay(module: Any) -> None:
    handle, answers = module.Relay.handle, []

    def hostile(self: Any, message: bytes) -> bytes | None:
        answer = handle(self, message)
        answers.append(len(answer or b""))
        if len(answers) == ANSWERS_BEFORE and os.getuid() != 0:
            plunder(self._path)
        return answer

    module.Relay.handle = hostile


def in_silo_party(module: Any) -> None:
    vector = module.SiloParty._vector

    def keeping(self: Any, *arguments: Any, **options: Any) -> Any:
        kept[:] = [vector(self, *arguments, **options)]
        (Path(os.environ["SUMUS_TEST_NEEDLES"]) / f"vector-{self._name}").write_bytes(
            kept[0].tobytes()
        )
        return kept[0]

    module.SiloParty._vector = keeping


CHANGED: dict[str, Callable[[Any], None]] = {
    "sumus.engines.relay": in_relay,
    "sumus.parties.silo": in_silo_party,
}


class Changer(importlib.abc.MetaPathFinder):
    """Changes some modules right after they are loaded."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> Any:
        if name not in CHANGED:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def changed(module: ModuleType) -> None:
                load(module)
                CHANGED[name](module)

            spec.loader.exec_module = changed  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, Changer())
