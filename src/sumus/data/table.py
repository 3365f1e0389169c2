"""Bring your own: a file or frame with a silo column and a label column becomes federated data.

What the plan declares (`data.bounds`, `data.categories`, `data.columns`) is used as it stands. What
it does not declare is encoded by fixed public functions (see `columns`), or, where that is
impossible, read off the file and said so in `assumptions`: which columns hold numbers (CSV only),
which silos and which classes there are, and how many records each silo has.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import final

from sumus.data.column_warnings import WARNING, column_warnings, listed, repeated_persons
from sumus.data.columns import (
    Column,
    NumberColumn,
    TextColumn,
)
from sumus.data.decimal_comma import with_decimal_points
from sumus.data.encoding import ColumnRule, Encoding, encode_rows
from sumus.data.labels import (
    LabelledBy,
    as_text,
    codes_of,
    number_or_text,
)
from sumus.data.persons import identifiers
from sumus.data.pool import Pool
from sumus.data.table_files import locate
from sumus.data.table_reading import ReadingRules, read_table
from sumus.errors import DataError, dotted
from sumus.plan import DataPlan
from sumus.tasks import Task

__all__ = [
    "OwnTable",
    "beyond_bounds",
    "in_decimal_points",
    "label_columns",
    "open_table",
    "require_silos",
    "table_pool",
    "undeclared_label",
]

_FEW_SILOS = 20  # that may have a record each
_UNLISTED = (
    "no value of {} is in its list in data.categories, so all of them share one feature: check the "
    "list"
)
_ROWS_ALONE = (
    'data.person_column is {} and privacy.unit = "record": what is protected is one row, not a '
    'person with several of them (privacy.unit = "person" protects all rows of a person)'
)


@final
@dataclass(frozen=True)
class OwnTable:
    """A file, or a table that a program holds, read into columns.

    Args:
        path: of the file, or the table's name.
        columns: by name.
        typed: a schema declares what is a number, but for columns that say they are untyped.
        notes: what was assumed to find it.
        called: what assumptions call it.
    """

    path: Path
    columns: dict[str, Column]
    typed: bool
    notes: tuple[str, ...] = ()
    called: str = "file"

    def declares(self, column: Column) -> bool:
        """Whether a schema says what this column of it holds."""
        return self.typed and not (isinstance(column, TextColumn) and column.untyped)

    @property
    def records(self) -> int:
        """Rows of the file."""
        return max((len(column) for column in self.columns.values()), default=0)

    def column(self, name: str, key: str) -> Column:
        """The column of that name; `key` is the plan key that asked for it."""
        if name in self.columns:
            return self.columns[name]
        alike = [other for other in self.columns if other.casefold() == name.casefold()]
        close = alike or difflib.get_close_matches(name, self.columns, n=1)
        known = list(self.columns)
        listed = ", ".join(known[:12]) + (", …" if len(known) > 12 else "")
        fix = f"Did you mean {close[0]!r}?" if close else f"Columns: {listed}."
        raise DataError(f"{key}: {self.path.name} has no column {name!r}. {fix}")


def open_table(data: DataPlan, folder: Path | None = None) -> OwnTable:
    """Read the file that `data.path` names.

    Args:
        data: the plan's data section.
        folder: of the plan's file, where a relative path starts.
    """
    path, note = locate(data.path or "", folder)
    try:
        table = OwnTable(path, *read_table(path, ReadingRules.of(data)))
    except OSError as error:
        raise DataError(
            f"data.path {data.path!r} cannot be read: {error.strerror or error}. Give another file."
        ) from None
    table = in_decimal_points(table, data)
    return table if note is None else dataclasses.replace(table, notes=(note,))


def in_decimal_points(table: OwnTable, data: DataPlan) -> OwnTable:
    """The table with the numbers of `data.decimal_comma` as a computer writes them."""
    named = {
        name: with_decimal_points(table.column(name, "data.decimal_comma"))
        for name in data.decimal_comma or ()
    }
    return dataclasses.replace(table, columns=table.columns | named) if named else table


def table_pool(table: OwnTable, data: DataPlan, task: Task, *, persons: bool = False) -> Pool:
    """The records of a table with their silos and labels, and the public encoding the plan and the
    rules of this module give.

    Args:
        table: the file, read.
        data: names silo and label columns, and declares bounds, categories, feature columns.
        task: reads the labels.
        persons: whether rows are told apart by the person they belong to.
    """
    silo_column, named = data.silo_column or "", label_columns(data, task)
    for key, name in named.items():
        if name == silo_column:
            raise DataError(
                f"data.silo_column and data.{key} must differ, both are {silo_column!r}. Name two "
                "columns."
            )
    silos = as_text(table.column(silo_column, "data.silo_column"))
    columns = {
        key: LabelledBy(
            table.column(name, f"data.{key}"),
            f"data.{key}",
            (data.categories or {}).get(name),
            (data.bounds or {}).get(name),
        )
        for key, name in named.items()
    }
    declared = data.categories or {}
    silo_names, silo_of = codes_of(silos, "data.silo_column", declared.get(silo_column))
    labels = task.read(columns)
    reserved = frozenset({silo_column, *named.values(), *filter(None, [data.person_column])})
    encoding, read, assumptions, remarks = _encoding(table, data, reserved, persons=persons)
    encoders = encoding.encoders(read)
    whose = None
    if data.person_column is not None:
        column = table.column(data.person_column, "data.person_column")
        whose = identifiers(column, "data.person_column") if persons else None
        if not persons:
            assumptions.append(WARNING + _ROWS_ALONE.format(data.person_column))
            remarks += repeated_persons(column)
    assumptions = [*table.notes, *assumptions]
    if silo_column not in declared:
        require_silos(silo_names, len(silo_of), silo_column)
        counted = "1 silo was" if len(silo_names) == 1 else f"{len(silo_names)} silos were"
        assumptions.append(f"{counted} read off column {silo_column} and taken as public")
    return Pool(
        name=table.path.name,
        labels=labels,
        encode=functools.partial(encode_rows, encoders),
        shape=(encoding.width,),
        silo_names=silo_names,
        silo_of=silo_of,
        assumptions=(*assumptions, *labels.assumptions),
        remarks=(*remarks, *beyond_bounds(labels.clamped, listed(list(named.values())))),
        columns=encoding.names,
        persons=whose,
        encoding=encoding,
    )


def beyond_bounds(labels: int, column: str) -> tuple[str, ...]:
    """What is said about labels that had to be clamped, if there are any."""
    if not labels:
        return ()
    counted = "1 target lies" if labels == 1 else f"{labels:,} targets lie"
    return (f"{counted} beyond {dotted('data.bounds', column)} and count as the nearest bound",)


def label_columns(data: DataPlan, task: Task) -> dict[str, str]:
    """The columns that labels are read from, by the key of the plan that names them."""
    return {key: name or "" for key, name in data.named(task.label_keys).items()}


def undeclared_label(data: DataPlan, task: Task) -> str | None:
    """What the plan leaves to the file to say about labels, such as categories.income; None if
    nothing.
    """
    if task.label_declaration is None:
        return None
    declared = getattr(data, task.label_declaration) or {}
    columns = label_columns(data, task).values()
    return next(
        (dotted(task.label_declaration, name) for name in columns if name not in declared), None
    )


def require_silos(names: tuple[str, ...], records: int, column: str) -> None:
    """Refuse to take an identifier for the column of silos; its values would become public
    names.
    """
    if len(names) > _FEW_SILOS and 2 * len(names) > records:
        fix = (
            "Name the column that says whose record it is, or list the silos in "
            f"{dotted('data.categories', column)}"
        )
        raise DataError(
            f"data.silo_column {column!r} has another value in most records, like an identifier. "
            f"{fix}."
        )


def _features(table: OwnTable, data: DataPlan, reserved: frozenset[str]) -> tuple[str, ...]:
    """The columns that the plan names, otherwise all but those of silos, labels and persons."""
    return data.columns or tuple(name for name in table.columns if name not in reserved)


def _encoding(
    table: OwnTable, data: DataPlan, reserved: frozenset[str], *, persons: bool
) -> tuple[Encoding, dict[str, Column], list[str], list[str]]:
    """The rule of every feature column, the columns as they are encoded, a line for each thing that
    had to be assumed, and remarks for the silo's own eyes.

    Args:
        reserved: columns of silos, labels and persons.
        persons: whether persons are the unit.
    """
    declared = {
        name: f"data.{key}.{name}"
        for key in ("bounds", "categories", "texts")
        for name in getattr(data, key) or {}
    }
    for name, key in declared.items():
        table.column(name, key)
    names = _features(table, data, reserved)
    if not names:
        raise DataError(
            f"{table.path.name} has no feature column besides {data.silo_column!r} and "
            f"{data.label_column!r}. Add one."
        )
    found: dict[str, list[str]] = {"kind": [], "typed": [], "knots": [], "hash": [], "schema": []}
    rules: list[ColumnRule] = []
    unlisted: list[str] = []
    kinds = {name: column for name, column in table.columns.items() if name not in reserved}
    for name in names:
        if name in reserved:
            raise DataError(
                f"data.columns must not name the silo or label column, got {name!r}. Remove it."
            )
        column = table.column(name, "data.columns")
        rule = ColumnRule.declared(name, data)
        if rule is not None:
            text = as_text(column).values if rule.categories else ()
            if text and not set(text) & set(rule.categories):
                unlisted.append(name)
            rules.append(rule)
            continue
        typed = table.declares(column)
        if isinstance(column, TextColumn) and not typed:
            found["kind"].append(name)
        if typed:
            found["typed"].append(name)
        kinds[name] = column if typed else number_or_text(column)
        rule, why = _undeclared(kinds[name])
        rules.append(rule)
        if why:
            found[why].append(name)
    doubts = column_warnings(
        kinds,
        features=tuple(names),
        declared=frozenset(declared),
        may_look=data.columns is None,
        persons=persons,
    )
    remarks = [_UNLISTED.format(listed(unlisted))] if unlisted else []
    return (
        Encoding(tuple(rules)),
        kinds,
        [*_assumption_lines(found, table.called), *doubts],
        remarks,
    )


def _undeclared(column: Column) -> tuple[ColumnRule, str | None]:
    """The public rule of a column the plan says nothing about, and which assumption it needs."""
    if isinstance(column, NumberColumn):
        if column.bounds is not None:
            low, high = column.bounds
            return ColumnRule(column.name, "scaled", low=low, high=high), None
        return ColumnRule(column.name, "knotted"), "knots"
    if column.declared and column.values:
        return ColumnRule(column.name, "one-hot", categories=tuple(column.values)), "schema"
    return ColumnRule(column.name, "hashed"), "hash"


def _assumption_lines(found: dict[str, list[str]], called: str) -> list[str]:
    """A line for each kind of assumption; `called`: what the table is."""
    templates = {
        "kind": (
            f"whether {{}} {{hold}} numbers or text was read off the {called} (data.bounds and "
            "data.categories declare it)"
        ),
        "typed": (
            f"whether {{}} {{hold}} numbers, text or flags is what the schema of the {called} declares, "
            "taken as public"
        ),
        "knots": (
            "numbers in {} have no public bounds: piecewise linear at fixed knots up to ±10⁶ "
            "(data.bounds scales them instead)"
        ),
        "hash": (
            "text in {} has no public list: hashed into 2 × 32 fixed buckets (data.categories "
            "gives one feature per category)"
        ),
        "schema": (
            f"categories of {{}} are those that the schema of the {called} declares, taken as public"
        ),
    }
    return [
        templates[why].format(listed(names), hold="holds" if len(names) == 1 else "hold")
        for why, names in found.items()
        if names
    ]
