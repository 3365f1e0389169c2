"""Looks at a board again and again, and tells of alerts that begin and end.

A thread of its own: whoever is watched is told nothing by it and waits for it nowhere, and what goes
wrong in it stays in it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Protocol, Self, final

from sumus.alerting.alerts import ALERTS, Alert, Condition, Seen
from sumus.alerting.thresholds import Thresholds
from sumus.events import AlertCleared, AlertRaised, Event, tell
from sumus.watching import Board, Health

__all__ = ["Lookout"]

_LOOK_SECONDS = 1.0
_HEALTH_SECONDS = 60.0
_JUMP_SECONDS = 30.0


class Told(Protocol):
    """Who is told of alerts."""

    def notify(self, happened: Event, *, says: str, name: str) -> None:
        """Of one; returns at once."""
        ...

    def close(self) -> None:
        """Nothing follows."""
        ...


def _uptime() -> float:
    """Seconds since the machine was started, those in which it slept included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@final
class Lookout:
    """Watches a board, as a block.

    Guarantee: an alert is told once when it has held for its time and once when it ends, news
        whenever they are new; nothing that it does reaches whoever posts.

    Args:
        board: that is watched.
        told: of every alert, beside the log; None: nobody.
        limits: what the alerts compare with.
        health: looks at the machine, once a minute; None: nobody does.
        clock: Unix time; `uptime`: seconds that nobody sets.
    """

    def __init__(
        self,
        board: Board,
        *,
        told: Told | None = None,
        limits: Thresholds | None = None,
        health: Callable[[], Health] | None = None,
        clock: Callable[[], float] = time.time,
        uptime: Callable[[], float] = _uptime,
    ) -> None:
        self._board, self._told, self._limits = board, told, limits or Thresholds()
        self._health, self._clock, self._uptime = health, clock, uptime
        self._before = board.state
        self._since: dict[tuple[str, str], float] = {}
        self._raised: dict[tuple[str, str], Condition] = {}
        self._looked_at: float | None = None
        self._offset, self._jumps = clock() - uptime(), 0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._keep_looking, name="lookout", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """One last look, at how it ended; whoever is told has a moment to hear it."""
        self._closing.set()
        self._thread.join(timeout=10.0)
        with contextlib.suppress(Exception):
            self.look()
        if self._told is not None:
            self._told.close()

    def look(self) -> None:
        """Once."""
        self._look_at_clock()
        self._look_at_machine()
        state, now = self._board.state, self._uptime()
        seen = Seen(
            state=state,
            before=self._before,
            now=self._clock(),
            limits=self._limits,
            alive=self._board.alive,
        )
        self._before = state
        for alert in ALERTS:
            if state.watched in alert.watched:
                found = list(alert.looks(seen))
                if alert.news:
                    self._tell_news(alert, found)
                else:
                    self._hold(alert, found, now)

    def _keep_looking(self) -> None:
        while not self._closing.wait(_LOOK_SECONDS):
            with contextlib.suppress(Exception):  # a look that fails is made again
                self.look()

    def _look_at_clock(self) -> None:
        """Whether the clock was set: it and the seconds that nobody sets go on together."""
        offset = self._clock() - self._uptime()
        if abs(offset - self._offset) > _JUMP_SECONDS:
            self._jumps += 1
        self._offset = offset
        known = self._board.state.health
        if known is not None and known.clock_jumps != self._jumps:
            self._board.post_health(replace(known, clock_jumps=self._jumps))

    def _look_at_machine(self) -> None:
        now = self._uptime()
        if self._looked_at is not None and now - self._looked_at < _HEALTH_SECONDS:
            return
        self._looked_at = now
        found = Health() if self._health is None else self._health()
        first = self._board.state.health is None
        self._board.post_health(replace(found, clock_jumps=self._jumps))
        if first:  # what was there before the first look is no news
            self._before = replace(self._before, health=self._board.state.health)

    def _tell_news(self, alert: Alert, found: Iterable[Condition]) -> None:
        for condition in found:
            self._tell(alert, AlertRaised(**self._fields(alert, condition)))

    def _hold(self, alert: Alert, found: Iterable[Condition], now: float) -> None:
        """Conditions that begin, last and end."""
        holding = {(alert.name, condition.key): condition for condition in found}
        for place, condition in holding.items():
            since = self._since.setdefault(place, now)
            lasted = now - since
            if place not in self._raised and lasted >= 60.0 * alert.minutes(self._limits):
                self._raised[place] = condition
                self._tell(alert, AlertRaised(**self._fields(alert, condition), seconds=lasted))
        for place in [each for each in self._since if each[0] == alert.name]:
            if place not in holding:
                since = self._since.pop(place)
                if place in self._raised:
                    fields = self._fields(alert, self._raised.pop(place))
                    self._tell(alert, AlertCleared(**fields, seconds=now - since))

    def _fields(self, alert: Alert, condition: Condition) -> dict[str, Any]:
        plan = self._board.state.plan
        named = {} if plan is None else {"plan": plan.hash}
        return {"alert": alert.name, "severity": alert.severity, **named, **condition.facts}

    def _tell(self, alert: Alert, happened: Event) -> None:
        tell(happened)
        if self._told is not None:
            self._told.notify(happened, says=alert.says, name=self._board.state.name)
