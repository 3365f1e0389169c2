"""The data sets a plan can name, and everything that is publicly known about each without loading
it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import MappingProxyType
from typing import Final

from sumus.data import sets
from sumus.data.catalogue_entry import NamedSet
from sumus.data.partition import deal_sizes, split_sizes
from sumus.data.pool import silo_titles
from sumus.data.stated_counts import stated_counts
from sumus.errors import DataError, PlanError
from sumus.plan import PublicFacts, TrainingPlan

__all__ = ["CATALOGUE", "named_facts", "named_set", "silo_count"]


def _all_sets() -> Iterator[NamedSet]:
    for module in iter_modules(sets.__path__):
        yield from import_module(f"{sets.__name__}.{module.name}").SETS


CATALOGUE: Final[Mapping[str, NamedSet]] = MappingProxyType(
    {named.name: named for named in sorted(_all_sets(), key=lambda named: named.records)}
)
"""By `data.name`, the smallest first."""


def named_set(name: str) -> NamedSet:
    """The data set of that name."""
    if name not in CATALOGUE:
        raise PlanError(
            "data.name",
            name,
            f"must be one of {', '.join(CATALOGUE)}",
            "For a file of your own set data.path instead.",
        )
    return CATALOGUE[name]


def silo_count(plan: TrainingPlan, named: NamedSet, natural: int | None) -> int:
    """N of a named data set: what the plan says, otherwise the default; natural silos cannot be
    more or fewer than they are.
    """
    wanted = plan.federation.silos
    if natural is not None:
        if wanted not in (None, natural):
            fix = f"Omit it, or set data.partition to iid for {wanted} simulated silos."
            raise PlanError(
                "federation.silos",
                wanted,
                f"must be {natural}, the natural silos of {named.name}",
                fix,
            )
        return natural
    silos = wanted or named.default_silos
    if silos > named.records:
        raise PlanError(
            "federation.silos",
            silos,
            f"must not exceed the {named.records} records of {named.name}",
            "Lower it.",
        )
    return silos


def named_facts(plan: TrainingPlan, cache: Path | None = None) -> PublicFacts:
    """Public facts of a named data set, computed from published counts."""
    data, named = plan.data, named_set(plan.data.name or "digits")
    assumptions: tuple[str, ...] = ()
    if data.partition == "natural":
        if named.natural_counts is None:
            raise DataError(
                f"{named.name}: has no silos of its own. Set data.partition to iid, shards or "
                "dirichlet."
            )
        counts = named.natural_counts(cache)
        silos = silo_count(plan, named, len(counts))
        titles, sizes = tuple(counts), tuple(counts.values())
    else:
        silos = silo_count(plan, named, None)
        titles = silo_titles(silos)
        sizes = deal_sizes(
            named.class_counts,
            kind=data.partition,
            silos=silos,
            seed=data.split_seed,
            alpha=data.dirichlet_alpha,
            shards_per_silo=data.shards_per_silo,
        )
        assumptions = (
            f"{silos} simulated silos: the deal and the split follow the public seed "
            f"{data.split_seed}",
        )
    return PublicFacts(
        name=named.name,
        silo_names=titles,
        records_per_silo=_training_bounds(plan, dict(zip(titles, sizes, strict=True)), named.name),
        shape=named.shape,
        labels=named.labels,
        assumptions=assumptions,
        bounded=data.records_per_silo is not None,
    )


def _training_bounds(plan: TrainingPlan, sizes: Mapping[str, int], name: str) -> tuple[int, ...]:
    """Upper bounds on the training records of every silo: those of the plan, otherwise what the
    split leaves of its records.

    Args:
        plan: its data section may declare bounds.
        sizes: records of each silo of a public data set; none may be empty.
        name: of the data set, for errors.
    """
    data = plan.data
    for silo, size in sizes.items():
        if not size:
            raise DataError(
                f"{name}: silo {silo!r} has no records. Raise data.dirichlet_alpha or lower "
                "federation.silos."
            )
    counted = tuple(
        split_sizes(size, data.test_fraction, data.validation_fraction)[0]
        for size in sizes.values()
    )
    return stated_counts(data, len(sizes), name) or counted
