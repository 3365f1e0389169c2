"""Every alert: when it holds of what a party knows, in words, and as a rule for Prometheus.

An alert that *holds* for its time is told once when it begins and once when it ends; one that is
*news* is told whenever it happens. Both say what a `LiveState` says, so no alert knows more than the
live page of the same party.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, final

from sumus.alerting.thresholds import Thresholds
from sumus.watching import BOOKS, LiveState

__all__ = ["ALERTS", "Alert", "Condition", "Seen"]

_DAY_SECONDS = 86_400.0
_FEDERATED = frozenset({"operator", "server"})
_ALL = frozenset({"train", "operator", "server", "silo"})
_DEFAULT = Thresholds()


@final
@dataclass(frozen=True, kw_only=True)
class Seen:
    """What an alert looks at.

    Args:
        before: the state at the last look; the same at the first one.
        now: Unix time.
        alive: whether the loop that posts gives signs of life.
    """

    state: LiveState
    before: LiveState
    now: float
    limits: Thresholds
    alive: bool = True


@final
@dataclass(frozen=True)
class Condition:
    """Something that holds, or has happened.

    Args:
        facts: fields of the event.
        key: tells conditions of one alert apart, for example a silo's name.
    """

    facts: Mapping[str, Any] = field(default_factory=dict)
    key: str = ""


@final
@dataclass(frozen=True, kw_only=True)
class Alert:
    """Something that somebody should be told of.

    Args:
        name: one of our own words.
        says: what is so, for whoever reads it.
        watched: of whom it is told.
        severity: info, warning or error.
        looks: what holds, or what is new since the last look.
        minutes: it must hold for so long.
        news: it is told whenever it happens, and never ends.
        rule: the same in PromQL, with the thresholds of the default; `rule_minutes`: it must hold
            for so long there.
    """

    name: str
    says: str
    watched: frozenset[str]
    severity: str
    looks: Callable[[Seen], Iterable[Condition]]
    rule: str
    minutes: Callable[[Thresholds], float] = lambda limits: 0.0
    news: bool = False

    @property
    def rule_minutes(self) -> float:
        """How long the rule waits, by default."""
        return self.minutes(_DEFAULT)


# -- how a run goes


def _ended(*stages: str) -> Callable[[Seen], Iterator[Condition]]:
    def look(seen: Seen) -> Iterator[Condition]:
        stage = seen.state.stage
        if stage in stages and seen.before.stage not in stages:
            yield Condition({"stage": stage, "round": seen.state.round})

    return look


def _paused(seen: Seen) -> Iterator[Condition]:
    if seen.state.stage == "paused":
        yield Condition({"round": seen.state.round})


def _received(seen: Seen) -> Iterator[Condition]:
    now, before = seen.state.health, seen.before.health
    if now is None or before is None or None in (now.runs_received, before.runs_received):
        return
    more = (now.runs_received or 0) - (before.runs_received or 0)
    if more > 0:
        yield Condition({"count": more})


def _lost(seen: Seen) -> Iterator[Condition]:
    more = seen.state.lost_rounds - seen.before.lost_rounds
    if more > 0:
        latest = {"round": seen.state.lost[-1].round} if seen.state.lost else {}
        yield Condition({"count": more, **latest})


def _refused(seen: Seen) -> Iterator[Condition]:
    more = seen.state.refused - seen.before.refused
    if more > 0:
        named = seen.state.watched != "silo" and seen.state.refusals
        yield Condition({"count": more, **({"silo": seen.state.refusals[-1].who} if named else {})})


def _plan_set_aside(seen: Seen) -> Iterator[Condition]:
    for queued in seen.state.queue:
        if queued.state == "set aside":
            yield Condition({"plan": queued.hash}, queued.hash)


# -- who is there


def _away(seen: Seen) -> Iterator[Condition]:
    for silo in seen.state.presences:
        if silo.presence == "away":
            yield Condition({"silo": silo.name}, silo.name)


def _too_few(seen: Seen) -> Iterator[Condition]:
    state = seen.state
    if state.needed and state.connected < state.needed and not state.ended:
        yield Condition({"count": state.connected})


def _unreached(seen: Seen) -> Iterator[Condition]:
    connection = seen.state.connection
    if connection is not None and not connection.up:
        yield Condition()


def _down(seen: Seen) -> Iterator[Condition]:
    for part in seen.state.parts:
        if not part.up:
            yield Condition({"part": part.name}, part.name)


def _restarted(seen: Seen) -> Iterator[Condition]:
    before = {part.name: part.restarts for part in seen.before.parts}
    for part in seen.state.parts:
        if part.restarts > before.get(part.name, part.restarts):
            yield Condition({"part": part.name, "count": part.restarts}, part.name)


def _stuck(seen: Seen) -> Iterator[Condition]:
    if not seen.alive:
        yield Condition()


# -- books and machine


def _spent(least: Callable[[Thresholds], float]) -> Callable[[Seen], Iterator[Condition]]:
    def look(seen: Seen) -> Iterator[Condition]:
        books = seen.state.books
        if books is not None and books.limit and books.spent < float("inf"):
            percent = 100.0 * books.spent / books.limit
            if percent >= least(seen.limits):
                yield Condition({"percent": int(percent)})

    return look


def _certificates(seen: Seen) -> Iterator[Condition]:
    health = seen.state.health
    if health is not None and health.certificates_end is not None:
        days = (health.certificates_end - seen.now) / _DAY_SECONDS
        if days < seen.limits.certificate_days:
            yield Condition({"days": max(0, int(days))})


def _full(seen: Seen) -> Iterator[Condition]:
    health = seen.state.health
    if health is None or health.disk_free is None or not health.disk_size:
        return
    if 100.0 * health.disk_free / health.disk_size < seen.limits.disk_percent:
        yield Condition({"free": health.disk_free})


def _unbacked(seen: Seen) -> Iterator[Condition]:
    health = seen.state.health
    if health is not None and health.backup_made is not None:
        days = (seen.now - health.backup_made) / _DAY_SECONDS
        if days > seen.limits.backup_days:
            yield Condition({"days": int(days)} if health.backup_made else {})


def _broken(seen: Seen) -> Iterator[Condition]:
    health = seen.state.health
    for book in BOOKS:
        if health is not None and book in (health.broken or ()):
            yield Condition({"part": book}, book)


def _jumped(seen: Seen) -> Iterator[Condition]:
    now, before = seen.state.health, seen.before.health
    if now is not None and before is not None and now.clock_jumps > before.clock_jumps:
        yield Condition({"count": now.clock_jumps - before.clock_jumps})


ALERTS: tuple[Alert, ...] = (
    Alert(
        name="run-finished",
        says="A run is finished",
        watched=frozenset({"train", "operator", "server"}),
        severity="info",
        looks=_ended("finished"),
        news=True,
        rule='sumus_stage{stage="finished"} == 1',
    ),
    Alert(
        name="run-failed",
        says="A run ended before its last round: it failed, was refused, or was stopped",
        watched=frozenset({"train", "operator", "server"}),
        severity="error",
        looks=_ended("failed", "refused", "stopped"),
        news=True,
        rule='sumus_stage{stage=~"failed|refused|stopped"} == 1',
    ),
    Alert(
        name="run-paused",
        says="No job goes on with a run that has rounds left",
        watched=_FEDERATED,
        severity="warning",
        looks=_paused,
        minutes=lambda limits: limits.paused_minutes,
        rule='sumus_stage{stage="paused"} == 1',
    ),
    Alert(
        name="plan-set-aside",
        says="A plan of the queue is not run any more",
        watched=frozenset({"operator"}),
        severity="warning",
        looks=_plan_set_aside,
        rule='sumus_queue_plans{state="set aside"} > 0',
    ),
    Alert(
        name="run-received",
        says="This silo was handed a run",
        watched=frozenset({"silo"}),
        severity="info",
        looks=_received,
        news=True,
        rule="delta(sumus_runs_received[15m]) > 0",
    ),
    Alert(
        name="round-lost",
        says="A round ended without a sum",
        watched=frozenset({"train", "operator", "server"}),
        severity="warning",
        looks=_lost,
        news=True,
        rule="increase(sumus_rounds_lost_total[15m]) > 0",
    ),
    Alert(
        name="refused",
        says="A silo refused what it was asked",
        watched=frozenset({"operator", "server", "silo"}),
        severity="warning",
        looks=_refused,
        news=True,
        rule="increase(sumus_refusals_total[15m]) > 0",
    ),
    Alert(
        name="silo-lost",
        says="A silo is not there",
        watched=_FEDERATED,
        severity="warning",
        looks=_away,
        minutes=lambda limits: limits.silo_away_minutes,
        rule="sumus_silos_connected < sumus_silos",
    ),
    Alert(
        name="too-few-silos",
        says="Fewer silos are there than a round needs",
        watched=_FEDERATED,
        severity="error",
        looks=_too_few,
        minutes=lambda limits: limits.silo_away_minutes,
        rule="sumus_silos_connected < sumus_silos_needed",
    ),
    Alert(
        name="server-away",
        says="The server is not reached",
        watched=frozenset({"operator", "silo"}),
        severity="error",
        looks=_unreached,
        minutes=lambda limits: limits.server_away_minutes,
        rule="sumus_server_connected == 0",
    ),
    Alert(
        name="process-down",
        says="A process of this party is down",
        watched=frozenset({"server", "silo"}),
        severity="error",
        looks=_down,
        minutes=lambda limits: limits.process_down_minutes,
        rule="sumus_process_up == 0",
    ),
    Alert(
        name="process-restarted",
        says="A process of this party ended, and was started again",
        watched=frozenset({"server", "silo"}),
        severity="warning",
        looks=_restarted,
        news=True,
        rule="increase(sumus_process_restarts_total[15m]) > 0",
    ),
    Alert(
        name="stuck",
        says="The loop that keeps this party running gives no sign of life",
        watched=frozenset({"operator", "server", "silo"}),
        severity="error",
        looks=_stuck,
        rule="sumus_alive == 0",
    ),
    Alert(
        name="budget-low",
        says="Much of the ε that is allowed for a data set is spent",
        watched=frozenset({"train", "silo"}),
        severity="warning",
        looks=_spent(lambda limits: limits.budget_percent),
        rule="sumus_dataset_epsilon_spent / sumus_dataset_epsilon_limit >= "
        f"{_DEFAULT.budget_percent / 100:g}",
    ),
    Alert(
        name="budget-spent",
        says="The ε that is allowed for a data set is spent: no further round will be answered",
        watched=frozenset({"train", "silo"}),
        severity="error",
        looks=_spent(lambda limits: 99.0),
        rule="sumus_dataset_epsilon_spent / sumus_dataset_epsilon_limit >= 0.99",
    ),
    Alert(
        name="certificate-ends",
        says="A certificate of the kit ends soon, or has ended",
        watched=frozenset({"operator", "server", "silo"}),
        severity="warning",
        looks=_certificates,
        rule="sumus_certificates_end_timestamp_seconds - time() < "
        f"{_DEFAULT.certificate_days * _DAY_SECONDS:.0f}",
    ),
    Alert(
        name="disk-low",
        says="The disk that this party writes to is nearly full",
        watched=frozenset({"train", "server", "silo"}),
        severity="error",
        looks=_full,
        rule=f"sumus_disk_free_bytes / sumus_disk_size_bytes < {_DEFAULT.disk_percent / 100:g}",
    ),
    Alert(
        name="backup-old",
        says="The vault has no backup, or an old one",
        watched=frozenset({"silo"}),
        severity="warning",
        looks=_unbacked,
        rule="time() - sumus_backup_made_timestamp_seconds > "
        f"{_DEFAULT.backup_days * _DAY_SECONDS:.0f}",
    ),
    Alert(
        name="book-broken",
        says="A ledger, an audit trail or a journal does not hold, or lacks lines",
        watched=frozenset({"train", "server", "silo"}),
        severity="error",
        looks=_broken,
        rule="sumus_book_broken == 1",
    ),
    Alert(
        name="clock-jumped",
        says="The clock of this machine was set",
        watched=_ALL,
        severity="warning",
        looks=_jumped,
        news=True,
        rule="increase(sumus_clock_jumps_total[15m]) > 0",
    ),
)
"""All of them."""
