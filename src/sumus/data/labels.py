"""From the raw values of a column to numbers, categories, silos and classes; every fault names column, value and record."""

from __future__ import annotations

import math
import re

import numpy as np
from numpy.typing import NDArray

from sumus.data.columns import Column, NumberColumn, TextColumn
from sumus.errors import DataError

__all__ = ["as_text", "codes_of", "number_or_text", "parse_numbers"]

_MISSING_NUMBERS = frozenset(("none", "-", "."))
_WHOLE = re.compile(r"([+-]?\d+)\.0*")
_NUMBER_SHARE = 0.9  # of the values that are there: above it, the rest is taken for typing errors


def as_text(column: Column) -> TextColumn:
    """A column as categories: whole numbers are written without decimals, so that 1, 1.0 and "1" are one category."""
    if isinstance(column, NumberColumn):
        present = ~np.isnan(column.values)
        values, places = np.unique(column.values[present], return_inverse=True)
        codes = np.full(len(column.values), -1, dtype=np.int32)
        codes[present] = places
        return TextColumn(column.name, tuple(_number_text(float(value)) for value in values), codes)
    short = [match[1] if (match := _WHOLE.fullmatch(value)) else value for value in column.values]
    if short == list(column.values):
        return column
    numbers: dict[str, int] = {}
    renumbered = np.array([*(numbers.setdefault(value, len(numbers)) for value in short), -1], dtype=np.int32)
    return TextColumn(column.name, tuple(numbers), renumbered[column.codes], column.declared)


def _number_text(value: float) -> str:
    return str(int(value)) if math.isfinite(value) and value.is_integer() and abs(value) < 2.0**53 else repr(value)


def number_or_text(column: Column) -> Column:
    """A column of strings as numbers if at least nine in ten of the values that are there are numbers; the rest must then be corrected."""
    if isinstance(column, NumberColumn):
        return column
    numeric = np.array([*(_parse(value) is not None for value in column.values), True])[column.codes]
    present = column.codes >= 0
    share = float(numeric[present].mean()) if present.any() else 1.0
    return parse_numbers(column, f"column {column.name}") if share >= _NUMBER_SHARE else column


def parse_numbers(column: Column, key: str) -> NumberColumn:
    """A column as numbers, or an error that names the first value that is none.

    Args:
        column: numbers or strings.
        key: what asks for numbers, for the error.
    """
    if isinstance(column, NumberColumn):
        return column
    parsed = [_parse(value) for value in column.values]
    for place, number in enumerate(parsed):
        if number is None:
            where = np.flatnonzero(column.codes == place)
            fix = f"Correct it, or list the values in data.categories.{column.name}."
            raise DataError(f"{key}: value {_short(column.values[place])} of record {where[0] + 1} is not a number. {fix}")
    table = np.array([*(math.nan if number is None else number for number in parsed), math.nan])
    return NumberColumn(column.name, table[column.codes])


def _parse(text: str) -> float | None:
    """The number a string holds, NaN for a word that means missing, None for anything else."""
    if text.casefold() in _MISSING_NUMBERS:
        return math.nan
    try:
        return float(text)
    except ValueError:
        return None


def codes_of(column: TextColumn, key: str, declared: tuple[str, ...] | None) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Names and the position of every record's name: the declared list in its order, otherwise all distinct values in sorted order.

    Args:
        column: silos or labels as categories.
        key: plan key of the column, for errors.
        declared: the public list of `data.categories`, if given.
    """
    absent = np.flatnonzero(column.codes < 0)
    if len(absent):
        raise DataError(
            f"{key} {column.name!r} has no value in {len(absent)} records, first in record {absent[0] + 1}. Fill them or remove them."
        )
    present = set(np.unique(column.codes).tolist())
    names = declared or tuple(sorted((column.values[code] for code in present), key=_sort_key))
    position = {name: index for index, name in enumerate(names)}
    for code in sorted(present):
        if column.values[code] not in position:
            record = int(np.flatnonzero(column.codes == code)[0]) + 1
            value = _short(column.values[code])
            raise DataError(
                f"{key}: value {value} of record {record} is not in data.categories.{column.name}. Add it to the list or correct it."
            )
    lookup = np.array([position.get(value, -1) for value in column.values], dtype=np.int64)
    return names, lookup[column.codes]


def _sort_key(text: str) -> tuple[int, float, str]:
    number = _parse(text)
    return (1, 0.0, text) if number is None or math.isnan(number) else (0, number, text)


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:39] + "…")
