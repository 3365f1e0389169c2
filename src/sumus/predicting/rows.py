"""New rows as a model's own rules encode them, and what was odd about them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sumus.data import (
    Column,
    Encoding,
    array_of,
    columns_of,
    encode_rows,
    features_of,
    parse_numbers,
    with_decimal_points,
)
from sumus.errors import DataError

__all__ = ["EncodedRows", "RowCounts", "records_of"]

Records = NDArray[np.float32 | np.int64]
_NOT_A_NUMBER = "Correct it, or leave it empty: the model was trained on numbers here."
_SHOWN = 6  # columns that a line names


@final
@dataclass(frozen=True)
class RowCounts:
    """How many rows there are, and how many of them are not as the model's rules expect.

    Args:
        rows: all of them.
        outside: rows with a number beyond the public bounds of its column; it counts as the nearest
            bound.
        unlisted: rows with a value that is not among its column's categories; all such values and
            missing ones share a feature.
        missing: rows without a value somewhere.
        outside_of: the same by column; likewise `unlisted_of` and `missing_of`.
        unused: columns that the model does not know.
        labels: those of them that training learned from.
    """

    rows: int
    outside: int = 0
    unlisted: int = 0
    missing: int = 0
    outside_of: Mapping[str, int] = field(default_factory=dict)
    unlisted_of: Mapping[str, int] = field(default_factory=dict)
    missing_of: Mapping[str, int] = field(default_factory=dict)
    unused: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()

    def unlike_training(self) -> tuple[str, ...]:
        """Rows whose predictions are guesses, a line each."""
        told = (
            (
                self.outside,
                self.outside_of,
                "outside the public bounds, counted as the nearest bound",
            ),
            (
                self.unlisted,
                self.unlisted_of,
                "with a value that training had no category for, counted as other",
            ),
        )
        return tuple(_told(*each) for each in told if each[0])

    def lines(self) -> tuple[str, ...]:
        """What is to be said about them, a line each; nothing where all is as expected."""
        lines = [*self.unlike_training()]
        if self.missing:
            what = "without a value, which the model is told"
            lines.append(_told(self.missing, self.missing_of, what))
        if self.unused:
            labels = [f"{name} (the label)" for name in self.labels if name in self.unused]
            others = [name for name in self.unused if name not in self.labels]
            lines.append(f"not used: {_listed([*labels, *others])}")
        return tuple(lines)

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


@final
@dataclass(frozen=True, eq=False)
class EncodedRows:
    """Rows that are encoded a part at a time.

    Args:
        counts: what was odd about them.
        part: positions of rows → their records.
    """

    counts: RowCounts
    part: Callable[[NDArray[np.int64]], Records]


def records_of(
    x: Any,
    *,
    encoding: Encoding | None,
    shape: tuple[int, ...],
    undeclared: str | None,
    decimal_comma: Sequence[str] = (),
    missing: str | None = None,
    labels: Sequence[str] = (),
) -> EncodedRows:
    """The records of a table, a frame or an array.

    Args:
        x: anything that `columns_of` reads, or an array.
        encoding: the run's; None: it was trained on arrays.
        shape: of one record.
        undeclared: the key without which the run's plan does not say how rows are encoded.
        decimal_comma: columns whose numbers are written with one, where they are text.
        missing: the plan's `data.missing`, for arrays.
        labels: columns that training learned from.
    """
    if undeclared is not None:
        raise DataError(
            f"the plan of this run does not say how rows are encoded: {undeclared} is missing. "
            "Train with a plan that declares it."
        )
    columns = columns_of(x, "the table")
    if encoding is None:
        given = (shape[0] // 2,) if missing == "flag" else shape
        array = _placed(columns, given) if columns is not None else x
        return _of_array(array, given, missing)
    if columns is None:
        raise DataError(
            f"the model was trained on the columns {_listed(encoding.names)}, got "
            f"{type(x).__name__}. Pass a frame, or a mapping of these names to arrays."
        )
    for name in decimal_comma:
        if name in columns:
            columns[name] = with_decimal_points(columns[name])
    return _of_columns(columns, encoding, labels)


def _of_columns(
    columns: Mapping[str, Column], encoding: Encoding, labels: Sequence[str]
) -> EncodedRows:
    for name in encoding.names:
        if name not in columns:
            alike = [other for other in columns if other.casefold() == name.casefold()]
            close = alike or difflib.get_close_matches(name, columns, n=1)
            fix = f"Is it {close[0]!r}? Rename it." if close else f"There are {_listed(columns)}."
            raise DataError(f"the table has no column {name!r}, which the model needs. {fix}")
    rows = len(columns[encoding.names[0]])
    if not rows:
        raise DataError("the table has columns but no rows: there is nothing to predict. Add some.")
    read = {
        rule.name: rule.read(columns[rule.name], _NOT_A_NUMBER, key=f"column {rule.name}")
        for rule in encoding.columns
    }
    anywhere = {kind: np.zeros(rows, dtype=bool) for kind in ("outside", "unlisted", "missing")}
    by_column: dict[str, dict[str, int]] = {kind: {} for kind in anywhere}
    for rule in encoding.columns:
        for kind, rows_of_kind in anywhere.items():
            odd: NDArray[np.bool_] = getattr(rule, kind)(read[rule.name])
            rows_of_kind |= odd
            if odd.any():
                by_column[kind][rule.name] = int(odd.sum())
    counts = RowCounts(
        rows,
        **{kind: int(mask.sum()) for kind, mask in anywhere.items()},
        outside_of=by_column["outside"],
        unlisted_of=by_column["unlisted"],
        missing_of=by_column["missing"],
        unused=tuple(name for name in columns if name not in read),
        labels=tuple(name for name in labels if name in columns),
    )
    encoders = encoding.encoders(read)
    return EncodedRows(counts, lambda at: encode_rows(encoders, at))


def _placed(columns: Mapping[str, Column], shape: tuple[int, ...]) -> NDArray[np.float64]:
    """A table whose columns go by their places x0, x1, … as the array that it stands for."""
    names = [f"x{place}" for place in range(int(np.prod(shape)))]
    wrong = next((name for name in columns if name not in names), None)
    if wrong is not None or len(columns) != len(names):
        named = "" if wrong is None else f", one of them {wrong!r}"
        raise DataError(
            f"the model was trained on arrays of shape {shape}, whose columns go by x0 … "
            f"{names[-1]}, got {len(columns)} columns{named}. Pass an array, or a table with those "
            "names."
        )
    read = [parse_numbers(columns[name], f"column {name}", "Correct it.").values for name in names]
    table = np.stack(read, axis=1)
    return table.reshape(len(table), *shape)


def _of_array(x: Any, shape: tuple[int, ...], missing: str | None) -> EncodedRows:
    values = array_of(x, "predict")
    if values.dtype.kind not in "fiub":
        raise DataError(
            f"the model was trained on arrays of numbers, got {values.dtype}. Encode text as for "
            "training."
        )
    if values.ndim == 1 and shape == (1,):
        values = values[:, None]  # a vector is one feature per record
    if values.shape[1:] != shape or not values.ndim:
        raise DataError(
            f"records must have shape {shape} each, as in training, got an array of shape "
            f"{values.shape}. Reshape it."
        )
    if not len(values):
        raise DataError("the array has no records: there is nothing to predict. Add some.")
    if missing == "flag":
        flagged = features_of(values, "predict", missing=missing)
        absent = flagged[:, shape[0] :] > 0
        by_place = {f"x{at}": int(count) for at, count in enumerate(absent.sum(axis=0)) if count}
        counts = RowCounts(len(flagged), missing=int(absent.any(axis=1).sum()), missing_of=by_place)
        return EncodedRows(counts, lambda at: flagged[at])
    # whole numbers may be tokens, which a model looks up
    records: Records = (
        values.astype(np.int64) if values.dtype.kind in "iu" else values.astype(np.float32)
    )
    if not np.isfinite(records).all():
        odd = int((~np.isfinite(records)).sum())
        raise DataError(f"the array has {odd} values that are not finite. Fill or remove them.")
    return EncodedRows(RowCounts(len(records)), lambda at: records[at])


def _counted(rows: int) -> str:
    return "1 row" if rows == 1 else f"{rows:,} rows"


def _told(rows: int, by_column: Mapping[str, int], what: str) -> str:
    return f"{_counted(rows)} {what} ({_columns(by_column)})"


def _columns(by_column: Mapping[str, int]) -> str:
    most = sorted(by_column.items(), key=lambda item: -item[1])
    more = ", …" if len(most) > _SHOWN else ""
    return ", ".join(f"{name}: {count:,}" for name, count in most[:_SHOWN]) + more


def _listed(names: Sequence[str] | Mapping[str, object]) -> str:
    shown = list(names)
    return ", ".join(shown[:_SHOWN]) + (", …" if len(shown) > _SHOWN else "")
