"""Columns of Arrow tables, whatever they came from: the schema says what is a number, a flag or a
category.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from sumus.data.columns import Column, NumberColumn, TextColumn
from sumus.errors import DataError

__all__ = ["arrow_column", "arrow_columns", "import_arrow"]

_MICROSECONDS_A_DAY = 86_400e6


def import_arrow(what: str, instead: str, module: str = "pyarrow") -> Any:
    """pyarrow, or one line that says how to get it.

    Args:
        what: needs it, such as "own.parquet is a Parquet file, which".
        instead: what to do without it.
        module: of pyarrow.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        raise DataError(
            f"{what} needs pyarrow. Run: pip install 'sumus[train]' (or {instead})."
        ) from None


def arrow_columns(arrow: Any, where: str, table: Any) -> dict[str, Column]:
    """All columns of an Arrow table, in its order.

    Numbers stay numbers, booleans are numbers between 0 and 1, dates and times become days since
    1970, strings stay strings and dictionary types bring their list of categories along.

    Args:
        arrow: the module.
        where: the table's name, for errors.
        table: a `pyarrow.Table`.
    """
    if len(set(table.column_names)) != len(table.column_names):
        raise DataError(f"{where} has two columns of one name. Rename one of them.")
    return {name: arrow_column(arrow, where, name, table[name]) for name in table.column_names}


def arrow_column(arrow: Any, where: str, name: str, values: Any) -> Column:
    """One Arrow array as a column, all chunks of it; a kind that is no feature is refused.

    Guarantee: the column has one value per value of the array. What has no type but null, as nothing
        is there, is declared by nobody: it is untyped, and all of it is missing.
    """
    rows = len(values)
    if isinstance(values, arrow.ChunkedArray):
        values = _whole(arrow, where, name, values)
    column = _of_kind(arrow, where, name, values, values.type)
    if len(column) != rows:
        raise DataError(
            f"{where}: column {name!r} has {rows} values, of which {len(column)} can be read. Save "
            "the table again."
        )
    return column


def _whole(arrow: Any, where: str, name: str, values: Any) -> Any:
    """The chunks of an array as one."""
    if not values.num_chunks:
        return arrow.array([], type=values.type)
    try:
        return values.combine_chunks()
    except arrow.ArrowException as error:
        raise DataError(
            f"{where}: the chunks of column {name!r} cannot be joined ({type(error).__name__}), as "
            "text of more than 2 GB cannot. Leave the column out, or shorten its values."
        ) from None


def _of_kind(arrow: Any, where: str, name: str, values: Any, kind: Any) -> Column:
    types = arrow.types
    if types.is_dictionary(kind) and _is_text(types, kind.value_type):
        return _text(name, values, declared=True)
    if types.is_dictionary(kind):
        values, kind = values.dictionary_decode(), kind.value_type
    if _is_text(types, kind):
        return _text(name, values.dictionary_encode(), declared=False)
    if types.is_boolean(kind):
        return NumberColumn(name, _numbers(arrow, values), bounds=(0.0, 1.0))
    if types.is_null(kind):
        return TextColumn(name, (), np.full(len(values), -1, dtype=np.int32), untyped=True)
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return NumberColumn(name, _numbers(arrow, values))
    if types.is_date(kind) or types.is_timestamp(kind):
        moments = values.cast(arrow.timestamp("us"), safe=False).cast(arrow.int64())
        return NumberColumn(name, _numbers(arrow, moments) / _MICROSECONDS_A_DAY)
    raise DataError(
        f"{where}: column {name!r} has type {kind}, which is no feature. Remove it or convert it to "
        "numbers or text."
    )


def _is_text(types: Any, kind: Any) -> bool:
    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or getattr(types, "is_string_view", types.is_string)(kind)
    )


def _numbers(arrow: Any, values: Any) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    as_double = values.cast(arrow.float64(), safe=False)
    return np.asarray(as_double.to_numpy(zero_copy_only=False), dtype=np.float64)


def _text(name: str, values: Any, *, declared: bool) -> TextColumn:
    codes = np.asarray(
        values.indices.cast("int32").fill_null(-1).to_numpy(zero_copy_only=False), dtype=np.int32
    )
    words = values.dictionary.to_pylist()
    # equal and missing entries of a dictionary are legal; each value gets one number here
    numbers: dict[str, int] = {}
    places = [
        -1 if word is None or not word.strip() else numbers.setdefault(word.strip(), len(numbers))
        for word in words
    ]
    return TextColumn(
        name=name,
        values=tuple(numbers),
        codes=np.array([*places, -1], dtype=np.int32)[codes],
        declared=declared,
    )
