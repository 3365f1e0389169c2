"""Regression: targets stay within their bounds, one record moves a pass and the sums by no more than
is declared, and R² and mean absolute error are those of a direct computation.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy.special import huber

from sumus import RunOptions, TrainingPlan, account, train
from sumus.data import from_arrays, load
from sumus.errors import DataError, PlanError
from sumus.runs import Simulation
from sumus.tasks import TASKS, Declared, LabelFacts, Regression
from sumus.tasks.regression import SUM_SENSITIVITY
from sumus.training.local.convex_pass import convex_pass

REGRESSION = TASKS["regression"]
RECORDS = 900


def table(folder: Path, *, records: int = RECORDS, extra: str = "") -> Path:
    """Costs that are linear in two columns, with noise of a fifth of their spread."""
    draw = np.random.default_rng(3)
    x = draw.uniform(0, 10, size=(records, 2))
    y = 100.0 + 20.0 * x[:, 0] - 12.0 * x[:, 1] + draw.normal(0, 15.0, records)
    rows = [f"{'abc'[i % 3]},{x[i, 0]:.4f},{x[i, 1]:.4f},{y[i]:.4f}\n" for i in range(records)]
    file = folder / "costs.csv"
    file.write_text("site,first,second,cost\n" + "".join(rows) + extra)
    return file


def plan_for(file: Path, **overrides: object) -> TrainingPlan:
    table = {
        "training": {"task": "regression"},
        "data": {
            "path": str(file),
            "silo_column": "site",
            "label_column": "cost",
            "bounds": {"cost": [-50.0, 350.0], "first": [0.0, 10.0], "second": [0.0, 10.0]},
        },
    }
    return TrainingPlan.from_table(table).with_overrides(overrides)


# -- targets


def test_a_target_beyond_its_bounds_counts_as_the_nearest_and_is_told_as_a_number_only(
    tmp_path: Path,
) -> None:
    file = table(tmp_path, extra="a,1,1,98765.4321\nb,1,1,-98765.4321\nc,2,2,inf\n")
    data = load(plan_for(file))
    targets = np.concatenate([part.y for silo in data.silos for part in (silo.train, silo.test)])
    assert targets.dtype == np.float32
    assert targets.min() == -1.0
    assert targets.max() == 1.0
    assert data.remarks == ("3 targets lie beyond data.bounds.cost and count as the nearest bound",)
    assert not any("98765" in line for line in (*data.remarks, *data.assumptions))


def test_a_missing_target_is_named_by_its_record_and_a_word_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"no value in 1 records, first in record {RECORDS + 1}"):
        load(plan_for(table(tmp_path, extra="a,1,1,\n")))
    with pytest.raises(DataError, match="is not a number") as told:
        load(plan_for(table(tmp_path, extra="a,1,1,secret-word\n")))
    assert "secret-word" not in str(told.value)


def test_bounds_of_the_target_must_be_declared(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"data\.bounds\.cost must say.*Add cost = \[low, high\]"):
        plan_for(table(tmp_path), **{"data.bounds.cost": None})


def test_a_quantity_is_never_silently_a_class_and_is_told_where_to_go(tmp_path: Path) -> None:
    plan = plan_for(
        table(tmp_path), **{"data.bounds.cost": None, "training.task": "classification"}
    )
    with pytest.raises(DataError, match=r'training\.task = "regression" with data\.bounds\.cost'):
        load(plan)
    with pytest.raises(DataError, match=r'training\.task = "regression" with data\.bounds\.label'):
        from_arrays([(np.zeros((4, 2)), np.array([0.5, 1.0, 2.5, 3.0]))])


def test_classes_have_no_regression_and_a_number_no_odds() -> None:
    with pytest.raises(PlanError, match="labels of these data are classes"):
        account(TrainingPlan().with_overrides({"training.task": "regression"}))
    with pytest.raises(PlanError, match='Use "linear"'):
        REGRESSION.outputs(LabelFacts(bounds=((0.0, 1.0),)), "logistic")


@settings(max_examples=200, deadline=None)
@given(
    low=st.floats(-1e30, 1e30),
    width=st.floats(1e-3, 1e30),
    target=st.floats(allow_nan=False),
)
def test_every_stored_target_lies_between_minus_one_and_one(
    low: float, width: float, target: float
) -> None:
    if not low + width > low:
        return
    task = REGRESSION.of(Declared({"label_column": "y"}, {"y": (low, low + width)}))
    assert isinstance(task, Regression)
    stored = task.store(np.array([target]), "silo")
    task.check(stored, 1)
    assert task.outside(np.array([target])) == (not low <= target <= low + width)


# -- one record


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    bins=st.integers(1, 8),
    passes=st.integers(1, 3),
    room=st.floats(0.3, 1.0),
    spread=st.floats(0.0, 20.0),
    t=st.sampled_from([1.0, 0.5, 0.1, 0.01]),
)
def test_a_record_moves_a_huber_pass_by_at_most_gamma_t_r_over_b(
    seed: int, bins: int, passes: int, room: float, spread: float, t: float
) -> None:
    """Neighbours coupled on all bins, steps as long as the fullest bin allows: C = t·R, β = R²."""
    draw = np.random.default_rng(seed)
    bound = 1.3
    x = draw.normal(size=(14, 4))
    x *= bound * (1 - 1e-6) / np.linalg.norm(x, axis=1, keepdims=True)
    x, y = x.astype(np.float32), draw.uniform(-1, 1, 14).astype(np.float32)
    x[-1] *= draw.choice([1.0, 0.1])
    y[-1] = draw.choice([-1.0, 1.0])
    assigned = [draw.integers(0, bins, 14) for _ in range(passes)]
    fullest = max(int(np.bincount(each).max()) for each in assigned)
    step = 2.0 * room / (bound**2 * (1 + 1e-6) * fullest)

    class Fixed:
        def __init__(self) -> None:
            self.left = list(assigned)

        def below(self, bound: int, count: int) -> np.ndarray:
            return self.left.pop(0)[:count]

    weights = spread * draw.normal(size=(1, 4))
    options = {
        "task": REGRESSION,
        "bins": bins,
        "passes": passes,
        "step": step,
        "decay": 0.0,
        "bin_cap": fullest,
        "feature_bound": bound,
        "residual_cap": t,
    }
    with_record = convex_pass(weights, x, y, source=Fixed(), **options)
    without = convex_pass(weights, x[:-1], y[:-1], source=Fixed(), **options)
    assert np.linalg.norm(with_record - without) <= passes * step * t * bound * (1 + 1e-9)


def test_the_compiled_huber_pass_is_the_formula() -> None:
    draw = np.random.default_rng(0)
    x = (draw.normal(size=(60, 5)) / 4.0).astype(np.float32)
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1.0)
    y, assigned = draw.uniform(-1, 1, 60).astype(np.float32), draw.integers(0, 9, 60)
    for t in (1.0, 0.3):
        w = first = draw.normal(size=5)
        for s in range(9):
            mine = assigned == s
            residual = np.clip(x[mine].astype(np.float64) @ w - y[mine], -t, t)
            w = w - 0.2 * min(1.0, 5 / max(mine.sum(), 1)) * residual @ x[mine].astype(np.float64)

        class Fixed:
            def below(self, bound: int, count: int) -> np.ndarray:
                return assigned

        ours = convex_pass(
            first[None],
            x,
            y,
            task=REGRESSION,
            bins=9,
            passes=1,
            step=0.2,
            decay=0.0,
            bin_cap=5,
            feature_bound=1.0,
            residual_cap=t,
            source=Fixed(),
        )
        np.testing.assert_allclose(ours[0], w, rtol=0, atol=1e-12)


def test_the_loss_is_hubers() -> None:
    z, y = torch.linspace(-4, 4, 81, dtype=torch.float64)[:, None], torch.zeros(81)
    np.testing.assert_allclose(REGRESSION.loss(z, y).numpy(), huber(1.0, z[:, 0].numpy()))


def test_no_pair_of_prediction_and_target_adds_more_than_seven_and_one_adds_seven() -> None:
    """All pairs on a grid of 129 values each, in integers."""
    values = np.linspace(-1.0, 1.0, 129)
    predicted, targets = np.array(list(itertools.product(values, values))).T
    rows = REGRESSION.count(predicted, targets)
    lengths2 = (rows.astype(object) ** 2).sum(axis=1)
    assert max(lengths2) == SUM_SENSITIVITY**2 == REGRESSION.counts.l2_grid**2


# -- measures


def measures(predicted: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    left, whole = np.mean((predicted - targets) ** 2), np.var(targets)
    return {"r2": 1.0 - left / whole, "mae": float(np.mean(np.abs(predicted - targets)))}


def test_r2_of_all_silos_is_no_mean_of_theirs() -> None:
    draw = np.random.default_rng(1)
    task = REGRESSION.of(Declared({"label_column": "y"}, {"y": (0.0, 10.0)}))
    parts, raw = [], []
    for level in (1.0, 8.0):
        y = level + draw.uniform(-0.5, 0.5, 200)
        guess = y + draw.normal(0, 0.3, 200)
        raw.append((guess, y))
        scaled = [((each - 5.0) / 5.0).clip(-1, 1) for each in (guess, y)]
        parts.append(task.metrics(*scaled))
    together = task.pooled(parts)
    assert together is not None
    guess, y = (np.concatenate(each) for each in zip(*raw, strict=True))
    assert together.numbers == pytest.approx(measures(guess, y), rel=1e-9)
    assert together["r2"] > 0.9 > max(part["r2"] for part in parts)


@pytest.mark.parametrize("records", [300, 4000])
@pytest.mark.parametrize("left", [0.02, 0.3])
def test_noisy_sums_hold_r2_and_error_in_95_of_100_measurements(records: int, left: float) -> None:
    """400 measurements with a fixed seed; 0.95 less three standard errors."""
    draw = np.random.default_rng((records, round(100 * left)))
    truth = {"r2": 1.0 - left**2 / (1 / 3), "mae": left * math.sqrt(2.0 / math.pi)}
    held = {"r2": 0, "mae": 0}
    for _ in range(400):
        y = draw.uniform(-1, 1, records)
        guess = y + left * draw.normal(size=records)
        std = 3.73 * SUM_SENSITIVITY
        total = REGRESSION.count(guess, y).sum(axis=0) + std * draw.normal(size=5)
        told = REGRESSION.measured(total, noise_std_grid=std)
        clamped = measures(np.clip(guess, -1, 1), y)
        for name in held:
            held[name] += abs(told[name] - clamped[name]) <= told.plus_minus[name]
    assert min(held.values()) >= 0.917 * 400
    assert truth["r2"] <= clamped["r2"] + 0.1


def test_a_hopeless_or_undefined_model_is_told_within_its_range() -> None:
    same = np.zeros(10)
    assert REGRESSION.exact(same, same)["r2"] == 0.0
    assert REGRESSION.exact(np.ones(10), np.linspace(-1, -0.9, 10))["r2"] == -1.0
    z, y = torch.full((3, 1), math.nan), torch.tensor([-1.0, 0.5, 1.0])
    predicted, _ = REGRESSION.scores(z, y)
    assert predicted.tolist() == [1.0, -1.0, -1.0]


# -- runs


def test_a_table_is_learned_to_near_least_squares(tmp_path: Path) -> None:
    """At ε = 8, against numpy's least squares on the same training records, in the target's units."""
    plan = plan_for(
        table(tmp_path, records=3000),
        **{"privacy.epsilon": 8.0},
    )
    run = train(plan, options=RunOptions(root=tmp_path, ledger=False), simulation=Simulation(1))
    data = load(plan)
    train_x, train_y, test_x, test_y = (
        np.concatenate([getattr(getattr(silo, part), axis) for silo in data.silos]).astype(float)
        for part in ("train", "test")
        for axis in ("x", "y")
    )
    ones = [np.ones((len(x), 1)) for x in (train_x, test_x)]
    solved = np.linalg.lstsq(np.hstack([train_x, ones[0]]), train_y, rcond=None)[0]
    best = measures(np.hstack([test_x, ones[1]]) @ solved, test_y)
    assert run.plan.training.model == "linear"
    assert list(run.metrics) == ["r2", "mae"]
    assert best["r2"] > 0.9
    assert best["r2"] - 0.05 < run.metrics["r2"] <= best["r2"] + 0.01
    assert run.metrics["mae"] < 200.0 * best["mae"] * 1.25
    assert abs(run.baselines["mean"]) < 0.05
    assert run.summary()["metrics"] == {"r2": run.metrics["r2"], "mae": run.metrics["mae"]}


@pytest.mark.deep
def test_an_own_network_learns_numbers_given_in_python(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    silos = []
    for _ in range(3):
        x = draw.uniform(-1, 1, size=(400, 2)).astype(np.float32)
        silos.append((x, 5.0 + 3.0 * np.sin(2.0 * x[:, 0])))
    silos[0][1][0] = 1e9
    plan = TrainingPlan().with_overrides(
        {
            "training.task": "regression",
            "training.algorithm": "dp-sgd",
            "training.sampling_rate": 0.2,
            "training.learning_rate": 1.0,
            "training.clip_norm": 0.5,
            "federation.rounds": 40,
            "federation.local_steps": 2,
            "privacy.epsilon": 30.0,
            "evaluation.every": 40,
        }
    )
    network = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    options = RunOptions(root=tmp_path, ledger=False)
    with pytest.raises(PlanError, match=r"data\.bounds\.label must say"):
        train(plan, model=network, silos=silos, options=options, simulation=Simulation(1))
    bounded = plan.with_overrides({"data.bounds": {"label": [2.0, 8.0]}})
    with pytest.warns(UserWarning, match="1 target lies beyond data.bounds.label"):
        run = train(bounded, model=network, silos=silos, options=options, simulation=Simulation(1))
    assert run.metrics["r2"] > 0.5
    assert run.plan.data.bounds == {"label": (2.0, 8.0)}
    assert not run.plan.without_effect()


def test_secure_sums_tell_both_measures_with_their_widths(tmp_path: Path) -> None:
    plan = plan_for(
        table(tmp_path),
        **{"privacy.epsilon": 8.0, "evaluation.metrics": "secure", "federation.rounds": 3},
    )
    run = train(plan, options=RunOptions(root=tmp_path, ledger=False), simulation=Simulation(1))
    widths = run.rounds[-1].metrics_plus_minus
    assert 0.0 < widths["r2"] < 1.0
    assert 0.0 < widths["mae"] < 200.0
    told = account(plan)
    assert told.metrics_epsilon is None or told.metrics_epsilon <= 8.0


def test_measures_stand_beside_those_of_the_mean() -> None:
    task = REGRESSION.of(Declared({"label_column": "y"}, {"y": (0.0, 10.0)}))
    draw = np.random.default_rng(5)
    targets = draw.uniform(-1.0, 1.0, 200)
    found = task.metrics(targets + 0.1, targets)
    spread = np.abs(targets - targets.mean()).mean()
    assert found.baseline == pytest.approx({"r2": 0.0, "mae": 5.0 * spread}, abs=1e-12)
    pooled = task.pooled([found, found])
    assert pooled is not None
    assert pooled.baseline == pytest.approx(found.baseline, abs=1e-12)
    total = task.count(targets + 0.1, targets).sum(axis=0).astype(float)
    assert task.measured(total, noise_std_grid=1.0).baseline == {"r2": 0.0}
