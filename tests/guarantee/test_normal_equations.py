"""Normal equations: one record moves the sum by no more than is declared, the sum is exact, the
solution is that of least squares, and a plan that cannot work is refused in one line.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from torch import nn

from sumus import RunOptions, TrainingPlan, account, train
from sumus.data import FederatedData, Records, from_arrays
from sumus.errors import PlanError, SumusError
from sumus.gradients import add_moments
from sumus.guarantee import calibrated, compare
from sumus.plan import MomentShape
from sumus.plan.moments import LARGEST_MOMENTS
from sumus.randomness import RandomSource
from sumus.runs import Simulation, room
from sumus.tasks import TASKS
from sumus.training import local_updater
from sumus.training.solving import _logit, discriminant, least_squares

DIGITS = {"data.name": "digits", "training.algorithm": "normal-equations", "privacy.epsilon": 4.0}


def moments(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The real vector of one record, by numpy: upper triangle with √2 off the diagonal, then x·y."""
    outer = np.outer(x, x)
    upper = np.triu_indices(len(x))
    triangle = np.where(upper[0] == upper[1], 1.0, math.sqrt(2.0)) * outer[upper]
    return np.concatenate([triangle, np.outer(y, x).reshape(-1)])


def summed(
    x: np.ndarray,
    y: np.ndarray,
    longest: float,
    resolution: int,
    *,
    matrix: np.ndarray | None = None,
    rows: np.ndarray | None = None,
    weights: np.ndarray | None = None,
) -> np.ndarray:
    """The integers of all units; `rows`: how many each has; `matrix`: of two, where it is given."""
    matrices = 1 if matrix is None else 2
    features, outputs = x.shape[1], y.shape[1]
    total = np.zeros(matrices * features * (features + 1) // 2 + features * outputs, np.int64)
    add_moments(
        x.astype(np.float32),
        y.astype(np.float64),
        np.zeros(len(x), np.int64) if matrix is None else matrix,
        np.append(0, np.cumsum(np.ones(len(x), np.int64) if rows is None else rows)),
        np.ones(len(x)) if weights is None else weights,
        matrices,
        longest,
        resolution,
        total,
    )
    return total


# -- one record


@pytest.mark.parametrize("outputs", [2, 3])
def test_every_record_of_a_small_grid_stays_within_the_resolution(outputs: int) -> None:
    """All x in {−1, −½, 0, ½, 1}³ scaled to the ball and all targets of the task, in integers."""
    task, resolution = TASKS["classification"], 1 << 12
    bound = task.target_bound(outputs)
    assert bound is not None
    longest, reached = math.sqrt(1.0 + bound**2), 0
    labels = np.arange(outputs)
    for row in itertools.product((-1.0, -0.5, 0.0, 0.5, 1.0), repeat=3):
        x = np.array(row) / max(1.0, float(np.linalg.norm(row)))
        for target in task.targets(labels, outputs):
            added = summed(x[None], target[None], longest, resolution)
            norm2 = sum(int(value) ** 2 for value in added)
            assert norm2 <= resolution**2
            reached = max(reached, norm2)
    assert reached > (0.999 * resolution) ** 2, "the bound is attained, up to truncation"


def test_targets_are_as_long_as_declared_and_no_longer() -> None:
    for outputs in range(2, 12):
        rows = TASKS["classification"].targets(np.arange(outputs), outputs)
        bound = TASKS["classification"].target_bound(outputs)
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), bound, rtol=1e-12)
    numbers = np.linspace(-1, 1, 9).astype(np.float32)
    assert np.abs(TASKS["regression"].targets(numbers, 1)).max() == 1.0


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_no_record_whatsoever_adds_more_than_the_resolution(data: st.DataObject) -> None:
    """An adversary chooses the record: huge, tiny, infinite, not a number, beyond every bound."""
    features, outputs = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 3))
    numbers = st.floats(width=32) | st.sampled_from([0.0, 1.0, 3e38, -3e38, 1e-45, 0.70710678])
    x = np.array([data.draw(st.lists(numbers, min_size=features, max_size=features))])
    y = np.array([data.draw(st.lists(st.floats(-2, 2), min_size=outputs, max_size=outputs))])
    longest, resolution = data.draw(st.sampled_from([1e-3, 1.0, math.sqrt(2.0)])), 1 << 16
    added = summed(x, y, longest, resolution)
    assert sum(int(value) ** 2 for value in added) <= resolution**2
    if not np.isfinite(x).all():
        assert not added.any()


