"""Rows as estimators take them: arrays or tables in, named columns out, and refusals in the words
that scikit-learn's users know.
"""

from __future__ import annotations

import hashlib
import numbers
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sumus.data import Column, NumberColumn, TextColumn, as_text, columns_of
from sumus.errors import DataError
from sumus.estimators.manners import InputError

__all__ = ["Rows", "dealt", "labels_of", "per_row"]


@final
@dataclass(frozen=True, eq=False)
class Rows:
    """Feature columns of a table or an array.

    Args:
        columns: by name; those of an array are x0, x1, …
        named: whether the names are the user's own.
    """

    columns: dict[str, Column]
    named: bool

    @classmethod
    def of(cls, x: Any, *, without: Sequence[str] = ()) -> Rows:
        """Any table that `columns_of` reads, or an array of numbers with two axes.

        Args:
            without: columns that are no features.
        """
        if hasattr(x, "tocsr") or type(x).__module__.startswith("scipy.sparse"):
            raise InputError(
                "Sparse data was passed for X, but dense data is required. Use '.toarray()'."
            )
        try:
            columns = None if _is_array(x) else columns_of(x, "X")
        except DataError as error:
            raise InputError(str(error)) from None
        if columns is not None:
            kept = {name: column for name, column in columns.items() if name not in without}
            if not kept:
                raise InputError(
                    "X has 0 feature(s) while a minimum of 1 is required. Add a column."
                )
            rows = cls(kept, _text_names(x))
        else:
            values = _numbers(x)
            rows = cls(
                {
                    f"x{place}": NumberColumn(f"x{place}", values[:, place])
                    for place in range(values.shape[1])
                },
                named=False,
            )
        for column in rows.columns.values():
            if isinstance(column, NumberColumn) and np.isinf(column.values).any():
                raise InputError(
                    f"Input X contains infinity (column {column.name}). Replace it; a missing "
                    "value may be NaN."
                )
        if not len(rows):
            raise InputError(
                f"Found array with 0 sample(s) (shape=(0, {len(rows.columns)})) while a minimum of "
                "1 is required."
            )
        return rows

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns, in order."""
        return tuple(self.columns)

    def like(self, names: Sequence[str], *, named: bool, owner: str) -> Rows:
        """The same rows for a model of these columns, or a refusal.

        Args:
            names: of the columns that were fitted.
            named: whether they were the user's own.
            owner: class of the estimator, for messages.
        """
        if self.named and named:
            self._require_names(names)
        elif self.named != named and len(self.columns) == len(names):
            had = "was fitted with feature names" if named else "was fitted without feature names"
            has = "does not have valid feature names" if named else "has feature names"
            warnings.warn(f"X {has}, but {owner} {had}", UserWarning, stacklevel=4)
        if len(self.columns) != len(names):
            raise InputError(
                f"X has {len(self.columns)} features, but {owner} is expecting {len(names)} "
                "features as input."
            )
        return Rows(dict(zip(names, self.columns.values(), strict=True)), named)

    def _require_names(self, names: Sequence[str]) -> None:
        given = self.names
        if given == tuple(names):
            return
        lines = ["The feature names should match those that were passed during fit."]
        unseen, missing = sorted(set(given) - set(names)), sorted(set(names) - set(given))
        for title, odd in (
            ("Feature names unseen at fit time:", unseen),
            ("Feature names seen at fit time, yet now missing:", missing),
        ):
            if odd:
                lines += [title, *(f"- {name}" for name in odd[:5])]
                lines += ["- ..."] if len(odd) > 5 else []
        if not unseen and not missing:
            lines.append("Feature names must be in the same order as they were in fit.")
        raise InputError("\n".join(lines) + "\n")


def _is_array(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.dtype.names is None


def _text_names(x: Any) -> bool:
    """Whether the columns have names of text, as scikit-learn counts them."""
    names = getattr(x, "columns", None)
    return names is None or all(isinstance(name, str) for name in names)


def _numbers(x: Any) -> NDArray[np.float64]:
    """An array of numbers with two axes."""
    values = x.detach().cpu().numpy() if hasattr(x, "detach") else np.asarray(x)
    if values.dtype.kind == "c":
        raise InputError(f"Complex data not supported\n{values!r:.60}\n")
    if values.dtype.kind not in "fiub":
        values = _as_floats(values)
    if values.ndim != 2:
        raise InputError(
            f"Expected 2D array, got {values.ndim}D array instead. Reshape your data, rows first: "
            "X.reshape(-1, 1) is one feature."
        )
    if values.shape[1] == 0:
        raise InputError(
            f"Found array with 0 feature(s) (shape={values.shape}) while a minimum of 1 is "
            "required."
        )
    return values.astype(np.float64)


def _as_floats(values: NDArray[Any]) -> NDArray[np.float64]:
    try:
        return values.astype(np.float64)
    except TypeError as error:
        raise TypeError(f"{error}: argument must be a string or a number") from None
    except ValueError:
        raise InputError(
            "X holds text in an array. Pass a table (a frame, or a mapping of names to columns)."
        ) from None


def labels_of(y: Any, rows: int, owner: str) -> NDArray[Any]:
    """One label a row."""
    if y is None:
        raise InputError(
            f"This {owner} estimator requires y to be passed, but the target y is None"
        )
    values = np.asarray(y)
    if values.ndim == 2 and values.shape[1] == 1:
        warnings.warn(_conversion(), stacklevel=4)
        values = values[:, 0]
    if values.ndim != 1:
        raise InputError(f"y should be a 1d array, got an array of shape {values.shape} instead.")
    if len(values) != rows:
        raise InputError(
            f"Found input variables with inconsistent numbers of samples: [{rows}, {len(values)}]"
        )
    if values.dtype.kind == "c":
        raise InputError("Complex data not supported in y.")
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        what = "NaN" if np.isnan(values).any() else "infinity"
        raise InputError(f"Input y contains {what}.")
    return values


def _conversion() -> Warning:
    text = (
        "A column-vector y was passed when a 1d array was expected. Please change the shape of y "
        "to (n_samples,), for example using ravel()."
    )
    try:
        from sklearn.exceptions import DataConversionWarning
    except ImportError:
        return UserWarning(text)
    return DataConversionWarning(text)  # type: ignore[no-any-return]


def per_row(given: Any, rows: int, what: str) -> TextColumn:
    """Names of silos or of persons, one a row."""
    values = np.asarray(given)
    if values.ndim != 1 or len(values) != rows:
        raise InputError(
            f"{what} must be one label a row, got shape {values.shape} for {rows} rows. Pass a list "
            "of labels, or the name of a column."
        )
    try:
        column = (columns_of({what: values}, what) or {})[what]
    except DataError as error:
        raise InputError(str(error)) from None
    named = as_text(column)
    if (named.codes < 0).any():
        raise InputError(f"{what} must be one label a row, and some rows have none. Fill them in.")
    return named


def dealt(
    columns: Mapping[str, Column], silos: numbers.Integral | int, whose: TextColumn | None
) -> TextColumn:
    """Rows dealt to so many simulated silos.

    Guarantee: a row's silo follows from that row alone (a person's from the person alone), so one
        more or less moves no other.

    Args:
        columns: of every row, labels among them.
        whose: the person of every row, where persons are protected.
    """
    count = int(silos)
    if count < 1:
        raise InputError(f"silos must be at least 1, got {count}. Give a number of silos.")
    parts = [whose] if whose is not None else list(columns.values())
    rows = zip(*(_values(part) for part in parts), strict=True)
    hashed = (hashlib.sha256(repr(row).encode()).digest()[:8] for row in rows)
    codes = np.array([int.from_bytes(digest, "little") % count for digest in hashed], np.int32)
    names = tuple(f"silo-{place}" for place in range(count))
    return TextColumn("silo", names, codes, declared=True)


def _values(column: Column) -> list[Any]:
    if isinstance(column, NumberColumn):
        return list(column.values.tolist())
    return [column.values[code] if code >= 0 else None for code in column.codes.tolist()]
