"""A person with many rows wants to move the sum further than what is accounted for one person."""

from __future__ import annotations

import numpy as np
import pytest

from sumus.data import Records
from sumus.gradients import Units
from sumus.guarantee import NoiseDesign, calibrated
from sumus.noise import Skellam
from sumus.plan import TrainingPlan
from sumus.randomness import RandomSource
from sumus.training import SecureMetrics, evaluation, local_updater, prepare
from sumus.training.local import convex_pass, noisy_steps
from support.small_data import persons_data

MOST = 30
PLANS = {
    "steps": {"training.algorithm": "dp-sgd", "training.sampling_rate": 1.0},
    "split": {"training.algorithm": "split-noise", "training.sampling_rate": 1.0},
    "pass": {"training.algorithm": "convex-pass"},
}


def _design(overrides: dict[str, object]) -> NoiseDesign:
    base = {"privacy.unit": "person", "privacy.epsilon": 2.0, "federation.local_steps": 1}
    plan = TrainingPlan().with_overrides(base | {"data.records_per_person": MOST} | overrides)
    return calibrated(plan, persons_data().facts())


def _moved_by(design: NoiseDesign, rows: int) -> float:
    """How far a person with so many equal rows moves the vector of an otherwise empty silo."""
    bench = prepare(design.plan, persons_data())
    features = bench.data.silos[0].train.x.shape[1]
    x = np.zeros((rows, features), np.float32)
    x[:, 0] = design.plan.training.feature_bound
    loud = Records(x, np.zeros(rows, np.int64), np.zeros(rows, np.int64))
    vectors = [
        local_updater(design, design.silos[0], records, bench.model)(
            bench.first_parameters, RandomSource.simulation(3)
        ).vector
        for records in (loud, loud.take(np.zeros(0, np.int64)))
    ]
    return float(np.linalg.norm((vectors[0] - vectors[1]).astype(np.float64)))


@pytest.fixture(autouse=True)
def _no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Skellam, "sample", lambda self, size, source: np.zeros(size, dtype=np.int64)
    )


@pytest.mark.parametrize("name", list(PLANS))
@pytest.mark.parametrize("weighting", ["mean", "sum"])
def test_rows_buy_no_influence(name: str, weighting: str) -> None:
    design = _design(PLANS[name] | {"data.person_weighting": weighting})
    allowed = design.silos[0].l2_grid * (1 + 1e-9)
    assert _moved_by(design, 1) <= allowed
    assert 0.1 * allowed < _moved_by(design, MOST) <= allowed


@pytest.mark.parametrize("name", list(PLANS))
def test_without_the_grouping_they_would(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (convex_pass, noisy_steps):
        monkeypatch.setattr(module, "units_of", lambda plan, records: Units.single(len(records)))
    design = _design(PLANS[name])
    assert _moved_by(design, MOST) > 3.0 * design.silos[0].l2_grid


def _counts(design: NoiseDesign, rows: int) -> float:
    bench = prepare(design.plan, persons_data())
    x = np.ones((rows, 6), np.float32)
    person = Records(x, np.zeros(rows, np.int64), np.zeros(rows, np.int64))
    vector = SecureMetrics(design).encode(
        bench.model, bench.first_parameters, person, RandomSource.simulation(3)
    )
    return float(np.linalg.norm(vector))


def test_nor_do_rows_of_a_test_person(monkeypatch: pytest.MonkeyPatch) -> None:
    design = _design(PLANS["steps"] | {"evaluation.metrics": "secure"})
    allowed = design.plan.task.counts.l2_grid
    assert 0 < _counts(design, MOST) <= allowed
    monkeypatch.setattr(evaluation, "one_row_each", lambda records, source: records)
    assert _counts(design, MOST) > 3.0 * allowed
