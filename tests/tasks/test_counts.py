"""Counts: a bound is required, one record moves a pass by no more than is declared, and the line above
the bound changes nothing below it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from sumus import RunOptions, TrainingPlan, account, train
from sumus.data import load
from sumus.errors import DataError, PlanError
from sumus.runs import Simulation
from sumus.tasks import TASKS, Counts, Declared
from sumus.training.local.convex_pass import convex_pass

COUNTS = TASKS["counts"]
RECORDS = 3000


def visits(records: int = RECORDS) -> tuple[np.ndarray, np.ndarray]:
    """Two features and a number of visits, whose logarithm is linear in the first."""
    draw = np.random.default_rng(2)
    x = draw.uniform(-1, 1, size=(records, 2))
    return x, draw.poisson(np.exp(1.0 + 0.9 * x[:, 0]))


def table(folder: Path, *, records: int = RECORDS, extra: str = "") -> Path:
    x, y = visits(records)
    rows = [f"{'abc'[i % 3]},{x[i, 0]:.4f},{x[i, 1]:.4f},{y[i]}\n" for i in range(records)]
    file = folder / "visits.csv"
    file.write_text("site,first,second,visits\n" + "".join(rows) + extra)
    return file


def plan_for(file: Path, **overrides: object) -> TrainingPlan:
    entries = {
        "training": {"task": "counts"},
        "privacy": {"epsilon": 8.0},
        "data": {
            "path": str(file),
            "silo_column": "site",
            "label_column": "visits",
            "bounds": {"visits": [0, 20], "first": [-1, 1], "second": [-1, 1]},
        },
    }
    return TrainingPlan.from_table(entries).with_overrides(overrides)


@pytest.mark.parametrize(
    ("bounds", "told"),
    [
        (None, r"data\.bounds\.visits must say up to which number.*Add visits = \[0, most\]"),
        ([1, 20], r"data\.bounds\.visits must be \[0, most\].*Begin at 0"),
        ([-5, 20], r"must be \[0, most\]"),
        ([0, 1e300], "usable number"),
    ],
)
def test_a_count_without_a_bound_from_zero_is_one_line_with_the_fix(
    tmp_path: Path, bounds: object, told: str
) -> None:
    with pytest.raises(PlanError, match=told) as refused:
        plan_for(table(tmp_path, records=30), **{"data.bounds.visits": bounds})
    assert "\n" not in str(refused.value)


def test_a_count_beyond_its_bound_counts_as_the_bound_and_is_told_as_a_number_only(
    tmp_path: Path,
) -> None:
    data = load(plan_for(table(tmp_path, extra="a,0,0,54321\nb,0,0,-3\n")))
    stored = np.concatenate([part.y for silo in data.silos for part in (silo.train, silo.test)])
    assert stored.dtype == np.float32
    assert (stored.min(), stored.max()) == (0.0, 1.0)
    assert data.remarks == (
        "2 targets lie beyond data.bounds.visits and count as the nearest bound",
    )
    with pytest.raises(DataError, match="no value in 1 records"):
        load(plan_for(table(tmp_path, extra="a,0,0,\n")))


def test_an_intercept_that_stays_at_home_is_for_other_tasks(tmp_path: Path) -> None:
    keys = {"training.model": "linear", "training.local_parameters": "intercept"}
    with pytest.raises(PlanError, match="in classification or regression"):
        plan_for(table(tmp_path, records=30), **keys)


def test_classes_are_no_counts() -> None:
    with pytest.raises(PlanError, match="counts up to a bound"):
        account(TrainingPlan().with_overrides({"training.task": "counts"}))


def test_below_the_bound_the_loss_is_poissons_and_above_it_its_tangent() -> None:
    z = torch.linspace(-6, 6, 121, dtype=torch.float64)[:, None]
    u = torch.full((121,), 0.3)
    ours, poisson = COUNTS.loss(z, u), z[:, 0].exp() - 0.3 * z[:, 0]
    below = z[:, 0] <= 0
    torch.testing.assert_close(ours[below], poisson[below], check_dtype=False)
    torch.testing.assert_close(
        ours[~below], 1.0 + 0.7 * z[~below, 0], check_dtype=False, rtol=0, atol=1e-6
    )
    assert bool((ours <= poisson + 1e-6).all())


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    bins=st.integers(1, 8),
    passes=st.integers(1, 3),
    room=st.floats(0.3, 1.0),
    spread=st.floats(0.0, 20.0),
    t=st.sampled_from([1.0, 0.5, 0.1, 0.01]),
)
def test_a_record_moves_a_pass_over_counts_by_at_most_gamma_t_r_over_b(
    seed: int, bins: int, passes: int, room: float, spread: float, t: float
) -> None:
    """Neighbours coupled on all bins, steps as long as the fullest bin allows: C = t·R, β = R²."""
    draw = np.random.default_rng(seed)
    bound = 1.3
    x = draw.normal(size=(14, 4))
    x *= bound * (1 - 1e-6) / np.linalg.norm(x, axis=1, keepdims=True)
    x, y = x.astype(np.float32), draw.uniform(0, 1, 14).astype(np.float32)
    x[-1] *= draw.choice([1.0, 0.1])
    y[-1] = draw.choice([0.0, 1.0])
    assigned = [draw.integers(0, bins, 14) for _ in range(passes)]
    fullest = max(int(np.bincount(each).max()) for each in assigned)
    constants = COUNTS.curvature("linear", feature_bound=bound, residual_cap=t)
    assert constants is not None
    step = 2.0 * room / (constants.smoothness * (1 + 1e-6) * fullest)

    class Fixed:
        def __init__(self) -> None:
            self.left = list(assigned)

        def below(self, bound: int, count: int) -> np.ndarray:
            return self.left.pop(0)[:count]

    options = {
        "task": COUNTS,
        "bins": bins,
        "passes": passes,
        "step": step,
        "decay": 0.0,
        "bin_cap": fullest,
        "feature_bound": bound,
        "residual_cap": t,
    }
    weights = spread * draw.normal(size=(1, 4))
    moved = convex_pass(weights, x, y, source=Fixed(), **options) - convex_pass(
        weights, x[:-1], y[:-1], source=Fixed(), **options
    )
    assert np.linalg.norm(moved) <= passes * step * constants.gradient_norm * (1 + 1e-9)


def test_the_compiled_pass_is_the_formula() -> None:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(60, 5)).astype(np.float32)
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1.0)
    y, assigned = draw.uniform(0, 1, 60).astype(np.float32), draw.integers(0, 9, 60)

    class Fixed:
        def below(self, bound: int, count: int) -> np.ndarray:
            return assigned

    for t in (1.0, 0.3):
        w = first = draw.normal(size=5)
        for s in range(9):
            mine = assigned == s
            rows = x[mine].astype(np.float64)
            residual = np.clip(np.exp(np.minimum(rows @ w, 0.0)) - y[mine], -t, t)
            w = w - 0.2 * min(1.0, 5 / max(mine.sum(), 1)) * residual @ rows
        ours = convex_pass(
            first[None],
            x,
            y,
            task=COUNTS,
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


def test_a_table_of_counts_is_learned_to_near_the_true_rates(tmp_path: Path) -> None:
    """At ε = 8, against the rates that made the counts, and told in visits."""
    plan = plan_for(table(tmp_path), **{"training.learning_rate": 1.5, "federation.rounds": 20})
    run = train(plan, options=RunOptions(root=tmp_path, ledger=False), simulation=Simulation(1))
    data = load(plan)
    x, u = (
        np.concatenate([getattr(silo.test, axis) for silo in data.silos]).astype(float)
        for axis in ("x", "y")
    )
    best = 1.0 - np.mean((20 * u - np.exp(1.0 + 0.9 * x[:, 0])) ** 2) / np.var(20 * u)
    assert best > 0.25
    assert best - 0.06 < run.metrics["r2"] <= best + 0.03
    assert run.metrics["mae"] < 2.0
    assert abs(run.baselines["mean"]) < 0.05


@pytest.mark.deep
def test_counts_given_in_python_are_learned_by_a_network_and_told_through_secure_sums(
    tmp_path: Path,
) -> None:
    x, y = visits()
    silos = [(x[i::3].astype(np.float32), y[i::3]) for i in range(3)]
    plan = TrainingPlan().with_overrides(
        {
            "training.task": "counts",
            "training.algorithm": "dp-sgd",
            "training.sampling_rate": 0.2,
            "training.learning_rate": 1.0,
            "training.clip_norm": 0.3,
            "federation.rounds": 30,
            "federation.local_steps": 2,
            "privacy.epsilon": 30.0,
            "evaluation.metrics": "secure",
            "data.bounds": {"label": [0, 20]},
        }
    )
    network = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    options = RunOptions(root=tmp_path, ledger=False)
    run = train(plan, model=network, silos=silos, options=options, simulation=Simulation(1))
    assert run.metrics["r2"] > 0.1
    assert run.rounds[-1].metrics_plus_minus["mae"] < 20.0


def test_the_first_model_expects_a_tenth_of_the_bound(tmp_path: Path) -> None:
    from sumus.training import prepare

    plan = plan_for(table(tmp_path, records=60))
    for algorithm in ("convex-pass", "dp-sgd"):
        chosen = plan.with_overrides({"training.algorithm": algorithm, "training.model": "linear"})
        ready = prepare(chosen, load(chosen))
        outputs = ready.model(torch.from_numpy(ready.data.silos[0].train.x[:4]))
        np.testing.assert_allclose(chosen.task.predict(outputs).detach().numpy(), 0.1, rtol=1e-4)


def test_one_object_for_one_bound() -> None:
    declared = Declared({"label_column": "y"}, {"y": (0.0, 7.0)})
    assert COUNTS.of(declared) is COUNTS.of(declared)
    task = COUNTS.of(declared)
    assert isinstance(task, Counts)
    assert task.store(np.array([7, 9, -1]), "silo").tolist() == [1.0, 1.0, 0.0]
    assert task.outside(np.array([7, 9, -1])) == 2
