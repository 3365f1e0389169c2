"""Persons in local updates and in metrics: coins, bins, clipping and counts are theirs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from sumus.comparing import baselines_of, compare
from sumus.data import Records
from sumus.errors import DataError
from sumus.guarantee import NoiseDesign, calibrated
from sumus.noise import Skellam
from sumus.plan import TrainingPlan
from sumus.randomness import RandomSource
from sumus.tasks import TASKS
from sumus.training import SecureMetrics, evaluate, local_updater, prepare
from sumus.training.evaluation import _scores, one_row_each
from sumus.training.models import build_model
from support.small_data import persons_data, small_data

CLASSES, FEATURES = 3, 6
PERSONS = {"privacy.unit": "person", "data.records_per_person": 4}
PASS = {"training.algorithm": "convex-pass", "federation.local_steps": 6}
BASE = {
    "privacy.epsilon": 2.0,
    "federation.local_steps": 1,
    "training.algorithm": "dp-sgd",
    "training.sampling_rate": 1.0,
}


def naive_steps(
    design: NoiseDesign, silo, records: Records, theta: np.ndarray, source: RandomSource
) -> np.ndarray:
    """Algorithm 2 with persons for records, on softmax regression, from the persons' numbers."""
    training, r, clip = design.plan.training, silo.resolution, silo.clip_norm
    persons = sorted(set(records.persons.tolist()))
    phi, released = theta.copy(), np.zeros(len(theta), dtype=np.int64)
    for s in range(silo.local_steps):
        coins = source.coins(silo.sampling_rate, len(persons))
        w = phi[: CLASSES * FEATURES].astype(np.float32).astype(np.float64)
        w, b = w.reshape(CLASSES, FEATURES), phi[CLASSES * FEATURES :].astype(np.float32)
        total = np.zeros(len(theta))
        for person in persons:
            if not coins[person]:
                continue
            rows = np.flatnonzero(records.persons == person)
            g = np.zeros(len(theta))
            for j in rows:
                z = w @ records.x[j] + b
                p = np.exp(z - z.max())
                residual = p / p.sum() - np.eye(CLASSES)[records.y[j]]
                flat = np.concatenate([np.outer(residual, records.x[j]).reshape(-1), residual])
                g += flat / (len(rows) if design.plan.data.person_weighting == "mean" else 4)
            total += np.trunc(g * min(1.0, clip / np.linalg.norm(g)) * r / clip)
        y = total.astype(np.int64) + design.drawn_by(silo).sample(len(theta), source)
        released += design.step_weights[s] * y
        if s == silo.local_steps - 1:
            break
        if design.state_noise is not None:
            y = y + design.state_noise.sample(len(theta), source)
        granularity = design.grid.clip_norm / design.grid.resolution
        phi = phi - training.learning_rate / training.divisor * granularity * y
    return released


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"data.person_weighting": "sum"},
        {"training.algorithm": "split-noise", "training.state_noise": 3.0},
        {"training.algorithm": "single-step"},
    ],
)
def test_noisy_steps_are_algorithm_2_with_persons_for_records(federation, overrides) -> None:
    data = persons_data()
    if overrides.get("training.algorithm") == "single-step":
        overrides = overrides | {"federation.local_steps": 1}
    run = federation(PERSONS | overrides, data=data)
    theta = np.random.default_rng(1).normal(size=21).astype(np.float32).astype(np.float64)
    for position, silo in enumerate(run.design.silos):
        train = data.silos[position].train
        assert silo.records == train.units < len(train)
        sources = RandomSource.simulation(9, position), RandomSource.simulation(9, position)
        ours = local_updater(run.design, silo, train, run.bench.model)(theta, sources[0])
        naive = naive_steps(run.design, silo, train, theta, sources[1])
        assert np.array_equal(*(source.words(4) for source in sources)), (
            "not the draws of the algorithm"
        )
        assert np.abs(ours.vector - naive).max() <= 3e-4 * run.design.grid.resolution
        assert ours.records <= silo.local_steps * train.units


class SameNoise:
    """Random bits that are the same for both neighbours, person by person."""

    secure = False

    def __init__(self, common: int, seed: int) -> None:
        self._common, self._seed, self._calls = common, seed, 0
        self._noise = RandomSource.simulation(seed, "noise")

    def coins(self, probability: float, count: int) -> np.ndarray:
        return np.ones(count, dtype=bool)

    def below(self, bound: int, count: int) -> np.ndarray:
        self._calls += 1
        source = RandomSource.simulation(self._seed, "bins", self._calls)
        return source.below(bound, self._common + 1)[:count]

    def words(self, count: int) -> np.ndarray:
        return self._noise.words(count)

    def fill(self, out: np.ndarray) -> None:
        self._noise.fill(out)


