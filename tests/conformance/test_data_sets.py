"""Every set of `CATALOGUE` is tested by being there; those that are not on this machine, by what
they say instead.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from sumus.data import CATALOGUE, FederatedData, NamedSet, Records, load, load_silo, public_facts
from sumus.errors import DataError
from sumus.plan import TrainingPlan

pytestmark = pytest.mark.parametrize("named", CATALOGUE.values(), ids=CATALOGUE)
SMALL = 10_000  # records; of a larger set one partition is loaded
FIXES = ("Run: ", "Put ", "run: ", "put ")


def plan_of(named: NamedSet, silos: int | None = None, **data: object) -> TrainingPlan:
    federation = {} if silos is None else {"silos": silos}
    return TrainingPlan.from_table({"data": {"name": named.name, **data}, "federation": federation})


def partitions(named: NamedSet) -> tuple[str, ...]:
    natural = () if named.natural_counts is None else ("natural",)
    return ("iid", "shards", "dirichlet", *natural)


def at_hand(named: NamedSet) -> None:
    try:
        named.place(None)
    except DataError as error:
        pytest.skip(f"bigdata: {error}")


def parts(data: FederatedData) -> Iterator[Records]:
    for silo in data.silos:
        yield from (silo.train, silo.validation, silo.test)


def rows(records: Records) -> NDArray[np.float32]:
    flat = records.x.reshape(len(records), -1)
    return np.column_stack([flat, records.y.astype(np.float32)])


def counted(table: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The different rows, in order, and how often each is there."""
    different, times = np.unique(table, axis=0, return_counts=True)
    return different, times


@pytest.fixture
def empty_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any data set and without packages that bring some."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SUMUS_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, package=None: None if name == "sklearn" else find_spec(name, package),
    )
    exists = Path.exists
    monkeypatch.setattr(
        Path,
        "exists",
        lambda self, **options: self.is_relative_to(tmp_path) and exists(self, **options),
    )
    return tmp_path


def test_what_it_says_of_itself_is_whole(named: NamedSet) -> None:
    assert CATALOGUE[named.name] is named
    assert named.title
    assert "\n" not in named.title
    assert named.shape
    assert min(named.shape) > 0
    assert min(named.class_counts) > 0
    assert len(named.class_counts) == max(len(named.labels.names), 1)
    assert 2 <= named.default_silos <= named.records
    if named.natural_counts is not None:
        assert sum(named.natural_counts(None).values()) == named.records


def test_facts_need_no_data(named: NamedSet, empty_machine: Path) -> None:
    assert public_facts(plan_of(named)).silos == named.default_silos
    many = min(1000, named.records // 2)
    for partition in partitions(named):
        if partition == "natural":
            facts = public_facts(plan_of(named, partition=partition))
            assert facts.silos == len(facts.records_per_silo)
        elif partition == "iid":
            facts = public_facts(plan_of(named, many, partition=partition, test_fraction=0.0))
            assert facts.silos == many
            assert sum(facts.records_per_silo) == named.records
        else:
            facts = public_facts(plan_of(named, partition=partition))
            assert facts.silos == named.default_silos
        assert (facts.shape, facts.labels) == (named.shape, named.labels)


def test_where_it_is_missing_one_line_says_how_to_get_it(
    named: NamedSet, empty_machine: Path
) -> None:
    for function in (lambda: named.place(None), lambda: load(plan_of(named))):
        with pytest.raises(DataError) as caught:
            function()
        (line,) = str(caught.value).splitlines()
        assert line.startswith(f"data set {named.name!r} is not on this machine. ")
        assert any(fix in line for fix in FIXES), line


def test_too_many_silos_are_refused_before_loading(named: NamedSet, empty_machine: Path) -> None:
    with pytest.raises(Exception, match=f"must not exceed the {named.records} records"):
        public_facts(plan_of(named, named.records + 1))


@pytest.mark.bigdata
def test_facts_equal_what_loading_finds(named: NamedSet) -> None:
    at_hand(named)
    for partition in partitions(named):
        plan = plan_of(named, partition=partition, validation_fraction=0.2, split_seed=3)
        data = load(plan)
        before, after = public_facts(plan), data.facts()
        assert replace(before, assumptions=after.assumptions) == after
        assert set(before.assumptions) <= set(after.assumptions)  # a file may add its own
        labels = np.concatenate([part.y for part in parts(data)])
        classes = labels if named.labels.names else np.zeros(len(labels), np.int64)
        counts = np.bincount(classes, minlength=len(named.class_counts))
        assert tuple(counts.tolist()) == named.class_counts
        for part in parts(data):
            assert part.x.shape == (len(part), *named.shape)
            assert part.x.dtype == np.float32
            assert np.isfinite(part.x).all()
        if named.records > SMALL:
            break


@pytest.mark.bigdata
def test_every_record_is_in_exactly_one_part_of_one_silo(named: NamedSet) -> None:
    """Every record is known by its features and label; equal ones are counted."""
    at_hand(named)
    if named.records > SMALL:
        pytest.skip("bigdata: sorting all records of a large set takes minutes")
    pool = named.load(None)
    everywhere = Records(pool.encode(np.arange(named.records)), pool.labels.values)
    for partition in partitions(named):
        data = load(plan_of(named, partition=partition, validation_fraction=0.2))
        dealt = np.concatenate([rows(part) for part in parts(data)])
        for mine, theirs in zip(counted(dealt), counted(rows(everywhere)), strict=True):
            assert np.array_equal(mine, theirs)


@pytest.mark.bigdata
def test_the_deal_is_a_function_of_the_plan_and_a_silo_loads_its_own_part(named: NamedSet) -> None:
    at_hand(named)
    plan = plan_of(named)
    whole = load(plan)
    again = load_silo(plan, whole.silos[-1].name)
    assert len(again.silos) == 1
    for mine, theirs in zip(parts(again), list(parts(whole))[-3:], strict=True):
        assert np.array_equal(mine.x, theirs.x)
        assert np.array_equal(mine.y, theirs.y)
    if named.records <= SMALL:
        other = load(plan_of(named, split_seed=plan.data.split_seed + 1))
        assert not np.array_equal(other.silos[0].train.x, whole.silos[0].train.x)
