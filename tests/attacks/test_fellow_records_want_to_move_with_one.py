"""Attack: choose a victim's fellow records so that its presence re-deals who trains and who tests.

A split by position depends on how many rows there are. The adversary knows it, and labels the rows
that the victim's row would bring into the training part 1 and those that it would push out 0: then
one row moves the silo's update by many sensitivities.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sumus.data import FederatedData, from_arrays, load
from sumus.data.partition import split
from sumus.guarantee import calibrated
from sumus.plan import TrainingPlan
from sumus.randomness import RandomSource
from sumus.training import local_updater, prepare

ROWS = 400
PLAN = """
[privacy]
delta = 1e-4
[federation]
rounds = 10
[training]
algorithm = "single-step"
sampling_rate = 1.0
model = "logistic"
"""


def chosen_rows() -> tuple[np.ndarray, np.ndarray]:
    """Nearly equal rows whose labels follow the split by position with and without the first
    row.
    """
    options = {"test_fraction": 0.2, "validation_fraction": 0.0, "seed": 0, "silo": "A"}
    whole, fewer = (
        set(split(ROWS, **options)[0].tolist()),
        set((split(ROWS - 1, **options)[0] + 1).tolist()),
    )
    labels = np.arange(ROWS) % 2
    labels[sorted(fewer - whole)], labels[sorted(whole - fewer)] = 1, 0
    return 1.0 + np.arange(ROWS) / 1000.0, labels


def as_table(folder: Path, x: np.ndarray, y: np.ndarray) -> FederatedData:
    path = folder / f"{len(x)}.csv"
    rows = [f"{silo},{value},{label}" for silo in "AB" for value, label in zip(x, y, strict=True)]
    path.write_text("silo,x,label\n" + "\n".join(rows) + "\n")
    entries = {
        "path": str(path),
        "silo_column": "silo",
        "label_column": "label",
        "bounds": {"x": [0, 2]},
    }
    return load(TrainingPlan.from_table({"data": entries}))


def as_arrays(folder: Path, x: np.ndarray, y: np.ndarray) -> FederatedData:
    return from_arrays({"A": (x[:, None], y), "B": (x[:, None], y)}, classes=2)


def movement(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    given: Callable[[Path, np.ndarray, np.ndarray], FederatedData],
) -> float:
    """How far the noiseless update of silo A moves when its first row goes, in sensitivities."""
    monkeypatch.setattr("sumus.training.local.noisy_steps.draw_noise", lambda *_, **__: 0)
    x, y = chosen_rows()
    datasets = [given(folder, x, y), given(folder, x[1:], y[1:])]
    facts = datasets[0].facts()
    built = calibrated(TrainingPlan.from_toml(PLAN), facts)
    vectors = []
    for data in datasets:
        bench = prepare(built.plan, data)
        update = local_updater(built, built.silos[0], bench.data.silos[0].train, bench.model)
        vectors.append(
            np.asarray(update(bench.first_parameters, RandomSource()).vector, dtype=np.float64)
        )
    return float(np.linalg.norm(vectors[0] - vectors[1])) / built.silos[0].l2_grid


@pytest.mark.parametrize("given", [as_table, as_arrays])
def test_one_row_moves_the_update_by_one_sensitivity_at_most(
    given: Callable[[Path, np.ndarray, np.ndarray], FederatedData],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    assert movement(monkeypatch, tmp_path, given) <= 1.0


@pytest.mark.parametrize("given", [as_table, as_arrays])
def test_control_with_a_split_by_position_one_row_moves_it_by_more_than_ten(
    given: Callable[[Path, np.ndarray, np.ndarray], FederatedData],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    for module in ("pool", "objects"):
        monkeypatch.setattr(
            f"sumus.data.{module}.split_by_record", lambda x, y, **options: split(len(y), **options)
        )
    assert movement(monkeypatch, tmp_path, given) > 10.0
