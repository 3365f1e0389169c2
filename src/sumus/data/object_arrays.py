"""Arrays of what Python programs hold: arrays, tensors, nested lists; without importing torch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sumus.errors import DataError

__all__ = ["array_of"]


def array_of(given: Any, title: str) -> NDArray[Any]:
    """A numpy array of an array, a tensor (through detach, cpu and numpy) or nested lists."""
    kind = f"{getattr(given, 'layout', '')} {getattr(given, 'dtype', '')}".strip()
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
