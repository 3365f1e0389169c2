"""Class weights: only proportions matter, every path multiplies the loss by the same number, and no
record counts more than without them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn

from sumus import RunOptions, TrainingPlan, account, train
from sumus.errors import PlanError
from sumus.gradients import PerRecordGradients, Units
from sumus.runs import Simulation
from sumus.tasks import TASKS, Declared, Task
from sumus.training.local.convex_pass import convex_pass

PLAIN = TASKS["classification"]


def weighted(*weights: float) -> Task:
    return PLAIN.of(Declared({"label_column": None}, class_weights=weights))


def test_only_proportions_matter_and_the_largest_is_one() -> None:
    assert weighted(2.0, 10.0) is weighted(1.0, 5.0)
    assert weighted(2.0, 10.0).class_weights == (0.2, 1.0)
    assert PLAIN.class_weights == ()


@pytest.mark.parametrize("outputs", [1, 3])
def test_loss_and_gradient_are_those_without_weights_times_the_weight(outputs: int) -> None:
    weights = (0.3, 1.0, 0.6)[: max(outputs, 2)]
    task = weighted(*weights)
    draw = torch.Generator().manual_seed(0)
    z = torch.randn(30, outputs, generator=draw, dtype=torch.float64)
    y = torch.arange(30) % max(outputs, 2)
    factor = torch.tensor(task.class_weights, dtype=torch.float64)[y]
    torch.testing.assert_close(task.loss(z, y), factor * PLAIN.loss(z, y))
    torch.testing.assert_close(task.mean_loss(z, y), (factor * PLAIN.loss(z, y)).mean())
    torch.testing.assert_close(
        task.output_gradient(z, y), factor[:, None] * PLAIN.output_gradient(z, y)
    )
    told, plain = task.scores(z, y), PLAIN.scores(z, y)
    torch.testing.assert_close(told[1], plain[1])  # what is measured has no weights


@pytest.mark.parametrize("outputs", [1, 3])
def test_every_path_gives_the_same_clipped_sum(outputs: int) -> None:
    """The compiled loop of a linear model, a network of layers, and a module of one's own."""
    task = weighted(*(0.3, 1.0, 0.6)[: max(outputs, 2)])
    draw = torch.Generator().manual_seed(1)
    x, y = torch.randn(40, 6, generator=draw), torch.arange(40) % max(outputs, 2)
    theta = 0.3 * torch.randn(7 * outputs, generator=draw)

    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(6, outputs)

        def forward(self, records: torch.Tensor) -> torch.Tensor:
            return self.head(records)

    models = (
        nn.Sequential(nn.Linear(6, outputs)),
        nn.Sequential(nn.Identity(), nn.Linear(6, outputs)),
        Own(),
    )
    sums = [
        PerRecordGradients(model, loss=task).clipped_sum(
            theta, x, y, clip_norm=2.0, resolution=1 << 16
        )
        for model in models
    ]
    plain = PerRecordGradients(models[0], loss=PLAIN).clipped_sum(
        theta, x, y, clip_norm=2.0, resolution=1 << 16
    )
    for other in sums[1:]:
        assert int((sums[0].integers - other.integers).abs().max()) <= 40
        assert sums[0].clipped == other.clipped
    assert int((sums[0].integers - plain.integers).abs().max()) > 1000


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    outputs=st.sampled_from([1, 3]),
    bins=st.integers(1, 6),
    room=st.floats(0.3, 1.0),
    spread=st.floats(0.0, 20.0),
    t=st.sampled_from([1.0, 0.3]),
)
def test_a_record_moves_a_weighted_pass_by_no_more_than_one_without_weights(
    seed: int, outputs: int, bins: int, room: float, spread: float, t: float
) -> None:
    """Neighbours coupled on all bins; the record that is left out has the largest weight or
    another.
    """
    draw = np.random.default_rng(seed)
    bound, count, classes = 1.3, 14, max(outputs, 2)
    task = weighted(*draw.uniform(0.05, 3.0, classes))
    model = "logistic" if outputs == 1 else "softmax"
    constants = task.curvature(model, feature_bound=bound, residual_cap=t)
    assert constants == PLAIN.curvature(model, feature_bound=bound, residual_cap=t)
    assert constants is not None
    x = draw.normal(size=(count, 4))
    x *= bound * (1 - 1e-6) / np.linalg.norm(x, axis=1, keepdims=True)
    x, y = x.astype(np.float32), draw.integers(0, classes, count)
    assigned = draw.integers(0, bins, count)
    fullest = int(np.bincount(assigned).max())
    step = 2.0 * room / (constants.smoothness * (1 + 1e-6) * fullest)
    first = spread * draw.normal(size=(outputs, 4))

    class Fixed:
        def below(self, bound: int, count: int) -> np.ndarray:
            return assigned[:count]

    def result(records: int) -> np.ndarray:
        rows = task.expand(x[:records], y[:records])
        assert rows is not None
        return convex_pass(
            first,
            rows.x,
            rows.y,
            task=task,
            units=Units.single(records).expanded(rows),
            bins=bins,
            passes=1,
            step=step,
            decay=0.0,
            bin_cap=fullest,
            feature_bound=bound,
            residual_cap=t,
            source=Fixed(),
        )

    moved = np.linalg.norm(result(count) - result(count - 1))
    assert moved <= step * constants.gradient_norm * (1 + 1e-9)


