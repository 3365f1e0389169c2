"""Several labels of one record: yes or no to each (classification), or a number for each (regression)."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn

from sumus import RunOptions, TrainingPlan, account, train
from sumus.audit.canaries import CanaryRounds
from sumus.data import load
from sumus.errors import DataError, PlanError
from sumus.gradients import PerRecordGradients
from sumus.gradients.kernels import to_residuals
from sumus.guarantee import calibrated
from sumus.plan import PublicFacts
from sumus.runs import Simulation
from sumus.tasks import (
    Declared,
    LabelFacts,
    MultiLabel,
    SeveralNumbers,
    Task,
    declared_task,
)
from sumus.training.local.convex_pass import convex_pass
from support.repeatable_sources import repeatable_sources

BOUNDS = {"a": (0.0, 10.0), "b": (-5.0, 5.0), "c": (0.0, 100.0)}
COLUMNS = tuple(BOUNDS)
DECLARED = Declared({"label_column": None}, BOUNDS, label_columns=COLUMNS)
YES_NO, NUMBERS = (declared_task(name, DECLARED) for name in ("classification", "regression"))
BOTH = pytest.mark.parametrize("task", [YES_NO, NUMBERS], ids=["yes or no", "numbers"])
RECORDS = 2400


def labels_of(task: Task, records: int, seed: int = 0) -> np.ndarray:
    draw = np.random.default_rng(seed)
    if task is YES_NO:
        return draw.integers(0, 2, (records, 3))
    return draw.uniform(-1, 1, (records, 3)).astype(np.float32)


def made(folder: Path, *, extra: str = "", records: int = RECORDS) -> Path:
    """Two features; three questions and two numbers that follow from them, with noise."""
    draw = np.random.default_rng(7)
    x = draw.uniform(-1, 1, size=(records, 2))
    z = np.stack([3 * x[:, 0], -3 * x[:, 1] - 1.0, 2 * (x[:, 0] + x[:, 1])], axis=1)
    said = draw.random((records, 3)) < 1.0 / (1.0 + np.exp(-z))
    weight = 70 + 20 * x[:, 0] + 4 * draw.normal(size=records)
    height = 170 + 8 * x[:, 1] + 3 * draw.normal(size=records)
    word = ("no", "yes")
    rows = [
        f"{'abc'[i % 3]},{x[i, 0]:.4f},{x[i, 1]:.4f},{','.join(word[int(k)] for k in said[i])},"
        f"{weight[i]:.2f},{height[i]:.2f}\n"
        for i in range(records)
    ]
    file = folder / "people.csv"
    header = "site,first,second,cough,fever,rash,weight,height\n"
    file.write_text(header + "".join(rows) + extra)
    return file


def plan_for(file: Path, task: str = "classification", **overrides: object) -> TrainingPlan:
    asked = ["cough", "fever", "rash"] if task == "classification" else ["weight", "height"]
    entries = {
        "training": {"task": task},
        "privacy": {"epsilon": 8.0},
        "data": {
            "path": str(file),
            "silo_column": "site",
            "label_columns": asked,
            "columns": ["first", "second"],
            "bounds": {
                "first": [-1, 1],
                "second": [-1, 1],
                "weight": [30, 110],
                "height": [140, 200],
            },
        },
    }
    return TrainingPlan.from_table(entries).with_overrides(overrides)


# -- the same on every path


@BOTH
def test_the_gradient_is_that_of_the_loss_in_torch_and_compiled(task: Task) -> None:
    draw = torch.Generator().manual_seed(3)
    z = 2.0 * torch.randn(40, 3, generator=draw, dtype=torch.float64)
    y = torch.from_numpy(labels_of(task, 40))
    gradient, step = task.output_gradient(z, y), 1e-6
    for k in range(3):
        shift = torch.zeros_like(z)
        shift[:, k] = step
        slope = (task.loss(z + shift, y) - task.loss(z - shift, y)) / (2.0 * step)
        torch.testing.assert_close(gradient[:, k], slope, rtol=0.0, atol=1e-7)
    link, residuals = task.link(3), z.to(torch.float32).numpy().copy()
    assert link is not None
    to_residuals(residuals, y.numpy(), int(link))
    np.testing.assert_allclose(residuals, gradient.numpy(), rtol=0.0, atol=1e-6)


@BOTH
def test_every_path_gives_the_same_clipped_sum(task: Task) -> None:
    draw = torch.Generator().manual_seed(1)
    x, y = torch.randn(40, 6, generator=draw), torch.from_numpy(labels_of(task, 40))
    theta = 0.3 * torch.randn(21, generator=draw)

    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(6, 3)

        def forward(self, records: torch.Tensor) -> torch.Tensor:
            return self.head(records)

    sums = [
        PerRecordGradients(model, loss=task).clipped_sum(
            theta, x, y, clip_norm=1.0, resolution=1 << 16
        )
        for model in (
            nn.Sequential(nn.Linear(6, 3)),
            nn.Sequential(nn.Linear(6, 3), nn.Identity()),
            Own(),
        )
    ]
    for other in sums[1:]:
        assert int((sums[0].integers - other.integers).abs().max()) <= 40
        assert sums[0].clipped == other.clipped


@BOTH
@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    bins=st.integers(1, 6),
    room=st.floats(0.3, 1.0),
    spread=st.floats(0.0, 20.0),
    t=st.sampled_from([1.0, 0.3]),
)
def test_a_record_moves_a_pass_by_at_most_gamma_t_root_k_r_over_b(
    task: Task, seed: int, bins: int, room: float, spread: float, t: float
) -> None:
    """Neighbours coupled on all bins, steps as long as the fullest bin allows."""
    draw = np.random.default_rng(seed)
    bound, count = 1.3, 14
    constants = task.curvature("linear", feature_bound=bound, residual_cap=t)
    assert constants is not None
    assert constants.gradient_norm == pytest.approx(t * math.sqrt(3) * bound)
    x = draw.normal(size=(count, 4))
    x *= bound * (1 - 1e-6) / np.linalg.norm(x, axis=1, keepdims=True)
    x, y = x.astype(np.float32), labels_of(task, count, seed)
    assigned = draw.integers(0, bins, count)
    fullest = int(np.bincount(assigned).max())
    step = 2.0 * room / (constants.smoothness * (1 + 1e-6) * fullest)

    class Fixed:
        def below(self, bound: int, count: int) -> np.ndarray:
            return assigned[:count]

    options = {
        "task": task,
        "bins": bins,
        "passes": 1,
        "step": step,
        "decay": 0.0,
        "bin_cap": fullest,
        "feature_bound": bound,
        "residual_cap": t,
        "source": Fixed(),
    }
    first = spread * draw.normal(size=(3, 4))
    moved = convex_pass(first, x, y, **options) - convex_pass(first, x[:-1], y[:-1], **options)
    assert np.linalg.norm(moved) <= step * constants.gradient_norm * (1 + 1e-9)


def test_a_record_that_is_wrong_everywhere_reaches_the_declared_gradient() -> None:
    z, y = torch.full((1, 3), 40.0, dtype=torch.float64), torch.zeros((1, 3), dtype=torch.int64)
    for task in (YES_NO, NUMBERS):
        constants = task.curvature("linear", feature_bound=1.0, residual_cap=1.0)
        assert constants is not None
        reached = float(task.output_gradient(z, y).norm())
        assert reached == pytest.approx(constants.gradient_norm)


@pytest.mark.parametrize("name", ["classification", "regression"])
def test_the_canaries_of_a_pass_move_the_sum_by_what_is_accounted(name: str) -> None:
    """64 runs of 24 canaries: a mean has standard deviation 0.036, so an alarm beyond 5 of them."""
    plan = TrainingPlan.from_table(
        {
            "privacy": {"epsilon": 4.0, "delta": 1e-5},
            "federation": {"silos": 2, "rounds": 2, "local_steps": 4},
            "training": {"task": name},
            "data": {
                "objects": "audit",
                "label_columns": list(COLUMNS),
                "bounds": {key: list(pair) for key, pair in BOUNDS.items()},
            },
            "aggregation": {"protocol": "trusted", "modulus_bits": 56},
        }
    )
    labels = LabelFacts(
        bounds=tuple(BOUNDS.values()) if name == "regression" else (), columns=COLUMNS
    )
    built = calibrated(plan, PublicFacts("audit", ("p", "q"), (200,) * 2, (63,), labels))
    assert built.resolved.dimension == 3 * 64
    rounds = CanaryRounds(built, 24, view="sum", new_source=repeatable_sources())
    found = [rounds.run() for _ in range(64)]
    scores, included = (
        np.concatenate([each.scores for each in found]),
        np.concatenate([each.included for each in found]),
    )
    assert float(scores[included].mean()) == pytest.approx(rounds.separation, abs=0.2)
    assert float(scores[~included].mean()) == pytest.approx(0.0, abs=0.2)


# -- measures


@BOTH
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_no_record_adds_more_to_the_counts_than_is_declared(
    task: Task, data: st.DataObject
) -> None:
    numbers = st.floats(width=32) | st.sampled_from([0.0, 3e38, -3e38, 1e-45])
    drawn = data.draw(st.lists(st.lists(numbers, min_size=3, max_size=3), min_size=1, max_size=20))
    z = torch.tensor(drawn, dtype=torch.float32)
    scores = task.scores(z, torch.from_numpy(labels_of(task, len(z))))
    rows = task.count(*(score.numpy() for score in scores))
    assert rows.shape == (len(z), task.counts.length)
    for row in rows.tolist():
        assert sum(value * value for value in row) <= task.counts.l2_grid**2
        assert max(map(abs, row)) <= task.counts.largest_grid
    place = task.counts.record_place
    assert place is not None
    assert set(rows[:, place]) == {task.counts.record_grid}


@BOTH
def test_exact_counts_tell_what_a_direct_computation_tells(task: Task) -> None:
    """Of each label and of their mean; silos together are no mean of silos."""
    draw = torch.Generator().manual_seed(5)
    y = torch.from_numpy(labels_of(task, 300))
    z = y.to(torch.float64) + 0.7 * torch.randn(300, 3, generator=draw, dtype=torch.float64)
    scores = [score.numpy() for score in task.scores(z - (0.5 if task is YES_NO else 0.0), y)]
    exact = task.exact(*scores)
    told = task.measured(task.count(*scores).sum(axis=0).astype(np.float64), noise_std_grid=0.0)
    assert told.records == 300
    assert list(told.values) == list(exact) == [measure.name for measure in task.measures]
    for name, value in exact.items():
        assert abs(told[name] - value) <= told.plus_minus[name]
    plain = task.metrics(*scores)
    for table in (told.tables["labels"], plain.tables["labels"]):
        for name in exact:
            assert len(table[name]) == 3
    halves = [
        task.metrics(*(score[part] for score in scores)) for part in (slice(150), slice(150, 300))
    ]
    together = task.pooled(halves)
    assert together is not None
    assert together.numbers == pytest.approx(exact)
    if isinstance(task, MultiLabel):
        right = (z.numpy() - 0.5 > 0) == (y.numpy() == 1)
        assert exact["accuracy"] == pytest.approx(right.mean())
        yes, no = (z[:, 0].numpy()[y[:, 0].numpy() == k] for k in (1, 0))
        auroc = float(np.mean(yes[:, None] > no[None]))
        assert plain.tables["labels"]["auroc"][0] == pytest.approx(auroc)


def test_noisy_counts_hold_means_in_95_of_100_measurements() -> None:
    """200 measurements with a fixed seed; 0.95 less three standard errors."""
    draw = np.random.default_rng(5)
    held = {"accuracy": 0, "auroc": 0}

    def drawn(records: int) -> tuple[np.ndarray, np.ndarray]:
        y = draw.random((records, 3)) < (0.5, 0.2, 0.7)
        z = draw.normal(size=(records, 3)) + 1.2 * (y - 0.5)
        return z, y.astype(np.int64)

    truth = YES_NO.exact(*drawn(200_000))
    std = 3.73 * YES_NO.counts.l2_grid
    for _ in range(200):
        total = YES_NO.count(*drawn(1500)).sum(axis=0)
        told = YES_NO.measured(total + std * draw.normal(size=len(total)), noise_std_grid=std)
        for name in held:
            held[name] += abs(told[name] - truth[name]) <= told.plus_minus[name]
    assert min(held.values()) >= 0.904 * 200


# -- runs


@pytest.mark.parametrize(("scale", "shift"), [(0.1, 0.0), (1.0, -5.2)])
def test_the_secure_auroc_is_within_its_width_whatever_the_model(
    scale: float, shift: float
) -> None:
    """A model that is not sure enough, and answers so rare that odds end in the last open bin."""
    draw, task = np.random.default_rng(3), MultiLabel(("a", "b"))
    std = 0.5 * task.counts.l2_grid
    for _ in range(8):
        odds = draw.normal(size=(8000, 2))
        answers = draw.random((8000, 2)) < 1.0 / (1.0 + np.exp(-shift - odds))
        scores = (shift + scale * odds, answers.astype(np.int64))
        total = task.count(*scores).sum(axis=0)
        told = task.measured(total + std * draw.normal(size=len(total)), noise_std_grid=std)
        assert abs(told["auroc"] - task.exact(*scores)["auroc"]) <= told.plus_minus["auroc"]


def test_questions_of_a_table_are_learned_and_told_one_by_one(tmp_path: Path) -> None:
    plan = plan_for(made(tmp_path), **{"training.learning_rate": 2.0})
    run = train(plan, options=RunOptions(root=tmp_path, ledger=False), simulation=Simulation(1))
    assert run.plan.training.model == "linear"
    assert run.plan.training.dimension == 3 * 5  # two numbers and whether each is missing, a bias
    assert run.metrics["auroc"] > 0.8
    assert run.metrics["accuracy"] > run.baselines["majority"] + 0.05


def test_numbers_of_a_table_are_learned_and_told_through_secure_sums(tmp_path: Path) -> None:
    plan = plan_for(made(tmp_path), "regression", **{"evaluation.metrics": "secure"})
    run = train(plan, options=RunOptions(root=tmp_path, ledger=False), simulation=Simulation(1))
    widths = run.rounds[-1].metrics_plus_minus
    assert run.metrics["r2"] > 0.5
    assert 0.0 < widths["r2"] < 1.5
    assert 0.0 < widths["mae"] < 1.0


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_one_round_of_normal_equations_learns_several_labels(tmp_path: Path, task: str) -> None:
    keys = {"training.algorithm": "normal-equations", "federation.rounds": 1}
    plan = plan_for(made(tmp_path), task, **keys)
    run = train(plan, options=RunOptions(root=tmp_path, ledger=False), simulation=Simulation(1))
    headline = run.metrics["auroc" if task == "classification" else "r2"]
    assert headline > (0.8 if task == "classification" else 0.6)


@BOTH
def test_networks_learn_several_labels_given_in_python(tmp_path: Path, task: Task) -> None:
    draw = np.random.default_rng(0)
    x = draw.uniform(-1, 1, size=(1500, 2)).astype(np.float32)
    if task is YES_NO:
        y = (x @ draw.normal(size=(2, 3)) + 0.3 * draw.normal(size=(1500, 3)) > 0).astype(int)
    else:
        y = 5.0 + 2.0 * np.stack([x[:, 0], x[:, 1], x.sum(axis=1)], axis=1)
    bounds = {} if task is YES_NO else {"data.bounds": {name: [0.0, 10.0] for name in COLUMNS}}
    plan = TrainingPlan().with_overrides(
        {
            "training.task": task.name,
            "training.algorithm": "dp-sgd",
            "training.sampling_rate": 0.2,
            "training.learning_rate": 1.0,
            "federation.rounds": 20,
            "federation.local_steps": 2,
            "privacy.epsilon": 30.0,
            "evaluation.every": 20,
            "data.label_columns": list(COLUMNS),
            **bounds,
        }
    )
    network = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 3))
    silos = [(x[i::3], y[i::3]) for i in range(3)]
    options = RunOptions(root=tmp_path, ledger=False)
    run = train(plan, model=network, silos=silos, options=options, simulation=Simulation(1))
    assert run.metrics[task.headline.name] > (0.75 if task is YES_NO else 0.4)
    with pytest.raises(DataError, match=r"must have 3 (labels|targets) per record"):
        train(
            plan,
            model=network,
            silos=[(x[:9], y[:9, :2])] * 3,
            options=options,
            simulation=Simulation(1),
        )


@pytest.mark.parametrize(
    ("task", "keys", "told"),
    [
        ("classification", {"data.label_columns": ["cough"]}, "two columns or more"),
        ("classification", {"data.label_columns": ["cough", "cough"]}, "none of them twice"),
        (
            "classification",
            {"data.label_column": "cough"},
            r"data\.label_column is not what training\.task = classification learns from",
        ),
        ("regression", {"data.bounds.height": None}, r"data\.bounds\.height must say"),
        (
            "classification",
            {
                "training.task": "counts",
                "data.label_column": "weight",
                "data.bounds.weight": [0, 9],
            },
            r"data\.label_columns is not what training\.task = counts learns from",
        ),
    ],
)
def test_labels_that_do_not_fit_are_one_line_with_the_fix(
    tmp_path: Path, task: str, keys: dict[str, object], told: str
) -> None:
    with pytest.raises(PlanError, match=told) as refused:
        plan_for(made(tmp_path, records=30), task, **keys)
    assert "\n" not in str(refused.value)


def test_class_weights_beside_several_labels_are_refused(tmp_path: Path) -> None:
    plan = plan_for(made(tmp_path, records=30), **{"training.class_weights": [1.0, 2.0]})
    with pytest.raises(PlanError, match=r"class_weights must be left out beside data\.label_col"):
        account(plan)


def test_moments_about_a_silos_own_mean_are_of_one_number(tmp_path: Path) -> None:
    keys = {
        "training.algorithm": "normal-equations",
        "training.local_parameters": "intercept",
        "federation.rounds": 1,
        "training.model": "linear",
    }
    with pytest.raises(PlanError, match="moments of one number"):
        plan_for(made(tmp_path, records=30), "regression", **keys)


def test_an_answer_that_is_neither_yes_nor_no_is_named_by_its_record(tmp_path: Path) -> None:
    file = made(tmp_path, records=30, extra="a,0,0,no,perhaps,no,70,170\n")
    with pytest.raises(
        DataError, match=r"label_columns\[1\] 'fever' .* record 31 is neither"
    ) as told:
        load(plan_for(file))
    assert "perhaps" not in str(told.value)


def test_other_data_have_no_such_labels() -> None:
    named = TrainingPlan().with_overrides({"data.label_columns": ["a", "b"]})
    with pytest.raises(PlanError, match=r"data\.label_columns must name labels of these data"):
        account(named)
    assert isinstance(NUMBERS, SeveralNumbers)
