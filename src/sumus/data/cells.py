"""Records as a description counts them: of every column the cell that its value falls into.

What is public about cells stands in `sumus.plan.cells`; here values find theirs. A value that cannot
be read as its column wants it is counted as missing, never an error: an error would tell of it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sumus.data.column_warnings import listed
from sumus.data.columns import Column, NumberColumn, TextColumn
from sumus.data.labels import (
    LabelledBy,
    as_text,
    canonical,
    codes_of,
    holds_numbers,
    readable_numbers,
)
from sumus.data.persons import identifiers
from sumus.data.pool import Pool
from sumus.data.silos import FederatedData, Records, SiloRecords
from sumus.data.table import OwnTable, label_columns, require_silos
from sumus.errors import DataError
from sumus.plan import (
    ColumnCells,
    PublicFacts,
    TrainingPlan,
    cells_of,
    described_labels,
    with_columns,
)
from sumus.tasks import LabelFacts, Labels, Survival, events_of

__all__ = [
    "check_declared",
    "described",
    "described_facts",
    "described_pool",
    "places",
]

Places = NDArray[np.int64]
_READ_OFF = (
    "whether {} {} numbers or text was read off the {} (data.bounds, data.categories and "
    "describe.numbers declare it)"
)


def places(column: Column, cells: ColumnCells) -> Places:
    """The cell of every value of a column.

    Guarantee: a function of that value and of the plan; always one of the column's cells.
    """
    if cells.is_number:
        return cells.of_numbers(readable_numbers(column).values)
    if cells.kind == "survival":  # codes already, NaN where there is none
        codes = readable_numbers(column).values
        known = (codes >= 0.0) & (codes < cells.missing)
        return np.where(known, codes, cells.missing).astype(np.int64)
    text = as_text(column)
    if cells.kind == "text":
        return np.where(text.codes < 0, 1, 0).astype(np.int64)
    position = {name: index for index, name in enumerate(canonical(cells.names, cells.name))}
    other = len(cells.names)
    # the last entry serves code −1, which is how a missing value is written
    lookup = np.array([*(position.get(value, other) for value in text.values), cells.missing])
    return lookup[text.codes].astype(np.int64)


# -- tables


def described_pool(table: OwnTable, plan: TrainingPlan) -> Pool:
    """The records of a table as cells, with their silos.

    Args:
        table: the file, read.
        plan: describes; what it does not say of columns is read off the file and said.
    """
    data, silo_column = plan.data, plan.data.silo_column or ""
    silos = as_text(table.column(silo_column, "data.silo_column"))
    declared = data.categories or {}
    names, silo_of = codes_of(silos, "data.silo_column", declared.get(silo_column))
    assumptions = list(table.notes)
    if silo_column not in declared:
        require_silos(names, len(silo_of), silo_column)
        counted = "1 silo was" if len(names) == 1 else f"{len(names)} silos were"
        assumptions.append(f"{counted} read off column {silo_column} and taken as public")
    for key, given in (("data.bounds", data.bounds or {}), ("data.categories", declared)):
        for name in given:
            table.column(name, f"{key}.{name}")
    for name in plan.describe.columns or ():
        table.column(name, "describe.columns")
    columns = _columns_of(table, plan)
    labels = _classes(table, plan)
    numbers, lines = _numbers_of(table, plan, columns)
    filled = with_columns(plan, columns, numbers, labels.facts)
    cells = cells_of(filled)
    kept = {
        each.name: _outcomes(table, plan) if each.kind == "survival" else table.columns[each.name]
        for each in cells
    }
    return Pool(
        name=table.path.name,
        labels=Labels(np.zeros(len(silo_of), dtype=np.int64), labels.facts),
        encode=functools.partial(_encode, cells, kept),
        shape=(len(cells),),
        silo_names=names,
        silo_of=silo_of,
        assumptions=(*assumptions, *lines, *labels.assumptions),
        columns=tuple(each.name for each in cells),
        numbers=numbers,
        persons=identifiers(
            table.column(data.person_column or "", "data.person_column"), "data.person_column"
        )
        if plan.protects_persons
        else None,
    )


def check_declared(plan: TrainingPlan) -> None:
    """A file of one silo alone must not decide on columns and their kinds."""
    for key in ("columns", "numbers"):
        if getattr(plan.describe, key) is None:
            raise DataError(
                f"describe.{key} must be listed when a silo reads its own file only: every silo "
                "must count alike. `sumus describe PLAN --write` lists it."
            )


def _encode(
    cells: tuple[ColumnCells, ...], columns: Mapping[str, Column], rows: NDArray[np.int64]
) -> Places:
    out = np.empty((len(rows), len(cells)), dtype=np.int64)
    for index, each in enumerate(cells):
        column = columns[each.name]
        part: Column = (
            NumberColumn(column.name, column.values[rows], column.bounds)
            if isinstance(column, NumberColumn)
            else replace(column, codes=column.codes[rows])
        )
        out[:, index] = places(part, each)
    return out


def _columns_of(table: OwnTable, plan: TrainingPlan) -> tuple[str, ...]:
    """Features as the plan names them, otherwise all columns, and what labels are read from."""
    data = plan.data
    if plan.describe.columns is not None:
        return plan.describe.columns
    wanted = (
        *(data.columns or table.columns),
        *described_labels(plan),
    )
    for name in wanted:
        table.column(name, "data.columns")
    unseen = {data.silo_column, data.person_column}
    unseen |= set(label_columns(data, plan.task).values()) - set(described_labels(plan))
    return tuple(name for name in dict.fromkeys(wanted) if name not in unseen)


def _outcomes(table: OwnTable, plan: TrainingPlan) -> NumberColumn:
    """Times and events as one code, NaN where either cannot be read."""
    data, task = plan.data, plan.task
    times = readable_numbers(table.column(data.time_column or "", "data.time_column")).values
    words = as_text(table.column(data.event_column or "", "data.event_column"))
    events = events_of(words.values)[words.codes]
    known = (times >= 0.0) & (events >= 0)
    codes = np.full(len(times), np.nan)
    if isinstance(task, Survival):
        codes[known] = task.encode(times[known], events[known])
    return NumberColumn(data.time_column or "", codes)


def _numbers_of(
    table: OwnTable, plan: TrainingPlan, columns: tuple[str, ...]
) -> tuple[tuple[str, ...], list[str]]:
    """Columns that hold numbers, and what had to be read off the file to know that."""
    if plan.describe.numbers is not None:
        return plan.describe.numbers, []
    data = plan.data
    declared = {*(data.bounds or {}), *(data.categories or {}), *(data.texts or {})}
    if plan.data.intervals:
        declared |= {*described_labels(plan)}
    undeclared = [name for name in columns if name not in declared]
    numbers = tuple(name for name in undeclared if holds_numbers(table.columns[name]))
    hold = "holds" if len(undeclared) == 1 else "hold"
    line = _READ_OFF.format(listed(undeclared), hold, table.called)
    return numbers, [line] if undeclared else []


def _classes(table: OwnTable, plan: TrainingPlan) -> Labels:
    """Classes that training would read off the label column too; none where it could not."""
    nothing = Labels(np.zeros(0, dtype=np.int64), LabelFacts())
    task, data = plan.task, plan.data
    column, declared = data.label_column, {*(data.bounds or {}), *(data.categories or {})}
    wanted = plan.describe.columns is None or column in plan.describe.columns
    if task.name != "classification" or column is None or column in declared or not wanted:
        return nothing
    if plan.describe.numbers is not None:  # the plan says already what is what
        return nothing
    try:
        return task.read(
            {"label_column": LabelledBy(table.column(column, "data.label_column"), "")}
        )
    except DataError:
        return nothing


# -- named data sets and records given in Python


def described_facts(facts: PublicFacts) -> PublicFacts:
    """The same facts of records that have no columns of their own: features go by their place."""
    columns, numbers = _by_place(facts.shape)
    return replace(facts, shape=(len(columns),), columns=columns, numbers=numbers)


def described(data: FederatedData, plan: TrainingPlan) -> FederatedData:
    """The same records as cells, all parts of a silo together: a record is in one of them.

    Args:
        plan: describes; columns that it does not name are all there are.
    """
    if data.columns:
        raise DataError(
            f"{data.name}: these records are encoded for training, their columns are gone. Describe "
            "the plan that names their file."
        )
    columns, numbers = _by_place(data.shape)
    unknown = [name for name in plan.describe.columns or () if name not in columns]
    if unknown:
        raise DataError(
            f"describe.columns: {data.name} has no column {unknown[0]!r}. Columns: {columns[0]} … "
            f"{columns[-2]}, label."
        )
    if data.labels.columns and "label" in (plan.describe.columns or columns):
        raise DataError(
            f"describe.columns: {data.name} has {len(data.labels.columns)} labels a record, and those "
            "given in Python are described one at a time. Name features only, or describe a file."
        )
    filled = with_columns(plan, columns, numbers, data.labels)
    cells = cells_of(filled)
    lowest = 0.0 if plan.task.name == "counts" else -1.0
    silos = tuple(_described_silo(silo, cells, data.labels, lowest) for silo in data.silos)
    return replace(
        data,
        silos=silos,
        shape=(len(cells),),
        columns=tuple(each.name for each in cells),
        numbers=numbers,
    )


def _by_place(shape: tuple[int, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of features by their place, and the label."""
    numbers = tuple(f"x{place}" for place in range(math.prod(shape)))
    return (*numbers, "label"), (*numbers, "label")


