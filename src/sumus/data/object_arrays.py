"""Arrays of what Python programs hold: arrays, tensors, sparse matrices, nested lists; without
importing torch or scipy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sumus.errors import DataError

__all__ = ["array_of", "features_of"]

_MISSING_RULE = (
    'Set data.missing = "flag" in the plan (or missing="flag"), which gives every feature a second '
    "one that says whether it is missing; or fill them in"
)


def array_of(given: Any, title: str) -> NDArray[Any]:
    """A numpy array of an array, a tensor (through detach, cpu and numpy), a sparse matrix or
    nested lists; what a mask hides is NaN.
    """
    kind = f"{getattr(given, 'layout', '')} {getattr(given, 'dtype', '')}".strip()
    if isinstance(given, np.ma.MaskedArray):
        return _unmasked(given, title)
    if hasattr(given, "toarray") and hasattr(given, "nnz"):
        return np.asarray(given.toarray())
    try:
        for step in ("detach", "cpu", "numpy"):
            if hasattr(given, step) and not isinstance(given, np.ndarray):
                given = getattr(given, step)()
    except (TypeError, RuntimeError):  # numpy has no bfloat16 and no sparse array
        raise DataError(
            f"silo {title!r} holds a tensor that numpy cannot hold ({kind}). Pass it .float() and "
            ".to_dense()."
        ) from None
    try:
        return np.asarray(given)
    except ValueError as error:
        raise DataError(
            f"silo {title!r} has records of different shapes: {error}. Make them alike."
        ) from None


def _unmasked(given: Any, title: str) -> NDArray[Any]:
    if given.dtype.kind not in "fiub":
        raise DataError(
            f"silo {title!r} holds a masked array of {given.dtype}. Mask numbers only, or pass a "
            "table."
        )
    return np.asarray(given.astype(np.float64).filled(np.nan))


def features_of(
    given: NDArray[Any], title: str, *, missing: str | None
) -> NDArray[np.float32 | np.int64]:
    """Records as they are trained on: whole numbers (perhaps tokens) stay whole, all else is
    float32.

        missing = "flag":   x  →  (x with 0 for NaN, 1 where it was NaN)          twice the features

    Guarantee: shape and type follow from the array's own shape and type and from `missing`, never
        from a value. A flag feature that appeared with the first missing value would tell of the
        record that has it; so whether there are flags is declared, and a missing value without them
        is refused.

    Args:
        given: numbers, one record per row.
        title: of the silo, for errors.
        missing: "flag", "keep" (NaN stays, for descriptions) or None.
    """
    if given.dtype.kind == "O":
        given = _numbers_of_objects(given, title)
    if given.dtype.kind not in "fiub":
        raise DataError(
            f"silo {title!r} must hold numbers, got {given.dtype} records. Encode text first, or "
            "pass a table with named columns, which may hold text."
        )
    rows = np.atleast_2d(given.T).T  # a vector is one feature per record
    if given.dtype.kind in "iu" and missing is None:  # may be tokens, which a model looks up
        return rows.astype(np.int64)
    values = rows.astype(np.float32)
    absent = np.isnan(values)
    odd = int(np.count_nonzero(~np.isfinite(values) & ~absent))
    if odd:
        raise DataError(
            f"silo {title!r} has {odd} values that are not finite in single precision. Correct or "
            "remove them."
        )
    if missing == "flag":
        if values.ndim != 2:
            raise DataError(
                f'data.missing = "flag" is for records that are a list of features, silo {title!r} '
                f"has records of shape {values.shape[1:]}. Fill in missing values."
            )
        flagged = np.concatenate([np.where(absent, np.float32(0.0), values), absent], axis=1)
        return flagged.astype(np.float32)
    if missing is None and absent.any():
        raise DataError(
            f"silo {title!r} has {int(absent.sum())} values that are not finite: missing ones. "
            f"{_MISSING_RULE}."
        )
    return values


def _numbers_of_objects(given: NDArray[Any], title: str) -> NDArray[np.float64]:
    """Numbers that stand in an array of objects, which declares no type: always floating point, so
    that no value decides.
    """
    try:
        if any(isinstance(value, str | bytes) for value in given.flat):
            raise TypeError
        return np.asarray(given.astype(np.float64))  # None becomes NaN
    except (TypeError, ValueError):
        raise DataError(
            f"silo {title!r} has records of different shapes or kinds. Make them alike, or pass a "
            "table with named columns, which may hold text."
        ) from None
