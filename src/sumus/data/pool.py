"""A data set before it is dealt: labels, perhaps silos of its own, and a way to encode any of its
records.

Records are encoded only when their place is known, so that a large table exists once in memory,
already split.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self, final

import numpy as np
from numpy.typing import NDArray

from sumus.data.partition import deal, split, split_by_record
from sumus.data.persons import PersonRules, by_person
from sumus.data.silos import FeaturesFor, FederatedData, Records, RowFeatures, SiloRecords
from sumus.errors import DataError
from sumus.plan import TrainingPlan
from sumus.tasks import Labels

if TYPE_CHECKING:
    from sumus.data.columns import TextColumn
    from sumus.data.encoding import Encoding

__all__ = ["Pool", "federate", "federate_by_record", "silo_titles", "silos_by_record"]

Indices = NDArray[np.int64]


@final
@dataclass(frozen=True, kw_only=True)
class Pool:
    """All records of a data set.

    Args:
        labels: of every record, as the task stores them, and what is public about them.
        encode: float32 records of the given positions, in that order, of a description their cells;
            a fixed public function of each single record.
        silo_names: names of the silos the data itself has, if any.
        silo_of: silo of each record, an index into `silo_names`.
        remarks: what one record could change, for the silo's own eyes: no record or report may hold
            it.
        columns: of a table, those that make features; of a description, those that are described.
        numbers: of a description, the columns that hold numbers.
        persons: whose every record is, where persons are the unit of privacy.
        encoding: of a table, the rules that `encode` follows.
        features: of encoded records, kept instead of them once their part is known, so that no
            more than one silo is in memory twice.
    """

    name: str
    labels: Labels
    encode: Callable[[Indices], NDArray[np.float32 | np.int64]]
    shape: tuple[int, ...]
    silo_names: tuple[str, ...] | None = None
    silo_of: NDArray[np.int64] | None = None
    assumptions: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    persons: TextColumn | None = None
    encoding: Encoding | None = None
    features: RowFeatures | None = None

    def behind(self, features: FeaturesFor | None) -> Self:
        """The same records, of which features may be kept."""
        found = None if features is None else features(self.shape, len(self.columns))
        return replace(self, features=found)

    def kept(self, records: Records) -> Records:
        """What is kept of encoded records."""
        if self.features is None:
            return records
        return replace(records, x=self.features(records.x))


def federate(
    pool: Pool, plan: TrainingPlan, *, natural: bool, bounds: tuple[int, ...]
) -> FederatedData:
    """Deal a named public data set to silos and split every silo in exact numbers, as the plan
    says.

    Guarantee: every record of the pool is in exactly one part of exactly one silo; no silo exceeds
        its bound.

    Args:
        pool: the records.
        plan: its data section gives partition, fractions and the public seed.
        natural: keep the silos that the data has.
        bounds: public upper bounds on the training records, one per silo.
    """
    data = plan.data
    if natural:
        titles, parts = _natural_silos(pool)
    else:
        titles = silo_titles(len(bounds))
        parts = deal(
            pool.labels.values,
            kind=data.partition,
            silos=len(bounds),
            seed=data.split_seed,
            alpha=data.dirichlet_alpha,
            shards_per_silo=data.shards_per_silo,
        )
    silos = []
    for name, members, bound in zip(titles, parts, bounds, strict=True):
        parts_of_silo = split(len(members), **_fractions(plan), seed=data.split_seed, silo=name)
        train, validation, test = (
            pool.kept(Records(pool.encode(members[part]), pool.labels.values[members[part]]))
            for part in parts_of_silo
        )
        if len(train) > bound:
            raise DataError(
                f"{pool.name}: silo {name!r} has {len(train)} training records, the public bound "
                f"is {bound}. "
                "Set data.records_per_silo to bounds that hold."
            )
        silos.append(
            SiloRecords(
                name,
                train,
                validation,
                test,
                bound=None if data.records_per_silo is None else bound,
            )
        )
    return _federated(pool, tuple(silos))


def federate_by_record(pool: Pool, plan: TrainingPlan) -> FederatedData:
    """The silos of a table of one's own, every record (or person, with all its rows) in the part
    that it alone decides on.

    Guarantee: every record is in exactly one part of the silo it belongs to, but for rows beyond
        the most of a person that count; adding or removing one record (or one person) changes one
        part by that record. What the plan states about numbers of records is not
        applied yet (`stated_counts`). Arguments as in `federate`.
    """
    data = _federated(pool, tuple(silos_by_record(pool, plan)))
    told = _in_several_silos(pool, plan.privacy.silos_per_person)
    return replace(
        data,
        remarks=(*data.remarks, *told),
        split_by_record=True,
        same_part_everywhere=pool.persons is not None and PersonRules.of(plan).silos > 1,
    )


def _in_several_silos(pool: Pool, most: int) -> list[str]:
    """How many persons are in more silos than the plan says."""
    if pool.persons is None or pool.silo_of is None:
        return []
    pairs = np.unique(np.stack([pool.persons.codes, pool.silo_of], axis=1), axis=0)
    silos = np.unique(pairs[:, 0], return_counts=True)[1]
    several = int(np.count_nonzero(silos > most))
    if not several:
        return []
    are = "1 person is" if several == 1 else f"{several:,} persons are"
    what = "is protected in each by itself" if most == 1 else "is beyond what is guaranteed"
    return [
        f"{are} in more than {most} silo{'' if most == 1 else 's'}, one in {int(silos.max()):,}: who "
        f"is, {what} (privacy.silos_per_person = {most})"
    ]


def silos_by_record(pool: Pool, plan: TrainingPlan) -> Iterator[SiloRecords]:
    """The same silo by silo, so that whoever only counts needs the memory of one."""
    for name, members in zip(*_natural_silos(pool), strict=True):
        x, y = pool.encode(members), pool.labels.values[members]
        if pool.persons is not None:
            ids = replace(pool.persons, codes=pool.persons.codes[members])
            shares, beyond = by_person(x, y, ids, rules=PersonRules.of(plan), silo=name)
            train, validation, test = map(pool.kept, shares)
            yield SiloRecords(name, train, validation, test, rows_left_out=beyond)
            continue
        parts = split_by_record(x, y, **_fractions(plan), seed=plan.data.split_seed, silo=name)
        train, validation, test = (pool.kept(Records(x[part], y[part])) for part in parts)
        yield SiloRecords(name, train, validation, test)


def silo_titles(silos: int) -> tuple[str, ...]:
    """Names of simulated silos."""
    return tuple(f"silo-{index:0{len(str(silos - 1))}d}" for index in range(silos))


def _fractions(plan: TrainingPlan) -> dict[str, float]:
    return {
        "test_fraction": plan.data.test_fraction,
        "validation_fraction": plan.data.validation_fraction,
    }


def _natural_silos(pool: Pool) -> tuple[tuple[str, ...], tuple[Indices, ...]]:
    """Names and positions of the silos that the data itself has."""
    if pool.silo_of is None or pool.silo_names is None:
        raise DataError(
            f"{pool.name}: has no silos of its own. Set data.partition to iid, shards or dirichlet."
        )
    order = np.argsort(pool.silo_of, kind="stable").astype(np.int64)
    return pool.silo_names, tuple(
        np.split(order, np.cumsum(np.bincount(pool.silo_of, minlength=len(pool.silo_names)))[:-1])
    )


def _federated(pool: Pool, silos: tuple[SiloRecords, ...]) -> FederatedData:
    return FederatedData(
        name=pool.name,
        silos=silos,
        shape=pool.shape,
        labels=pool.labels.facts,
        assumptions=pool.assumptions,
        remarks=pool.remarks,
        columns=pool.columns,
        numbers=pool.numbers,
        encoding=pool.encoding,
        behind=pool.features,
    )
