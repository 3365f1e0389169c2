"""A data set before it is dealt: labels, perhaps silos of its own, and a way to encode any of its records.

Records are encoded only when their place is known, so that a large table exists once in memory, already split.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from sumus.data.partition import deal, split, split_by_record
from sumus.data.silos import FederatedData, Records, SiloRecords
from sumus.errors import DataError
from sumus.plan import TrainingPlan

__all__ = ["Pool", "federate", "silo_titles"]

Indices = NDArray[np.int64]


@final
@dataclass(frozen=True, kw_only=True)
class Pool:
    """All records of a data set.

    Args:
        labels: class of each record.
        encode: float32 records of the given positions, in that order; a fixed public function of each single record.
        silo_names: names of the silos the data itself has, if any.
        silo_of: silo of each record, an index into `silo_names`.
    """

    name: str
    labels: NDArray[np.int64]
    encode: Callable[[Indices], NDArray[np.float32]]
    shape: tuple[int, ...]
    class_names: tuple[str, ...]
    silo_names: tuple[str, ...] | None = None
    silo_of: NDArray[np.int64] | None = None
    assumptions: tuple[str, ...] = ()


def federate(pool: Pool, plan: TrainingPlan, *, natural: bool, bounds: tuple[int, ...]) -> FederatedData:
    """Deal a pool to silos and split every silo as the plan says.

    Guarantee: every record of the pool is in exactly one part of exactly one silo; no silo exceeds its bound.

    Args:
        pool: the records.
        plan: its data section gives partition, fractions and the public seed.
        natural: keep the silos that the data has.
        bounds: public upper bounds on the training records, one per silo.
    """
    data = plan.data
    if natural:
        if pool.silo_of is None or pool.silo_names is None:
            raise DataError(f"{pool.name}: has no silos of its own. Set data.partition to iid, shards or dirichlet.")
        titles, parts = pool.silo_names, _group(pool.silo_of, len(pool.silo_names))
    else:
        titles = silo_titles(len(bounds))
        parts = deal(
            pool.labels,
            kind=data.partition,
            silos=len(bounds),
            seed=data.split_seed,
            alpha=data.dirichlet_alpha,
            shards_per_silo=data.shards_per_silo,
        )
    members = tuple(_split_silo(pool, plan, name=name, members=part) for name, part in zip(titles, parts, strict=True))
    _check_bounds(pool.name, members, bounds)
    return FederatedData(
        name=pool.name,
        silos=members,
        shape=pool.shape,
        classes=len(pool.class_names),
        class_names=pool.class_names,
        assumptions=pool.assumptions,
    )


def silo_titles(silos: int) -> tuple[str, ...]:
    """Names of simulated silos."""
    return tuple(f"silo-{index:0{len(str(silos - 1))}d}" for index in range(silos))


def _group(silo_of: NDArray[np.int64], silos: int) -> tuple[Indices, ...]:
    order = np.argsort(silo_of, kind="stable").astype(np.int64)
    return tuple(np.split(order, np.cumsum(np.bincount(silo_of, minlength=silos))[:-1]))


def _split_silo(pool: Pool, plan: TrainingPlan, *, name: str, members: Indices) -> SiloRecords:
    data = plan.data
    fractions = {"test_fraction": data.test_fraction, "validation_fraction": data.validation_fraction}
    if data.path is not None and data.records_per_silo is not None:  # own records whose number is private
        x, y = pool.encode(members), pool.labels[members]
        parts = split_by_record(x, y, **fractions, seed=data.split_seed, silo=name)
        train, validation, test = (Records(x[part], y[part]) for part in parts)
        return SiloRecords(name=name, train=train, validation=validation, test=test)
    parts = split(len(members), **fractions, seed=data.split_seed, silo=name)
    train, validation, test = (Records(pool.encode(members[part]), pool.labels[members[part]]) for part in parts)
    return SiloRecords(name=name, train=train, validation=validation, test=test)


def _check_bounds(name: str, silos: tuple[SiloRecords, ...], bounds: tuple[int, ...]) -> None:
    for silo, bound in zip(silos, bounds, strict=True):
        if len(silo.train) > bound:
            raise DataError(
                f"{name}: silo {silo.name!r} has {len(silo.train)} training records, the public bound is {bound}. "
                "Set data.records_per_silo to bounds that hold."
            )
