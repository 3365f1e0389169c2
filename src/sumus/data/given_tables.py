"""Tables among the objects that are given in Python: one with a silo column, or one a silo.

A table with a silo column is split by it before anything else looks at its records. Of several
tables the schemas say together what a column is, never the values of one of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np

from sumus.data.columns import Column, NumberColumn, TextColumn
from sumus.data.frames import columns_of
from sumus.data.labels import as_text, parse_numbers
from sumus.data.object_pairs import rows_of_dataset, without_loader
from sumus.data.table import OwnTable
from sumus.data.untyped import untyped_column
from sumus.errors import DataError

__all__ = ["GivenTable", "given_table"]

LABEL = "label"
"""The column of labels that stand beside a table, where nobody names it."""
SILO = "silo"
"""The column of silos that were given one table each."""
_ONE_TABLE = "the table in silos="


@final
@dataclass(frozen=True)
class GivenTable:
    """The records of all silos as one table.

    Args:
        table: all columns, that of the silos among them.
        silo_column: where every record's silo stands.
        label_column: where labels stand that were given beside a table; None: the plan names it.
        silo_names: of silos that were given one table each; None: the column tells.
    """

    table: OwnTable
    silo_column: str
    label_column: str | None = None
    silo_names: tuple[str, ...] | None = None


def given_table(silos: Any, *, silo: str | None, label: str | None) -> GivenTable | None:
    """The one table that the objects stand for; None where they are no tables.

    Guarantee: what a column holds follows from the tables' schemas; where none declares it, it is
        left to be read off all values, and said (`OwnTable.declares`).

    Args:
        silos: one table, or tables (or pairs of a table and its labels) in a list or by name.
        silo: the column of one table that says whose record it is.
        label: of labels that stand beside a table.
    """
    silos, notes = without_loader(silos)
    whole = _table(silos, _ONE_TABLE)
    if whole is not None:
        if silo is None:
            raise DataError(
                "silos is one table, so a column must say whose record each one is. Name it: silo= "
                "or data.silo_column of the plan."
            )
        table = OwnTable(Path(_ONE_TABLE), whole, typed=True, notes=notes, called="table")
        return GivenTable(table, silo)
    if not isinstance(silos, list | tuple | Mapping) or not silos:
        return None
    titles = [str(title) for title in silos] if isinstance(silos, Mapping) else _titles(silos)
    objects = list(silos.values()) if isinstance(silos, Mapping) else list(silos)
    beside = label or LABEL
    read = [
        _labelled(each, f"silo {title!r}", beside)
        for title, each in zip(titles, objects, strict=True)
    ]
    known = next((columns for columns, _ in read if columns is not None), None)
    if known is None:
        return None
    tables = []
    for title, each, (columns, _) in zip(titles, objects, read, strict=True):
        if columns is None and not (isinstance(each, list | tuple) and not each):
            raise DataError(
                f"silo {title!r} is no table and others are. Give every silo the same kind of "
                "object."
            )
        # a list without rows is a silo that lost its last record
        tables.append(columns or {name: untyped_column(name, (), title) for name in known})
    column = SILO if silo is None else silo
    if any(column in each for each in tables):
        raise DataError(
            f"silos is one table a silo, and they have a column {column!r} of silos too. Pass one "
            f"table with that column, or rename it."
        )
    joined = _joined(titles, tables)
    lengths = [_records(each) for each in tables]
    codes = np.repeat(np.arange(len(titles), dtype=np.int32), lengths)
    joined[column] = TextColumn(column, tuple(titles), codes, declared=True)
    lines = dict.fromkeys(line for _, lines in read for line in lines)
    table = OwnTable(Path(_ONE_TABLE), joined, typed=True, notes=tuple(lines), called="table")
    apart = any(_is_beside(without_loader(each)[0]) for each in objects)
    return GivenTable(table, column, beside if apart else None, tuple(titles))


def _titles(silos: Sequence[Any]) -> list[str]:
    return [f"silo-{place}" for place in range(len(silos))]


def _records(columns: Mapping[str, Column]) -> int:
    return max(len(column) for column in columns.values())


def _table(given: Any, where: str) -> dict[str, Column] | None:
    """The columns of a table or of a dataset of rows by name."""
    columns = columns_of(given, where)
    if columns is not None:
        return columns
    rows = rows_of_dataset(given)
    return None if rows is None else columns_of(rows, where)


def _is_beside(given: Any) -> bool:
    """Whether this may be a pair of a table and its labels."""
    return isinstance(given, tuple | list) and len(given) == 2 and not isinstance(given[0], str)


def _labelled(
    given: Any, where: str, label: str
) -> tuple[dict[str, Column] | None, tuple[str, ...]]:
    """A silo's columns, with labels that stand beside them; None where it is no table."""
    given, notes = without_loader(given)
    columns = _table(given, where)
    if columns is not None or not _is_beside(given):
        return columns, notes
    columns = _table(given[0], where)
    if columns is None or isinstance(given[1], Mapping):
        return None, notes
    if label in columns:
        raise DataError(
            f"{where} has labels beside the table and a column {label!r} in it. Leave one out."
        )
    beside = columns_of({label: given[1]}, where)
    if beside is None or len(beside[label]) != _records(columns):
        raise DataError(
            f"{where} must have one label per record: {_records(columns)} records stand beside "
            "other labels. Check the pair (table, labels)."
        )
    return {**columns, **beside}, notes


