"""What the same records give without privacy: a constant prediction, all silos together, and every
silo alone.

For comparison in simulations only. Nothing here is tuned: the learning rate is the plan's, so a
private run may well be better.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch

from sumus.books import NoLedger
from sumus.data import FederatedData, Records
from sumus.guarantee import NoiseDesign
from sumus.parties import Simulation, federation_in_process
from sumus.plan import ResolvedPlan, TrainingPlan
from sumus.purity import InputKind
from sumus.randomness import RandomSource
from sumus.training import LocalPart, Prepared, evaluate, plain_steps

__all__ = ["baselines", "constant_baseline", "without_noise"]

_LEAST_BATCH = 16.0


def constant_baseline(plan: TrainingPlan, data: FederatedData) -> dict[str, float]:
    """What the best constant prediction reaches on the test records of all silos, under the task's
    name for it; empty without records.
    """
    train, test = (
        np.concatenate([getattr(silo, part).y for silo in data.silos]) for part in ("train", "test")
    )
    if not len(train) or not len(test):
        return {}
    return {plan.task.constant[0]: plan.task.baseline(train, test)}


def baselines(plan: TrainingPlan, prepared: Prepared, *, threads: int = 1) -> dict[str, float]:
    """The task's headline measure of FedAvg with the same rounds, steps and learning rate but no
    noise, and of every
    silo by itself.

    Returns:
        `non_private`, and `alone_mean`, `alone_min`, `alone_max` over silos, all on the test
        records of all silos together; nothing where there are none.
    """
    if not any(len(silo.test) for silo in prepared.data.silos):
        return {}
    local = LocalPart.of(plan, prepared.model)
    if local is not None:  # without privacy nothing has to stay with a silo
        first = local.joined(prepared.first_parameters)
        prepared = replace(prepared, model=local.model, first_parameters=first)
    names = tuple(silo.name for silo in prepared.data.silos)
    records = [len(silo.train) for silo in prepared.data.silos]
    least = min((count for count in records if count), default=1)
    batch = min(max(plan.training.divisor or _LEAST_BATCH, _LEAST_BATCH), float(least))
    mean = max(float(np.mean(records)), 1.0)
    steps = max(1, round(mean / batch))
    plain = without_noise(plan, sampling_rate=min(1.0, batch / mean), local_steps=steps)
    together = federation_in_process(
        NoiseDesign.of(ResolvedPlan.of(plain, names)),
        prepared,
        Simulation(0),
        releases=NoLedger("comparison without privacy"),
        threads=threads,
    )
    for _ in together.rounds():
        pass
    pooled = Records.joined([silo.test for silo in prepared.data.silos])
    kind = InputKind.of(prepared.model, plan.training.vocabulary)

    def measured(parameters: npt.NDArray[np.float64]) -> float:
        metrics = evaluate(
            prepared.model,
            parameters,
            pooled,
            task=plan.task,
            vocabulary=plan.training.vocabulary,
        )
        return metrics[plan.task.headline.name]

    alone = []
    for position, silo in enumerate(prepared.data.silos):
        update = plain_steps(
            prepared.model,
            plan.task,
            prepared.first_parameters,
            kind.cast(torch.from_numpy(silo.train.x)),
            torch.from_numpy(silo.train.y),
            steps=steps * plan.federation.rounds,
            sampling_rate=min(1.0, batch / max(len(silo.train), 1)),
            learning_rate=plain.training.learning_rate,
            momentum=0.0,
            l2_penalty=0.0,
            source=RandomSource.simulation(0, "alone", position),
        )
        alone.append(measured(prepared.first_parameters + update))
    return {
        "non_private": measured(together.server.released),
        "alone_mean": float(np.mean(alone)),
        "alone_min": float(np.min(alone)),
        "alone_max": float(np.max(alone)),
    }


def without_noise(plan: TrainingPlan, *, sampling_rate: float, local_steps: int) -> TrainingPlan:
    """Plain FedAvg with the plan's data, model and rounds; whatever belongs to one algorithm or one
    kind of noise is left out. Its steps are over rows, whoever they are of.
    """
    bounds, most = plan.data.records_per_silo, plan.rows_per_person
    rate = (
        plan.training.learning_rate
        if plan.training.learning_rates is None
        else float(np.mean(plan.training.learning_rates))
    )
    kept, shared = plan.training.local_dimension, plan.training.dimension
    if kept is not None and shared is not None:
        plan = plan.replace(
            "training", dimension=shared + kept, local_parameters=None, local_dimension=None
        )
    plain = replace(plan, silo={}).replace(
        "training", algorithm="fedavg", loss=None, sampling_rate=sampling_rate, learning_rate=rate, learning_rates=None,
        server_learning_rate=1.0, server_optimizer="sgd", server_momentum=0.0, iterate_average=0.0,
    )  # fmt: skip
    plain = plain.replace("noise", mechanism="skellam", removable=False).replace(
        "privacy", unit="record"
    )
    plain = plain.replace("federation", local_steps=local_steps, selection="all", selected=None)
    if most > 1 and bounds is not None:
        plain = plain.replace("data", records_per_silo=tuple(most * bound for bound in bounds))
    return plain.replace("aggregation", modulus_bits=64).replace("evaluation", metrics="none")
