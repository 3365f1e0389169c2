"""What the tests with real processes share whatever the engine: when they run, the plan, and what
the processes note of themselves.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from sumus.parties import Agreement, agree_on
from support.local_federation import plan

INSIDE = Path(__file__).parents[1] / "end_to_end" / "inside"
LOOPBACK = {"localhost", "127.0.0.1", "::1", "0.0.0.0", "::"}  # noqa: S104 - the last two name this machine too

IN_TEST_NETWORK = [
    pytest.mark.network,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        os.environ.get("SUMUS_TEST_NETWORK") != "all", reason="long; runs in make test-network"
    ),
]


def agreed(**changes: object) -> Agreement:
    """The plan of these tests; `federation__rounds=2` sets federation.rounds."""
    return agree_on(plan({key.replace("__", "."): value for key, value in changes.items()}))


@dataclass(frozen=True)
class Notes:
    """What the processes of a federation note; see inside/sitecustomize.py."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """Makes a process take notes."""
        self.folder.mkdir(exist_ok=True, parents=True)
        return {
            "SUMUS_TEST_NOTES": str(self.folder),
            "PYTHONPATH": os.pathsep.join([str(INSIDE), os.environ.get("PYTHONPATH", "")]),
        }

    def lines(self, name: str) -> list[list[str]]:
        path = self.folder / name
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def called(self) -> set[str]:
        """Hosts that any process connected to, or looked up."""
        return {line[0] for line in self.lines("calls")}

    @property
    def rounds(self) -> list[tuple[float, int, list[str]]]:
        """Committed rounds: time, number, survivors."""
        return [
            (float(when), int(number), survivors)
            for when, number, *survivors in self.lines("rounds")
        ]

    def blow(self, *words: str) -> None:
        """Note that a test hurts somebody now."""
        with (self.folder / "blows").open("a") as file:
            file.write(" ".join([str(time.time()), *words]) + "\n")

    def next_rounds(self, *, of: str | None = None) -> list[tuple[float, list[str]]]:
        """For every blow the next finished round (in which `of` took part): seconds after the blow,
        survivors.
        """
        found = []
        for blow in self.lines("blows"):
            rounds = (
                (when - float(blow[0]), survivors)
                for when, _, survivors in self.rounds
                if of is None or of in survivors
            )
            found.append(next((each for each in rounds if each[0] > 0.0), (float("nan"), [])))
        return found
