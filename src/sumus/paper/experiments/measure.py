"""One measurement for Heikkilä 2025: a setting trained once, with noise really drawn, discrete,
through the plan's secure sum.

The noise of a measurement follows a public seed, so that everybody can repeat it; it is drawn by
the same samplers and has the same law as the noise of a real run. Training, sampling and the first
model depend on the seed; which records are dealt to which silo does not.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, final

import numpy as np
import torch

from sumus.books import NoLedger
from sumus.data import FederatedData, Records, load
from sumus.guarantee import Account, NoiseDesign, calibrated, certify
from sumus.paper.experiments.comparison import PaperLine
from sumus.paper.experiments.results import Measurement
from sumus.parties import Simulation, SimulationMetrics, federation_in_process
from sumus.plan import TrainingPlan
from sumus.randomness import RandomSource
from sumus.training import Prepared, evaluate, plain_steps, prepare

__all__ = ["Benches", "measure"]

Progress = Callable[[int, float | None], None]
"""Called after every round with its number and the accuracy."""


@final
class Benches:
    """Keeps the last data set and the last workbench, so that settings and seeds in a row do not
    load and transform records again.
    """

    def __init__(self) -> None:
        self._data: tuple[object, FederatedData] | None = None
        self._bench: tuple[object, Prepared] | None = None

    def data(self, plan: TrainingPlan) -> FederatedData:
        """The records of the plan."""
        key = (plan.data, plan.federation.silos)
        if self._data is None or self._data[0] != key:
            self._data = None  # make room first
            self._data = (key, load(plan))
        return self._data[1]

    def bench(self, plan: TrainingPlan) -> Prepared:
        """Records behind the public features, and a fresh model of this plan."""
        training = plan.training
        convex = plan.rules.bounded_records
        key = (
            plan.data,
            plan.federation.silos,
            training.features,
            convex and training.feature_bound,
        )
        if self._bench is None or self._bench[0] != key:
            self._bench = None
            self._bench = (key, prepare(plan, self.data(plan)))
            return self._bench[1]
        ready = self._bench[1].data
        fresh = prepare(
            plan.replace("training", features="none"), _without_records(ready, convex=convex)
        )
        return replace(fresh, data=ready)


def _without_records(data: FederatedData, *, convex: bool) -> FederatedData:
    """One record of the first silo: enough to build a model of the right shape. A bounded record
    loses its bias feature again.
    """
    record = Records(
        data.silos[0].train.x[:1, :-1] if convex else data.silos[0].train.x[:1],
        data.silos[0].train.y[:1],
    )
    silo = replace(data.silos[0], train=record, validation=record, test=record)
    return replace(data, silos=(silo,), shape=record.x.shape[1:])


def measure(
    setting: PaperLine,
    seed: int,
    *,
    benches: Benches,
    threads: int = 1,
    progress: Progress | None = None,
) -> Measurement:
    """Train one setting with one seed.

    Guarantee: a private setting is measured only if its account is certified; the noise drawn is
        the noise accounted for.

    Args:
        setting: what to train.
        seed: public seed of noise, sampling and, for networks, the first model.
        benches: records that were prepared before.
        threads: silos that compute at the same time.
        progress: called after every round.
    """
    plan = setting.plan.replace("training", init_seed=seed)
    began = time.perf_counter()
    data = benches.data(plan)
    design = calibrated(plan)
    account = None if setting.group == "no privacy" else certify(design)
    bench = benches.bench(design.plan)
    ready, ready_cpu = time.perf_counter(), time.process_time()
    if setting.alone:
        accuracies, losses, silo_accuracies = _alone(design, bench, seed, progress)
        sent = 0
    else:
        federation = federation_in_process(
            design,
            bench,
            Simulation(seed),
            releases=NoLedger("experiment with a public seed"),
            threads=threads,
        )
        accuracies, losses, sent = [], [], 0
        for outcome in federation.rounds():
            if outcome.metrics is not None:
                accuracies.append(outcome.metrics["accuracy"])
                losses.append(outcome.metrics["loss"])
            sent += outcome.summed.bytes_up
            if progress is not None:
                progress(outcome.number + 1, accuracies[-1] if accuracies else None)
        of_silos = SimulationMetrics(design, bench, federation.server).of_silos()
        silo_accuracies = [part["accuracy"] for part in of_silos]
    return Measurement(
        experiment=setting.experiment,
        setting=setting.key,
        label=setting.label,
        group=setting.group,
        seed=seed,
        rounds=plan.federation.rounds,
        plan_hash=setting.plan.hash,
        plan=design.plan.as_table(),
        accuracies=tuple(accuracies),
        losses=tuple(losses),
        silo_accuracies=tuple(silo_accuracies),
        bytes_up_per_silo=sent / len(data.silos),
        protocol="none" if setting.alone or account is None else plan.aggregation.protocol,
        prepare_seconds=ready - began,
        train_seconds=time.perf_counter() - ready,
        cpu_seconds=time.process_time() - ready_cpu,
        **_promise(account, design),
    )


def _promise(account: Account | None, design: NoiseDesign) -> dict[str, Any]:
    """ε with its analysis; the claimed one where the paper's accounting differs; both ends where
    silos differ.
    """
    if account is None:
        return {}
    claimed = next(
        (each.epsilon for each in account.analyses if each.name == "per-step" and not each.proved),
        None,
    )
    by_size = sorted(design.silos, key=lambda silo: silo.records)
    per_silo = account.epsilon_per_silo
    return {
        "epsilon": account.epsilon,
        "delta": account.delta,
        "analysis": account.analysis,
        "accountant": account.accountant,
        "noise_multiplier": account.noise_multiplier,
        "claimed_epsilon": claimed if design.plan.privacy.calibrate_to == "per-step" else None,
        "epsilon_smallest_silo": per_silo.get(by_size[0].name),
        "epsilon_largest_silo": per_silo.get(by_size[-1].name),
    }


def _alone(
    design: NoiseDesign, bench: Prepared, seed: int, progress: Progress | None
) -> tuple[list[float], list[float], list[float]]:
    """Every silo trains by itself as long as the federation would; accuracy on the test records of
    all silos, averaged over silos.
    """
    plan, silos = design.plan, bench.data.silos
    pooled = Records(
        np.concatenate([silo.test.x for silo in silos]),
        np.concatenate([silo.test.y for silo in silos]),
    )
    accuracies, losses = [], []
    for position, silo in enumerate(silos):
        update = plain_steps(
            bench.model,
            plan.task,
            bench.first_parameters,
            torch.from_numpy(silo.train.x),
            torch.from_numpy(silo.train.y),
            steps=design.resolved.local_steps * plan.federation.rounds,
            sampling_rate=design.resolved.sampling_rate,
            learning_rate=plan.training.learning_rate,
            momentum=plan.training.local_momentum,
            l2_penalty=plan.training.l2_penalty,
            source=RandomSource.simulation(seed, "alone", position),
        )
        metrics = evaluate(bench.model, bench.first_parameters + update, pooled, task=plan.task)
        accuracies.append(metrics["accuracy"])
        losses.append(metrics["loss"])
        if progress is not None:
            progress(round(plan.federation.rounds * (position + 1) / len(silos)), accuracies[-1])
    return [float(np.mean(accuracies))], [float(np.mean(losses))], accuracies