# -- several tables


def _joined(titles: Sequence[str], tables: Sequence[dict[str, Column]]) -> dict[str, Column]:
    """The rows of all tables below each other, in the order of the first one's columns."""
    names = list(tables[0])
    for title, columns in zip(titles, tables, strict=True):
        odd = set(columns) ^ set(names)
        if odd:
            raise DataError(
                f"silo {title!r} and silo {titles[0]!r} have different columns: {min(odd)!r} is in "
                "one of them only. Make them alike."
            )
    return {name: _column(name, [each[name] for each in tables], titles) for name in names}


def _column(name: str, parts: Sequence[Column], titles: Sequence[str]) -> Column:
    """One column below another; those without a schema become what the others' declare."""
    kinds = {_kind(part): title for part, title in reversed(list(zip(parts, titles, strict=True)))}
    declared = [kind for kind in kinds if kind != "untyped"]
    if len(declared) > 1:
        one, other = declared[-1], declared[-2]
        raise DataError(
            f"column {name!r} holds {one} in silo {kinds[one]!r} and {other} in silo "
            f"{kinds[other]!r}. Convert them alike."
        )
    if declared and declared[0] in ("numbers", "flags"):
        flags = declared[0] == "flags"
        values = [
            _numbers(part, f"silo {title!r}: column {name}", flags=flags)
            for part, title in zip(parts, titles, strict=True)
        ]
        return NumberColumn(name, np.concatenate(values), (0.0, 1.0) if flags else None)
    return _texts(name, [part for part in parts if isinstance(part, TextColumn)], bool(declared))


def _kind(column: Column) -> str:
    if isinstance(column, NumberColumn):
        return "numbers" if column.bounds is None else "flags"
    return "untyped" if column.untyped else "text"


def _numbers(part: Column, key: str, *, flags: bool) -> Any:
    if isinstance(part, TextColumn) and flags:
        words = as_text(part)
        part = replace(words, values=tuple(_FLAGS.get(word, word) for word in words.values))
    return parse_numbers(part, key, "Convert it, or the column in the other silos.").values


_FLAGS = {"True": "1", "False": "0"}


def _texts(name: str, parts: Sequence[TextColumn], typed: bool) -> TextColumn:
    numbers: dict[str, int] = {}
    codes = [
        np.array(
            [*(numbers.setdefault(value, len(numbers)) for value in part.values), -1],
            dtype=np.int32,
        )[part.codes]
        for part in parts
    ]
    listed = typed and all(part.declared or not part.values for part in parts)
    return TextColumn(name, tuple(numbers), np.concatenate(codes), listed, untyped=not typed)
