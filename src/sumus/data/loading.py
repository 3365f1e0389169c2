"""From a plan to records: the one place that decides where records come from."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from sumus.data.catalogue import named_facts, named_set, training_bounds
from sumus.data.pool import Pool, federate
from sumus.data.silos import FederatedData, PublicFacts
from sumus.data.table import open_table, table_pool
from sumus.errors import DataError, PlanError
from sumus.plan import TrainingPlan

__all__ = ["load", "load_silo", "public_facts"]


def load(plan: TrainingPlan, *, cache: Path | None = None) -> FederatedData:
    """All records that the plan's data section names.

    A plan without data section means the digits. A file of one's own always keeps the silos of its silo column.

    Guarantee: every record is in exactly one part of exactly one silo; the result is a function of the files, the data
        section and `federation.silos` alone; whatever was taken as public without being declared is listed in `assumptions`.

    Args:
        plan: the plan.
        cache: a folder to look for data sets in before all others.
    """
    if plan.data.path is not None:
        pool = table_pool(open_table(plan.data, plan.folder), plan.data)
        return federate(pool, plan, natural=True, bounds=_table_facts(plan, pool).records_per_silo)
    facts = named_facts(plan, cache)
    pool = named_set(facts.name).load(cache)
    data = federate(pool, plan, natural=plan.data.partition == "natural", bounds=facts.records_per_silo)
    return dataclasses.replace(data, assumptions=(*facts.assumptions, *data.assumptions))


def load_silo(plan: TrainingPlan, silo: str, *, cache: Path | None = None) -> FederatedData:
    """The records of one silo, as that organisation loads them on its own machine.

    Its file may hold the records of other silos too. If it does not, classes and columns must be declared in the plan: read off
    one silo's own file they could differ from silo to silo.

    Args:
        plan: the plan.
        silo: name of the silo.
        cache: a folder to look for data sets in before all others.
    """
    if plan.data.path is None:
        data = load(plan, cache=cache)
        chosen = [each for each in data.silos if each.name == silo]
        if not chosen:
            raise DataError(f"{data.name}: has no silo {silo!r}. Silos: {', '.join(each.name for each in data.silos[:60])}.")
        return dataclasses.replace(data, silos=tuple(chosen))
    table = open_table(plan.data, plan.folder)
    pool = table_pool(table, plan.data)
    names, silo_of = pool.silo_names or (), pool.silo_of
    if silo_of is None or silo not in names or not np.any(silo_of == names.index(silo)):
        found = [name for place, name in enumerate(names) if silo_of is not None and np.any(silo_of == place)]
        raise DataError(f"data.silo_column: {pool.name} has no records of silo {silo!r}. Found: {', '.join(found[:20])}.")
    if len(np.unique(silo_of)) < (plan.federation.silos or 2):
        _check_declared(plan, table.typed, tuple(table.columns))
    own = np.flatnonzero(silo_of == names.index(silo))
    encode = pool.encode
    only = dataclasses.replace(
        pool, labels=pool.labels[own], encode=lambda rows: encode(own[rows]), silo_names=(silo,), silo_of=np.zeros(len(own), np.int64)
    )
    bounds = plan.data.records_per_silo
    if bounds is not None and len(bounds) != len(names):
        fix = f"List all silos in data.categories.{plan.data.silo_column}"
        raise DataError(f"data.records_per_silo has {len(bounds)} bounds, {pool.name} has {len(names)} silos. {fix}.")
    own_bound = len(own) if bounds is None else bounds[names.index(silo)]
    return federate(only, plan, natural=True, bounds=(own_bound,))


def public_facts(plan: TrainingPlan, *, cache: Path | None = None) -> PublicFacts:
    """What is public about the plan's data: from published counts for a named data set, by one pass over a file of one's own.

    Args:
        plan: the plan.
        cache: a folder to look for data sets in before all others.
    """
    if plan.data.path is None:
        return named_facts(plan, cache)
    return _table_facts(plan, table_pool(open_table(plan.data, plan.folder), plan.data))


def _table_facts(plan: TrainingPlan, pool: Pool) -> PublicFacts:
    names = pool.silo_names or ()
    if plan.federation.silos not in (None, len(names)):
        rule = f"must be {len(names)}, the silos of column {plan.data.silo_column}"
        raise PlanError("federation.silos", plan.federation.silos, rule, "Omit it, or correct the silo column.")
    sizes = np.bincount(pool.silo_of, minlength=len(names)) if pool.silo_of is not None else np.zeros(0, np.int64)
    counted = {name: int(size) for name, size in zip(names, sizes, strict=True)}
    return PublicFacts(
        name=pool.name,
        silo_names=names,
        records_per_silo=training_bounds(plan, counted, pool.name),
        shape=pool.shape,
        classes=len(pool.class_names),
        class_names=pool.class_names,
        assumptions=pool.assumptions,
    )


def _check_declared(plan: TrainingPlan, typed: bool, columns: tuple[str, ...]) -> None:
    """A file of one silo alone must not decide on classes and kinds of columns."""
    data = plan.data
    listed, bounded = data.categories or {}, data.bounds or {}
    if data.label_column not in listed:
        rule = f"data.categories.{data.label_column} must list the classes when a silo reads its own file only"
        raise DataError(f"{rule}. Add it to the plan.")
    features = data.columns or tuple(name for name in columns if name not in (data.silo_column, data.label_column))
    open_columns = [] if typed else [name for name in features if name not in listed and name not in bounded]
    if data.columns is None or open_columns:
        what = f"declare column {open_columns[0]!r} in data.bounds or data.categories" if open_columns else "list data.columns"
        raise DataError(f"{data.path} holds one silo only, so the plan must {what}: every silo must encode records alike.")
