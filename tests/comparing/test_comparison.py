"""What is compared, how sure that is, and where it is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from torch import nn

import sumus
from sumus.comparing import Comparison, compare, difference_text, stored_comparisons
from sumus.comparing.intervals import Groups, Replicates
from sumus.data import FederatedData, Records, from_arrays
from sumus.errors import PlanError, StorageError
from sumus.guarantee import calibrated
from sumus.plan import TrainingPlan
from sumus.randomness import RandomSource
from sumus.runs import RunOptions
from sumus.tasks import TASKS, Measure
from sumus.training import prepare
from support.synthetic_runs import made_comparison

PLAN = """
[privacy]
epsilon = 1.0
delta = 1e-5
[federation]
rounds = 1
local_steps = 10
[training]
algorithm = "convex-pass"
"""
ACCURACY = TASKS["classification"].headline


def _silos(task: str, count: int = 4) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    out = []
    for _ in range(count):
        x = rng.normal(size=(60, 3)).astype(np.float32)
        z = x @ [1.5, -1.0, 0.0] + 0.5 * rng.normal(size=60)
        labels = {
            "classification": (z > 0).astype(np.int64),
            "regression": np.clip(z, -3.0, 3.0),
            "counts": rng.poisson(np.exp(np.clip(z, -3.0, 1.5))).clip(0, 9).astype(np.float64),
            "survival": np.stack([np.clip(3.0 - z, 0.1, 9.0), (z > -1).astype(float)], axis=1),
            "several labels": np.stack([z > 0, x[:, 1] > 0], axis=1).astype(np.int64),
        }
        out.append((x, labels[task]))
    return out


CHANGES: dict[str, dict[str, object]] = {
    "classification": {"training.model": "logistic"},
    "regression": {"training.task": "regression", "data.bounds": {"label": [-3.0, 3.0]}},
    "counts": {"training.task": "counts", "data.bounds": {"label": [0.0, 9.0]}},
    "survival": {"training.task": "survival", "data.intervals": [1.0, 2.0, 4.0]},
    "several labels": {"data.label_columns": ["a", "b"]},
}


def _compared(task: str, *, trained: bool = True) -> tuple[TrainingPlan, FederatedData, tuple]:
    plan = TrainingPlan.from_toml(PLAN)
    changes = CHANGES[task]
    for key, value in changes.items():
        section, name = key.split(".")
        if isinstance(value, dict):
            value = {each: tuple(both) for each, both in value.items()}
        plan = plan.replace(section, **{name: tuple(value) if isinstance(value, list) else value})
    data = from_arrays(
        _silos(task), task=plan.task, classes=2 if task == "classification" else None
    )
    design = calibrated(plan, data.facts())
    prepared = prepare(design.plan, data)
    return design.plan, data, compare(design.plan, data, prepared, prepared.first_parameters)


@pytest.mark.parametrize("task", CHANGES)
def test_every_task_is_compared_with_all_the_others_and_their_intervals(task: str) -> None:
    plan, data, found = _compared(task)
    assert found
    assert found[0].measure == plan.task.headline.name
    rows = {each.key: each for each in found[0].contenders}
    assert {"constant", "non_private", "alone"} <= set(rows)
    for row in rows.values():
        assert row.plus_minus is not None
        assert row.plus_minus >= 0.0
        assert row.gain == pytest.approx(found[0].value - row.value)
    assert rows["non_private"].value > rows["constant"].value + 0.1
    assert [silo.test for silo in found[0].silos] == [len(silo.test) for silo in data.silos]
    stored = stored_comparisons({"comparison": [each.as_json() for each in found]})
    assert tuple(stored) == found


def test_test_records_have_no_say_in_how_models_are_tuned() -> None:
    """Only what is measured may change with them."""
    plan, data, _ = _compared("classification")
    turned = replace(
        data,
        silos=tuple(
            replace(silo, test=Records(silo.test.x, 1 - silo.test.y)) for silo in data.silos
        ),
    )
    prepared = [prepare(plan, each) for each in (data, turned)]
    found = [
        compare(plan, each, ready, ready.first_parameters)[0]
        for each, ready in zip((data, turned), prepared, strict=True)
    ]
    for one, other in zip(found[0].silos, found[1].silos, strict=True):
        assert one.value == pytest.approx(1.0 - (other.value or 0.0))


@pytest.mark.deep
def test_a_network_is_tuned_too() -> None:
    plan = TrainingPlan.from_toml(PLAN).with_overrides(
        {"training.algorithm": "single-step", "training.sampling_rate": 0.5}
        | {"federation.local_steps": 1}
    )
    network = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
    data = from_arrays(_silos("classification"), classes=2)
    prepared = prepare(plan, data, model=network)
    before = [parameter.clone() for parameter in network.parameters()]
    told: list[tuple[int, int]] = []
    (found,) = compare(
        plan,
        data,
        prepared,
        prepared.first_parameters,
        progress=lambda done, models: told.append((done, models)),
    )
    plain = found.contender("non_private")
    assert plain is not None
    assert plain.value > 0.8
    assert told == [(done, 5) for done in range(1, 6)]
    assert all((a == b).all() for a, b in zip(before, network.parameters(), strict=True))


@pytest.mark.parametrize("metrics", ["secure", "none"])
def test_no_exact_figure_stands_beside_an_account_that_knows_none(
    tmp_path: Path, metrics: str
) -> None:
    plan = TrainingPlan.from_toml(PLAN).with_overrides({"evaluation.metrics": metrics})
    with pytest.raises(PlanError, match=f'"simulation", and the plan\'s is "{metrics}"'):
        sumus.train(
            plan,
            silos=_silos("classification"),
            classes=2,
            options=RunOptions(root=tmp_path, compare=True, ledger=False),
        )
    assert not list(tmp_path.iterdir())


# -- intervals


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """95 of 100, of a share and of a paired difference; 400 draws, ± 3.3 points at 3σ."""
    rng = np.random.default_rng(5)
    inside = {"share": 0, "difference": 0}
    draws = 400
    for _ in range(draws):
        easy = rng.random(200)
        right = (easy < 0.8).astype(float), (easy + 0.1 * rng.normal(size=200) < 0.75).astype(float)
        records = Records(np.zeros((200, 1), np.float32), np.zeros(200, np.int64))
        groups = Groups.of(records, RandomSource.simulation(0))
        one, two = (groups.replicates(lambda rows, r=r: float(r[rows].mean())) for r in right)
        share = groups.interval(one, ACCURACY)
        difference = groups.difference(one, two, ACCURACY)
        inside["share"] += abs(share.value - 0.8) <= (share.plus_minus or 0.0)
        truth = 0.05  # P[easy < .8] − P[easy + noise < .75], the noise being symmetric
        inside["difference"] += (
            abs(difference.value - truth) <= (difference.plus_minus or 0.0) + 1e-3
        )
    for name, count in inside.items():
        assert count / draws > 0.95 - 0.033, name


def test_a_paired_interval_is_shorter_than_one_of_two_samples() -> None:
    rng = np.random.default_rng(6)
    hard = rng.random(500) < 0.3
    one, two = ~hard, ~hard & (rng.random(500) < 0.97)
    records = Records(np.zeros((500, 1), np.float32), np.zeros(500, np.int64))
    groups = Groups.of(records, RandomSource.simulation(0))
    a, b = (groups.replicates(lambda rows, r=r: float(r[rows].mean())) for r in (one, two))
    paired = groups.difference(a, b, ACCURACY).plus_minus or 0.0
    apart = np.hypot(*(groups.interval(each, ACCURACY).plus_minus or 0.0 for each in (a, b)))
    assert paired < 0.6 * apart


def test_no_error_at_all_is_not_certainty() -> None:
    records = Records(np.zeros((30, 1), np.float32), np.zeros(30, np.int64))
    groups = Groups.of(records, RandomSource.simulation(0))
    perfect = groups.replicates(lambda rows: 1.0)
    assert (groups.interval(perfect, ACCURACY).plus_minus or 0.0) > 0.1
    assert (groups.difference(perfect, perfect, ACCURACY).plus_minus or 0.0) > 0.1


def test_persons_fall_into_groups_whole() -> None:
    records = Records(
        np.zeros((90, 1), np.float32), np.zeros(90, np.int64), np.repeat(np.arange(30), 3)
    )
    groups = Groups.of(records, RandomSource.simulation(0))
    for rows in groups.rows:
        assert set(np.bincount(rows // 3, minlength=30).tolist()) <= {0, 3}


def test_one_test_record_leaves_everything_open() -> None:
    records = Records(np.zeros((1, 1), np.float32), np.zeros(1, np.int64))
    groups = Groups.of(records, RandomSource.simulation(0))
    found = groups.replicates(lambda rows: 1.0)
    assert groups.interval(found, Measure("r2", larger_is_better=True)).plus_minus == float("inf")
    assert Replicates.mean([found, found]).value == 1.0


# -- words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.99, "noise is not what makes the difference"),
        (0.956, "a difference within chance"),
        (0.80, "privacy costs: -15.4 ± 1.0 points"),
    ],
)
def test_words_never_read_as_if_noise_helped(value: float, words: str) -> None:
    said = " ".join(made_comparison(value).sentences(ACCURACY))
    assert words in said
    assert "helps" not in said


def test_joining_is_told_by_silos_that_gain_and_lose() -> None:
    found = made_comparison(0.9, silos=("a", "b"))
    assert "better than 2 of 2 silos alone, worse than 0" in found.sentences(ACCURACY)[1]
    behind = made_comparison(0.8, silos=("a", "b"))
    assert behind.sentences(ACCURACY)[1].startswith("joining does not pay here")


def test_a_width_is_rounded_up() -> None:
    contender = replace(made_comparison(0.9).contenders[1], gain=-0.054, gain_plus_minus=0.01201)
    assert difference_text(contender, ACCURACY) == "-5.4 ± 1.3 points"


def test_a_summary_that_was_tampered_with_is_refused_in_one_line() -> None:
    stored = made_comparison(0.9).as_json() | {"more": 1}
    with pytest.raises(StorageError, match="more"):
        Comparison.from_json(stored, "summary.json")
