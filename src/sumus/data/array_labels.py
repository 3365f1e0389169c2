"""Labels that were given in Python beside arrays: numbers of classes, names of classes, flags,
quantities.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sumus.data.columns import Column, NumberColumn, TextColumn
from sumus.data.frames import columns_of
from sumus.data.labels import LabelledBy, as_text
from sumus.errors import DataError
from sumus.tasks import LabelFacts, Labels, Task

__all__ = ["labels_of"]

_FLAGS = ("False", "True")


def labels_of(
    task: Task, given: Sequence[tuple[str, NDArray[Any]]], classes: int | Sequence[Any] | None
) -> tuple[Labels, list[NDArray[Any]]]:
    """Labels of all silos together, with what is public about them, and those of each silo.

    Names of classes are the declared ones in their order; where none are declared, all that are
    there, sorted, under the rule of a table's label column: that is an assumption, and refused
    where they look like a quantity or one of them is rare. Booleans are the classes False and True, as in
    a file.

    Guarantee: labels that are declared follow from the declaration; a label beyond it is refused by
        its record and never shown.

    Args:
        task: what is learned.
        given: name of each silo, and its labels.
        classes: how many there are, or their names; public.
    """
    names = _declared_names(classes)
    filled = [labels for _, labels in given if len(labels)]
    if names is not None or any(labels.dtype.kind not in "fiub" for labels in filled):
        return _named(task, given, names, classes)
    count = classes if isinstance(classes, int) else None
    flags = bool(filled) and all(labels.dtype.kind == "b" for labels in filled)
    stored = [task.store(labels, f"silo {title!r}") for title, labels in given]
    together = np.concatenate(stored)
    clamped = sum(task.outside(labels) for _, labels in given if labels.dtype.kind in "fiub")
    if flags and task.label_declaration == "categories" and count in (None, 2):
        return Labels(together, LabelFacts(_FLAGS)), stored
    accepted = task.accept(together, count)
    return Labels(accepted.values, accepted.facts, accepted.assumptions, clamped), stored


def _declared_names(classes: int | Sequence[Any] | None) -> tuple[str, ...] | None:
    if classes is None or (isinstance(classes, int) and not isinstance(classes, bool)):
        return None
    if isinstance(classes, str | bytes | bool) or not hasattr(classes, "__len__"):
        raise DataError(
            f"classes must be the number of classes or a list of their names, got {classes!r}. "
            "Write classes=[…]."
        )
    return tuple(map(str, classes))


def _named(
    task: Task,
    given: Sequence[tuple[str, NDArray[Any]]],
    names: tuple[str, ...] | None,
    classes: int | Sequence[Any] | None,
) -> tuple[Labels, list[NDArray[Any]]]:
    """Labels that are names."""
    if task.label_declaration != "categories":
        raise DataError(
            f"labels must be numbers for training.task = {task.name}. Leave classes out, and pass "
            "numbers."
        )
    columns = [_column(labels, title) for title, labels in given]
    if names is not None:  # every silo by itself: a fault is named by its record there
        parts = [
            task.read({"label_column": LabelledBy(column, f"silo {title!r}", names)})
            for column, (title, _) in zip(columns, given, strict=True)
        ]
        stored = [part.values for part in parts]
        return Labels(np.concatenate(stored), parts[0].facts), stored
    if classes is not None:
        raise DataError(
            f"classes = {classes} declares how many classes there are, and labels are names. Pass "
            "the names: classes=[…]."
        )
    if not any(map(len, columns)):
        raise DataError(
            "silos hold no label to read the classes off. Pass classes=[…], their names."
        )
    together = task.read({"label_column": LabelledBy(_below_each_other(columns), "labels")})
    ends = np.cumsum([len(column) for column in columns])[:-1]
    return together, np.split(together.values, ends)


def _column(labels: NDArray[Any], title: str) -> Column:
    """Labels of a silo as a column, none of them missing."""
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if not len(labels):
        labels = np.zeros(0, dtype=object)
    columns = columns_of({"label": labels}, f"silo {title!r}")
    if columns is None:
        raise DataError(
            f"silo {title!r} must have one label per record, got labels {labels.shape}. Check the "
            "pair (x, y)."
        )
    column = columns["label"]
    absent = np.isnan(column.values) if isinstance(column, NumberColumn) else column.codes < 0
    if absent.any():
        raise DataError(
            f"silo {title!r} has no label in {int(absent.sum())} records, first in record "
            f"{int(np.flatnonzero(absent)[0]) + 1}. Fill them in or remove them."
        )
    return column


def _below_each_other(columns: Sequence[Column]) -> TextColumn:
    """All labels in one column, in one spelling."""
    numbers: dict[str, int] = {}
    codes = []
    for column in map(as_text, columns):
        places = [numbers.setdefault(value, len(numbers)) for value in column.values]
        codes.append(np.array([*places, -1], dtype=np.int32)[column.codes])
    return TextColumn("label", tuple(numbers), np.concatenate(codes))