def with_last_person(records: Records, x: np.ndarray, y: np.ndarray) -> tuple[Records, Records]:
    """The records with another last person, and without it."""
    smaller = records.take(np.arange(records.units - 1))
    return Records.joined([smaller, Records(x, y, np.zeros(len(y), np.int64))]), smaller


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    scale=st.sampled_from([1e-30, 1e-3, 1.0, 1e4, 1e30]),
    rows=st.integers(1, 4),
    alike=st.booleans(),
    overrides=st.sampled_from(
        [
            {},
            {"data.person_weighting": "sum"},
            {"noise.rounding": "sum"},
            {"silo.silo-1.clip_norm": 0.05},
            PASS,
            PASS | {"data.person_weighting": "sum"},
            PASS | {"training.passes": 2, "training.residual_cap": 0.3},
        ]
    ),
)
def test_one_person_moves_a_query_by_at_most_what_is_accounted(
    seed: int, scale: float, rows: int, alike: bool, overrides
) -> None:
    """Same noise, same bins, one person more with all its rows: ‖difference‖₂ ≤ Δ₂ of the silo's
    design, for hostile rows too: all alike, to pull together, or each its own.
    """
    data = persons_data()
    plan = TrainingPlan().with_overrides(BASE | PERSONS | overrides)
    built = calibrated(plan, data.facts())
    rng = np.random.default_rng(seed)
    hostile = (scale * rng.normal(size=(1 if alike else rows, FEATURES))).astype(np.float32)
    if seed % 5 == 0:
        hostile[0, rng.integers(FEATURES)] = rng.choice([np.nan, np.inf, -np.inf, 0.0])
    hostile = np.repeat(hostile, rows, axis=0)[:rows]
    labels = np.full(rows, rng.integers(CLASSES)) if alike else rng.integers(0, CLASSES, rows)
    silo = data.silos[0]
    larger, smaller = with_last_person(silo.train, hostile, labels)
    theta = 0.1 * rng.normal(size=21)
    vectors = []
    for records in (larger, smaller):
        members = (replace(silo, train=records), *data.silos[1:])
        bench = prepare(built.plan, replace(data, silos=members))
        update = local_updater(built, built.silos[0], bench.data.silos[0].train, bench.model)
        vectors.append(update(theta, SameNoise(smaller.units, seed)).vector)  # type: ignore[arg-type]
    distance = float(np.linalg.norm((vectors[0] - vectors[1]).astype(np.float64)))
    surge = 2.0 if "training.algorithm" in overrides else 1.0
    assert distance <= surge * built.silos[0].l2_grid * (1 + 1e-12)


def test_a_search_for_the_worst_person_reaches_the_declared_sensitivity_and_no_further() -> None:
    """Hill climbing over a person's rows against the real updater: what is declared is tight for a
    full gradient, and rows beyond the first buy nothing.
    """
    data = persons_data()
    built = calibrated(TrainingPlan().with_overrides(BASE | PERSONS), data.facts())
    silo, rng = data.silos[0], np.random.default_rng(0)
    worst = 0.0
    theta, rows = np.zeros(21), 3.0 * rng.normal(size=(4, FEATURES)).astype(np.float32)
    for trial in range(120):
        candidate = rows + (0.5 * rng.normal(size=rows.shape)).astype(np.float32)
        larger, smaller = with_last_person(silo.train, candidate, np.zeros(4, np.int64))
        vectors = [
            local_updater(built, built.silos[0], records, prepare(built.plan, data).model)(
                theta,
                SameNoise(smaller.units, 1),  # type: ignore[arg-type]
            ).vector
            for records in (larger, smaller)
        ]
        distance = float(np.linalg.norm((vectors[0] - vectors[1]).astype(np.float64)))
        assert distance <= built.silos[0].l2_grid
        if distance > worst:
            worst, rows = distance, candidate
        if worst > 0.999 * built.silos[0].l2_grid and trial > 20:
            break
    assert worst > 0.99 * built.silos[0].l2_grid


@pytest.mark.parametrize("overrides", [{}, PASS])
def test_everybodys_rows_ten_times_change_neither_the_noise_nor_the_update(overrides) -> None:
    """The account and the design are the same, and so is the update, up to truncation."""
    data = persons_data()
    plan = TrainingPlan().with_overrides(
        BASE | PERSONS | overrides | {"data.records_per_person": 40}
    )
    repeated = []
    for silo in data.silos:
        train, counts = silo.train, silo.train.rows_per_unit
        order = np.argsort(np.tile(train.persons, 10), kind="stable") % len(train)
        persons = np.repeat(np.arange(len(counts)), 10 * counts)
        repeated.append(replace(silo, train=Records(train.x[order], train.y[order], persons)))
    more = replace(data, silos=tuple(repeated))
    designs = [calibrated(plan, each.facts()) for each in (data, more)]
    assert designs[0].plan.hash == designs[1].plan.hash
    assert designs[0].silos == designs[1].silos
    vectors = []
    for design, each in zip(designs, (data, more), strict=True):
        bench = prepare(design.plan, each)
        update = local_updater(design, design.silos[0], bench.data.silos[0].train, bench.model)
        vectors.append(update(np.zeros(21), RandomSource.simulation(4)).vector)
    units = data.silos[0].train.units
    assert np.abs(vectors[0] - vectors[1]).max() <= (1 if overrides else units)


