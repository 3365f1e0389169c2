"""The state as Prometheus text, by the official client, in a registry of its own.

No label names a silo, and none holds a word that somebody else chose but the plan's: what a
consortium's monitoring keeps for years is what the page shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import ClassVar, final

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from sumus import __version__
from sumus.watching.board import Board
from sumus.watching.health import BOOKS, Health
from sumus.watching.state import QUEUED, STAGES, Books, LiveState, Promise

__all__ = ["Exposition", "families_of"]

Labels = dict[str, str]


@final
class Exposition:
    """What `/metrics` says of a board.

    Args:
        board: that is read.
        watchers: how many streams are open.
    """

    KIND: ClassVar[str] = CONTENT_TYPE_PLAIN_0_0_4

    def __init__(self, board: Board, *, watchers: Callable[[], int]) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Families(board, watchers))

    def text(self) -> bytes:
        """All families as they are now."""
        return bytes(generate_latest(self._registry))


@final
class _Families(Collector):
    def __init__(self, board: Board, watchers: Callable[[], int]) -> None:
        self._board, self._watchers = board, watchers

    def collect(self) -> Iterable[Metric]:
        yield from families_of(self._board.state, alive=self._board.alive)
        yield _gauge("sumus_watch_streams", "Readers of the live page.", self._watchers())


def families_of(state: LiveState, *, alive: bool) -> Iterator[Metric]:
    """Every family that a state has something to say about."""
    about = {"version": __version__, "watched": state.watched}
    about["plan"] = "" if state.plan is None else state.plan.hash[:16]
    yield _gauge("sumus_info", "What is watched, by which version; always 1.", 1, about)
    yield _gauge("sumus_alive", "Whether the process and its loop live, as /healthz says.", alive)
    yield _gauge("sumus_ready", "Whether it can do its work now, as /readyz says.", state.ready)
    yield _one_of("sumus_stage", "1 for what is going on, 0 for the rest.", "stage", state.stage)
    when = "When the present stage began, Unix time."
    yield _gauge("sumus_stage_began_timestamp_seconds", when, state.since)
    yield _gauge("sumus_rounds_planned", "Rounds of the plan.", state.rounds)
    yield _gauge("sumus_round", "The last round that ended.", state.round)
    ended = "Rounds that ended with a sum."
    yield _counter("sumus_rounds_finished", ended, state.round - state.lost_rounds)
    lost = "Rounds that ended without a sum."
    yield _counter("sumus_rounds_lost", lost, state.lost_rounds)
    yield _counter("sumus_refusals", "Refusals, whoever refused.", state.refused)
    yield from _silos(state)
    yield from _costs(state)
    if state.promise is not None:
        yield from _promised(state.promise)
    if state.books is not None:
        yield from _booked(state.books)
    if state.measured is not None:
        measured, labels = (
            state.measured,
            {"measure": state.measured.name, "how": state.measured.how},
        )
        text = "Headline measure of the released model."
        yield _gauge("sumus_measure", text, measured.value, labels)
        if measured.plus_minus is not None:
            text = "Half-width of its 95 % interval."
            yield _gauge("sumus_measure_plus_minus", text, measured.plus_minus, labels)
    if state.queue:
        queued = GaugeMetricFamily(
            "sumus_queue_plans", "Plans of the queue by their state, as listed.", labels=["state"]
        )
        for known in QUEUED:
            queued.add_metric([known], sum(each.state == known for each in state.queue))
        yield queued
    if state.connection is not None:
        up = "Whether the server is reached."
        yield _gauge("sumus_server_connected", up, state.connection.up)
    if state.parts:
        running = GaugeMetricFamily(
            "sumus_process_up", "Whether a process runs.", labels=["process"]
        )
        again = CounterMetricFamily(
            "sumus_process_restarts", "Times that it was started again.", labels=["process"]
        )
        for part in state.parts:
            running.add_metric([part.name], float(part.up))
            again.add_metric([part.name], part.restarts)
        yield running
        yield again
    if state.health is not None:
        yield from _health(state.health)


def _health(health: Health) -> Iterator[Metric]:
    for name, text, value in (
        ("sumus_disk_free_bytes", "Free where the party writes to.", health.disk_free),
        ("sumus_disk_size_bytes", "Of that disk.", health.disk_size),
        (
            "sumus_certificates_end_timestamp_seconds",
            "When the first of the kit's certificates ends, Unix time.",
            health.certificates_end,
        ),
        (
            "sumus_backup_made_timestamp_seconds",
            "When the vault was backed up last, Unix time; 0: never.",
            health.backup_made,
        ),
        ("sumus_runs_received", "Runs that were handed to the silo.", health.runs_received),
    ):
        if value is not None:
            yield _gauge(name, text, value)
    if health.broken is not None:
        broken = GaugeMetricFamily(
            "sumus_book_broken", "Whether a chain does not hold, or lacks lines.", labels=["book"]
        )
        for book in BOOKS:
            broken.add_metric([book], float(book in health.broken))
        yield broken
    yield _counter("sumus_clock_jumps", "Times that the clock was set.", health.clock_jumps)


def _silos(state: LiveState) -> Iterator[Metric]:
    if state.watched == "silo":
        return
    yield _gauge("sumus_silos", "Silos of the federation.", state.silos)
    yield _gauge("sumus_silos_connected", "Silos that are there.", state.connected)
    yield _gauge("sumus_silos_needed", "Silos that a round needs.", state.needed)


def _costs(state: LiveState) -> Iterator[Metric]:
    if state.watched == "silo":
        return
    costs, both = state.costs, ("up", "down")
    last = GaugeMetricFamily(
        "sumus_round_bytes", "Of the last round, all silos together.", labels=["direction"]
    )
    every = CounterMetricFamily(
        "sumus_traffic_bytes", "Of all rounds, all silos together.", labels=["direction"]
    )
    for direction, of_last, of_all in zip(
        both,
        (costs.bytes_up, costs.bytes_down),
        (costs.total_bytes_up, costs.total_bytes_down),
        strict=True,
    ):
        last.add_metric([direction], of_last)
        every.add_metric([direction], of_all)
    parts = GaugeMetricFamily("sumus_round_seconds", "Of the last round, by part.", labels=["part"])
    for part, seconds in sorted(costs.seconds.items()):
        parts.add_metric([part], seconds)
    yield from (last, every, parts)
    yield _counter("sumus_rounds_seconds", "Of all rounds.", costs.total_seconds)


def _promised(promise: Promise) -> Iterator[Metric]:
    if promise.epsilon is None:  # nothing is promised
        return
    labels = {
        "unit": promise.unit,
        "neighbours": promise.neighbours,
        "trust": promise.trust,
        "analysis": promise.analysis,
        "proved": "yes" if promise.verdict == "proved" else "no",
        "delta": f"{promise.delta:g}",
    }
    text = "ε of everything that the run has released."
    if promise.spent is not None:
        yield _gauge("sumus_epsilon_spent", text, promise.spent, labels)
    yield _gauge("sumus_epsilon_planned", "ε of the whole plan.", promise.epsilon, labels)


def _booked(books: Books) -> Iterator[Metric]:
    labels = {
        "unit": books.unit,
        "neighbours": books.neighbours,
        "trust": books.trust,
        "analysis": "simple addition over runs",
        "proved": "yes" if books.proved else "no",
        "delta": f"{books.delta:g}",
    }
    text = "ε of all runs on the data set's ledger."
    yield _gauge("sumus_dataset_epsilon_spent", text, books.spent, labels)
    if books.limit is not None:
        yield _gauge(
            "sumus_dataset_epsilon_limit", "The most that is allowed.", books.limit, labels
        )


def _gauge(name: str, text: str, value: float, labels: Labels | None = None) -> Metric:
    family = GaugeMetricFamily(name, text, labels=list(labels or {}))
    family.add_metric(list((labels or {}).values()), float(value))
    return family


def _one_of(name: str, text: str, label: str, chosen: str) -> Metric:
    family = GaugeMetricFamily(name, text, labels=[label])
    for stage in STAGES:
        family.add_metric([stage], float(stage == chosen))
    return family


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)
