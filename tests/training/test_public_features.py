"""Features are made in blocks, on every core: every record keeps its place and its bits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from sumus.data import FederatedData, load, load_silo
from sumus.errors import DataError
from sumus.plan import TrainingPlan, resolve
from sumus.training import PublicFeatures, kept_features, preparation, prepare

PLAN = """
[privacy]
epsilon = 1.0
[training]
algorithm = "convex-pass"
model = "softmax"
features = "{features}"
"""


def features_of(name: str, shape: tuple[int, ...]) -> PublicFeatures:
    """What a plan puts in front of a convex pass."""
    return PublicFeatures.of(TrainingPlan.from_toml(PLAN.format(features=name)), shape)


@pytest.mark.parametrize(("name", "shape"), [("none", (7,)), ("gabor", (1, 16, 16))])
@pytest.mark.parametrize("threads", [1, 3])
def test_blocks_and_threads_change_no_bit(
    name: str, shape: tuple[int, ...], threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = features_of(name, shape)
    records = np.random.default_rng(0).random((523, *shape)).astype(np.float32)
    monkeypatch.setattr(preparation, "_AT_ONCE", 1 << 40)
    whole = features(records)  # one block
    monkeypatch.setattr(preparation, "_AT_ONCE", 1)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        blocks = features(records)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert blocks.tobytes() == whole.tobytes()
    one = features(records[407:408])
    assert one.tobytes() == whole[407:408].tobytes()


def test_no_records_have_no_features() -> None:
    assert features_of("none", (7,))(np.empty((0, 7), np.float32)).shape == (0, 8)


OWN_TABLE = """
[data]
path = "visits.csv"
silo_column = "clinic"
label_column = "ward"
columns = ["age", "cost"]
[data.bounds]
age = [0, 100]
cost = [0, 9]
[data.categories]
clinic = ["Bergen", "Oslo"]
ward = ["a", "b"]
"""
PERSONS = {"data.person_column": "who", "data.records_per_person": 2, "privacy.unit": "person"}
COSTS = {
    "data.label_column": "cost",
    "data.columns": ["age", "ward"],
    "training.task": "regression",
    "training.model": "linear",
}


def digits(folder: Path) -> TrainingPlan:
    return TrainingPlan.from_toml(PLAN.format(features="none"))


def rows(folder: Path) -> TrainingPlan:
    return _own_table(folder, {})


def persons(folder: Path) -> TrainingPlan:
    return _own_table(folder, PERSONS)


def numbers(folder: Path) -> TrainingPlan:
    """Records keep how long they are, up to a length that the plan leaves open."""
    return _own_table(folder, COSTS)


def _own_table(folder: Path, keys: dict[str, object]) -> TrainingPlan:
    lines = [
        f"{('Bergen', 'Oslo')[i % 2]},{i % 90},{'ab'[i % 3 == 0]},{i % 10},p{i // 4}"
        for i in range(400)
    ]
    (folder / "visits.csv").write_text("\n".join(["clinic,age,ward,cost,who", *lines]) + "\n")
    (folder / "plan.toml").write_text(PLAN.format(features="none") + OWN_TABLE)
    return TrainingPlan.load(folder / "plan.toml").with_overrides(keys)


def parts_of(data: FederatedData) -> list[bytes]:
    return [
        column.tobytes()
        for silo in data.silos
        for part in (silo.train, silo.validation, silo.test)
        for column in (part.x, part.y, part.edges)
    ]


@pytest.mark.parametrize("planned", [digits, rows, persons, numbers])
def test_features_kept_instead_of_records_are_those_of_the_records(
    planned: Callable[[Path], TrainingPlan], tmp_path: Path
) -> None:
    plan = planned(tmp_path)
    records, kept = load(plan), load(plan, features=kept_features(plan))
    assert kept.behind is not None
    plan = resolve(plan, records.facts()).plan
    assert records.silos[0].train.x.shape[1] + 1 == kept.silos[0].train.x.shape[1]
    assert kept.facts() == records.facts()
    assert parts_of(prepare(plan, kept).data) == parts_of(prepare(plan, records).data)
    name = records.silos[-1].name
    silo = load_silo(plan, name)
    alone = load_silo(plan, name, features=kept_features(plan))
    assert parts_of(prepare(plan, alone).data) == parts_of(prepare(plan, silo).data)


def test_records_that_are_their_own_features_are_kept() -> None:
    plan = TrainingPlan.from_toml('[training]\nalgorithm = "split-noise"\n')
    assert load(plan, features=kept_features(plan)).behind is None


def test_records_behind_the_features_of_another_plan_are_refused() -> None:
    plan = TrainingPlan.from_toml(PLAN.format(features="none"))
    kept = load(plan, features=kept_features(plan))
    with pytest.raises(DataError, match="loaded behind other features"):
        prepare(plan.replace("training", feature_bound=2.0), kept)