def _described_silo(
    silo: SiloRecords, cells: tuple[ColumnCells, ...], labels: LabelFacts, lowest: float
) -> SiloRecords:
    parts = [
        _described_records(part, cells, labels, lowest)
        for part in (silo.train, silo.validation, silo.test)
    ]
    together = Records.joined(parts)
    nothing = together.take(np.arange(0))
    return replace(silo, train=together, validation=nothing, test=nothing)


def _described_records(
    records: Records, cells: tuple[ColumnCells, ...], labels: LabelFacts, lowest: float
) -> Records:
    flat = records.x.reshape(len(records), math.prod(records.x.shape[1:])).astype(np.float64)
    out = np.empty((len(records), len(cells)), dtype=np.int64)
    for index, each in enumerate(cells):
        if each.name != "label":
            column: Column = NumberColumn(each.name, flat[:, int(each.name[1:])])
        else:
            column = _label(records, labels, lowest)
        out[:, index] = places(column, each)
    return Records(out, np.zeros(len(records), dtype=np.int64), records.persons)


def _label(records: Records, labels: LabelFacts, lowest: float) -> Column:
    """Labels as they were before a task stored them.

    Args:
        lowest: what the lower bound is stored as; the upper one is 1.
    """
    if labels.names:
        return TextColumn("label", labels.names, records.y.astype(np.int32))
    values = records.y.reshape(len(records), math.prod(records.y.shape[1:]))[:, 0]
    values = values.astype(np.float64)  # of times, their codes
    if labels.bounds:
        low, high = labels.bounds[0]
        values = low + (values - lowest) * (high / (1.0 - lowest) - low / (1.0 - lowest))
    return NumberColumn("label", values)
