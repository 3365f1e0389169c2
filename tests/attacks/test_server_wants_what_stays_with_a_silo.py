"""The server wants to see a record through parameters that a silo keeps: over many rounds, or in the
metrics.
"""

from __future__ import annotations

import numpy as np
import pytest

from sumus.data import FederatedData, Records, SiloRecords
from sumus.guarantee import calibrated
from sumus.noise import Skellam
from sumus.plan import TrainingPlan
from sumus.randomness import RandomSource
from sumus.tasks import TASKS, LabelFacts
from sumus.training import local_updater, prepare
from sumus.training.local.convex_pass import convex_pass

ROUNDS = 40
COMMON = np.tile([0.7, 0.7], (20, 1))  # a feature and the bias feature
LABELS = np.ones(20, np.int64)
STEP = 8.0 / 21  # γ/b, the longest that is non-expansive for all of them in one bin


def _shift_of_the_last_round(keep: bool) -> float:
    """How far one record moves what is sent, in units of γC/b. The server sends the same models to
    both silos: where all others are certain, so that only the record moves the intercept, and in
    the end one where they are not.
    """
    alone = np.array([[0.0, 0.7]])
    sets = [(COMMON, LABELS), (np.concatenate([COMMON, alone]), np.append(LABELS, 1))]
    kept, sent = [0.0, 0.0], [0.0, 0.0]
    for number in range(ROUNDS):
        model = 0.0 if number == ROUNDS - 1 else 500.0
        for which, (x, y) in enumerate(sets):
            after = convex_pass(
                np.array([[model, kept[which] if keep else 0.0]]),
                x.astype(np.float32),
                y,
                task=TASKS["classification"],
                bins=1,
                passes=1,
                step=STEP,
                decay=0.0,
                bin_cap=21,
                feature_bound=1.0,
                residual_cap=1.0,
                source=RandomSource.simulation(1),
            )
            sent[which], kept[which] = after[0]
    return abs(sent[0] - sent[1]) / STEP


def test_a_record_moves_the_last_round_by_no_more_than_what_is_accounted() -> None:
    assert _shift_of_the_last_round(keep=False) <= 1.0


def test_kept_from_round_to_round_it_would() -> None:
    """Why they are reset: the same record, the same models, an intercept that is carried on."""
    assert _shift_of_the_last_round(keep=True) > 2.0


@pytest.mark.parametrize(
    "overrides",
    [
        {"training.algorithm": "convex-pass", "federation.local_steps": 4},
        {
            "training.algorithm": "dp-sgd",
            "training.sampling_rate": 1.0,
            "federation.local_steps": 3,
        },
    ],
)
def test_rounds_before_leave_nothing_in_a_silo(overrides, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server drives the intercept far away with chosen models, then asks."""
    monkeypatch.setattr(
        Skellam, "sample", lambda self, size, source: np.zeros(size, dtype=np.int64)
    )
    rng = np.random.default_rng(0)
    train = Records(rng.normal(size=(30, 4)).astype(np.float32), np.ones(30, np.int64))
    data = FederatedData(
        "own",
        (SiloRecords("a", train, train, train), SiloRecords("b", train, train, train)),
        (4,),
        LabelFacts(("0", "1")),
    )
    plan = TrainingPlan().with_overrides(
        {"training.model": "logistic", "training.local_parameters": "intercept"} | overrides
    )
    design = calibrated(plan, data.facts())
    bench = prepare(design.plan, data)
    records = bench.data.silos[0].train
    fresh, driven = (local_updater(design, design.silos[0], records, bench.model) for _ in range(2))
    for number in range(8):
        driven(np.full(4, -5.0), RandomSource.simulation(number))
    question = np.zeros(4)
    answers = [each(question, RandomSource.simulation(99)).vector for each in (fresh, driven)]
    assert np.array_equal(*answers)
    assert np.abs(answers[0]).max() > 0
