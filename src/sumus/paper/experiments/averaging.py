"""Post-hoc averaging (Heikkilä 2025, section 5 and table 1): its numbers to two decimals, what is
proved, and models really averaged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, final

import numpy as np

from sumus.accounting import average
from sumus.books import NoLedger
from sumus.data import load
from sumus.guarantee import calibrated
from sumus.paper.experiments.results import mean_and_sem
from sumus.paper.experiments.tables import markdown, percent
from sumus.parties import Simulation, federation_in_process
from sumus.plan import TrainingPlan
from sumus.training import evaluate, prepare

__all__ = [
    "PAPER_TABLE",
    "AveragingRow",
    "TrainedAverage",
    "averaging_rows",
    "averaging_table",
    "train_and_average",
    "trained_table",
]

PARTIES = (1, 2, 5, 10)
STEPS = {1: "1 step", 10: "1 epoch", 50: "5 epochs"}
PAPER_TABLE: dict[tuple[int, int], tuple[float, float]] = {
    (1, 1): (0.69, 5.0), (1, 2): (0.98, 2.78), (1, 5): (1.54, 1.22), (1, 10): (2.18, 0.64),
    (10, 1): (0.90, 5.0), (10, 2): (1.28, 2.61), (10, 5): (2.02, 1.19), (10, 10): (2.85, 0.72),
    (50, 1): (1.18, 5.0), (50, 2): (1.67, 2.85), (50, 5): (2.64, 1.55), (50, 10): (3.73, 1.03),
}  # fmt: skip
"""Table 1 of the paper: (local steps, parties) → (σ_total, ε of the averaged model)."""

_LOCAL_EPSILON, _DELTA, _SAMPLING_RATE = 5.0, 1e-5, 0.1


@final
@dataclass(frozen=True, kw_only=True)
class AveragingRow:
    """One line of table 1.

    Args:
        paper_multiplier: total noise that the paper's accountant calibrates.
        paper_epsilon: ε of the average by the paper's theorem 4.5 and accountant.
        pld_epsilon: by the same theorem with a privacy-loss distribution, noise calibrated by it
            too.
        proved_epsilon: what is proved: the theorem for one step, the models' own ε for several.
    """

    steps: int
    parties: int
    paper_multiplier: float
    paper_epsilon: float
    pld_multiplier: float
    pld_epsilon: float
    proved_epsilon: float

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def averaging_rows() -> list[AveragingRow]:
    """Table 1 by the paper's accountant (continuous limit of 32-bit Skellam noise), next to the
    tight one and what is proved.
    """
    rows = []
    for steps in STEPS:
        options = {
            "local_epsilon": _LOCAL_EPSILON,
            "delta": _DELTA,
            "sampling_rate": _SAMPLING_RATE,
            "steps": steps,
            "parties": PARTIES,
        }
        paper = average(**options, accountant="renyi-mironov", mechanism="gaussian")  # type: ignore[arg-type]
        tight = average(**options, accountant="pld", mechanism="skellam")  # type: ignore[arg-type]
        rows += [
            AveragingRow(
                steps=steps,
                parties=claimed.parties,
                paper_multiplier=claimed.noise_multiplier,
                paper_epsilon=claimed.epsilon,
                pld_multiplier=found.noise_multiplier,
                pld_epsilon=found.epsilon,
                proved_epsilon=found.proved_epsilon,
            )
            for claimed, found in zip(paper, tight, strict=True)
        ]
    return rows


def averaging_table(rows: Sequence[AveragingRow]) -> str:
    """Markdown; a number that differs from the paper's in its second decimal is marked."""
    body = []
    for row in rows:
        sigma, epsilon = PAPER_TABLE[row.steps, row.parties]
        same = (
            f"{row.paper_multiplier:.2f}" == f"{sigma:.2f}"
            and f"{row.paper_epsilon:.2f}" == f"{epsilon:.2f}"
        )
        claimed = f"{row.pld_epsilon:.2f}" + (
            "" if row.steps == 1 or row.parties == 1 else " (not proved)"
        )
        body.append(
            [
                STEPS[row.steps],
                str(row.parties),
                f"{row.paper_multiplier:.2f}",
                f"{row.paper_epsilon:.2f}",
                f"{sigma:.2f}, {epsilon:.2f}",
                "yes" if same else "NO",
                claimed,
                f"{row.proved_epsilon:.2f}",
            ]
        )
    return markdown(
        [
            "local steps",
            "models",
            "σ total",
            "ε",
            "paper's σ, ε",
            "equal",
            "ε with PLD",
            "proved ε",
        ],
        body,
    )


