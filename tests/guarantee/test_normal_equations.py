"""Normal equations: one record moves the sum by no more than is declared, the sum is exact, the
solution is that of least squares, and a plan that cannot work is refused in one line.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from sumus import RunOptions, TrainingPlan, account, train
from sumus.data import Records, load
from sumus.errors import PlanError, SumusError
from sumus.gradients import add_moments
from sumus.guarantee import calibrated
from sumus.plan import moment_shape
from sumus.plan.sizes import LARGEST_MOMENTS, moment_count
from sumus.randomness import RandomSource
from sumus.runs import Simulation
from sumus.tasks import TASKS
from sumus.training import local_updater, prepare
from sumus.training.solving import solved_model

DIGITS = {"data.name": "digits", "training.algorithm": "normal-equations", "privacy.epsilon": 4.0}


def moments(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The real vector of one record, by numpy: upper triangle with √2 off the diagonal, then x·y."""
    outer = np.outer(x, x)
    upper = np.triu_indices(len(x))
    triangle = np.where(upper[0] == upper[1], 1.0, math.sqrt(2.0)) * outer[upper]
    return np.concatenate([triangle, np.outer(y, x).reshape(-1)])


def summed(x: np.ndarray, y: np.ndarray, longest: float, resolution: int) -> np.ndarray:
    features, outputs = x.shape[1], y.shape[1]
    total = np.zeros(moment_count(features, outputs), np.int64)
    add_moments(x.astype(np.float32), y.astype(np.float64), longest, resolution, total)
    return total


# -- one record


@pytest.mark.parametrize("outputs", [1, 2, 3])
def test_every_record_of_a_small_grid_stays_within_the_resolution(outputs: int) -> None:
    """All x in {−1, −½, 0, ½, 1}³ scaled to the ball and all targets of the task, in integers."""
    task, resolution = TASKS["classification"], 1 << 12
    bound = task.target_bound(outputs)
    assert bound is not None
    longest, reached = math.sqrt(1.0 + bound**2), 0
    labels = np.arange(max(outputs, 2))
    for row in itertools.product((-1.0, -0.5, 0.0, 0.5, 1.0), repeat=3):
        x = np.array(row) / max(1.0, float(np.linalg.norm(row)))
        for target in task.targets(labels, outputs):
            added = summed(x[None], target[None], longest, resolution)
            norm2 = sum(int(value) ** 2 for value in added)
            assert norm2 <= resolution**2
            reached = max(reached, norm2)
    assert reached > (0.999 * resolution) ** 2, "the bound is attained, up to truncation"


def test_targets_are_as_long_as_declared_and_no_longer() -> None:
    for outputs in range(1, 12):
        rows = TASKS["classification"].targets(np.arange(max(outputs, 2)), outputs)
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


def test_a_search_for_the_worst_record_does_not_pass_the_declared_length() -> None:
    """Hill climbing on the record through the real updater without noise: the sum with it less the
    sum without it.
    """
    design = calibrated(TrainingPlan().with_overrides(DIGITS))
    bench = prepare(design.plan, load(design.plan))
    silo, train = design.silos[0], bench.data.silos[0].train
    few = Records(train.x[:30], train.y[:30])
    quiet = RandomSource.simulation(5, "noise")

    def vector(records: Records) -> np.ndarray:
        updater = local_updater(design, silo, records, bench.model)
        return updater(bench.first_parameters, RandomSource.simulation(5, "noise")).vector

    assert quiet.bytes(8) == RandomSource.simulation(5, "noise").bytes(8)
    base, draw, worst = vector(few), np.random.default_rng(0), 0.0
    x = np.zeros(train.x.shape[1], np.float32)
    x[0] = 1.0
    for _ in range(40):
        trial = (x + 0.3 * draw.normal(size=len(x)) * (draw.random(len(x)) < 0.1)).astype(
            np.float32
        )
        trial /= max(1.0, float(np.linalg.norm(trial)))
        with_record = Records(
            np.concatenate([few.x, trial[None]]), np.append(few.y, draw.integers(10))
        )
        length = float(np.linalg.norm((vector(with_record) - base).astype(np.float64)))
        assert length <= silo.l2_grid
        if length > worst:
            worst, x = length, trial
    assert worst > 0.95 * silo.l2_grid


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


@pytest.mark.parametrize("outputs", [1, 3])
def test_without_noise_the_model_is_numpys_least_squares(outputs: int) -> None:
    draw = np.random.default_rng(2)
    x = draw.normal(size=(4000, 5))
    x /= 1.01 * np.linalg.norm(x, axis=1).max()
    y = np.clip(x @ draw.normal(size=(5, outputs)), -0.5, 0.5)
    total = sum(moments(each, target) for each, target in zip(x, y, strict=True))

    class Quiet:
        """A design whose noise is next to nothing."""

        class resolved:  # noqa: N801 - stands for an attribute
            coordinates, dimension, contributors = moment_count(5, outputs), 5 * outputs, 3

        class plan:  # noqa: N801
            class noise:  # noqa: N801
                removable = False

        class share:  # noqa: N801
            variance_grid = 1e-18

        class grid:  # noqa: N801
            granularity = 1.0

    solved = solved_model(Quiet, total, 3).reshape(outputs, 5)  # type: ignore[arg-type]
    expected = np.linalg.lstsq(x, y, rcond=None)[0].T
    np.testing.assert_allclose(solved, expected, rtol=0, atol=1e-6)


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


def test_shapes_follow_from_the_plan_alone_and_other_numbers_are_refused() -> None:
    for features, outputs in itertools.product((1, 2, 7, 234), (1, 2, 10)):
        found = moment_shape(moment_count(features, outputs), features * outputs)
        assert found == (features, outputs)
    with pytest.raises(PlanError, match=r"training\.coordinates"):
        moment_shape(moment_count(7, 2) + 1, 14)
    design = calibrated(TrainingPlan().with_overrides(DIGITS))
    with pytest.raises(SumusError, match="training"):
        calibrated(design.plan.replace("training", coordinates=moment_count(64, 10)))


def test_what_cannot_work_is_refused_in_one_line() -> None:
    plan = TrainingPlan().with_overrides(DIGITS)
    with pytest.raises(PlanError, match=r'must be softmax, linear, logistic.*Use "linear"'):
        calibrated(plan.with_overrides({"training.model": "mlp"}))
    with pytest.raises(PlanError, match=r"federation\.rounds must be 1"):
        plan.with_overrides({"federation.rounds": 2})
    with pytest.raises(PlanError, match=r'Use "convex-pass", or fewer columns'):
        moment_count(9000, 1)
    assert moment_count(8000, 1) <= LARGEST_MOMENTS
    with pytest.raises(PlanError, match=r"aggregation\.modulus_bits must hold.*Use at least"):
        calibrated(plan.with_overrides({"aggregation.modulus_bits": 24}))
