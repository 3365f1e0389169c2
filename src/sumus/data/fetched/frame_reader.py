"""Reads a pickled pandas frame without pandas and writes some of its columns as JSON.

A program of its own: `fetched.isolation` starts it in a process that has the standard library, one
file to read and one to write. Sumus itself never unpickles.

    python -I -S -B frame_reader.py PICKLE TABLE column column …

Guarantee: a pickle can name nothing but the entries of `_STAND_INS`, which are inert: they keep
    what they are given. Whatever else it names ends the program before it is called.
"""

from __future__ import annotations

import io
import json
import lzma
import math
import pickle
import struct
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

__all__ = ["main", "read_columns"]

_XZ = b"\xfd7zXZ\x00"
_ITEM_CODES = {"i1": "b", "i2": "h", "i4": "i", "i8": "q", "f4": "f", "f8": "d", "b1": "?"}


class RefusedPickleError(Exception):
    """The pickle names something that is no part of a table, or is no table."""


class _Kept:
    """Stands for an object of pandas or numpy: what it was made of and what it was told to hold."""

    state: Any = None

    def __init__(self, *made_of: Any) -> None:
        self.made_of = made_of

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Frame(_Kept):
    """pandas.DataFrame."""


class _Blocks(_Kept):
    """The blocks of a frame and its axes."""


class _Block(_Kept):
    """Values of one type, (columns, rows), and which columns they are."""


class _Labels(_Kept):
    """An index: names of columns, or a range of rows."""


class _Array(_Kept):
    """numpy.ndarray."""


class _Type(_Kept):
    """numpy.dtype."""


class _Categorical(_Kept):
    """Positions in a list of categories."""


class _Masked(_Kept):
    """Whole numbers of which some may be missing."""


_STAND_INS: dict[tuple[str, str], Any] = {
    ("pandas.core.frame", "DataFrame"): _Frame,
    ("pandas.core.internals.managers", "BlockManager"): _Blocks,
    ("pandas._libs.internals", "_unpickle_block"): _Block,
    ("pandas.core.indexes.base", "_new_Index"): _Labels,
    ("pandas.core.indexes.base", "Index"): _Kept,
    ("pandas.core.indexes.range", "RangeIndex"): _Kept,
    ("pandas.core.dtypes.dtypes", "CategoricalDtype"): _Kept,
    ("pandas.core.arrays.categorical", "Categorical"): _Categorical,
    ("pandas.core.arrays.integer", "IntegerArray"): _Masked,
    ("pandas.core.arrays.integer", "Int32Dtype"): _Kept,
    ("pandas._libs.arrays", "__pyx_unpickle_NDArrayBacked"): _Categorical,
    ("numpy", "dtype"): _Type,
    ("numpy", "ndarray"): _Kept,
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy.core.numeric", "_frombuffer"): _Array,
    ("builtins", "slice"): _Kept,
}


class _TableUnpickler(pickle.Unpickler):
    """Knows tables and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        """The stand-in of what a pickle names."""
        if (module, name) not in _STAND_INS:
            raise RefusedPickleError(f"it names {module}.{name}, which is no part of a table")
        return _STAND_INS[module, name]


def read_columns(file: IO[bytes], names: Sequence[str]) -> dict[str, list[Any]]:
    """Columns of a pickled frame as numbers and text, None where a value is missing.

    Args:
        file: the pickle, packed with xz or not.
        names: of the columns.
    """
    content = file.read()
    if content.startswith(_XZ):
        content = lzma.decompress(content)
    frame = _TableUnpickler(io.BytesIO(content)).load()
    if not isinstance(frame, _Frame) or not isinstance(frame.state, dict):
        raise RefusedPickleError("it holds no table")
    blocks, axes = frame.state["_mgr"].made_of[:2]
    places = {name: place for place, name in enumerate(_listed(axes[0].made_of[1]["data"]))}
    columns: dict[int, list[Any]] = {}
    for block in blocks:
        values, placement, _ = block.made_of
        for place, column in zip(_places(placement), _rows(values), strict=True):
            columns[place] = column
    absent = [name for name in names if name not in places]
    if absent:
        raise RefusedPickleError(f"it has no column {absent[0]}")
    return {name: columns[places[name]] for name in names}


def _places(placement: Any) -> list[int]:
    """The columns that a block holds."""
    if isinstance(placement, _Array):
        return _listed(placement)
    return list(range(*(part for part in placement.made_of)))


def _rows(values: Any) -> list[list[Any]]:
    """The columns of a block, one list each."""
    if isinstance(values, _Array):
        shape, items, by_column = _content(values)
        if len(shape) == 1:
            return [items]
        columns, rows = shape
        if by_column:
            return [items[place::columns] for place in range(columns)]
        return [items[place * rows : (place + 1) * rows] for place in range(columns)]
    return [_listed(values)]


def _listed(values: Any) -> list[Any]:
    """The items of a one-dimensional array, categorical or masked column."""
    if isinstance(values, _Array):
        return _content(values)[1]
    if isinstance(values, _Masked):
        held: Any = values.state
        numbers, missing = _listed(held["_data"]), _listed(held["_mask"])
        return [None if gone else item for item, gone in zip(numbers, missing, strict=True)]
    if isinstance(values, _Categorical):
        kind, codes = _codes(values)
        names = _listed(kind.state["categories"].made_of[1]["data"])
        return [None if code < 0 else names[code] for code in codes]
    raise RefusedPickleError("it has a column of an unknown kind")


def _codes(values: _Categorical) -> tuple[Any, list[int]]:
    """The type of a categorical column and its positions, in whichever order they were kept."""
    parts = values.state if isinstance(values.state, tuple) else values.made_of
    kind = next(part for part in parts if type(part) is _Kept)
    codes = next(part for part in parts if isinstance(part, _Array))
    return kind, [int(code) for code in _content(codes)[1]]


def _content(array: _Array) -> tuple[tuple[int, ...], list[Any], bool]:
    """Shape, items in stored order, and whether they are stored column by column."""
    if isinstance(array.state, tuple):
        _, shape, kind, by_column, content = array.state
    else:
        content, kind, shape, order = array.made_of
        by_column = order == "F"
    if isinstance(content, list):
        return shape, [_plain(item) for item in content], by_column
    code = _ITEM_CODES.get(kind.made_of[0])
    if code is None or (kind.state and kind.state[1] == ">"):
        raise RefusedPickleError(f"it holds items of type {kind.made_of[0]}")
    items = struct.unpack(f"<{math.prod(shape)}{code}", content)
    return shape, [_plain(item) for item in items], by_column


def _plain(item: Any) -> Any:
    """A number, text or None."""
    if isinstance(item, float) and math.isnan(item):
        return None
    if item is None or isinstance(item, str | int | float):
        return item
    raise RefusedPickleError(f"it has a value of type {type(item).__name__}")


def main(arguments: Sequence[str]) -> str | None:
    """Read, write; an error in one line, or None."""
    source, target, *names = arguments
    try:
        with Path(source).open("rb") as file:
            columns = read_columns(file, names)
    except RefusedPickleError as refused:
        return str(refused)
    except Exception as error:  # of whatever kind: the pickle is not what it should be
        return f"it cannot be read ({type(error).__name__})"
    Path(target).write_text(json.dumps(columns, allow_nan=False), encoding="utf-8")
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
