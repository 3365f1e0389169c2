"""Probabilities of classes that were fitted by least squares: they are the outputs themselves, the
same in every measure, and as often true as they say.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from sumus import RunOptions, TrainingPlan, train
from sumus.predicting import Model
from sumus.runs import Simulation
from sumus.tasks import TASKS, Declared, LabelFacts, Task
from sumus.tasks.least_squares import KNOTS, shares_of_squares

SOLVED = {"training.algorithm": "normal-equations", "privacy.epsilon": 1.0}


def by_squares(classes: int) -> Task:
    return TASKS["classification"].of(Declared({}, classes=classes, squares=True))


def drawn(classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Four features, and a first class that most records have."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(4000, 4)).astype(np.float32)
    weights = np.random.default_rng(7).normal(0.0, 0.6, size=(4, classes))
    logits = x @ weights + np.append(2.2, np.zeros(classes - 1))
    y = (logits + draw.gumbel(size=logits.shape)).argmax(axis=1)
    return x, y


@pytest.mark.parametrize(("classes", "model"), [(2, "linear"), (2, "softmax"), (3, "softmax")])
def test_probabilities_are_as_often_true_as_they_say(
    classes: int, model: str, tmp_path: Path
) -> None:
    plan = TrainingPlan().with_overrides({**SOLVED, "training.model": model})
    options = RunOptions(root=tmp_path, ledger=False)
    silos = [drawn(classes, seed) for seed in range(4)]
    run = train(plan, silos=silos, classes=classes, options=options, simulation=Simulation(1))
    x, y = drawn(classes, 99)
    said = Model.of_run(run.path).predict_proba(x)
    shares = np.bincount(y, minlength=classes) / len(y)
    assert shares.min() < 0.2
    assert said.sum(axis=1) == pytest.approx(np.ones(len(y)))
    assert said.mean(axis=0) == pytest.approx(shares, abs=0.02)
    own = np.eye(classes)[y]
    constant = np.square(shares - own).sum(axis=1).mean()
    assert np.square(said - own).sum(axis=1).mean() < constant
    # what the run has measured on its own test records says the same
    assert run.metrics["brier"] < constant / (2.0 if classes == 2 else 1.0)
    assert run.metrics["calibration_error"] < 0.05
    # the control: a softmax of the same outputs is worse than a constant answer
    flat = torch.from_numpy(said).softmax(dim=1).numpy()
    assert np.square(flat - own).sum(axis=1).mean() > constant


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_shares_are_probabilities_in_the_order_of_the_outputs(data: st.DataObject) -> None:
    number = st.floats(-1e6, 1e6, allow_nan=False)
    classes = data.draw(st.integers(2, 6))
    outputs = torch.tensor(
        [data.draw(st.lists(number, min_size=classes, max_size=classes))], dtype=torch.float64
    )
    shares = shares_of_squares(outputs)
    assert shares.sum().item() == pytest.approx(1.0)
    assert shares.min() > 0.0
    order = outputs[0].argsort()
    assert (shares[0][order].diff() >= 0.0).all()


def test_outputs_within_the_ends_are_the_probabilities_themselves() -> None:
    p = np.array([[0.9, 0.1], [0.02, 0.98], [0.5, 0.5]])
    for shift in (0.0, -0.5, 3.0):
        told = shares_of_squares(torch.from_numpy(p + shift)).numpy()
        assert told == pytest.approx(p)
    low, high = (torch.tensor([[1.0 - k, k]], dtype=torch.float64) for k, _ in KNOTS[::3])
    assert shares_of_squares(low)[0, 1].item() == pytest.approx(KNOTS[0][1])
    assert shares_of_squares(high)[0, 1].item() == pytest.approx(KNOTS[3][1])
    assert shares_of_squares(torch.tensor([[np.nan, 0.0]])).isnan().all()


@pytest.mark.parametrize("classes", [2, 3])
def test_every_measure_reads_the_same_probabilities(classes: int) -> None:
    """In the clear, in the counts of secure metrics, and in predictions."""
    draw, task = np.random.default_rng(0), by_squares(classes)
    outputs = torch.from_numpy(draw.normal(0.0, 0.3, size=(3000, classes)))
    labels = torch.from_numpy(draw.integers(0, classes, 3000))
    scores = [each.numpy() for each in task.scores(outputs, labels)]
    names = LabelFacts(tuple(map(str, range(classes))))
    told = task.predictions(outputs, names)
    shares = np.stack([told[f"probability:{name}"] for name in names.names], axis=1)
    assert shares == pytest.approx(shares_of_squares(outputs).numpy())
    own = shares[np.arange(3000), labels]
    exact = task.exact(*scores)
    squares = np.square(shares - np.eye(classes)[labels]).sum(axis=1).mean()
    assert exact["brier"] == pytest.approx(squares / (2.0 if classes == 2 else 1.0))
    assert exact["loss"] == pytest.approx(-np.log(own).mean())
    assert exact["accuracy"] == np.mean(told["prediction"] == labels.numpy())
    counted = task.count(*scores).sum(axis=0).astype(np.float64)
    measured = task.measured(counted, noise_std_grid=0.0)
    assert measured["accuracy"] == pytest.approx(exact["accuracy"])
    assert measured["brier"] == pytest.approx(exact["brier"], abs=0.005)
    assert measured["calibration_error"] == pytest.approx(exact["calibration_error"], abs=0.02)


def test_only_outputs_that_were_fitted_by_squares_are_read_so() -> None:
    def squares(**training: str) -> bool:
        overrides = {f"training.{key}": value for key, value in training.items()}
        return getattr(TrainingPlan().with_overrides(overrides).task, "squares", False)

    assert squares(algorithm="normal-equations", model="linear")
    assert squares(algorithm="normal-equations", model="softmax")
    assert not squares(algorithm="normal-equations", model="logistic")
    assert not squares(algorithm="convex-pass", model="softmax")
    # models without privacy are fitted by the loss, whatever the plan's algorithm
    assert not by_squares(2).by_loss().squares
    assert by_squares(2).by_loss().classes == 2


def test_a_test_record_adds_no_more_to_secure_counts() -> None:
    assert by_squares(2).counts == TASKS["classification"].of(Declared({}, classes=2)).counts