def rare(folder: Path) -> Path:
    """A tenth has it, as the first column says with noise."""
    draw = np.random.default_rng(4)
    x = draw.uniform(-1, 1, size=(3000, 2))
    ill = x[:, 0] + 0.5 * draw.normal(size=3000) > 0.95
    rows = [
        f"{'abc'[i % 3]},{x[i, 0]:.4f},{x[i, 1]:.4f},{('no', 'yes')[int(ill[i])]}\n"
        for i in range(3000)
    ]
    file = folder / "rare.csv"
    file.write_text("site,first,second,ill\n" + "".join(rows))
    return file


def plan_for(file: Path, **overrides: object) -> TrainingPlan:
    entries = {
        "training": {"model": "logistic", "learning_rate": 2.0},
        "privacy": {"epsilon": 8.0},
        "data": {
            "path": str(file),
            "silo_column": "site",
            "label_column": "ill",
            "bounds": {"first": [-1, 1], "second": [-1, 1]},
            "categories": {"ill": ["no", "yes"]},
        },
    }
    return TrainingPlan.from_table(entries).with_overrides(overrides)


def test_weights_by_name_find_more_of_a_rare_class_at_the_same_epsilon(tmp_path: Path) -> None:
    """With weights 1 : 9 the model says yes far more often; the account does not change."""
    file = rare(tmp_path)
    plain, balanced = (
        plan_for(file, **keys) for keys in ({}, {"training.class_weights": {"no": 1, "yes": 9}})
    )
    noise = [account(plan).noise_multiplier for plan in (plain, balanced)]
    assert noise[1] == pytest.approx(noise[0], rel=1e-6), "but for the rounding of a product"
    options = RunOptions(root=tmp_path, ledger=False)
    said = []
    for plan in (plain, balanced):
        run = train(plan, options=options, simulation=Simulation(1))
        weights = next(iter(run.module.state_dict().values()))
        said.append(float(weights[0, -1]))
    assert run.plan.training.class_weights == (1.0, 9.0)
    assert said[1] > said[0] + 0.5, "the intercept"


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ([1, 2, 3], "must hold a weight for each of 2 classes"),
        ({"no": 1, "maybe": 2}, r"must have the classes of the data for names \(no, yes\)"),
        ({"no": 1}, "must have the classes of the data for names"),
        ([1, 0], r"class_weights\[1\] must be a finite number in \[1e-06"),
        ({"no": 1, "yes": -1}, r"class_weights\.yes must be a finite number"),
        ([], "must be a list of positive numbers"),
        ("much", "must be a list of positive numbers"),
    ],
)
def test_weights_that_do_not_fit_are_one_line_with_the_fix(
    tmp_path: Path, value: object, told: str
) -> None:
    file = rare(tmp_path)
    with pytest.raises(PlanError, match=told) as refused:
        account(plan_for(file, **{"training.class_weights": value}))
    assert "\n" not in str(refused.value)


def test_a_plan_with_weights_survives_its_file(tmp_path: Path) -> None:
    for value in ([1, 2.5], {"no": 1, "yes": 9}):
        plan = plan_for(rare(tmp_path), **{"training.class_weights": value})
        assert TrainingPlan.from_toml(plan.to_toml()) == plan
