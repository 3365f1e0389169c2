"""From the raw values of a column to numbers, categories, silos and classes.

A fault names column and record, never the value: it belongs to somebody, and a message may go to
other people.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import final

import numpy as np
from numpy.typing import NDArray

from sumus.data.columns import Column, NumberColumn, TextColumn
from sumus.data.decimal_comma import AMBIGUOUS
from sumus.data.words import Words
from sumus.errors import DataError, dotted
from sumus.tasks import Categories

__all__ = [
    "LabelledBy",
    "as_text",
    "canonical",
    "codes_of",
    "holds_numbers",
    "number_or_text",
    "parse_numbers",
    "readable_numbers",
    "spelt",
]

_MISSING_NUMBERS = frozenset(("none", "-", "."))
_WHOLE = re.compile(r"([+-]?\d+)\.0*")
_NUMBER_SHARE = 0.9  # of the values that are there: above it, the rest is taken for typing errors


def as_text(column: Column) -> TextColumn:
    """A column as categories in their canonical spelling, whatever the kind of file."""
    if isinstance(column, NumberColumn):
        present = ~np.isnan(column.values)
        values, places = np.unique(column.values[present], return_inverse=True)
        codes = np.full(len(column.values), -1, dtype=np.int32)
        codes[present] = places
        # only booleans bring their bounds along
        spell = _flag_text if column.bounds == (0.0, 1.0) else _number_text
        return TextColumn(column.name, tuple(spell(float(value)) for value in values), codes)
    short = [spelt(value) for value in column.values]
    if short == list(column.values):
        return column
    numbers: dict[str, int] = {}
    renumbered = np.array(
        [*(numbers.setdefault(value, len(numbers)) for value in short), -1], dtype=np.int32
    )
    return replace(column, values=tuple(numbers), codes=renumbered[column.codes])


def canonical(declared: tuple[str, ...], name: str) -> tuple[str, ...]:
    """Declared categories in the spelling of `as_text`.

    Args:
        declared: a list of `data.categories`.
        name: of its column, for the error.
    """
    spellings = tuple(map(spelt, declared))
    if len(set(spellings)) < len(spellings):
        raise DataError(
            f"{dotted('data.categories', name)} lists one value in two spellings, such as 4 and "
            "4.0. Keep one of them."
        )
    return spellings


def spelt(value: str) -> str:
    """Whole numbers without decimals and booleans with a capital, so that 1 and 1.0, true and TRUE
    are one category.
    """
    if value.casefold() in ("true", "false"):
        return value.capitalize()
    return match[1] if (match := _WHOLE.fullmatch(value)) else value


def _flag_text(value: float) -> str:
    return str(bool(value))


def _number_text(value: float) -> str:
    return (
        str(int(value))
        if math.isfinite(value) and value.is_integer() and abs(value) < 2.0**53
        else repr(value)
    )


def number_or_text(column: Column) -> Column:
    """A column of strings as numbers if at least nine in ten of the values that are there are
    numbers; the rest must then be corrected.
    """
    if isinstance(column, NumberColumn):
        return column
    return parse_numbers(column, f"column {column.name}") if holds_numbers(column) else column


def holds_numbers(column: Column) -> bool:
    """Whether at least nine in ten of the values that are there are numbers."""
    if isinstance(column, NumberColumn):
        return True
    _, readable = _parsed(column)
    numeric = np.append(readable, True)[column.codes]
    present = column.codes >= 0
    share = float(numeric[present].mean()) if present.any() else 1.0
    return share >= _NUMBER_SHARE


def readable_numbers(column: Column) -> NumberColumn:
    """A column as numbers, NaN where a value is none."""
    if isinstance(column, NumberColumn):
        return column
    return NumberColumn(column.name, np.append(_parsed(column)[0], math.nan)[column.codes])


def parse_numbers(column: Column, key: str, fix: str | None = None) -> NumberColumn:
    """A column as numbers, or an error that names the first value that is none.

    Args:
        column: numbers or strings.
        key: what asks for numbers, for the error.
        fix: what to do; omitted: correct the value or declare categories.
    """
    if isinstance(column, NumberColumn):
        return column
    numbers, readable = _parsed(column)
    if not readable.all():
        worst = int(np.argmin(readable))
        where = np.flatnonzero(column.codes == worst)
        if column.values[worst].endswith(AMBIGUOUS):
            raise DataError(
                f"{key}: the value of record {where[0] + 1} has a point before three digits and no "
                "comma, so that it could be two numbers (data.decimal_comma). Write it with a "
                "comma, or without the point."
            )
        fix = fix or f"Correct it, or list the values in {dotted('data.categories', column.name)}."
        raise DataError(f"{key}: the value of record {where[0] + 1} is not a number. {fix}")
    return NumberColumn(column.name, np.append(numbers, math.nan)[column.codes])


def _parsed(column: TextColumn) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The number of every distinct value, NaN where there is none, and which values are numbers or
    mean missing.
    """
    values = column.values
    if isinstance(values, Words):
        numbers, plain = values.plain_numbers()
        rest = np.flatnonzero(~plain)
        numbers, readable = numbers.copy(), plain.copy()
        for place in rest:
            parsed = _parse(values[int(place)])
            numbers[place] = math.nan if parsed is None else parsed
            readable[place] = parsed is not None
        return numbers, readable
    each = [_parse(value) for value in values]
    return (
        np.array([math.nan if number is None else number for number in each], dtype=np.float64),
        np.array([number is not None for number in each], dtype=np.bool_),
    )