@pytest.mark.parametrize("overrides", [{}, PASS])
def test_records_of_nobody_or_too_many_of_one_person_are_refused(overrides) -> None:
    data = persons_data()
    plan = TrainingPlan().with_overrides(BASE | PERSONS | overrides)
    built = calibrated(plan, data.facts())
    bench = prepare(built.plan, data)
    own = bench.data.silos[0].train
    with pytest.raises(DataError, match="must say whose they are"):
        local_updater(built, built.silos[0], Records(own.x[:9], own.y[:9]), bench.model)
    crowded = Records(own.x[:9], own.y[:9], np.repeat([0, 1], [5, 4]))
    with pytest.raises(DataError, match="records_per_person = 4 is exceeded"):
        local_updater(built, built.silos[0], crowded, bench.model)
    twice = Records.joined([own, own])
    with pytest.raises(DataError, match=r"has \d+ persons, more than the public bound"):
        local_updater(built, built.silos[0], twice, bench.model)


# -- metrics

TASK = TASKS["classification"]


def test_exact_measures_are_means_over_persons() -> None:
    model = build_model("softmax", shape=(FEATURES,), outputs=CLASSES)
    records = persons_data().silos[0].train
    theta = np.random.default_rng(0).normal(size=21)
    correct = _scores(TASK, model, theta, records)[0]
    means = [correct[records.persons == p].mean() for p in range(records.units)]
    measured = evaluate(model, theta, records, task=TASK)
    assert measured["accuracy"] == pytest.approx(np.mean(means), abs=1e-12)
    assert measured.records == records.units
    # and differs from the mean over rows
    assert abs(np.mean(means) - correct.mean()) > 1e-4


def test_one_row_of_every_person_is_drawn_evenly() -> None:
    counts = np.array([1, 4, 2, 4, 3])
    x = np.arange(counts.sum(), dtype=np.float32)[:, None]
    records = Records(x, np.zeros(len(x), np.int64), np.repeat(np.arange(5), counts))
    source, seen = RandomSource.simulation(2, "rows"), np.zeros(len(x))
    for _ in range(4000):
        drawn = one_row_each(records, source)
        assert len(drawn) == 5
        rows = drawn.x[:, 0].astype(int)
        assert records.persons[rows].tolist() == [0, 1, 2, 3, 4]
        seen[rows] += 1
    expected = 4000 * records.weights()
    assert (np.abs(seen - expected) <= 6 * np.sqrt(expected)).all()
    nobody = small_data().silos[0].train
    assert one_row_each(nobody, source) is nobody


def test_a_test_person_moves_the_counts_by_no_more_than_one_record(
    federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many rows the person has."""
    monkeypatch.setattr(
        Skellam, "sample", lambda self, size, source: np.zeros(size, dtype=np.int64)
    )
    data = persons_data()
    run = federation(PERSONS | {"evaluation.metrics": "secure"}, data=data)
    secure, test = SecureMetrics(run.design), data.silos[0].test
    theta = np.random.default_rng(3).normal(size=21)
    rng = np.random.default_rng(4)
    for rows in (1, 3, 500):
        x = (10.0 * rng.normal(size=(rows, FEATURES))).astype(np.float32)
        person = Records(x, rng.integers(0, CLASSES, rows), np.zeros(rows, np.int64))
        alone = secure.encode(run.bench.model, theta, person, RandomSource())
        assert 0 < np.linalg.norm(alone) <= run.design.plan.task.counts.l2_grid
    everybody = secure.encode(run.bench.model, theta, test, RandomSource())
    place = run.design.plan.task.counts.record_place
    if place is not None:
        assert everybody[place] == test.units * run.design.plan.task.counts.record_grid
    with pytest.raises(DataError, match="must say whose they are"):
        secure.encode(run.bench.model, theta, Records(test.x, test.y), RandomSource())


@pytest.mark.parametrize("overrides", [{}, PASS])
def test_a_comparison_without_privacy_is_measured_in_persons(overrides) -> None:
    data = persons_data()
    plan = TrainingPlan().with_overrides(BASE | PERSONS | overrides)
    design = calibrated(plan, data.facts())
    prepared = prepare(design.plan, data)
    compared = compare(design.plan, data, prepared, prepared.first_parameters)
    assert {each.unit for each in compared} == {"person"}
    assert sum(silo.test for silo in compared[0].silos) == sum(s.test.units for s in data.silos)
    found = baselines_of(compared)
    assert set(found) == {"non_private", "alone_mean", "alone_min", "alone_max"}
    persons = sum(silo.test.units for silo in data.silos)
    rows = sum(len(silo.test) for silo in data.silos)
    assert persons < rows
    # a share of persons who count in twelfths: 1, 2, 3 or 4 rows each
    twelfths = 12 * persons * found["alone_max"]
    assert twelfths == pytest.approx(round(twelfths), abs=1e-6)