@pytest.mark.deep
@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_no_person_whatsoever_adds_more_than_the_resolution(data: st.DataObject) -> None:
    """Up to six rows of any classes with weights up to one in all, and beside them another person
    whose integers do not change.
    """
    features, rows = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 6))
    numbers = st.floats(-2, 2, width=32) | st.sampled_from([0.0, 1.0, -1.0, 3e38, math.nan])
    x = np.array(
        [data.draw(st.lists(numbers, min_size=features, max_size=features)) for _ in range(rows)]
    )
    matrix = np.array(data.draw(st.lists(st.integers(0, 1), min_size=rows, max_size=rows)))
    weights = np.full(rows, 1.0 / data.draw(st.integers(rows, 8)))
    none, resolution = np.zeros((rows, 0)), 1 << 16
    added = summed(x, none, 1.0, resolution, matrix=matrix, rows=np.array([rows]), weights=weights)
    assert sum(int(value) ** 2 for value in added) <= resolution**2
    other = np.full((1, features), 0.3)
    both = summed(
        np.vstack([other, x]),
        np.zeros((rows + 1, 0)),
        1.0,
        resolution,
        matrix=np.append(1, matrix),
        rows=np.array([1, rows]),
        weights=np.append(1.0, weights),
    )
    alone = summed(other, none[:1], 1.0, resolution, matrix=np.array([1]))
    np.testing.assert_array_equal(both, alone + added)


def test_rows_that_weigh_more_than_one_in_all_are_shortened_to_the_resolution() -> None:
    """The last line of defence, which does not rest on weights and lengths computed elsewhere."""
    x, resolution = np.array([[0.6, 0.8], [0.6, 0.8]]), 1 << 16
    added = summed(x, np.zeros((2, 0)), 1.0, resolution, rows=np.array([2]), weights=np.ones(2))
    norm2 = sum(int(value) ** 2 for value in added)
    assert (0.999 * resolution) ** 2 < norm2 <= resolution**2