def _parse(text: str) -> float | None:
    """The number a string holds, NaN for a word that means missing, None for anything else."""
    if text.casefold() in _MISSING_NUMBERS:
        return math.nan
    try:
        return float(text)
    except ValueError:
        return None


def codes_of(
    column: TextColumn, key: str, declared: tuple[str, ...] | None
) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Names and the position of every record's name: the declared list in its order, otherwise all
    distinct values in sorted order.

    Args:
        column: silos or labels as categories.
        key: plan key of the column, for errors.
        declared: the public list of `data.categories`, if given.
    """
    absent = np.flatnonzero(column.codes < 0)
    if len(absent):
        raise DataError(
            f"{key} {column.name!r} has no value in {len(absent)} records, first in record "
            f"{absent[0] + 1}. Fill them or remove them."
        )
    present = set(np.unique(column.codes).tolist())
    odd = [code for code in present if not column.values[code].isprintable()]
    if odd:  # it would become a name on screens and in plans
        record = int(np.flatnonzero(np.isin(column.codes, odd))[0]) + 1
        raise DataError(
            f"{key}: the value of record {record} holds control characters. Correct it."
        )
    names = declared or tuple(sorted((column.values[code] for code in present), key=_sort_key))
    position = {name: index for index, name in enumerate(canonical(names, column.name))}
    for code in sorted(present):
        if column.values[code] not in position:
            record = int(np.flatnonzero(column.codes == code)[0]) + 1
            fix = "Add it to the list or correct it."
            raise DataError(
                f"{key}: the value of record {record} is not in "
                f"{dotted('data.categories', column.name)}. {fix}"
            )
    lookup = np.array([position.get(value, -1) for value in column.values], dtype=np.int64)
    return names, lookup[column.codes]


@final
@dataclass(frozen=True)
class LabelledBy:
    """A column that a plan names for its task (`sumus.tasks.LabelColumn`).

    Args:
        column: as the file holds it.
        key: of the plan, such as data.label_column.
        declared: the public list of `data.categories`, if given.
        bounds: those of `data.bounds`, if given.
    """

    column: Column
    key: str
    declared: tuple[str, ...] | None = None
    bounds: tuple[float, float] | None = None

    @property
    def name(self) -> str:
        """Of the column."""
        return self.column.name

    def categories(self) -> Categories:
        """The values as names from a list."""
        names, positions = codes_of(as_text(self.column), self.key, self.declared)
        numeric = all(_parse(name) is not None for name in names)
        return Categories(names, positions, self.declared is not None, numeric)

    def numbers(self) -> NDArray[np.float64]:
        """The values as numbers, NaN where there is none."""
        return parse_numbers(self.column, self.key, "Correct it, or remove the record.").values


def _sort_key(text: str) -> tuple[int, float, str]:
    number = _parse(text)
    return (1, 0.0, text) if number is None or math.isnan(number) else (0, number, text)
