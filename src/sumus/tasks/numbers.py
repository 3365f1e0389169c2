"""Labels that are one number a record: read off a column, or given in Python; none may be missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sumus.errors import DataError
from sumus.tasks.task import LabelColumn

__all__ = ["number_per_record", "numbers_of"]


def numbers_of(column: LabelColumn) -> npt.NDArray[np.float64]:
    """The numbers of a label column, or a refusal that says how many are missing."""
    numbers = column.numbers()
    absent = np.flatnonzero(np.isnan(numbers))
    if len(absent):
        raise DataError(
            f"data.label_column {column.name!r} has no value in {len(absent)} records, first in "
            f"record {absent[0] + 1}. Fill them or remove them."
        )
    return numbers


def number_per_record(
    labels: npt.NDArray[Any], where: str, *, called: str
) -> npt.NDArray[np.float64]:
    """Labels that were given in Python as one number a record, or a refusal.

    Args:
        where: the silo, for errors.
        called: what such a number is, for errors.
    """
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise DataError(
            f"{where} must have one {called} per record, got labels {labels.shape}. Check the pair "
            "(x, y)."
        )
    numbers = labels.astype(np.float64)
    absent = int(np.isnan(numbers).sum())
    if absent:
        raise DataError(f"{where} has no {called} in {absent} records. Fill or remove them.")
    return numbers
