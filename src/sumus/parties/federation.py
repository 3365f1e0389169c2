"""The algorithm on one page. Start here.

    for every round:
        the server invites silos and sends them the model                                        (algorithm 1 of the paper)
        every silo takes its private local steps and adds its share of noise, all in integers    (local_update.py)
        the vectors meet in a secure sum; the server learns the sum of the survivors only        (aggregation.py, sumus.secagg)
        the server decodes the sum and moves the global model                                    (server.py)
        where the plan measures it, test records are counted in a noisy secure sum of their own  (evaluation.py)

The noise of all silos protects every record of every silo; what that guarantees is in
`sumus.guarantee`, computed from the same `NoiseDesign` that the silos draw from.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import final

import numpy as np
import numpy.typing as npt

from sumus.guarantee import NoiseDesign, padded, sum_length
from sumus.parties.sums import Aggregated, Aggregator, SecureAggregation, TrustedAggregation
from sumus.randomness import RandomSource
from sumus.tasks import Metrics
from sumus.training import (
    LocalUpdate,
    LocalUpdater,
    SecureMetrics,
    Server,
    Workbench,
    evaluate,
    local_updater,
    select_silos,
)

__all__ = ["Federation", "RoundOutcome", "Vanishing"]

Vector = npt.NDArray[np.int64] | npt.NDArray[np.float64]
Vanishing = Mapping[int, Mapping[str, frozenset[int]]]
"""Drop-outs to simulate: round number → stage of the protocol → silos that vanish before it."""


@final
@dataclass(frozen=True)
class RoundOutcome:
    """What one round did, as the simulation sees it (a real server sees the sum and nothing of the
    local updates).
    """

    number: int
    invited: frozenset[int]
    aggregated: Aggregated
    update: npt.NDArray[np.float64]
    local: Mapping[int, LocalUpdate]
    metrics: Metrics | None
    seconds: Mapping[str, float]


@final
@dataclass
class Federation:
    """All parties of a federation in this process.

    Args:
        design: what is drawn and what is accounted, one value.
        bench: records and model.
        secret: 32 bytes from the operating system; all silos' randomness derives from it, so a
            round that was interrupted is repeated bit for bit instead of being noised twice. `None`
            only for simulations with a public seed.
        seed: public seed of a simulation that voids the guarantee.
        threads: silos that compute at the same time.
        vanishing: drop-outs to simulate.
    """

    design: NoiseDesign
    bench: Workbench
    secret: bytes | None = field(repr=False)
    seed: int | None = None
    threads: int = 1
    vanishing: Vanishing = field(default_factory=dict)

    def __post_init__(self) -> None:
        plan, data = self.design.plan, self.bench.data
        self.server = Server(self.design, self.bench.first_parameters)
        self._updaters: list[LocalUpdater] = [
            local_updater(self.design, silo, records.train, self.bench.model)
            for silo, records in zip(self.design.silos, data.silos, strict=True)
        ]
        self._secure = SecureMetrics(self.design) if plan.evaluation.metrics == "secure" else None
        self._local: dict[int, LocalUpdate] = {}
        self._number, self._purpose = 0, "model"
        trusted = plan.aggregation.protocol == "trusted" or not plan.rules.private
        self._aggregate: Aggregator = (
            TrustedAggregation(plan, self._answer, self.threads)
            if trusted
            else SecureAggregation(
                self.design,
                sum_length(self.design.resolved),
                self._answer,
                self.threads,
                lambda: self._source("protocol", self._purpose),
            )
        )

    def rounds(self, done: int = 0) -> Iterator[RoundOutcome]:
        """Run the remaining rounds one by one."""
        for number in range(done, self.design.plan.federation.rounds):
            yield self.round(number)

    def invited(self, number: int) -> frozenset[int]:
        """The silos that a round asks: known before it begins, and the same again if it is
        repeated.
        """
        self._number = number
        return select_silos(self.design.resolved, self._source("selection"))

    def round(self, number: int) -> RoundOutcome:
        """One round: invite, compute locally, sum securely, move the model."""
        begin = time.perf_counter()
        plan = self.design.plan
        invited, self._purpose, self._local = self.invited(number), "model", {}
        aggregated = self._aggregate(
            number, self.server.parameters, invited, self.vanishing.get(number, {})
        )
        summed = time.perf_counter()
        update = self.server.apply(
            aggregated.total[: plan.training.dimension], len(aggregated.survivors)
        )
        applied, metrics = time.perf_counter(), None
        if self._secure is not None and plan.measures_after(number):
            metrics, counted = self._measure(self._secure, number, invited)
            traffic = (
                aggregated.bytes_up + counted.bytes_up,
                aggregated.bytes_down + counted.bytes_down,
            )
            aggregated = replace(aggregated, bytes_up=traffic[0], bytes_down=traffic[1])
        elif plan.measures_after(number):
            metrics = self.evaluate()
        moved = time.perf_counter()
        noise = sum(each.noise_seconds for each in self._local.values()) / max(
            1, min(self.threads, len(self._local))
        )
        local = max(0.0, summed - begin - aggregated.protocol_seconds - noise)
        seconds = {
            "local": local,
            "noise": noise,
            "protocol": aggregated.protocol_seconds,
            "evaluate": moved - applied,
            "server": applied - summed,
        }
        return RoundOutcome(number, invited, aggregated, update, self._local, metrics, seconds)

    def evaluate(self) -> Metrics | None:
        """The task's measures of the released model on all test records together, in the clear, if
        there are any: simulation only.
        """
        return self.design.plan.task.pooled(self.evaluate_silos())

    def evaluate_silos(self) -> list[Metrics]:
        """The same for each silo by itself."""
        parts = "validation" if self.design.plan.data.validation_fraction > 0.0 else "test"
        model, plan = self.bench.model, self.design.plan
        return [
            evaluate(
                model,
                self.server.released,
                getattr(silo, parts),
                task=plan.task,
                vocabulary=plan.training.vocabulary,
            )
            for silo in self.bench.data.silos
        ]

    def _measure(
        self, secure: SecureMetrics, number: int, invited: frozenset[int]
    ) -> tuple[Metrics, Aggregated]:
        """Accuracy and loss of the released model, as a secure sum of noisy counts over the test
        records of the round's silos.
        """
        self._purpose = "metrics"
        # what users get, and what silos would receive
        released = self.server.released.astype(np.float32).astype(np.float64)
        counted = self._aggregate(
            number, released, invited, self.vanishing.get(number, {}), "metrics"
        )
        return secure.decode(counted.total, len(counted.survivors)), counted

    def _answer(
        self, silo: int, parameters: npt.NDArray[np.float64], seeds: Sequence[bytes] = ()
    ) -> Vector:
        """One silo's noisy vector for the current sum."""
        if self._secure is not None and self._purpose == "metrics":
            return self._secure.encode(
                self.bench.model,
                parameters,
                self.bench.data.silos[silo].test,
                self._source("metrics", silo),
            )
        self._local[silo] = self._updaters[silo](parameters, self._source("silo", silo), seeds)
        return padded(self._local[silo].vector, sum_length(self.design.resolved))

    def _source(self, *path: str | int) -> RandomSource:
        """The random bits of one party in the current round: secret, and the same again if the
        round is repeated.
        """
        if self.secret is None:
            return RandomSource.simulation(self.seed or 0, self._number, *path)
        label = "/".join(
            ["sumus round randomness", self.design.plan.hash, str(self._number), *map(str, path)]
        )
        return RandomSource.from_key(hashlib.sha256(self.secret + label.encode()).digest())