def test_a_long_row_takes_no_more_of_its_person_than_its_weight() -> None:
    """A row beyond its bound counts as one of the declared length, beside the person's others."""
    resolution = 1 << 16
    x = np.array([[100.0, 0.0], [0.0, 1.0]])
    halves = np.full(2, 0.5)
    added = summed(x, np.zeros((2, 0)), 1.0, resolution, rows=np.array([2]), weights=halves)
    assert added.tolist() == [resolution // 2, 0, resolution // 2]


def test_a_persons_rows_are_averaged_and_rounded_once() -> None:
    """One row ten times is that row; and the mean of rows is what numpy's mean rounds to."""
    draw = np.random.default_rng(6)
    x = draw.normal(size=(3, 4)).astype(np.float32)
    x /= 1.01 * np.linalg.norm(x, axis=1, keepdims=True)
    y = draw.uniform(-1, 1, size=(3, 1))
    longest, resolution = math.sqrt(2.0), 1 << 16
    for copies in (2, 10):
        again = summed(
            np.repeat(x[:1], copies, axis=0),
            np.repeat(y[:1], copies, axis=0),
            longest,
            resolution,
            rows=np.array([copies]),
            weights=np.full(copies, 1.0 / copies),
        )
        assert np.abs(again - summed(x[:1], y[:1], longest, resolution)).max() <= 1
    mean = np.mean([moments(x[j].astype(np.float64), y[j]) for j in range(3)], axis=0)
    ours = summed(x, y, longest, resolution, rows=np.array([3]), weights=np.full(3, 1 / 3))
    assert np.abs(ours - np.trunc(mean * resolution / longest)).max() <= 1


@pytest.mark.parametrize("person", [False, True])
@pytest.mark.parametrize("model", ["softmax", "logistic"])
def test_a_search_for_the_worst_unit_does_not_pass_the_declared_length(
    model: str, person: bool
) -> None:
    """Hill climbing on a record, or on the rows of a person, through the real updater: the sum with
    it less the sum without it, under the same noise.
    """
    classes = 2 if model == "logistic" else 3
    draw = np.random.default_rng(0)
    silos = [(draw.normal(size=(30, 6)), np.arange(30) % classes) for _ in range(3)]
    changes = {"training.algorithm": "normal-equations", "training.model": model}
    if person:
        changes |= {"privacy.unit": "person", "data.person_column": "who"}
    plan = TrainingPlan().with_overrides(changes)
    facts = from_arrays(silos).facts()
    design = calibrated(plan, facts)
    silo = design.silos[0]
    few = np.tile(np.eye(7, dtype=np.float32)[0], (20, 1))

    def vector(x: np.ndarray, y: np.ndarray, rows: int) -> np.ndarray:
        persons = np.append(np.arange(20), np.full(rows, 20)) if person else None
        records = Records(
            np.concatenate([few, x.astype(np.float32)]),
            np.append(np.arange(20) % classes, y),
            persons,
        )
        updater = local_updater(design, silo, records, nn.Identity())
        start = np.zeros(design.resolved.dimension)
        return updater(start, RandomSource.simulation(5, "noise")).vector

    rows = 3 if person else 1
    base = vector(np.zeros((0, 7)), np.zeros(0, np.int64), 0)
    x, y, worst = 0.5 * np.tile(np.eye(7)[0], (rows, 1)), draw.integers(classes, size=rows), 0.0
    for _ in range(400):
        trial = x + 0.2 * draw.normal(size=x.shape) * (draw.random(x.shape) < 0.3)
        trial /= np.maximum(1.0, np.linalg.norm(trial, axis=1, keepdims=True))
        labels = np.where(draw.random(rows) < 0.2, draw.integers(classes, size=rows), y)
        length = float(np.linalg.norm((vector(trial, labels, rows) - base).astype(np.float64)))
        assert length <= silo.l2_grid
        if length > worst:
            worst, x, y = length, trial, labels
    assert worst > 0.9 * silo.l2_grid


def test_ten_copies_of_a_persons_rows_change_neither_noise_nor_epsilon() -> None:
    draw = np.random.default_rng(0)
    changes = {
        "training.algorithm": "normal-equations",
        "training.model": "logistic",
        "privacy.unit": "person",
        "data.person_column": "who",
    }
    plan = TrainingPlan().with_overrides(changes)
    x, y = draw.normal(size=(30, 4)), np.arange(30) % 2
    more = [(np.tile(x, (2, 1)), np.tile(y, 2))] * 3
    design = calibrated(plan, from_arrays(more).facts())
    features = np.hstack([x, np.ones((30, 1))])
    features = (features / 1.01 / np.linalg.norm(features, axis=1, keepdims=True)).astype(
        np.float32
    )
    vectors = []
    for copies in (1, 10):
        records = Records(
            np.repeat(features, copies, axis=0),
            np.repeat(y, copies),
            np.repeat(np.arange(30), copies),
        )
        updater = local_updater(design, design.silos[0], records, nn.Identity())
        update = updater(np.zeros(5), RandomSource.simulation(7, "noise"))
        assert update.records == 30
        vectors.append(update.vector)
    assert np.abs(vectors[0] - vectors[1]).max() <= 30  # a grid step a person


@pytest.mark.parametrize("model", ["softmax", "logistic"])
def test_class_weights_weigh_moments(model: str) -> None:
    """A record of a class with weight ½ adds half of what it adds otherwise."""
    draw = np.random.default_rng(0)
    silos = [(draw.normal(size=(30, 3)), np.arange(30) % 2) for _ in range(3)]
    one = np.array([[0.6, 0.0, 0.0, 0.25]], np.float32)
    added = []
    for weights in ([1.0, 1.0], [1.0, 0.5]):
        plan = TrainingPlan().with_overrides(
            {
                "training.algorithm": "normal-equations",
                "training.model": model,
                "training.class_weights": weights,
            }
        )
        design = calibrated(plan, from_arrays(silos).facts())
        vectors = [
            local_updater(design, design.silos[0], Records(x, y), nn.Identity())(
                np.zeros(design.resolved.dimension), RandomSource.simulation(3, "noise")
            ).vector
            for x, y in ((one, np.ones(1, np.int64)), (one[:0], np.zeros(0, np.int64)))
        ]
        added.append(vectors[0] - vectors[1])
    assert added[0].any()
    assert np.abs(added[0] - 2 * added[1]).max() <= 2


# -- the sum and the solution


def test_the_sum_is_exact_in_any_order_and_that_of_numpy() -> None:
    draw = np.random.default_rng(1)
    x = draw.normal(size=(50, 4)) * (draw.random((50, 4)) < 0.6)
    x /= np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True))
    x, y = x.astype(np.float32), draw.uniform(-0.7, 0.7, size=(50, 2))
    resolution, longest = 1 << 16, math.sqrt(2.0)
    order = draw.permutation(50)
    ours = summed(x, y, longest, resolution)
    np.testing.assert_array_equal(ours, summed(x[order], y[order], longest, resolution))
    real = sum(moments(x[j].astype(np.float64), y[j]) for j in range(50)) * resolution / longest
    assert np.abs(ours - real).max() <= 50.0  # a grid step a record


