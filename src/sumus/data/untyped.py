"""Columns of Python objects, which no schema declares: read as the values of a CSV file are.

An object's spelling follows from that object alone, so that a table held as objects and the same
table written to a CSV file become the same records.
"""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Iterable
from typing import Any

import numpy as np

from sumus.data.columns import MISSING_WORDS, TextColumn
from sumus.errors import DataError

__all__ = ["is_missing", "untyped_column"]

_AS_PRINTED = (int, datetime.date, decimal.Decimal, uuid.UUID, np.integer, np.datetime64)
_KINDS = "text, numbers, booleans or dates"


def untyped_column(name: str, values: Iterable[Any], where: str) -> TextColumn:
    """Objects as strings: numbers in their shortest exact spelling, None and NaN as missing.

    Guarantee: two objects are one value if and only if they are spelt alike; a value that has no
        spelling of one cell, such as a list, is refused by its record and never shown.

    Args:
        name: of the column.
        values: one object per record.
        where: the table's name, for errors.
    """
    numbers: dict[str, int] = {}
    codes: list[int] = []
    for record, value in enumerate(values, start=1):
        text = value.strip() if isinstance(value, str) else _spelt(value)
        if text is None:
            kind = type(value).__name__
            raise DataError(
                f"{where}: column {name!r} holds a value of type {kind} in record {record}. Cells "
                f"must be {_KINDS}: convert it or leave the column out, or pass lists of numbers as "
                "arrays, (records, labels)."
            )
        missing = text.casefold() in MISSING_WORDS
        codes.append(-1 if missing else numbers.setdefault(text, len(numbers)))
    return TextColumn(name, tuple(numbers), np.array(codes, dtype=np.int32), untyped=True)


def is_missing(value: Any) -> bool:
    """None, NaN, or what a data frame holds in the place of a missing value."""
    try:
        return value is None or bool(value != value)
    except (TypeError, ValueError, ArithmeticError):
        # a frame's missing value is neither equal nor unequal, an array is both
        return not hasattr(value, "__len__")


def _spelt(value: Any) -> str | None:
    """The text of one object that is no string; empty: missing; None: it has none."""
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        value = value.item()  # an array or tensor of one number
    if is_missing(value):
        return ""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, float | np.floating):
        return repr(float(value))
    return str(value) if isinstance(value, _AS_PRINTED) else None
