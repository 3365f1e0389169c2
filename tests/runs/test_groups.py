"""Records given in Python with the persons they belong to: `groups=`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import sumus
from sumus.books import RunFolder
from sumus.data import FederatedData, from_arrays, load
from sumus.errors import DataError, PlanError
from sumus.plan import resolve

PEOPLE, VISITS = 60, 4


def silo(repeats: int = 1) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray]:
    """(x, y) and whose rows they are; the rows of person 7 stand there `repeats` times."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(PEOPLE * VISITS, 3)).astype(np.float32)
    ids = np.repeat(np.arange(PEOPLE), VISITS)
    rows = np.concatenate([np.arange(len(x)), *[np.flatnonzero(ids == 7)] * (repeats - 1)])
    return (x[rows], (x[rows, 0] > 0).astype(np.int64)), ids[rows]


def plan_of(algorithm: str = "convex-pass", **privacy: object) -> sumus.TrainingPlan:
    sampled = {"sampling_rate": 0.5} if algorithm != "convex-pass" else {}
    return sumus.TrainingPlan.from_table(
        {
            "privacy": {"unit": "person", "epsilon": 5.0, "delta": 1e-3, **privacy},
            "federation": {"rounds": 2},
            "training": {"algorithm": algorithm, **sampled},
            "data": {"records_per_silo": [60, 60, 60]},
        }
    )


def options(folder: Path) -> sumus.RunOptions:
    return sumus.RunOptions(root=folder / "runs", state=folder / "state", threads=1)


@pytest.mark.parametrize("algorithm", ["convex-pass", "dp-sgd"])
def test_ten_copies_of_one_persons_rows_change_neither_noise_nor_epsilon(
    tmp_path: Path, algorithm: str
) -> None:
    made = []
    for repeats in (1, 10):
        (x, y), ids = silo(repeats)
        run = sumus.train(
            plan_of(algorithm),
            silos=[(x, y)] * 3,
            groups=[ids] * 3,
            classes=2,
            name="visits",
            options=options(tmp_path / str(repeats)),
        )
        made.append(run)
    first, second = (run.account for run in made)
    assert first is not None
    assert second is not None
    assert first.unit == "person"
    assert first.epsilon == second.epsilon
    assert first.noise_multiplier == second.noise_multiplier
    assert first.plan_hash == second.plan_hash
    assert first.records_per_silo == (60, 60, 60)
    stored = RunFolder.open(made[0].path).guarantee
    assert stored is not None
    assert stored.neighbours.startswith("one person of one silo with all its rows there")


def test_a_model_of_ones_own_is_trained_per_person(tmp_path: Path) -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(torch.tanh(self.first(x)))

    pair, ids = silo()
    run = sumus.train(
        plan_of("dp-sgd"),
        model=Own(),
        silos={"a": pair, "b": pair, "c": pair},
        groups={"a": ids, "b": ids, "c": ids},
        classes=2,
        name="visits",
        options=options(tmp_path),
    )
    assert run.account is not None
    assert run.account.unit == "person"


def test_what_is_refused(tmp_path: Path) -> None:
    pair, ids = silo()
    silos, groups = [pair] * 3, [ids] * 3
    rows = plan_of(unit="record")
    loaded = from_arrays(silos, groups=groups, classes=2)
    for plan, given, told in (
        (plan_of(), {"silos": silos}, "groups must say whose every row is"),
        (rows, {"silos": silos, "groups": groups}, "groups needs privacy.unit"),
        (plan_of(), {"silos": loaded, "groups": groups}, "groups is for arrays, tables"),
        (plan_of(), {"groups": groups}, "groups is for records given in silos="),
        (rows, {"silos": loaded}, "privacy.unit must be person for these records"),
        (
            plan_of(),
            {"silos": from_arrays(silos, classes=2)},
            "privacy.unit must be record for these",
        ),
    ):
        with pytest.raises(PlanError, match=told):
            sumus.train(plan, options=options(tmp_path), **given)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="has no value in 3 rows"):
        sumus.train(
            plan_of(),
            silos=silos,
            groups=[[None] * 3 + ids.tolist()[3:], ids, ids],
            classes=2,
            options=options(tmp_path),
        )
    assert not (tmp_path / "state").exists()  # nothing was spent


@pytest.mark.filterwarnings("ignore:.* in more than 1 silo")
def test_records_split_silo_by_silo_are_refused_for_persons_of_several(tmp_path: Path) -> None:
    """A person would train in one silo and test in another, and neither ε speaks of both."""
    pair, ids = silo()
    table = tmp_path / "own.csv"
    rows = [f"{name},{n % 50},{n % 7},{n % 2}" for name in "ab" for n in range(200)]
    table.write_text("silo,person,x,label\n" + "\n".join(rows))

    def of_table(silos: int) -> sumus.TrainingPlan:
        data = {"path": str(table), "silo_column": "silo", "label_column": "label"}
        data |= {"person_column": "person", "bounds": {"x": [0, 7]}}
        return sumus.TrainingPlan.from_table(
            {
                "privacy": {"unit": "person", "silos_per_person": silos},
                "data": data | {"categories": {"label": [0, 1], "silo": ["a", "b"]}},
            }
        )

    def of_arrays(silos: int) -> FederatedData:
        return from_arrays([pair] * 3, groups=[ids] * 3, classes=2, silos_per_person=silos)

    for made in (of_arrays, lambda silos: load(of_table(silos))):
        for split_for, planned in ((2, 2), (2, 1), (1, 1)):
            with_records(plan_of(silos_per_person=planned), made(split_for))
        with pytest.raises(PlanError, match="silos_per_person must be 1 for records in which"):
            with_records(plan_of(silos_per_person=2), made(1))


def with_records(plan: sumus.TrainingPlan, data: FederatedData) -> None:
    from sumus.runs import given_in_python

    plan = plan.replace("data", records_per_silo=None)
    given_in_python.with_records(plan, data, given_in_python.Given(name="visits"))


def test_a_run_is_bound_to_whose_rows_they_are() -> None:
    """Repeated with the same noise, rows that are grouped otherwise would tell of both groupings."""
    from sumus.training import bound_to, prepare

    pair, ids = silo()
    plan = resolve(plan_of(), from_arrays([pair] * 3, groups=[ids] * 3, classes=2).facts()).plan
    digests = set()
    for groups in (ids, ids // 2, None):
        data = from_arrays(
            [pair] * 3,
            groups=None if groups is None else [groups] * 3,
            classes=2,
            test_fraction=0.0,
        )
        digests.add(bound_to(bytes(32), prepare(plan, data), plan))
    assert len(digests) == 3


def test_what_is_left_out_is_told_here_only(tmp_path: Path) -> None:
    pair, ids = silo()
    plan = plan_of().with_overrides(
        {"data.records_per_person": 2, "data.records_per_silo": [20, 60, 60]}
    )
    with pytest.warns(UserWarning, match="left out") as told:
        run = sumus.train(
            plan,
            silos=[pair] * 3,
            groups=[ids] * 3,
            classes=2,
            name="visits",
            options=options(tmp_path),
        )
    lines = [str(each.message) for each in told]
    assert any("training persons of silo-0 beyond the bound 20" in line for line in lines)
    assert any("rows of silo-1 beyond the most that count of a person" in line for line in lines)
    written = b"".join(file.read_bytes() for file in run.path.rglob("*") if file.is_file())
    assert b"left out" not in written
