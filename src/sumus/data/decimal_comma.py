"""Numbers that are written with a decimal comma, in the columns that a plan names
(`data.decimal_comma`).

    48,5       48.5
    1.234,5    1234.5      points before groups of three digits part thousands
    1.234.567  1234567
    48.5       48.5        no group of three behind the point: as it stands
    1.234      no number   1234 or 1.234, which the cell does not tell
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from sumus.data.columns import Column, TextColumn

__all__ = ["AMBIGUOUS", "with_decimal_points"]

AMBIGUOUS = " (thousands or decimals?)"
"""What a cell ends in that could be two numbers, so that nobody reads it as one of them."""

_GROUPED = re.compile(r"[+-]?\d{1,3}(\.\d{3})+(,\d*)?")
_ONE_GROUP = re.compile(r"[+-]?\d{1,3}\.\d{3}")
_PLAIN = re.compile(r"[+-]?\d*,\d+|[+-]?\d+,")


def with_decimal_points(column: Column) -> Column:
    """The same column with points in place of commas; numbers and other words stay as they are.

    Guarantee: what becomes of a value follows from that value alone, and one that could be two
        numbers becomes none.
    """
    if not isinstance(column, TextColumn):
        return column
    numbers: dict[str, int] = {}
    places = [numbers.setdefault(_spelt(value), len(numbers)) for value in column.values]
    # the last entry serves code −1, which is how a missing value is written
    codes = np.array([*places, -1], dtype=np.int32)[column.codes]
    return replace(column, values=tuple(numbers), codes=codes)


def _spelt(value: str) -> str:
    if _ONE_GROUP.fullmatch(value):
        return value + AMBIGUOUS
    if _GROUPED.fullmatch(value) or _PLAIN.fullmatch(value):
        return value.replace(".", "").replace(",", ".")
    return value
