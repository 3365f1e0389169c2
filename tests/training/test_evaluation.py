"""Secure metrics: one test record moves the counts by at most what is accounted, whatever the
others are.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from sumus.data import Records, from_arrays
from sumus.errors import PlanError
from sumus.guarantee import count_noise
from sumus.guarantee.counts import count_release
from sumus.noise import Skellam
from sumus.randomness import RandomSource
from sumus.tasks import TASKS, Declared
from sumus.tasks.classification import LOSS_CAP
from sumus.training import SecureMetrics, evaluate
from sumus.training.evaluation import _scores
from sumus.training.models import build_model
from support.small_federation import SmallFederation

FEATURES, CLASSES = 6, 3
TASK = TASKS["classification"].of(Declared({}, classes=CLASSES))
METRIC_COORDINATES, COUNT_SENSITIVITY = TASK.counts.length, TASK.counts.l2_grid


def _records(count: int, seed: int, scale: float) -> Records:
    generator = np.random.default_rng(seed)
    return Records(
        (scale * generator.normal(size=(count, FEATURES))).astype(np.float32),
        generator.integers(0, CLASSES, count),
    )


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 150), st.integers(0, 1000), st.sampled_from([1e-3, 1.0, 1e4]), st.data())
def test_a_removed_record_changes_no_other_records_result(
    count: int, seed: int, scale: float, data: st.DataObject
) -> None:
    model = build_model("mlp", shape=(FEATURES,), outputs=CLASSES, hidden=(5,))
    records, gone = _records(count, seed, scale), data.draw(st.integers(0, count - 1))
    parameters = np.random.default_rng(seed).normal(size=sum(p.numel() for p in model.parameters()))
    kept = np.delete(np.arange(count), gone)
    scores = _scores(TASK, model, parameters, records)
    correct, losses, *_ = scores
    if len(kept):
        again = _scores(TASK, model, parameters, Records(records.x[kept], records.y[kept]))
        for score, other in zip(scores, again, strict=True):
            assert np.array_equal(score[kept], other)
    plain = evaluate(model, parameters, records, task=TASK)
    assert plain["accuracy"] == pytest.approx(correct.mean(), abs=2.0 / count)
    assert plain["loss"] == pytest.approx(losses.mean(), rel=1e-4)


@pytest.fixture
def counted(
    federation: Callable[..., SmallFederation], monkeypatch: pytest.MonkeyPatch
) -> Callable[[Records], np.ndarray]:
    """A silo's counts without their noise, through the code that a silo runs, under one fixed
    model.
    """
    monkeypatch.setattr(
        Skellam, "sample", lambda self, size, source: np.zeros(size, dtype=np.int64)
    )
    run = federation({"evaluation.metrics": "secure"})
    parameters = np.random.default_rng(3).normal(size=len(run.server.parameters))

    def count(records: Records) -> np.ndarray:
        vector = SecureMetrics(run.design).encode(
            run.bench.model, parameters, records, RandomSource()
        )
        assert not vector[METRIC_COORDINATES:].any()
        return vector[:METRIC_COORDINATES]

    return count


def _spoilt(records: Records, seed: int) -> Records:
    """Some records with values that make logits huge, infinite or not a number."""
    draw = np.random.default_rng(seed)
    x = records.x.copy()
    places = draw.random(x.shape) < 0.1
    x[places] = draw.choice(
        np.array([np.nan, np.inf, -np.inf, 3e38, -3e38, 1e30, 0.0], dtype=np.float32), places.sum()
    )
    return Records(x, records.y)


@pytest.mark.parametrize("seed", [0, 2, 4])
def test_one_record_moves_the_counts_by_at_most_the_accounted_length(
    counted: Callable[[Records], np.ndarray], seed: int
) -> None:
    records = _spoilt(_records(15, seed, 10.0**seed), seed)
    whole = counted(records)
    for gone in range(15):
        kept = np.delete(np.arange(15), gone)
        moved = whole - counted(Records(records.x[kept], records.y[kept]))
        # in integers: no rounding hides an excess
        assert int((moved**2).sum()) <= COUNT_SENSITIVITY**2


def test_the_accounted_length_is_reached_and_never_passed_by_a_search(
    counted: Callable[[Records], np.ndarray],
) -> None:
    """Hill climbing on one record against a silo of twenty."""
    draw = np.random.default_rng(0)
    others = _records(20, 1, 3.0)
    before = counted(others)
    longest = 0
    for start in range(CLASSES):
        x, best = draw.normal(size=(1, FEATURES)).astype(np.float32), -1
        for _ in range(12):
            candidate = (x * draw.choice([0.5, 2.0, 4.0]) + draw.normal(size=x.shape)).astype(
                np.float32
            )
            joined = Records(
                np.concatenate([others.x, candidate]), np.append(others.y, start % CLASSES)
            )
            length = int(((counted(joined) - before) ** 2).sum())
            assert length <= COUNT_SENSITIVITY**2
            if length >= best:
                x, best = candidate, length
        longest = max(longest, best)
    # all but what the spread over silos moves by, which is most where all are wrong or all right
    assert longest >= COUNT_SENSITIVITY**2 - 112**2 - 2 * COUNT_SENSITIVITY


def test_the_accounted_length_is_reached(
    counted: Callable[[Records], np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nine records that are certainly wrong, and a right one more: the spread moves by half a
    record, and everything else by all it has.
    """
    hopeless = Records(
        np.full((9, FEATURES), np.nan, dtype=np.float32), np.zeros(9, dtype=np.int64)
    )
    certain = [
        Records(np.full((1, FEATURES), size, dtype=np.float32), np.array([label]))
        for size in (1e20, -1e20)
        for label in range(CLASSES)
    ]
    before = counted(hopeless)
    moved = [
        counted(Records(np.concatenate([hopeless.x, one.x]), np.append(hopeless.y, one.y))) - before
        for one in certain
    ]
    longest = max(int((each**2).sum()) for each in moved)
    assert longest <= COUNT_SENSITIVITY**2
    assert longest >= 0.98 * COUNT_SENSITIVITY**2


