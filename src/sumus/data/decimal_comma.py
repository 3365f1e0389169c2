"""Numbers that are written with a decimal comma, in the columns that a plan names
(`data.decimal_comma`).

    48,5       48.5
    1.234,5    1234.5      points before groups of three digits part thousands
    1.234      1234
    48.5       48.5        no group of three behind the point: as it stands
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from sumus.data.columns import Column, TextColumn

__all__ = ["with_decimal_points"]

_GROUPED = re.compile(r"[+-]?\d{1,3}(\.\d{3})+(,\d*)?")
_PLAIN = re.compile(r"[+-]?\d*,\d+|[+-]?\d+,")


def with_decimal_points(column: Column) -> Column:
    """The same column with points in place of commas; numbers and other words stay as they are.

    Guarantee: what becomes of a value follows from that value alone.
    """
    if not isinstance(column, TextColumn):
        return column
    numbers: dict[str, int] = {}
    places = [numbers.setdefault(_spelt(value), len(numbers)) for value in column.values]
    # the last entry serves code −1, which is how a missing value is written
    codes = np.array([*places, -1], dtype=np.int32)[column.codes]
    return replace(column, values=tuple(numbers), codes=codes)


def _spelt(value: str) -> str:
    if _GROUPED.fullmatch(value) or _PLAIN.fullmatch(value):
        return value.replace(".", "").replace(",", ".")
    return value