# -- models really trained and averaged


@final
@dataclass(frozen=True, kw_only=True)
class TrainedAverage:
    """Digits models of `parties` silos, each private on its own (ε = 5), alone and averaged; means
    and SEM over seeds.
    """

    steps: int
    parties: int
    alone: float
    alone_sem: float
    averaged: float
    averaged_sem: float
    claimed_epsilon: float
    proved_epsilon: float

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def train_and_average(row: AveragingRow, *, seeds: int) -> TrainedAverage:
    """Train one softmax model per silo with its own noise and average them: a federation of one
    round.

    Every silo holds as many records however many silos take part: a tenth of the digits. The noise
        is the row's, calibrated by a
    privacy-loss distribution.
    """
    parties, steps = row.parties, row.steps
    plan = TrainingPlan().with_overrides(
        {
            "data.name": "digits", "federation.silos": 10, "federation.rounds": 1, "federation.local_steps": steps,
            "training.algorithm": "dp-sgd", "training.model": "softmax", "training.sampling_rate": _SAMPLING_RATE,
            "training.learning_rate": 2.0 if steps == 1 else 0.5, "privacy.delta": _DELTA, "aggregation.protocol": "trusted",
            "aggregation.modulus_bits": 48, "evaluation.metrics": "none",
            "noise.noise_multiplier": row.pld_multiplier / math.sqrt(parties) * math.sqrt(10),
        }
    )  # fmt: skip
    data = load(plan)
    design = calibrated(plan)
    bench = prepare(design.plan, data)
    tests = [silo.test for silo in bench.data.silos]
    pooled = type(tests[0])(
        np.concatenate([each.x for each in tests]), np.concatenate([each.y for each in tests])
    )
    averaged, alone = [], []
    for seed in range(seeds):
        federation = federation_in_process(
            design, bench, Simulation(seed), releases=NoLedger("experiment with a public seed")
        )
        outcome = federation.round(0)
        scale = design.grid.granularity * design.update_scale * len(data.silos)
        models = [
            bench.first_parameters + np.asarray(outcome.local[silo].vector, np.float64) * scale
            for silo in range(parties)
        ]
        task = design.plan.task
        mean, *single = (
            evaluate(bench.model, parameters, pooled, task=task)["accuracy"]
            for parameters in (np.mean(models, axis=0), *models)
        )
        averaged.append(mean)
        alone.append(float(np.mean(single)))
    found, alone_found = mean_and_sem(averaged), mean_and_sem(alone)
    return TrainedAverage(
        steps=steps,
        parties=parties,
        alone=alone_found[0],
        alone_sem=alone_found[1],
        averaged=found[0],
        averaged_sem=found[1],
        claimed_epsilon=row.pld_epsilon,
        proved_epsilon=row.proved_epsilon,
    )


def trained_table(rows: Sequence[TrainedAverage]) -> str:
    """Markdown: what averaging does to accuracy and to ε."""
    body = [
        [
            STEPS[row.steps],
            str(row.parties),
            percent(row.alone, row.alone_sem),
            percent(row.averaged, row.averaged_sem),
            f"{row.claimed_epsilon:.2f}"
            + ("" if row.claimed_epsilon == row.proved_epsilon else " (not proved)"),
            f"{row.proved_epsilon:.2f}",
        ]
        for row in rows
    ]
    return markdown(
        ["local steps", "models", "one model", "their average", "ε by theorem 4.5", "proved ε"],
        body,
    )
