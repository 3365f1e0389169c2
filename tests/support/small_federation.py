"""A small federation that tests can build in one line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from sumus.books import NoLedger
from sumus.data import FederatedData
from sumus.guarantee import NoiseDesign, calibrated
from sumus.parties import (
    Agreement,
    RunSecret,
    ServerParty,
    Simulation,
    SimulationMetrics,
    SumsInProcess,
    federation_in_process,
)
from sumus.plan import TrainingPlan
from sumus.randomness import RandomSource
from sumus.tasks import Metrics
from sumus.training import LocalUpdate, LocalUpdater, Prepared, prepare
from support.small_data import small_data

BASE = """
[privacy]
epsilon = 2.0
delta = 1e-4
[federation]
rounds = 2
local_steps = 3
colluding = 0
[training]
algorithm = "dp-sgd"
model = "softmax"
sampling_rate = 0.5
clip_norm = 0.7
learning_rate = 0.4
[evaluation]
metrics = "none"
"""


class SmallFederation:
    """All parties of a federation in this process, and what they were made of."""

    def __init__(
        self, design: NoiseDesign, prepared: Prepared, bits: RunSecret | Simulation, **options: Any
    ) -> None:
        self.design, self.bench = design, prepared
        self.party = federation_in_process(
            design, prepared, bits, releases=NoLedger("test"), **options
        )
        self.server, self.round, self.rounds = (
            self.party.server,
            self.party.round,
            self.party.rounds,
        )

    def evaluate(self) -> Metrics | None:
        return SimulationMetrics(self.design, self.bench, self.server).of_all()


def simulated(design: NoiseDesign, prepared: Prepared, seed: int, **options: Any) -> ServerParty:
    """A federation with a public seed."""
    return SmallFederation(design, prepared, Simulation(seed), **options).party


@dataclass(frozen=True)
class _Work:
    """What a silo computes with bits of the operating system, whatever the run's are."""

    updater: LocalUpdater

    def update(
        self, parameters: np.ndarray, source: RandomSource, seeds: Sequence[bytes], number: int
    ) -> LocalUpdate:
        return self.updater(parameters, RandomSource(), seeds)

    def counts(self, parameters: np.ndarray, source: RandomSource) -> np.ndarray:
        raise NotImplementedError


def sums_in_process(
    design: NoiseDesign, updaters: Sequence[LocalUpdater], *, rounds: int
) -> SumsInProcess:
    """Real sums of what some updaters compute."""
    return SumsInProcess(
        Agreement(design=design, certified=None, asked=rounds),
        [_Work(updater) for updater in updaters],
        RunSecret(RandomSource().bytes(32), design.plan.hash),
        releases=NoLedger("test"),
    )


@pytest.fixture
def federation() -> Callable[..., SmallFederation]:
    def build(
        overrides: Mapping[str, object] | None = None,
        *,
        data: FederatedData | None = None,
        seed: int | None = 5,
        **options: Any,
    ) -> SmallFederation:
        data = data or small_data()
        plan = TrainingPlan.from_toml(BASE).with_overrides(overrides or {})
        design = calibrated(plan, data.facts())
        bits = RunSecret(b"s" * 32, design.plan.hash) if seed is None else Simulation(seed)
        return SmallFederation(design, prepare(design.plan, data), bits, **options)

    return build
