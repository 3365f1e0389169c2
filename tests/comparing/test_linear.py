"""Linear models without privacy are the minimisers that they say they are."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from sklearn.linear_model import LogisticRegression, Ridge

from sumus.comparing.design import LinearDesign, Scale
from sumus.comparing.linear import fitted_weights, mean_loss
from sumus.comparing.tuned import LinearFamily, at_most, folds_of
from sumus.data import Records
from sumus.randomness import RandomSource
from sumus.tasks import TASKS, Declared, Task


def _records(classes: int, *, seed: int = 0, persons: bool = False) -> Records:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(240, 4)).astype(np.float32) * np.array([1, 10, 0.1, 1], np.float32)
    x[:, 3] = 2.0  # a constant column
    scores = x[:, :3] @ rng.normal(size=(3, classes)) / [1.0] + rng.gumbel(size=(240, classes))
    y = scores.argmax(axis=1).astype(np.int64)
    return Records(x, y, np.repeat(np.arange(80), 3) if persons else None)


@pytest.mark.parametrize(("classes", "outputs"), [(2, 1), (2, 2), (4, 4)])
def test_classification_is_scikit_learns_logistic_regression(classes: int, outputs: int) -> None:
    records, task = _records(classes), TASKS["classification"]
    scale = Scale.of(records.x)
    design = LinearDesign.of(task, records, scale, outputs)
    penalty = 3.0
    weights = fitted_weights(design, penalty)
    oracle = LogisticRegression(C=1.0 / penalty, tol=1e-10, max_iter=10_000)
    if (classes, outputs) == (2, 2):  # two rows of weights share what one row carries
        oracle = LogisticRegression(C=2.0 / penalty, tol=1e-10, max_iter=10_000)
    oracle.fit(scale(records.x)[:, :3], records.y)
    z = design.x @ weights
    ours = 1.0 / (1.0 + np.exp(-z[:, 0])) if outputs == 1 else None
    if ours is None:
        shares = np.exp(z - z.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(shares, oracle.predict_proba(scale(records.x)[:, :3]), atol=2e-3)
    else:
        np.testing.assert_allclose(
            ours, oracle.predict_proba(scale(records.x)[:, :3])[:, 1], atol=2e-3
        )
    assert np.allclose(weights[3], 0.0), "a constant column has a weight"


def test_regression_is_ridge_and_a_persons_rows_weigh_one_together() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(120, 3)).astype(np.float32)
    y = np.clip(x @ [0.2, -0.1, 0.0] + 0.1 * rng.normal(size=120), -1, 1).astype(np.float32)
    persons = np.repeat(np.arange(50), [1, 2, 3, 4, 2] * 10)
    records, scale = Records(x, y, persons), Scale.of(x)
    design = LinearDesign.of(TASKS["regression"], records, scale, 1)
    found = fitted_weights(design, 0.5)
    oracle = Ridge(alpha=0.5).fit(scale(x)[:, :3], y, sample_weight=records.weights("mean"))
    np.testing.assert_allclose(found[:3, 0], oracle.coef_, atol=1e-4)
    assert design.weights.sum() == pytest.approx(50)


def _task(name: str) -> tuple[Task, np.ndarray, int]:
    """A task, its stored labels for 200 records, and outputs of its linear model."""
    rng = np.random.default_rng(2)
    if name == "survival":
        task = TASKS["survival"].of(Declared({}, intervals=(1.0, 2.0, 3.0)))
        return task, rng.integers(0, 7, 200), 3
    if name == "counts":
        task = TASKS["counts"].of(Declared({"label_column": "y"}, bounds={"y": (0.0, 9.0)}))
        return task, (rng.integers(0, 10, 200) / 9.0).astype(np.float32), 1
    task = TASKS["classification"].of(Declared({"label_column": "y"}, class_weights=(1.0, 3.0)))
    return task, rng.integers(0, 2, 200), 2


@pytest.mark.parametrize("name", ["survival", "counts", "class weights"])
def test_the_gradient_of_the_tasks_own_loss_vanishes_where_the_fit_ends(name: str) -> None:
    task, y, outputs = _task(name)
    x = np.random.default_rng(3).normal(size=(200, 3)).astype(np.float32)
    model = LinearFamily(task, outputs).fitted(Records(x, y), RandomSource.simulation(0))
    penalties = (300.0, 30.0, 3.0, 0.3, 0.03)
    flat = torch.tensor(model.weights, requires_grad=True)
    scaled = torch.from_numpy(model.scale(x))
    z = scaled[:, :-1] @ flat[:3] + flat[3:].T if task.shared_slopes else scaled @ flat
    (gradient,) = torch.autograd.grad(task.loss(z, torch.from_numpy(y)).sum(), flat)
    slopes = model.weights[:3].reshape(-1)
    pull = gradient[:3].reshape(-1).numpy()
    closest = min(np.abs(pull + penalty * slopes).max() for penalty in penalties)
    assert closest < 0.05


def test_the_penalty_is_chosen_on_units_that_were_not_fitted_to() -> None:
    """Labels of pure chance: the strongest penalty is the best guess."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(90, 20)).astype(np.float32)
    records = Records(x, rng.integers(0, 2, 90))
    family = LinearFamily(TASKS["classification"], 1)
    model = family.fitted(records, RandomSource.simulation(0))
    loose = fitted_weights(LinearDesign.of(family.task, records, model.scale, 1), 0.03)
    assert np.abs(model.weights[:-1]).max() < 0.3 * np.abs(loose[:-1]).max()
    fresh = Records(rng.normal(size=(500, 20)).astype(np.float32), rng.integers(0, 2, 500))
    unseen = LinearDesign.of(family.task, fresh, model.scale, 1)
    assert mean_loss(unseen, model.weights) < mean_loss(unseen, loose)


@given(st.integers(2, 60), st.integers(2, 5))
def test_folds_share_nobody_and_leave_nobody_out(units: int, folds: int) -> None:
    parts = folds_of(units, folds, RandomSource.simulation(0))
    assert sorted(unit for _, left in parts for unit in left.tolist()) == list(range(units))
    for kept, left in parts:
        assert not set(kept.tolist()) & set(left.tolist())
        assert len(kept) + len(left) == units


def test_a_part_of_many_rows_holds_whole_persons() -> None:
    records = _records(2, persons=True)
    part = at_most(records, 60, RandomSource.simulation(0))
    assert set(part.rows_per_unit.tolist()) == {3}
    assert len(part) == 60
    assert at_most(records, 240, RandomSource.simulation(0)) is records


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_few_records_of_one_class_still_make_a_model(rows: int) -> None:
    records = Records(np.zeros((rows, 2), np.float32), np.ones(rows, dtype=np.int64))
    if not rows:
        return
    model = LinearFamily(TASKS["classification"], 1).fitted(records, RandomSource.simulation(0))
    assert torch.isfinite(model.outputs(records.x)).all()
    assert (model.outputs(records.x) > 0).all()
