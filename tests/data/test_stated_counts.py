"""How many records a silo has: nobody sees it under a bound, and a count that was read off the data
never turns into one.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from sumus.data import (
    FederatedData,
    Records,
    SiloRecords,
    from_arrays,
    hold_to_plan,
    load,
    load_silo,
    public_facts,
)
from sumus.data.partition import first_by_key
from sumus.errors import DataError, PlanError
from sumus.guarantee import account_of, calibrated
from sumus.plan import TrainingPlan

DECLARED = {
    "silo_column": "clinic",
    "label_column": "ill",
    "columns": ["age"],
    "bounds": {"age": [0, 100]},
    "categories": {"clinic": ["A", "B"], "ill": ["0", "1"]},
}


def table(folder: Path, rows: list[tuple[str, float, int]], name: str = "own.csv") -> Path:
    path = folder / name
    path.write_text(
        "clinic,age,ill\n" + "".join(f"{clinic},{age},{ill}\n" for clinic, age, ill in rows)
    )
    return path


def plan_of(path: Path, **data: object) -> TrainingPlan:
    return TrainingPlan.from_table({"data": {"path": str(path), **DECLARED, **data}})


def contents(records: Records) -> Counter[tuple[float, ...]]:
    return Counter((*map(float, x), float(y)) for x, y in zip(records.x, records.y, strict=True))


# -- a silo at, below and beyond its bound


@settings(max_examples=100, deadline=None)
@given(
    # few values: equal records are common
    ages=st.lists(st.integers(0, 12), min_size=1, max_size=20),
    bound=st.integers(1, 20),
    gone=st.integers(0, 19),
)
def test_a_record_more_changes_one_record_below_the_bound_and_two_beyond_it(
    ages: list[int], bound: int, gone: int
) -> None:
    """Against the definition: the multiset of kept records moves by one record, or by two where the
    silo is beyond its bound.
    """
    x, y = np.array(ages, dtype=np.float32)[:, None], np.array(ages) % 2
    less = np.delete(np.arange(len(ages)), gone % len(ages))
    kept = [
        contents(Records(x[at][chosen], y[at][chosen])) for at, chosen in _both(x, y, less, bound)
    ]
    distance = sum(((kept[0] - kept[1]) + (kept[1] - kept[0])).values())
    assert sum(kept[0].values()) == min(len(ages), bound)
    assert distance <= (1 if len(ages) <= bound else 2)


def _both(x: np.ndarray, y: np.ndarray, less: np.ndarray, bound: int):
    for at in (np.arange(len(y)), less):
        yield at, first_by_key(x[at], y[at], bound, seed=3, silo="A")


def test_who_is_left_out_follows_from_the_records_and_not_from_their_order() -> None:
    rng = np.random.default_rng(0)
    x, y, order = (
        rng.normal(size=(50, 3)).astype(np.float32),
        rng.integers(0, 2, 50),
        rng.permutation(50),
    )
    one, other = (
        first_by_key(x, y, 20, seed=0, silo="A"),
        order[first_by_key(x[order], y[order], 20, seed=0, silo="A")],
    )
    assert sorted(one) == sorted(other)
    assert sorted(one) != sorted(first_by_key(x, y, 20, seed=0, silo="B"))
    assert sorted(one) != sorted(first_by_key(x, y, 20, seed=1, silo="A"))


def test_a_silo_beyond_its_bound_leaves_records_out_and_says_nothing(tmp_path: Path) -> None:
    rows = [("AB"[index % 2], index, index % 3 % 2) for index in range(80)]
    data = load(plan_of(table(tmp_path, rows), records_per_silo=[20, 60]))
    small, large = data.silos
    assert (len(small.train), small.bound, len(large.train) + len(large.test)) == (20, 20, 40)
    assert small.left_out == 40 - 20 - len(small.test)
    assert large.left_out == 0
    assert data.assumptions == ()
    assert "left" not in repr(data.facts())
    alone = load_silo(
        plan_of(table(tmp_path, [row for row in rows if row[0] == "A"]), records_per_silo=[20, 60]),
        "A",
    )
    assert np.array_equal(alone.silos[0].train.x, small.train.x)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_silo_may_lose_its_last_record(tmp_path: Path, suffix: str) -> None:
    def path_of(rows: list[tuple[str, float, int]]) -> Path:
        path = table(tmp_path, rows, f"{len(rows)}.csv")
        if suffix == "csv":
            return path
        csv, parquet = pytest.importorskip("pyarrow.csv"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(csv.read_csv(path), path.with_suffix(".parquet"))
        return path.with_suffix(".parquet")

    one, none = (plan_of(path_of(rows), records_per_silo=[5, 5]) for rows in ([("A", 50, 0)], []))
    assert sorted(
        map(len, (load_silo(one, "A").silos[0].train, load_silo(one, "A").silos[0].test))
    ) == [0, 1]
    for plan in (one, none):
        own = load_silo(plan, "A")
        assert (own.shape, own.labels.names, own.facts().records_per_silo, own.assumptions) == (
            (2,),
            ("0", "1"),
            (5,),
            (),
        )
        whole = load(plan)
        assert whole.facts().records_per_silo == public_facts(plan).records_per_silo == (5, 5)
    assert len(load_silo(none, "A").silos[0]) == 0


def test_a_file_without_records_cannot_say_which_silos_and_classes_there_are(
    tmp_path: Path,
) -> None:
    path = table(tmp_path, [])
    for undeclared in ("clinic", "ill"):
        listed = {
            name: values for name, values in DECLARED["categories"].items() if name != undeclared
        }
        with pytest.raises(DataError, match="holds columns but no records"):
            load(plan_of(path, categories=listed))


# -- counts that are public stay public


def resolved(plan: TrainingPlan) -> TrainingPlan:
    facts = public_facts(plan)
    return calibrated(plan, facts).plan


@pytest.mark.parametrize("bounds", [{}, {"records_per_silo": [60, 60]}], ids=["counted", "bounded"])
@pytest.mark.parametrize("test_fraction", [0.0, 0.2])
def test_a_resolved_plan_keeps_its_meaning(
    tmp_path: Path, bounds: dict[str, object], test_fraction: float
) -> None:
    path = table(
        tmp_path, [("AB"[index % 3 % 2], index % 90, index % 5 % 2) for index in range(150)]
    )
    plan = plan_of(path, test_fraction=test_fraction, **bounds)
    once = resolved(plan)
    again = TrainingPlan.from_toml(once.to_toml())
    assert resolved(again) == once == again
    assert once.data.counts == ("bounded" if bounds else "public")
    for first, second in zip(load(plan).silos, load(again).silos, strict=True):
        for part in ("train", "validation", "test"):
            assert np.array_equal(getattr(first, part).x, getattr(second, part).x)
            assert np.array_equal(getattr(first, part).y, getattr(second, part).y)
        assert first.bound == second.bound == (60 if bounds else None)
    assert public_facts(plan) == public_facts(again)
    assert load(plan).assumptions == load(again).assumptions


def test_the_neighbours_that_are_printed_are_those_that_hold(tmp_path: Path) -> None:
    path = table(tmp_path, [("AB"[index % 2], index, index % 3 % 2) for index in range(90)])

    def shown(plan: TrainingPlan) -> str:
        facts = public_facts(plan)
        return account_of(calibrated(plan, facts)).neighbours

    counted, bounded = plan_of(path), plan_of(path, records_per_silo=[60, 60])
    assert (
        shown(counted)
        == shown(resolved(counted))
        == "one record of one silo, add or remove; record counts are taken as public, "
        "and rates, bins and divisors stay as the stated counts made them"
    )
    assert "silos within data.records_per_silo" in shown(bounded)
    assert shown(bounded) == shown(resolved(bounded))
    named = shown(TrainingPlan.from_toml('[data]\nname = "digits"\n'))
    assert named.startswith("one record of one silo, add or remove; record counts and the split")


def test_bounds_without_numbers_and_two_sources_are_refused() -> None:
    with pytest.raises(PlanError, match=r"data\.records_per_silo"):
        TrainingPlan.from_toml('[data]\ncounts = "bounded"\n')
    with pytest.raises(PlanError, match=r"data\.objects.*cannot stand beside data\.name"):
        TrainingPlan.from_toml('[data]\nname = "digits"\nobjects = "mine"\n')


# -- python objects


def test_arrays_are_held_to_the_plans_bounds_like_tables() -> None:
    rng = np.random.default_rng(5)
    silos = {name: (rng.normal(size=(40, 3)), rng.integers(0, 2, 40)) for name in ("a", "b")}
    plan = TrainingPlan.from_toml("[data]\nrecords_per_silo = [10, 50]\n").data
    data = hold_to_plan(from_arrays(silos, classes=2), plan)
    assert [(silo.name, silo.bound) for silo in data.silos] == [("a", 10), ("b", 50)]
    assert len(data.silos[0].train) == 10
    assert data.silos[0].left_out + 10 + len(data.silos[0].test) == 40
    assert data.facts().records_per_silo == (10, 50)
    assert data.facts().bounded
    assert data.assumptions == ()
    with pytest.raises(PlanError, match="one bound for each of the 2 silos"):
        hold_to_plan(data, TrainingPlan.from_toml("[data]\nrecords_per_silo = [10]\n").data)


def test_arrays_without_bounds_say_that_counts_are_public() -> None:
    silo = (np.arange(12.0).reshape(6, 2), [0, 1, 0, 1, 0, 1])
    data = hold_to_plan(from_arrays([silo], classes=2), TrainingPlan().data)
    assert any("record counts" in line for line in data.assumptions)
    assert not data.facts().bounded


def test_an_empty_object_is_a_silo_without_records() -> None:
    full = (np.arange(12.0).reshape(6, 2), [0, 1, 0, 1, 0, 1])
    data = from_arrays([full, ([], []), (np.zeros((0, 2)), np.zeros(0)), []], test_fraction=0.0)
    assert [silo.train.x.shape for silo in data.silos] == [(6, 2), (0, 2), (0, 2), (0, 2)]
    assert isinstance(data, FederatedData)
    assert all(isinstance(silo, SiloRecords) for silo in data.silos)


def test_names_come_from_a_mapping() -> None:
    one, two = (np.zeros((4, 2)), [0, 1, 0, 1]), (np.ones((3, 2)), [0, 1, 0])
    data = from_arrays({"Bergen": one, "Oslo": two}, tests={"Oslo": two, "Bergen": one})
    assert [silo.name for silo in data.silos] == ["Bergen", "Oslo"]
    assert [len(silo.test) for silo in data.silos] == [4, 3]


def test_data_sets_in_memory_are_told_apart_by_their_names_alone() -> None:
    """A record more, another value, class, shape or silo keeps the ledger."""
    x, y = np.arange(24.0).reshape(8, 3), np.array([0, 1, 0, 1, 0, 1, 0, 1])
    name = from_arrays([(x, y)]).name
    assert from_arrays([(x[1:], y[1:])]).name == name
    assert from_arrays([(x + 5, 1 - y)]).name == name
    assert from_arrays([(x, y)], classes=3).name == name
    others = [from_arrays([(x[:, :2], y)]), from_arrays({"a": (x, y)}), from_arrays([(x, y)] * 2)]
    assert {name} == {other.name for other in others}
    assert from_arrays([(x, y)], name="visits").name == "visits"
