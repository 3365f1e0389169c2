"""The gate on sums: the longest that honest silos can make passes, a little more does not, honest runs
are far away.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import comb
from pathlib import Path

import numpy as np
import pytest

from sumus.data import from_arrays, load
from sumus.guarantee import NormGate
from sumus.guarantee.gate import _largest_batch
from sumus.guarantee.layout import SiloDesign
from sumus.parties import Simulation, agree_on
from sumus.plan import TrainingPlan
from sumus.randomness import RandomSource
from sumus.tasks import TASKS, Declared
from sumus.training import SecureMetrics, local_updater, prepare
from support.small_data import small_data
from support.small_federation import SmallFederation

QUIET = {"privacy.epsilon": "none", "noise.noise_multiplier": 0.01}
EXTREMES = {
    "single-step": {
        "training.algorithm": "single-step",
        "federation.local_steps": 1,
        "training.sampling_rate": 1.0,
    },
    "dp-sgd": {"training.sampling_rate": 1.0},
    "split-noise": {"training.algorithm": "split-noise", "training.sampling_rate": 1.0},
    "momentum": {
        "training.sampling_rate": 1.0,
        "training.local_momentum": 0.8,
        "aggregation.modulus_bits": 48,
    },
    "schedule": {
        "training.sampling_rate": 1.0,
        "training.learning_rates": [0.4, 0.2, 0.1],
        "aggregation.modulus_bits": 48,
    },
    "rounded sums": {"training.sampling_rate": 1.0, "noise.rounding": "sum"},
    "stochastic rounding": {"training.sampling_rate": 1.0, "noise.rounding": "stochastic"},
    "silo": {
        "training.algorithm": "silo",
        "privacy.unit": "silo",
        "training.clip_norm": 0.01,
        "training.sampling_rate": 1.0,
    },
    "convex-pass": {
        "training.algorithm": "convex-pass",
        "training.sampling_rate": "none",
        "federation.local_steps": 4,
    },
}


def same_records(length: float, silos: int = 3, records: int = 40):
    """All records of all silos pull into one direction, as hard as they can."""
    x = np.zeros((records, 6), dtype=np.float32)
    x[:, 0] = length
    y = np.zeros(records, dtype=np.int64)
    return from_arrays([(x, y)] * silos, name="own data", classes=3)


@pytest.mark.parametrize("name", EXTREMES)
def test_the_longest_honest_sum_passes_and_is_near_the_bound(federation, name: str) -> None:
    """Records that are all alike: their clipped gradients add up to the bound but for truncation."""
    run: SmallFederation = federation(EXTREMES[name] | QUIET, data=same_records(1.0))
    gate, parameters = NormGate(run.design), run.server.parameters
    most = gate.largest_update_grid(range(3), weight_norm=float(np.linalg.norm(parameters)))
    total = run.round(0).summed.total_grid[: len(parameters)]
    share = float(np.linalg.norm(total.astype(np.float64))) / most
    # convex-pass: a step of full length needs a residual of √2, which no second step has
    assert (0.4 if name == "convex-pass" else 0.95) < share <= 1.0
    assert gate.refusal(total, range(3), weight_norm=0.0) is None
    scaled = (total * (1.02 / share)).astype(np.int64)
    refused = gate.refusal(scaled, range(3), weight_norm=0.0)
    assert refused is not None
    assert refused.startswith("the sum was refused: it is 1.02 times as long")


def test_fewer_silos_make_a_shorter_sum(federation) -> None:
    run = federation(EXTREMES["dp-sgd"], data=small_data(silos=6))
    gate = NormGate(run.design)
    bounds = [gate.largest_update_grid(range(count), weight_norm=0.0) for count in range(1, 7)]
    assert bounds == sorted(bounds)
    assert bounds[0] < 0.25 * bounds[-1]


def test_coins_that_lean_as_far_as_they_may_pass(federation) -> None:
    run = federation(
        {
            "training.algorithm": "silo",
            "privacy.unit": "silo",
            "noise.mechanism": "poisson-binomial",
            "privacy.accountant": "renyi",
            "noise.trials": 16,
            "privacy.epsilon": "none",
            "noise.noise_multiplier": 1.0,
        }
    )
    coins, gate = run.design.coins, NormGate(run.design)
    assert coins is not None
    source = RandomSource.simulation(3, "coins")
    leaning = np.full(run.design.resolved.dimension, coins.coordinate_clip)
    total = sum(coins.encode(leaning, source) for _ in range(3))
    assert gate.refusal(total, range(3), weight_norm=0.0) is None
    assert run.round(0).refused is None
    far = np.full(run.design.resolved.dimension, 1 << 20)
    assert gate.refusal(far, range(3), weight_norm=0.0) is not None
    # a ring of coins holds numbers below zero that no coins add up to
    assert gate.refusal(-far, range(3), weight_norm=0.0) is not None


def test_weights_that_decay_may_come_back_all_the_way(federation) -> None:
    """Decay moves a model by itself, and further the longer it is."""
    run = federation(EXTREMES["convex-pass"] | QUIET | {"training.l2_penalty": 0.3})
    gate = NormGate(run.design)
    silo = run.design.silos[0]
    weights = np.full(run.design.resolved.dimension, 5.0)
    held = run.bench.data.silos[0].train
    none = replace(held, x=held.x[:0], y=held.y[:0])
    updater = local_updater(run.design, silo, none, run.bench.model)
    vector = updater(weights, RandomSource.simulation(1, "decay")).vector
    norm = float(np.linalg.norm(weights))
    assert gate.refusal(vector, [0], weight_norm=norm) is None
    # more than half of the model decayed in one round
    assert np.linalg.norm(vector) * run.design.grid.granularity > 0.3 * norm


def test_nothing_is_refused_where_nothing_is_clipped(federation) -> None:
    run = federation({"training.algorithm": "fedavg"})
    far = np.full(run.design.resolved.dimension, 1 << 60)
    assert NormGate(run.design).refusal(far, range(3), weight_norm=0.0) is None


def test_counts_that_records_make_pass_and_others_do_not(federation) -> None:
    run = federation({"evaluation.metrics": "secure"})
    secure, shape = SecureMetrics(run.design), run.design.plan.task.counts
    most, unit = shape.largest_grid, shape.record_grid
    rest = np.zeros(shape.length - 3)
    for right, loss in ((1, 0.0), (-1, 0.2), (1, 0.2), (1, -0.2)):
        for records in (0, 1, 500, 100_000):
            row = records * np.array([unit, right * most, loss * unit, *rest])
            assert secure.refusal(row.astype(np.int64), 3) is None
    # more right records than there are, and fewer than none
    many = 100_000 * np.array([unit, 3 * most, 0, *rest])
    assert secure.refusal(many.astype(np.int64), 3) is not None
    none = -100_000 * np.array([unit, most, 0, *rest])
    assert secure.refusal(none.astype(np.int64), 3) is not None


@pytest.mark.parametrize("name", ["classification", "counts", "regression", "survival"])
def test_every_record_adds_the_same_to_the_count_of_records(name: str) -> None:
    """What the bound on counts rests on: u in one place, and a row no longer than Δ₂."""
    task = TASKS[name].of(Declared({"label_column": None}, classes=2))
    rng = np.random.default_rng(4)
    scores = (
        (
            rng.random(500) < 0.5,
            rng.normal(1.0, 5.0, 500),
            rng.integers(0, 2, 500),
            rng.normal(0.0, 5.0, 500),
        )
        if name == "classification"
        else (
            rng.normal(0.0, 3.0, 500),
            rng.integers(0, 9, 500) if name == "survival" else rng.normal(0.0, 3.0, 500),
        )
    )
    rows, shape = task.count(*scores), task.counts
    assert shape.record_place is not None
    assert set(rows[:, shape.record_place]) == {shape.record_grid}
    assert np.linalg.norm(rows.astype(np.float64), axis=1).max() <= shape.l2_grid + 1e-9


def _exceeds(records: int, rate: Fraction, batch: int) -> Fraction:
    return sum(
        (
            comb(records, taken) * rate**taken * (1 - rate) ** (records - taken)
            for taken in range(batch + 1, records + 1)
        ),
        start=Fraction(0),
    )


@pytest.mark.parametrize(
    ("records", "rate"), [(40, 0.5), (300, 0.01), (25, 0.9), (9, 1.0), (1, 0.1)]
)
def test_a_batch_is_larger_no_more_often_than_stated(records: int, rate: float) -> None:
    silo = SiloDesign(
        name="a",
        learning_rate=1.0,
        clip_norm=1.0,
        resolution=1,
        l2_grid=1.0,
        sampling_rate=rate,
        local_steps=1,
        records=records,
        variance_ratio=1.0,
        overfull_rate=0.0,
    )
    batch, limit = _largest_batch(silo, steps=8), Fraction(1, 2**45)
    assert _exceeds(records, Fraction(rate), batch) <= limit
    assert batch == 0 or _exceeds(records, Fraction(rate), batch - 1) > limit


PLANS = sorted((Path(__file__).parents[2] / "plans").glob("*.toml"))


@pytest.mark.parametrize("file", PLANS, ids=lambda file: file.stem)
def test_the_noise_of_a_shipped_plan_alone_is_far_from_its_bound(file: Path) -> None:
    """An honest sum is at most its signal and its noise long; records whose gradients all agree do
    not exist, so the noise is what could come near.
    """
    design = agree_on(TrainingPlan.from_toml(file.read_text())).design
    silos = range(len(design.silos))
    most = NormGate(design).largest_update_grid(silos, weight_norm=0.0)
    noise = design.mechanism.noise_norm(len(silos)) / design.grid.granularity
    assert noise < 0.75 * most


def test_an_honest_run_on_digits_stays_far_below() -> None:
    plan = TrainingPlan.from_toml((PLANS[0].parent / "digits.toml").read_text())
    agreed = agree_on(plan)
    bench = prepare(agreed.plan, load(agreed.plan))
    run = SmallFederation(agreed.design, bench, Simulation(1))
    gate, shares = NormGate(agreed.design), []
    for number in range(3):
        norm = float(np.linalg.norm(run.server.parameters))
        summed = run.round(number).summed
        most = gate.largest_update_grid(summed.survivors, weight_norm=norm)
        shares.append(float(np.linalg.norm(summed.total_grid.astype(np.float64))) / most)
    assert max(shares) < 0.3
