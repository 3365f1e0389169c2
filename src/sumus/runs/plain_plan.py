"""A plan without its noise, for whoever attacks a model on purpose."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sumus.plan import TrainingPlan

__all__ = ["without_noise"]


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