@pytest.mark.parametrize("seed", [0, 2, 4])
def test_so_it_is_with_two_classes(
    federation: Callable[..., SmallFederation], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """The tree over scores through the code that a silo runs: records that are removed one by one,
    of which some are huge, infinite or not a number.
    """
    monkeypatch.setattr(
        Skellam, "sample", lambda self, size, source: np.zeros(size, dtype=np.int64)
    )
    draw = np.random.default_rng(seed)
    parts = [
        (draw.normal(size=(40, FEATURES)).astype(np.float32), np.arange(40) % 2) for _ in range(3)
    ]
    run = federation({"evaluation.metrics": "secure"}, data=from_arrays(parts, tests=parts))
    task, secure = run.design.plan.task, SecureMetrics(run.design)
    assert run.design.plan.evaluation.classes == 2
    parameters = draw.normal(size=len(run.server.parameters))
    records = _spoilt(_records(15, seed, 10.0**seed), seed)
    records = Records(records.x, records.y % 2)

    def counts(kept: np.ndarray) -> np.ndarray:
        chosen = Records(records.x[kept], records.y[kept])
        vector = secure.encode(run.bench.model, parameters, chosen, RandomSource())
        return vector[: task.counts.length]

    whole, longest = counts(np.arange(15)), 0
    for gone in range(15):
        moved = whole - counts(np.delete(np.arange(15), gone))
        longest = max(longest, int((moved**2).sum()))
    assert 0.9 * task.counts.l2_grid**2 < longest <= task.counts.l2_grid**2


@pytest.mark.parametrize("classes", [2, 3, 40])
def test_the_length_of_one_records_counts_is_that_of_its_entries(classes: int) -> None:
    """The oracle: how often every weight occurs in a row, on 56 grid steps per unit."""
    task = TASKS["classification"].of(Declared({}, classes=classes))
    losses = [0.0, 1e-300, 1.0, 2.0, 3.999, LOSS_CAP, 1e300, np.inf, -np.inf, -1.0, np.nan]
    said = [0.0, 1e-300, -0.3, 5.0, -1e300, np.inf, -np.inf, np.nan]
    paths = 7 if classes == 2 else 0  # a node of each level, of which the first is right or wrong
    entries = 2 * 9**2 + 3**2 + 2**2 + 2**2  # the last is the spread over silos
    entries += 3**2 * (paths - 1) if paths else 4**2 + 3**2 + 4**2 + 3**2
    assert task.counts.l2_grid == math.isqrt(56**2 * entries - 1) + 1
    for right, loss, value in itertools.product((False, True), losses, said):
        says = np.array([value]) if classes == 2 else np.full((1, classes), value)
        row = task.count(np.array([right]), np.array([loss]), np.array([1]), says)[0]
        assert row[0] == 9 * 56
        assert row[1] == (9 * 56 if right and not math.isnan(loss) else -9 * 56)
        assert abs(row[2]) <= 3 * 56
        assert abs(row[3]) <= 2 * 56
        assert row[4] == 0  # silos add that
        detail = sorted(abs(int(each)) // 56 for each in row[5:] if each)
        expected = [3] * 6 if classes == 2 else [3, 3, 4, 4]
        assert detail == expected or (classes == 40 and row[1] < 0 and detail == [3, 3, 4])
        assert sum(int(each) ** 2 for each in row) <= task.counts.l2_grid**2


def test_a_logit_that_is_not_a_number_counts_as_wrong_and_as_the_cap(
    counted: Callable[[Records], np.ndarray],
) -> None:
    """torch calls NaN the largest logit, so the class that it stands for would count as right."""
    x = np.full((CLASSES, FEATURES), np.nan, dtype=np.float32)
    assert counted(Records(x, np.arange(CLASSES))).tolist()[:4] == [
        504 * CLASSES,
        -504 * CLASSES,
        168 * CLASSES,
        112 * CLASSES,
    ]
    model = build_model("softmax", shape=(FEATURES,), outputs=CLASSES)
    parameters = np.ones(sum(each.numel() for each in model.parameters()))
    assert evaluate(model, parameters, Records(x, np.arange(CLASSES)), task=TASK)["accuracy"] == 0.0


@pytest.mark.parametrize("mechanism", ["skellam", "discrete-gaussian"])
def test_the_noise_on_the_counts_is_the_noise_that_is_accounted(
    federation: Callable[..., SmallFederation], mechanism: str
) -> None:
    run = federation(
        {"evaluation.metrics": "secure", "noise.mechanism": mechanism, "federation.colluding": 1}
    )
    plan, empty = run.design.plan, _records(0, 0, 1.0)
    law = count_noise(plan)
    drawn = SecureMetrics(run.design).encode(
        run.bench.model, run.server.parameters, empty, RandomSource.simulation(4)
    )
    assert (
        drawn[:METRIC_COORDINATES].tolist()
        == law.sample(METRIC_COORDINATES, RandomSource.simulation(4)).tolist()
    )
    assert len(drawn) == max(METRIC_COORDINATES, len(run.server.parameters))
    (step,) = count_release(plan, measurements=1)
    accounted = step.gaussian_multiplier * COUNT_SENSITIVITY
    assert accounted <= math.sqrt(plan.noise_contributors * law.variance_grid) <= 1.0001 * accounted
    assert plan.noise_contributors == 2


def test_decoded_counts_are_within_their_bounds_as_often_as_they_say(
    federation: Callable[..., SmallFederation],
) -> None:
    """2,000 sums with real noise: the truth of these records is inside in more than 90 of 100, or
    by chance below 1e-14 not.
    """
    run = federation({"evaluation.metrics": "secure", "privacy.epsilon": 0.3})
    draw = np.random.default_rng(2)
    labels, logits = draw.integers(0, CLASSES, 150), torch.from_numpy(draw.normal(size=(150, 3)))
    logits[torch.arange(150), torch.from_numpy(labels)] += 1.5
    scores = [score.numpy() for score in TASK.scores(logits, torch.from_numpy(labels))]
    exact = TASK.count(*scores).sum(axis=0)
    noise = (
        count_noise(run.design.plan)
        .sample((2000, 4, METRIC_COORDINATES), RandomSource())
        .sum(axis=1)
    )
    found = [SecureMetrics(run.design).decode(exact + each, survivors=4) for each in noise]
    truth = TASK.exact(*scores) | {"loss": float(np.minimum(scores[1], LOSS_CAP).mean())}
    names = {"accuracy", "loss", "brier", "calibration_error"}
    assert set(found[0].values) == names | {"accuracy_spread"}
    for name in names:
        inside = [abs(each[name] - truth[name]) <= each.plus_minus[name] for each in found]
        assert np.mean(inside) > 0.9, name
    alone = [SecureMetrics(run.design).decode(exact + each, survivors=1) for each in noise]
    half = np.mean(
        [
            one.plus_minus["accuracy"] / each.plus_minus["accuracy"]
            for one, each in zip(alone, found, strict=True)
        ]
    )
    assert half < 0.8, "four silos' noise counts as that of four"


@pytest.mark.parametrize("empty", [1, 3])
def test_silos_without_test_records_take_part_in_metrics(
    federation: Callable[..., SmallFederation], empty: int
) -> None:
    draw = np.random.default_rng(1)
    train = [
        (draw.normal(size=(40, FEATURES)).astype(np.float32), draw.integers(0, CLASSES, 40))
        for _ in range(3)
    ]
    tests = [
        (part[0][: 0 if silo < empty else 30], part[1][: 0 if silo < empty else 30])
        for silo, part in enumerate(train)
    ]
    run = federation(
        {"evaluation.metrics": "secure", "federation.rounds": 1, "privacy.epsilon": 8.0},
        data=from_arrays(train, tests=tests),
    )
    found = run.round(0).metrics
    assert found is not None
    assert 0.0 <= found["accuracy"] <= 1.0
    if empty == 3:
        assert found.plus_minus["accuracy"] > 0.3


def test_counts_of_single_records_are_no_guarantee_for_a_silo(
    federation: Callable[..., SmallFederation],
) -> None:
    with pytest.raises(PlanError, match=r"evaluation\.metrics"):
        federation(
            {"evaluation.metrics": "secure", "training.algorithm": "silo", "privacy.unit": "silo"}
        )