def bounded_records(draw: np.random.Generator, count: int, features: int) -> np.ndarray:
    """Random records of length at most 1 with a bias feature of 0.25."""
    x = draw.normal(size=(count, features))
    return np.hstack([x / (1.04 * np.linalg.norm(x, axis=1).max()), np.full((count, 1), 0.25)])


@pytest.mark.parametrize("outputs", [1, 3])
def test_without_noise_the_model_is_numpys_least_squares(outputs: int) -> None:
    draw = np.random.default_rng(2)
    x = bounded_records(draw, 4000, 4)
    y = np.clip(x @ draw.normal(size=(5, outputs)), -0.5, 0.5)
    total = sum(moments(each, target) for each, target in zip(x, y, strict=True))
    solved = least_squares(total, MomentShape(5, outputs), std=1e-12)
    expected = np.linalg.lstsq(x, y, rcond=None)[0].T
    np.testing.assert_allclose(solved.reshape(outputs, 5), expected, rtol=0, atol=1e-6)


def class_moments(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    none = np.zeros(0)
    return np.concatenate([sum(moments(each, none) for each in x[y == label]) for label in (0, 1)])


@pytest.mark.deep
def test_without_noise_two_gaussian_classes_get_bayes_rule() -> None:
    """Classes with one covariance: the logit is linear, and is found."""
    draw, count = np.random.default_rng(4), 20000
    y = (draw.random(count) < 0.3).astype(np.int64)
    spread = np.array([0.1, 0.2, 0.1, 0.05])
    centres = np.array([[0.0, 0.1, 0.0, 0.02], [0.1, 0.1, -0.1, 0.0]])
    x = np.hstack([centres[y] + spread * draw.normal(size=(count, 4)), np.full((count, 1), 0.25)])
    solved = discriminant(class_moments(x, y), MomentShape(5, 1, 2), std=1e-12, bias=0.25)
    slope = (centres[1] - centres[0]) / spread**2
    truth = x[:, :-1] @ slope - (centres.sum(axis=0) / 2) @ slope + math.log(0.3 / 0.7)
    np.testing.assert_allclose(x @ solved, truth, rtol=0, atol=0.25)
    assert float(np.abs(x @ solved - truth).mean()) < 0.05


def test_the_slope_and_intercept_of_a_score_are_those_of_scikit_learns_logistic_regression() -> (
    None
):
    from sklearn.linear_model import LogisticRegression

    draw, count = np.random.default_rng(5), 400_000
    y = (draw.random(count) < 0.2).astype(np.int64)
    score = np.where(y == 1, 1.0, -1.0) + np.where(y == 1, 0.7, 1.6) * draw.normal(size=count)
    theirs = LogisticRegression(C=1e6).fit(score[:, None], y)
    slope, intercept = _logit([0.8, 0.2], [-1.0, 1.0], [1.6, 0.7])
    assert slope == pytest.approx(theirs.coef_[0, 0], abs=0.02)
    assert intercept == pytest.approx(theirs.intercept_[0], abs=0.03)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_whatever_the_sum_holds_the_model_is_finite(data: st.DataObject) -> None:
    """Noise alone, a class that nobody has, numbers that no records could make."""
    shape = data.draw(st.sampled_from([MomentShape(3, 1, 2), MomentShape(3, 2), MomentShape(1, 1)]))
    numbers = st.floats(-1e12, 1e12) | st.sampled_from([0.0, 1e-300])
    decoded = np.array(data.draw(st.lists(numbers, min_size=shape.count, max_size=shape.count)))
    std = data.draw(st.sampled_from([1e-6, 1.0, 1e6]))
    solved = (
        discriminant(decoded, shape, std=std, bias=0.25)
        if shape.matrices > 1
        else least_squares(decoded, shape, std=std)
    )
    assert solved.shape == (shape.features * shape.outputs,)
    assert np.isfinite(solved).all()


def test_digits_are_learned_in_one_round_through_the_secure_sum(tmp_path: Path) -> None:
    plan = TrainingPlan().with_overrides(DIGITS)
    run = train(plan, options=RunOptions(root=tmp_path, ledger=False), simulation=Simulation(1))
    assert len(run.rounds) == 1
    assert run.metrics["accuracy"] > 0.8
    assert run.rounds[0].saturated == 0
    assert run.account is not None
    assert run.account.analysis == "normal-equations"
    assert run.account.proved


def test_a_number_is_learned_in_one_round_and_a_drop_out_does_no_harm(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    silos = []
    for _ in range(5):
        x = draw.uniform(-1, 1, size=(2000, 3)).astype(np.float32)
        silos.append((x, 5.0 + x @ np.array([2.0, -1.0, 0.5]) + draw.normal(0, 0.3, 2000)))
    plan = TrainingPlan().with_overrides(
        {
            "training.task": "regression",
            "training.algorithm": "normal-equations",
            "data.bounds": {"label": [0.0, 10.0]},
            "privacy.epsilon": 1.0,
            "federation.dropouts": 1,
        }
    )
    for vanishing in ({}, {0: {"masked": frozenset({2})}}):
        options = RunOptions(root=tmp_path, ledger=False, vanishing=vanishing)
        run = train(plan, silos=silos, options=options, simulation=Simulation(1))
        # least squares without noise reaches 0.95 here
        assert run.metrics["r2"] > 0.9


# -- plans


def test_the_account_is_one_gaussian_release_of_the_declared_length() -> None:
    from scipy.optimize import brentq
    from scipy.stats import norm

    plan = TrainingPlan().with_overrides(DIGITS | {"privacy.epsilon": 1.0, "privacy.delta": 1e-4})
    design = calibrated(plan)
    mu = brentq(
        lambda m: norm.cdf(-1 / m + m / 2) - math.e * norm.cdf(-1 / m - m / 2) - 1e-4, 1e-3, 5
    )
    assert design.noise_multiplier == pytest.approx(1.0 / mu, rel=2e-3)
    assert {silo.l2_grid for silo in design.silos} == {65536.0}
    # ten classes: R = 1, B² = 0.9
    assert design.grid.clip_norm == pytest.approx(math.sqrt(1.9))
    assert design.resolved.coordinates == 65 * 66 // 2 + 650
    assert account(plan).epsilon <= 1.0


def test_with_a_matrix_a_class_a_record_counts_its_square_alone() -> None:
    plan = TrainingPlan().with_overrides(
        {
            "training.algorithm": "normal-equations",
            "training.model": "logistic",
            "training.feature_bound": 0.5,
        }
    )
    draw = np.random.default_rng(0)
    design = calibrated(
        plan, from_arrays([(draw.normal(size=(30, 6)), np.arange(30) % 2)] * 3).facts()
    )
    assert design.grid.clip_norm == pytest.approx(0.25)
    assert {silo.l2_grid for silo in design.silos} == {float(design.grid.resolution)}
    assert design.resolved.coordinates == 7 * 8


def test_a_sum_of_moments_is_compared_with_no_algorithm_that_sums_updates() -> None:
    assert compare(calibrated(TrainingPlan().with_overrides(DIGITS))) is None


def test_shapes_follow_from_the_plan_alone_and_other_numbers_are_refused() -> None:
    for features, outputs in itertools.product((1, 2, 7, 234), (1, 2, 10)):
        shape = MomentShape(features, outputs)
        assert MomentShape.of(shape.count, features * outputs, 1) == shape
        classes = MomentShape(features, 1, 2)
        assert classes.count == features * (features + 1)
        assert MomentShape.of(classes.count, features, 2) == classes
    for matrices in (1, 2):
        with pytest.raises(PlanError, match=r"training\.coordinates"):
            MomentShape.of(MomentShape(7, 1, matrices).count + 1, 7, matrices)
    design = calibrated(TrainingPlan().with_overrides(DIGITS))
    with pytest.raises(SumusError, match="training"):
        calibrated(design.plan.replace("training", coordinates=MomentShape(64, 10).count))


def test_what_cannot_work_is_refused_in_one_line() -> None:
    plan = TrainingPlan().with_overrides(DIGITS)
    with pytest.raises(PlanError, match=r'must be softmax, linear, logistic.*Use "linear"'):
        calibrated(plan.with_overrides({"training.model": "mlp"}))
    with pytest.raises(PlanError, match=r"federation\.rounds must be 1"):
        plan.with_overrides({"federation.rounds": 2})
    with pytest.raises(PlanError, match=r'Use "convex-pass", or fewer columns'):
        MomentShape(9000, 1)
    assert MomentShape(8000, 1).count <= LARGEST_MOMENTS
    with pytest.raises(PlanError, match=r"aggregation\.modulus_bits must hold.*Use at least"):
        calibrated(plan.with_overrides({"aggregation.modulus_bits": 24}))


def _wide(silos: int, columns: int, records: int) -> FederatedData:
    x = np.zeros((records, columns), np.float32)
    return from_arrays([(x, np.arange(records) % 2)] * silos)


def test_the_error_of_a_ring_that_is_too_small_names_bits_that_are_enough() -> None:
    plan = TrainingPlan().with_overrides(
        {"training.algorithm": "normal-equations", "training.model": "logistic"}
    )
    facts = dataclasses.replace(_wide(3, 4, 8).facts(), records_per_silo=(10**7,) * 3)
    with pytest.raises(PlanError, match=r"Use at least \d+") as refused:
        calibrated(plan, facts)
    bits = int(re.findall(r"Use at least (\d+)", str(refused.value))[0])
    calibrated(plan.with_overrides({"aggregation.modulus_bits": bits}), facts)
    with pytest.raises(PlanError, match="must hold"):
        calibrated(plan.with_overrides({"aggregation.modulus_bits": bits - 1}), facts)
    most = dataclasses.replace(facts, records_per_silo=(10**12,) * 3)
    fine = {
        "aggregation.modulus_bits": 64,
        "noise.resolution_bits": 22,
        "privacy.epsilon": 20.0,
    }
    with pytest.raises(PlanError, match=r"Lower noise\.resolution_bits by \d+ or more"):
        calibrated(plan.with_overrides(fine), most)


@pytest.mark.parametrize(("columns", "memory"), [(9000, 1e15), (500, 1e6)])
def test_a_matrix_too_large_for_memory_is_refused_and_nothing_is_spent(
    columns: int, memory: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too large for any machine, and for this one."""
    monkeypatch.setattr(room, "_memory", lambda: memory)
    plan = TrainingPlan().with_overrides(
        {"training.algorithm": "normal-equations", "training.model": "logistic"}
    )
    draw = np.random.default_rng(0)
    silos = [(draw.normal(size=(8, columns)), np.arange(8) % 2) for _ in range(3)]
    with pytest.raises(PlanError, match="fewer columns") as refused:
        train(plan, silos=silos, options=RunOptions(root=tmp_path))
    assert "\n" not in str(refused.value)
    assert not list(tmp_path.rglob("*"))
