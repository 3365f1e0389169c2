"""Whoever watches a run: clock, simulation's measurements, journal, loggers, progress.

What is measured goes into the round's outcome, the journal commits it with the checkpoint, and the
rest is told what was committed. A watcher is told and never asked: none can change what is sent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, final

from torch import nn

from sumus.books import RoundEntry, RunFolder
from sumus.data import SiloRecords
from sumus.guarantee import NoiseDesign
from sumus.parties.entries import entry_of
from sumus.parties.round import Invited, RoundOutcome, Watching
from sumus.tasks import Metrics
from sumus.training import (
    LocalUpdate,
    Prepared,
    Server,
    at_home,
    evaluate_each,
    knows_its_code,
)

__all__ = ["Journal", "LocalUpdates", "SimulationMetrics", "Stopwatch", "Telling", "Watchers"]


class Telling(Protocol):
    """Is told what the journal holds: a logger, a progress bar."""

    def round_entered(self, entry: RoundEntry) -> None:
        """A round is in the journal."""
        ...

    def run_ends(self, summary: Mapping[str, Any]) -> None:
        """The run is over."""
        ...


@final
@dataclass
class Watchers:
    """All watchers of a run, in the order in which they are told.

    Args:
        measuring: add what they measured to the outcome.
        journal: commits it; None where a run has no folder.
        telling: are told what was committed.
    """

    measuring: tuple[Watching, ...] = ()
    journal: Journal | None = None
    telling: tuple[Telling, ...] = ()

    def round_begins(self, number: int, invited: Invited) -> None:
        """See `Watching.round_begins`."""
        for watcher in self.measuring:
            watcher.round_begins(number, invited)
        if self.journal is not None:
            self.journal.round_begins(number, invited)

    def round_ends(self, outcome: RoundOutcome) -> None:
        """See `Watching.round_ends`."""
        for array in (outcome.summed.total_grid, outcome.update):
            array.setflags(write=False)
        for watcher in self.measuring:
            watcher.round_ends(outcome)
        if self.journal is not None:
            self.journal.round_ends(outcome)

    def tell(self, entry: RoundEntry) -> None:
        """A round is in the journal, with its measurement if the plan has one."""
        for watcher in self.telling:
            watcher.round_entered(entry)

    def run_ends(self, summary: Mapping[str, Any]) -> None:
        """The run is over and its summary written."""
        for watcher in self.telling:
            watcher.run_ends(summary)


@final
class Stopwatch:
    """Wall-clock time of a round by stage: local (with noise and masking), protocol, server."""

    def __init__(self) -> None:
        self._began = 0.0

    def round_begins(self, number: int, invited: Invited) -> None:
        """See `Watching.round_begins`."""
        self._began = time.perf_counter()

    def round_ends(self, outcome: RoundOutcome) -> None:
        """See `Watching.round_ends`."""
        local, *rest = outcome.summed.seconds or (0.0,)
        whole = time.perf_counter() - self._began
        outcome.seconds |= {
            "local": local,
            "protocol": sum(rest),
            "server": max(0.0, whole - local - sum(rest)),
        }


@final
class LocalUpdates:
    """What only a process that plays all silos sees: their updates, and how long they took.

    Args:
        threads: silos that compute at the same time.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._updates: dict[int, LocalUpdate] = {}
        self._seconds: dict[int, float] = {}

    def watch_update(self, place: int, update: LocalUpdate, seconds: float) -> None:
        """See `SiloParty`."""
        self._updates[place], self._seconds[place] = update, seconds

    def round_begins(self, number: int, invited: Invited) -> None:
        """See `Watching.round_begins`."""
        self._updates, self._seconds = {}, {}

    def round_ends(self, outcome: RoundOutcome) -> None:
        """See `Watching.round_ends`: local steps, noise and protocol are told apart."""
        outcome.local = self._updates
        at_once = max(1, min(self._threads, len(self._updates)))
        worked = sum(self._seconds.values()) / at_once
        noise = sum(update.noise_seconds for update in self._updates.values()) / at_once
        exchanged = sum(outcome.summed.seconds)
        outcome.seconds |= {
            "local": max(0.0, min(worked, exchanged) - noise),
            "noise": noise,
            "protocol": max(0.0, exchanged - worked),
        }


@final
@dataclass
class SimulationMetrics:
    """The task's measures of the released model on the silos' own test records, in the clear: they
    leave the silos only where there are none but in a simulation.

    Args:
        design: of the plan, which says after which rounds.
        prepared: all silos' records, and the model.
        server: the global model.
    """

    design: NoiseDesign
    prepared: Prepared
    server: Server

    def round_begins(self, number: int, invited: Invited) -> None:
        """See `Watching.round_begins`."""

    def round_ends(self, outcome: RoundOutcome) -> None:
        """See `Watching.round_ends`."""
        plan, begin = self.design.plan, time.perf_counter()
        if plan.evaluation.metrics == "simulation" and plan.measures_after(outcome.number):
            of_silos = self.of_silos()
            outcome.metrics = plan.task.pooled(of_silos)
            if outcome.metrics is not None:
                headline = plan.task.headline.name
                outcome.silo_scores = tuple(
                    metrics[headline] if metrics.records else None for metrics in of_silos
                )
        outcome.seconds["evaluate"] = time.perf_counter() - begin

    def of_silos(self) -> list[Metrics]:
        """Of each silo's records by themselves."""
        plan = self.design.plan
        part = "validation" if plan.data.validation_fraction > 0.0 else "test"
        silos = self.prepared.data.silos
        return evaluate_each(
            [(self._model_of(silo), getattr(silo, part)) for silo in silos],
            self.server.released,
            task=plan.task,
            vocabulary=plan.training.vocabulary,
        )

    def _model_of(self, silo: SiloRecords) -> nn.Module:
        """As the silo would use it: with what it fits at home; a user's code sees no records."""
        model, plan = self.prepared.model, self.design.plan
        if plan.training.local_parameters is None or not knows_its_code(model):
            return model
        return at_home(plan, model, self.server.released, silo.train)

    def of_all(self) -> Metrics | None:
        """Of all records together, if there are any."""
        return self.design.plan.task.pooled(self.of_silos())


@final
@dataclass
class Journal:
    """Notes who was asked, and commits what came of it together with the checkpoint.

    Args:
        run: the folder.
        design: of the plan.
        server: whose state a checkpoint holds.
        epsilon: rounds → what they have spent; infinite where nothing is promised.
        names: of all silos, by their places in the plan.
    """

    run: RunFolder
    design: NoiseDesign
    server: Server
    epsilon: Callable[[int], float]
    names: tuple[str, ...]
    committed: RoundEntry = field(init=False)

    def named(self, invited: Invited) -> dict[str, Any]:
        """Silos and their key set as the journal calls them."""
        keys = {"keys": invited.keys.hex()} if invited.keys else {}
        return {"silos": [self.names[place] for place in sorted(invited.silos)]} | keys

    def round_begins(self, number: int, invited: Invited) -> None:
        """Note the invitation, unless it is noted already and only asked for again."""
        self.note_invited({"round": number + 1} | self.named(invited))

    def note_invited(self, asked: Mapping[str, Any]) -> None:
        """Silos count what they were asked for as released, so the journal must know of it."""
        if ("invited", asked) not in self.run.events:
            self.run.note("invited", asked)

    def round_ends(self, outcome: RoundOutcome) -> None:
        """See `Watching.round_ends`."""
        entry = entry_of(self.design, outcome, self.names, epsilon=self.epsilon(outcome.number + 1))
        self.committed = self.run.commit(entry, self.server.state(), {"round": outcome.number + 1})
