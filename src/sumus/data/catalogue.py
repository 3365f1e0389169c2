"""The data sets a plan can name, and everything that is publicly known about each without loading
it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

from sumus.data import images, income
from sumus.data.partition import deal_sizes, split_sizes
from sumus.data.pool import Pool, silo_titles
from sumus.data.stated_counts import stated_counts
from sumus.errors import DataError, PlanError
from sumus.plan import PublicFacts, TrainingPlan
from sumus.tasks import LabelFacts

__all__ = ["CATALOGUE", "NamedSet", "named_facts", "named_set", "silo_count"]


@final
@dataclass(frozen=True, kw_only=True)
class NamedSet:
    """One data set of the catalogue.

    Args:
        class_counts: records of each class, as published; they fix the sizes of every simulated
            silo.
        default_silos: N if the plan does not say.
        natural_counts: records of each silo that the data itself has, if it has any.
        place: where it is on this machine, or the error that says how to get it; cheap.
        load: reads it from there.
    """

    name: str
    title: str
    shape: tuple[int, ...]
    class_names: tuple[str, ...]
    class_counts: tuple[int, ...]
    default_silos: int
    place: Callable[[Path | None], Path | str]
    load: Callable[[Path | None], Pool]
    natural_counts: Callable[[Path | None], dict[str, int]] | None = None

    @property
    def records(self) -> int:
        return sum(self.class_counts)


_DIGIT_COUNTS = (178, 182, 177, 183, 181, 182, 181, 179, 174, 180)

CATALOGUE: dict[str, NamedSet] = {
    each.name: each
    for each in (
        NamedSet(
            name="digits",
            title="8 × 8 handwritten digits, comes with scikit-learn",
            shape=(64,),
            class_names=tuple(str(digit) for digit in range(10)),
            class_counts=_DIGIT_COUNTS,
            default_silos=5,
            place=images.digits_place,
            load=images.digits,
        ),
        NamedSet(
            name="fashion-mnist",
            title="28 × 28 grey images of clothing",
            shape=(1, 28, 28),
            class_names=images.FASHION_CLASSES,
            class_counts=(7000,) * 10,
            default_silos=10,
            place=images.fashion_mnist_place,
            load=images.fashion_mnist,
        ),
        NamedSet(
            name="cifar10",
            title="32 × 32 colour images",
            shape=(3, 32, 32),
            class_names=images.CIFAR10_CLASSES,
            class_counts=(6000,) * 10,
            default_silos=10,
            place=images.cifar10_place,
            load=images.cifar10,
        ),
        NamedSet(
            name="cifar10-features",
            title="CIFAR-10 through a frozen EfficientNet-Lite0",
            shape=(images.FEATURE_WIDTH,),
            class_names=images.CIFAR10_CLASSES,
            class_counts=(6000,) * 10,
            default_silos=10,
            place=images.cifar10_features_place,
            load=images.cifar10_features,
        ),
        NamedSet(
            name="income",
            title="ACS Income 2018, one silo per US state and Puerto Rico",
            shape=(income.income_width(),),
            class_names=income.CLASS_NAMES,
            class_counts=income.CLASS_COUNTS,
            default_silos=len(income.STATE_COUNTS),
            place=income.income_place,
            load=income.income,
            natural_counts=income.state_counts,
        ),
    )
}


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


def silo_count(plan: TrainingPlan, chosen: NamedSet, natural: int | None) -> int:
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
                f"must be {natural}, the natural silos of {chosen.name}",
                fix,
            )
        return natural
    silos = wanted or chosen.default_silos
    if silos > chosen.records:
        raise PlanError(
            "federation.silos",
            silos,
            f"must not exceed the {chosen.records} records of {chosen.name}",
            "Lower it.",
        )
    return silos


def named_facts(plan: TrainingPlan, cache: Path | None = None) -> PublicFacts:
    """Public facts of a named data set, computed from published counts."""
    data, chosen = plan.data, named_set(plan.data.name or "digits")
    assumptions: tuple[str, ...] = ()
    if data.partition == "natural":
        if chosen.natural_counts is None:
            raise DataError(
                f"{chosen.name}: has no silos of its own. Set data.partition to iid, shards or "
                "dirichlet."
            )
        counts = chosen.natural_counts(cache)
        silos = silo_count(plan, chosen, len(counts))
        titles, sizes = tuple(counts), tuple(counts.values())
    else:
        silos = silo_count(plan, chosen, None)
        titles = silo_titles(silos)
        sizes = deal_sizes(
            chosen.class_counts,
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
        name=chosen.name,
        silo_names=titles,
        records_per_silo=_training_bounds(plan, dict(zip(titles, sizes, strict=True)), chosen.name),
        shape=chosen.shape,
        labels=LabelFacts(chosen.class_names),
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
