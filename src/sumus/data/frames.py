"""Columns of tables that a Python program holds: frames of pandas, Polars and Arrow, mappings of
arrays, lists of dictionaries, datasets of rows.

What a frame's schema declares (a type, a list of categories) is used as that of a Parquet file is.
Python objects have no schema: whether they are numbers or text shows in their values, as in a CSV
file (`untyped`). Neither pandas nor Polars is imported here: a frame brings its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sumus.data.arrow_columns import arrow_column, arrow_columns, import_arrow
from sumus.data.columns import Column, NumberColumn, TextColumn
from sumus.data.object_arrays import array_of
from sumus.data.untyped import untyped_column
from sumus.errors import DataError

__all__ = ["columns_of"]


def columns_of(frame: Any, name: str) -> dict[str, Column] | None:
    """The columns of a table, in its order; None if the object is no table.

    | object | kind of a column |
    |---|---|
    | pandas, Polars, Arrow (anything with `__arrow_c_stream__` and columns) | its schema's |
    | mapping of one-dimensional arrays, structured array | that of the array |
    | pandas column of dtype object, list | read off the values |
    | list of dictionaries, dataset with `column_names` | read off the values, or its schema's |

    Guarantee: the same table as CSV file (Python objects) or Parquet file (a schema) has the same
        columns. Whatever is wrong with a table is one line that shows no value.

    Args:
        frame: any object.
        name: of the table, for errors.
    """
    if hasattr(frame, "collect") and hasattr(frame, "collect_schema"):
        raise DataError(f"{name} is a lazy frame, which holds no records yet. Pass it .collect().")
    for is_kind, read in _READERS:
        if is_kind(frame):
            columns = read(frame, name)
            _require_alike(columns, name)
            return columns
    return None


# -- pandas


def _is_pandas(frame: Any) -> bool:
    return all(hasattr(frame, each) for each in ("columns", "dtypes", "iloc"))


def _of_pandas(frame: Any, where: str) -> dict[str, Column]:
    if getattr(frame.columns, "nlevels", 1) > 1:
        raise DataError(f"{where} has column names of several levels. Give each column one name.")
    names = _names(frame.columns, where)
    return {
        name: _of_pandas_series(name, frame.iloc[:, place], where)
        for place, name in enumerate(names)
    }


def _of_pandas_series(name: str, series: Any, where: str) -> Column:
    dtype = series.dtype
    if str(dtype).startswith("Sparse"):
        series = series.sparse.to_dense()
        dtype = series.dtype
    if isinstance(dtype, np.dtype):
        return _of_array(name, series.to_numpy(), where)
    return _through_arrow(name, lambda arrow: arrow.Array.from_pandas(series), where, len(series))


# -- Arrow, and whatever speaks its protocol


def _is_arrow(frame: Any) -> bool:
    speaks = any(hasattr(frame, f"__arrow_c_{kind}__") for kind in ("stream", "array"))
    return speaks and any(hasattr(frame, each) for each in ("columns", "column_names", "schema"))


def _of_arrow(frame: Any, where: str) -> dict[str, Column]:
    arrow = _arrow(where)
    is_batch = not hasattr(frame, "__arrow_c_stream__")
    table = _guarded(
        lambda: arrow.table(arrow.record_batch(frame) if is_batch else frame), where, "this frame"
    )
    _names(table.column_names, where)
    return arrow_columns(arrow, where, table)


def _through_arrow(
    name: str, convert: Callable[[Any], Any], where: str, rows: int | None
) -> Column:
    """A column through an Arrow array that `convert` makes.

    Args:
        rows: that it must have, if the column says so itself.
    """
    arrow = _arrow(where)
    values = _guarded(lambda: convert(arrow), where, f"column {name!r}")
    column = arrow_column(arrow, where, name, values)
    if rows not in (None, len(column)):
        raise DataError(
            f"{where}: column {name!r} has {rows} values, of which {len(column)} can be read. "
            "Convert it, or leave it out."
        )
    return column


def _arrow(where: str) -> Any:
    return import_arrow(f"{where} is a frame that", "pass arrays")


def _guarded(convert: Callable[[], Any], where: str, what: str) -> Any:
    """The result, or one line: what libraries say about a value may hold that value."""
    try:
        return convert()
    except Exception as error:
        raise DataError(
            f"{where}: {what} cannot be read as a table of text, numbers, booleans and dates "
            f"({type(error).__name__}). Convert it, or leave it out."
        ) from None


# -- arrays by name


def _is_structured(frame: Any) -> bool:
    return isinstance(frame, np.ndarray) and frame.dtype.names is not None


def _of_structured(frame: Any, where: str) -> dict[str, Column]:
    if frame.ndim != 1:
        raise DataError(
            f"{where} must be a one-dimensional array of rows, got shape {frame.shape}. Flatten it."
        )
    return {name: _of_array(name, frame[name], where) for name in _names(frame.dtype.names, where)}


def _is_mapping(frame: Any) -> bool:
    return isinstance(frame, Mapping) and bool(frame) and all(map(_is_vector, frame.values()))


def _is_vector(values: Any) -> bool:
    """Whether this is one column: an array with one axis, or a list of single values."""
    if isinstance(values, NumberColumn | TextColumn):
        return True
    if hasattr(values, "ndim") or hasattr(values, "dtype"):
        return len(getattr(values, "shape", ())) == 1 and not _is_structured(values)
    if any(hasattr(values, f"__arrow_c_{kind}__") for kind in ("stream", "array")):
        return not _is_arrow(values)
    return isinstance(values, list | tuple) and not (values and _has_items(values[0]))


def _has_items(value: Any) -> bool:
    return (
        not isinstance(value, str | bytes)
        and hasattr(value, "__len__")
        and getattr(value, "ndim", 1) > 0
    )


def _of_mapping(frame: Any, where: str) -> dict[str, Column]:
    names = _names(frame, where)
    return {
        name: _of_vector(name, values, where)
        for name, values in zip(names, frame.values(), strict=True)
    }


def _of_vector(name: str, values: Any, where: str) -> Column:
    if isinstance(values, NumberColumn | TextColumn):
        return values
    if hasattr(values, "iloc") and hasattr(values, "dtype"):
        return _of_pandas_series(name, values, where)
    if isinstance(values, list | tuple):
        return untyped_column(name, values, where)
    rows = len(values) if hasattr(values, "__len__") else None
    if hasattr(values, "__arrow_c_stream__"):
        return _through_arrow(name, lambda arrow: arrow.chunked_array(values), where, rows)
    if hasattr(values, "__arrow_c_array__"):
        return _through_arrow(name, lambda arrow: arrow.array(values), where, rows)
    array = values if isinstance(values, np.ndarray) else array_of(values, where)
    return _of_array(name, array, where)


def _of_array(name: str, values: NDArray[Any], where: str) -> Column:
    """A column of a numpy array, whose dtype declares what it holds unless that is `object`."""
    kind = values.dtype.kind
    if kind == "O":
        return untyped_column(name, values.tolist(), where)
    if kind in "fiub":
        numbers = np.ma.filled(values.astype(np.float64), np.nan)  # what a mask hides is missing
        return NumberColumn(name, numbers, (0.0, 1.0) if kind == "b" else None)
    plain = np.asarray(values)
    mask = np.ma.getmaskarray(values) | (np.isnat(plain) if kind == "M" else False)
    as_objects = plain.astype(object) if kind in "UT" else plain
    return _through_arrow(name, lambda arrow: arrow.array(as_objects, mask=mask), where, len(plain))


# -- rows


def _is_rows(frame: Any) -> bool:
    return (
        isinstance(frame, list | tuple)
        and bool(frame)
        and isinstance(frame[0], Mapping)
        and not _is_mapping(frame[0])
    )


def _of_rows(frame: Sequence[Any], where: str) -> dict[str, Column]:
    keys = list(frame[0]) if frame else []
    expected = set(keys)
    for record, row in enumerate(frame, start=1):
        if not isinstance(row, Mapping) or set(row) != expected:
            raise DataError(
                f"{where}: record {record} has other columns than the first one. Give all rows the "
                "same keys, with None where there is no value."
            )
    names = _names(keys, where)
    return {
        name: untyped_column(name, (row[key] for row in frame), where)
        for name, key in zip(names, keys, strict=True)
    }


def _is_dataset(frame: Any) -> bool:
    """Whether this is a dataset of rows by column name, as Hugging Face's are."""
    return isinstance(getattr(frame, "column_names", None), list | tuple) and all(
        hasattr(frame, each) for each in ("__len__", "__getitem__")
    )


