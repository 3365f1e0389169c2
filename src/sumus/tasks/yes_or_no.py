"""Columns whose values are yes or no, in the spellings that people use."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sumus.errors import DataError
from sumus.tasks.task import LabelColumn

__all__ = ["events_of", "yes_or_no"]

_KNOWN = {"0": 0, "no": 0, "false": 0, "1": 1, "yes": 1, "true": 1}


def events_of(names: Sequence[str]) -> npt.NDArray[np.int64]:
    """Whether each of these words says that the event happened, −1 where it says neither; one −1
    more at the end, for positions of −1.
    """
    return np.array([*(_KNOWN.get(name.casefold(), -1) for name in names), -1], dtype=np.int64)


def yes_or_no(column: LabelColumn, key: str, fix: str) -> npt.NDArray[np.int64]:
    """1 where a column says yes, 0 where it says no; anything else is refused by its record.

    Nothing is read off the records: the values are known beforehand.

    Args:
        key: of the plan that names the column.
        fix: how to correct it.
    """
    categories = column.categories()
    values = events_of(categories.names)[categories.positions]
    unknown = np.flatnonzero(values < 0)
    if len(unknown):
        raise DataError(
            f"{key} {column.name!r} must hold 0 or 1, or no or yes; the value of record "
            f"{unknown[0] + 1} is neither. {fix}"
        )
    return values
