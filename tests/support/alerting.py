"""Parties that are watched, with a clock of the test's own: what is told of them by the command of
`--notify`, and what Prometheus would make of their metrics.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from oracles.promql import Scrape, fires
from sumus.alerting import ALERTS, Alert, Hook, Lookout, Thresholds
from sumus.events import Event
from sumus.watching import Board, Health
from sumus.watching.metrics import Exposition

BY_NAME = {alert.name: alert for alert in ALERTS}


class Listening:
    """The command of `--notify`, really run for every alert, and what it heard."""

    def __init__(self, folder: Path, party: str) -> None:
        self._file = folder / f"heard-{time.monotonic_ns()}.jsonl"
        script = folder / "hook.sh"
        script.write_text('#!/bin/sh\ncat >> "$1"\n')
        script.chmod(0o700)
        command = [str(script), str(self._file)]
        self._hook = Hook(command, party=party, process="test", burst=1000)
        self._expected = 0

    def notify(self, happened: Event, *, says: str, name: str) -> None:
        self._expected += 1
        self._hook.notify(happened, says=says, name=name)

    def close(self) -> None:
        self._hook.close()

    @property
    def heard(self) -> list[dict[str, Any]]:
        """Everything so far, once it has arrived."""
        until = time.monotonic() + 60.0
        while time.monotonic() < until:
            lines = self._file.read_text().splitlines() if self._file.exists() else []
            if len(lines) == self._expected:
                return [json.loads(line) for line in lines]
            time.sleep(0.005)
        raise AssertionError(f"the command has heard {len(lines)} of {self._expected} alerts")


class Observed:
    """A board under a lookout and a scraper; time passes when the test says so."""

    def __init__(
        self,
        board: Board,
        folder: Path,
        *,
        health: Callable[[], Health] | None = None,
        **limits: float,
    ) -> None:
        self.now, self.uptime = time.time(), 1000.0
        self._began = self.now - self.uptime
        party = board.state.watched
        self.told = Listening(folder, "operator" if party == "train" else party)
        self.board, self.scrapes = board, list[Scrape]()
        self.lookout = Lookout(
            board,
            told=self.told,
            limits=Thresholds(**limits),
            health=health,
            clock=lambda: self.now,
            uptime=lambda: self.uptime,
        )
        self._exposition = Exposition(board, watchers=lambda: 0)

    def look(self, *, minutes: float = 0.0, looks: int = 1) -> None:
        """Let time pass, in even steps, and look after each."""
        for _ in range(looks):
            self.now += 60.0 * minutes / looks
            self.uptime += 60.0 * minutes / looks
            self.lookout.look()
            # Prometheus is another machine, whose clock nobody sets
            moment = self._began + self.uptime
            self.scrapes.append(Scrape.of(moment, self._exposition.text().decode()))

    def heard(self, name: str, event: str = "alert.raised") -> list[dict[str, Any]]:
        """What the command heard of one alert."""
        return [each for each in self.told.heard if (each["alert"], each["event"]) == (name, event)]

    def fires(self, alert: Alert) -> bool:
        """Whether the alert's rule fires at the latest scrape."""
        return fires(alert.rule, self.scrapes, 60.0 * alert.rule_minutes)