def _of_dataset(frame: Any, where: str) -> dict[str, Column]:
    if hasattr(frame, "with_format"):  # rows as the dataset selects them, with its schema
        table = _guarded(lambda: frame.with_format("arrow")[:], where, "this dataset")
        columns = _of_arrow(table, where)
    else:
        rows = _guarded(lambda: [frame[i] for i in range(len(frame))], where, "this dataset")
        if rows:
            columns = _of_rows(rows, where)
        else:
            columns = {
                name: untyped_column(name, (), where) for name in _names(frame.column_names, where)
            }
    features = getattr(frame, "features", None)
    if not isinstance(features, Mapping):
        return columns
    listed = {name: getattr(features.get(name), "names", None) or () for name in columns}
    return {
        name: _of_class_numbers(column, listed[name], where) if listed[name] else column
        for name, column in columns.items()
    }


def _of_class_numbers(column: Column, names: Sequence[str], where: str) -> Column:
    """Numbers of classes whose names the dataset's schema lists; −1 means missing."""
    if not isinstance(column, NumberColumn):
        return column
    codes = np.where(np.isnan(column.values), -1.0, column.values)
    if not np.isin(codes, np.arange(-1, len(names))).all():
        raise DataError(
            f"{where}: column {column.name!r} holds numbers beyond its list of {len(names)} "
            "classes. Correct them."
        )
    return TextColumn(column.name, tuple(names), codes.astype(np.int32), declared=True)


# -- what holds of every table


def _names(given: Iterable[Any], where: str) -> list[str]:
    """Names of columns as text, each once."""
    names = [str(name) for name in given]
    times = Counter(names)
    if not names:
        raise DataError(f"{where} has no columns. Pass a table with one column per feature.")
    for name in names:
        if not name.strip() or not name.isprintable():
            raise DataError(
                f"{where} has a column whose name is not printable text: {name!r}. Rename it."
            )
        if times[name] > 1:
            raise DataError(
                f"{where} has {times[name]} columns of the name {name!r}. Rename one of them."
            )
    return names


def _require_alike(columns: Mapping[str, Column], where: str) -> None:
    """Every column has one value per record."""
    lengths = {name: len(column) for name, column in columns.items()}
    first = next(iter(lengths))
    for name, length in lengths.items():
        if length != lengths[first]:
            raise DataError(
                f"{where} has {lengths[first]} values in column {first!r} and {length} in column "
                f"{name!r}. Make them alike."
            )


_READERS: tuple[tuple[Callable[[Any], bool], Callable[[Any, str], dict[str, Column]]], ...] = (
    (_is_pandas, _of_pandas),
    (_is_arrow, _of_arrow),
    (_is_structured, _of_structured),
    (_is_mapping, _of_mapping),
    (_is_rows, _of_rows),
    (_is_dataset, _of_dataset),
)
