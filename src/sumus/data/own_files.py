"""Records of a file of one's own, and what is public about them."""

from __future__ import annotations

import dataclasses

import numpy as np

from sumus.data.cells import check_declared, described_pool
from sumus.data.pool import Pool, federate_by_record, silos_by_record
from sumus.data.silos import FeaturesFor, FederatedData
from sumus.data.stated_counts import COUNTS_ARE_PUBLIC, hold_silo, hold_to_plan, stated_counts
from sumus.data.table import (
    OwnTable,
    in_decimal_points,
    label_columns,
    open_table,
    table_pool,
    undeclared_label,
)
from sumus.data.table_reading import forget_large
from sumus.errors import DataError, PlanError, dotted
from sumus.plan import PublicFacts, TrainingPlan

__all__ = ["facts_of_file", "load_file", "load_silo_of_file", "load_table"]


def load_file(plan: TrainingPlan, *, features: FeaturesFor | None = None) -> FederatedData:
    """All records of the file that the plan names (see `loading.load`)."""
    table = open_table(plan.data, plan.folder)
    pool = _own_pool(plan, table).behind(features)
    _check_silos(plan, pool)
    data = hold_to_plan(federate_by_record(pool, plan), plan.data)
    forget_large(table.columns)
    return data


def load_table(plan: TrainingPlan, table: OwnTable) -> FederatedData:
    """All records of a table that was given in Python, by the columns that the plan names.

    Guarantee: that of `load` for a file with these columns; what the plan states about numbers of
        records is not applied yet (`stated_counts`).

    Args:
        plan: the plan.
        table: its columns, those of silos and labels among them.
    """
    pool = _own_pool(plan, in_decimal_points(table, plan.data))
    _check_silos(plan, pool)
    return federate_by_record(pool, plan)


def load_silo_of_file(
    plan: TrainingPlan, silo: str, *, features: FeaturesFor | None = None
) -> FederatedData:
    """The records of one silo of the file that the plan names (see `loading.load_silo`)."""
    table = open_table(plan.data, plan.folder)
    pool = _own_pool(plan, table).behind(features)
    names, silo_of = pool.silo_names or (), pool.silo_of
    if silo_of is None or silo not in names:
        raise DataError(
            f"data.silo_column: {pool.name} has no records of silo {silo!r}. Found: "
            f"{', '.join(names[:20])}."
        )
    if len(np.unique(silo_of)) < (plan.federation.silos or 2):
        _check_declared(plan, table)
    rows = np.flatnonzero(silo_of == names.index(silo))
    encode = pool.encode
    only = dataclasses.replace(
        pool,
        labels=dataclasses.replace(pool.labels, values=pool.labels.values[rows]),
        encode=lambda at: encode(rows[at]),
        silo_names=(silo,),
        silo_of=np.zeros(len(rows), np.int64),
        persons=None
        if pool.persons is None
        else dataclasses.replace(pool.persons, codes=pool.persons.codes[rows]),
    )
    bounds = plan.data.records_per_silo
    if bounds is not None and len(bounds) != len(names):
        fix = f"List all silos in {dotted('data.categories', plan.data.silo_column or '')}"
        raise DataError(
            f"data.records_per_silo has {len(bounds)} bounds, {pool.name} has {len(names)} silos. "
            f"{fix}."
        )
    stated = None if bounds is None else bounds[names.index(silo)]
    data = federate_by_record(only, plan)
    return dataclasses.replace(
        data, silos=(hold_silo(data.silos[0], stated, plan.data, pool.name),)
    )


def facts_of_file(plan: TrainingPlan) -> PublicFacts:
    """What is public about the file that the plan names, by one pass over it."""
    pool = _own_pool(plan, open_table(plan.data, plan.folder))
    _check_silos(plan, pool)
    names = pool.silo_names or ()
    stated = stated_counts(plan.data, len(names), pool.name)
    public = stated is None or plan.data.counts == "public"
    if public:
        claimed = stated or (None,) * len(names)
        held = (
            hold_silo(silo, count, plan.data, pool.name)
            for silo, count in zip(silos_by_record(pool, plan), claimed, strict=True)
        )
        stated = tuple(max(silo.train.units, 1) for silo in held)
    return PublicFacts(
        name=pool.name,
        silo_names=names,
        records_per_silo=stated or (),
        shape=pool.shape,
        labels=pool.labels.facts,
        assumptions=(*pool.assumptions, COUNTS_ARE_PUBLIC) if public else pool.assumptions,
        bounded=not public,
        columns=pool.columns,
        numbers=pool.numbers,
    )


def _own_pool(plan: TrainingPlan, table: OwnTable) -> Pool:
    """The records of a file; one without any can be read only where the plan says which silos and
    classes there are.
    """
    data = plan.data
    if plan.describes:
        return described_pool(table, plan)
    if not table.records and (
        data.silo_column not in (data.categories or {}) or undeclared_label(data, plan.task)
    ):
        fix = (
            "Add records, or list silos and classes in "
            f"{dotted('data.categories', data.silo_column or '')} and "
            f"{dotted('data.categories', data.label_column or '')}."
        )
        raise DataError(f"{table.path} holds columns but no records. {fix}")
    return table_pool(table, data, plan.task, persons=plan.protects_persons)


def _check_silos(plan: TrainingPlan, pool: Pool) -> None:
    names = pool.silo_names or ()
    if plan.federation.silos not in (None, len(names)):
        rule = f"must be {len(names)}, the silos of column {plan.data.silo_column}"
        raise PlanError(
            "federation.silos", plan.federation.silos, rule, "Omit it, or correct the silo column."
        )


def _check_declared(plan: TrainingPlan, table: OwnTable) -> None:
    """A file of one silo alone must not decide on classes and kinds of columns."""
    data = plan.data
    if plan.describes:
        check_declared(plan)
        return
    declared = {*(data.categories or {}), *(data.bounds or {}), *(data.texts or {})}
    missing = undeclared_label(data, plan.task)
    if missing is not None:
        rule = f"data.{missing} must list the classes when a silo reads its own file only"
        raise DataError(f"{rule}. Add it to the plan.")
    reserved = {data.silo_column, data.person_column, *label_columns(data, plan.task).values()}
    features = data.columns or tuple(name for name in table.columns if name not in reserved)
    open_columns = [
        name
        for name in features
        if name not in declared and not table.declares(table.columns[name])
    ]
    if data.columns is None or open_columns:
        what = (
            f"declare column {open_columns[0]!r} in data.bounds or data.categories"
            if open_columns
            else "list data.columns"
        )
        raise DataError(
            f"{data.path} holds one silo only, so the plan must {what}: every silo must encode "
            "records alike."
        )
