"""What somebody says about a table, and what the table's columns are."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np

from sumus.data import (
    Column,
    NumberColumn,
    OwnTable,
    as_text,
    holds_numbers,
    looks_like,
    open_table,
    with_decimal_points,
)
from sumus.drafting.findings import Finding, finding_of, holds_classes, person_columns
from sumus.drafting.schema import Known
from sumus.errors import DataError, PlanError
from sumus.plan import DataPlan
from sumus.tasks import TASKS

__all__ = ["Asked", "LookedAt", "check_task", "look_at", "values_of"]


@final
@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is wanted, as options or answers say it.

    Args:
        person: column that says whose row it is; None: what the names of columns suggest.
        unit: `privacy.unit`; None: a person where `person` says so or a column of persons repeats.
        task: `training.task`; None: what the label holds.
        delta: None: chosen by size.
        intervals: public cut points of time, for survival.
        known: public bounds and categories.
        listed: columns whose values somebody declares to be public, and wants to be listed.
        unwanted: columns that are to be left out.
    """

    silo: str
    label: str | None = None
    person: str | None = None
    unit: str | None = None
    time: str | None = None
    event: str | None = None
    task: str | None = None
    epsilon: float = 1.0
    delta: float | None = None
    intervals: tuple[float, ...] | None = None
    known: Known = field(default_factory=Known)
    listed: tuple[str, ...] = ()
    unwanted: tuple[str, ...] = ()


@final
@dataclass(frozen=True)
class LookedAt:
    """A table that was read, with a finding about every column."""

    table: OwnTable
    path: str  # as the plan will name it
    folder: Path  # of the plan
    findings: dict[str, Finding]
    encoding: str | None = None  # of its text, where somebody said so

    @property
    def persons(self) -> tuple[str, ...]:
        """Columns that look like the identifiers of persons with several rows."""
        return person_columns(self.table)

    def column(self, name: str, option: str) -> Column:
        """The column of that name, or the error that names the option."""
        return self.table.column(name, option)

    def task_of(self, label: str, known: Known) -> str:
        """The task that a label column suggests: classes, or a number."""
        if label in known.bounds:  # classes have a list
            return "regression"
        column = self.table.columns[label]
        # a column of numbers is one however they are written
        if looks_like(column) == "commas":
            column = with_decimal_points(column)
        return "classification" if holds_classes(column) else "regression"


def look_at(file: Path, folder: Path, path: str, encoding: str | None = None) -> LookedAt:
    """Read a table and find out what its columns are.

    Args:
        file: the table, for messages.
        folder: that the plan will be written to.
        path: of the table as seen from there.
        encoding: `data.encoding`.
    """
    table = open_table(DataPlan(path=path, encoding=encoding), folder)
    if not table.records:
        raise DataError(f"{file} holds columns but no records. Add records.")
    dated = _dates_by_type(table)
    findings = {
        name: finding_of(column, dated=name in dated) for name, column in table.columns.items()
    }
    return LookedAt(table, path, folder, findings, encoding)


def _dates_by_type(table: OwnTable) -> frozenset[str]:
    """Columns that the schema of a Parquet file calls dates or times."""
    if not table.typed or not table.path.is_file():
        return frozenset()
    with table.path.open("rb") as file:
        if file.read(4) != b"PAR1":
            return frozenset()
    import pyarrow
    from pyarrow import parquet

    kinds: Any = pyarrow.types
    schema = parquet.read_schema(table.path)
    return frozenset(
        each.name for each in schema if kinds.is_date(each.type) or kinds.is_timestamp(each.type)
    )


def check_task(name: str) -> None:
    """Refuse a task that there is not."""
    if name not in TASKS:
        rule = f"must be one of {', '.join(TASKS)}"
        raise PlanError("--task", name, rule, "Leave it out to choose by the label.")


def values_of(column: Column, least: int) -> tuple[str, ...]:
    """The values of a column in order, for a list that somebody declares to be public.

    Args:
        least: records that every value must have, or its name would tell about a few people.
    """
    text = as_text(column)
    counts = np.bincount(text.codes[text.codes >= 0], minlength=len(text.values))
    if np.any((counts > 0) & (counts < least)):
        raise PlanError(
            "--list",
            column.name,
            f"must be a column whose every value has at least {least} records (a rarer one would "
            "tell about a few people)",
            "List its categories in a schema file.",
        )
    present = [value for value, count in zip(text.values, counts, strict=True) if count]
    numbers = isinstance(column, NumberColumn) or holds_numbers(column)
    return tuple(sorted(present, key=float) if numbers else sorted(present))
