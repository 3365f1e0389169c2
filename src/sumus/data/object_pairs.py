"""What one object of a Python program stands for: records and labels, or rows by name.

Torch's datasets and loaders are known by what they offer; torch is not imported.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sumus.data.object_arrays import array_of
from sumus.data.silos import Records
from sumus.errors import DataError

__all__ = ["pair_of", "rows_of_dataset", "without_loader"]

_LOADER_IGNORED = (
    "batches and order of the DataLoader are not used: its dataset is read as it stands, and "
    "batches are drawn at random"
)


def without_loader(given: Any) -> tuple[Any, tuple[str, ...]]:
    """The dataset of a DataLoader and a line that says so; any other object as it is.

    Guarantee: every record of the result is one that the loader would serve: a loader that chooses
        or weighs records is refused, because its choice would be lost.
    """
    if _is_stream(given):
        raise DataError(
            "an IterableDataset has neither a length nor positions, so no batch can be drawn from "
            "it at random. Read its records into a list or arrays."
        )
    if not (
        hasattr(given, "dataset") and hasattr(given, "sampler") and hasattr(given, "collate_fn")
    ):
        return given, ()
    chooser = None if _is_stream(given.dataset) else _chooser(given)
    if chooser is not None:
        raise DataError(
            f"a DataLoader with {chooser} chooses or weighs records, or may, and batches are drawn "
            "by the plan. Pass the records it means: torch.utils.data.Subset(dataset, …)."
        )
    dataset, _ = without_loader(given.dataset)
    return dataset, (_LOADER_IGNORED,)


def _chooser(loader: Any) -> str | None:
    """What may keep a loader from serving every record of its dataset once an epoch; None: it does,
    or drops another odd rest each time.

    A class of somebody's own may choose whatever its name and length are.
    """
    torch_data = sys.modules.get("torch.utils.data")  # whoever has a loader has imported it
    if torch_data is None or type(loader) is not torch_data.DataLoader:
        return f"the class {type(loader).__name__}"
    sampler, batches = loader.sampler, loader.batch_sampler
    in_order = type(sampler) is torch_data.SequentialSampler
    if not in_order and (type(sampler) is not torch_data.RandomSampler or sampler.replacement):
        return f"a {type(sampler).__name__}"
    if len(sampler) != len(loader.dataset):
        return f"a {type(sampler).__name__} of {len(sampler)} records"
    if batches is None:
        return None
    if type(batches) is not torch_data.BatchSampler or batches.sampler is not sampler:
        return f"a batch_sampler ({type(batches).__name__}) of its own"
    if in_order and batches.drop_last and len(sampler) % batches.batch_size:
        return "drop_last = True and no shuffling"
    return None


def _is_stream(given: Any) -> bool:
    return any(kind.__name__ == "IterableDataset" for kind in type(given).__mro__)


def rows_of_dataset(given: Any) -> list[Any] | None:
    """All items of a dataset whose first is a row by name; None where it is another object."""
    if isinstance(given, list | tuple | Mapping | str | bytes) or not _is_dataset(given):
        return None
    try:
        if not len(given) or not isinstance(given[0], Mapping):
            return None
        return [given[index] for index in range(len(given))]
    except (LookupError, TypeError, ValueError, NotImplementedError):
        return None  # indexed by something else than positions


def pair_of(given: Any, title: str) -> tuple[Any, Any]:
    """The pair (x, y) an object stands for; a dataset is read item by item."""
    if isinstance(given, Records):
        return given.x, given.y
    if (
        isinstance(given, tuple | list)
        and len(given) == 2
        and all(map(_has_items, given))
        and not all(map(_is_labelled, given))
    ):
        return given[0], given[1]
    if _is_dataset(given):
        try:
            items = [given[index] for index in range(len(given))]
        except (
            LookupError,
            TypeError,
            ValueError,
            NotImplementedError,
        ):  # indexed by something else than positions, as tables of columns are
            items = [None]
        if all(isinstance(item, tuple | list) and len(item) == 2 for item in items):
            return [array_of(x, title) for x, _ in items], [array_of(y, title) for _, y in items]
    raise DataError(
        f"silo {title!r} must be a table, a pair (x, y) or a dataset of pairs, got "
        f"{type(given).__name__}. Pass (records, labels)."
    )


def _is_dataset(given: Any) -> bool:
    return (
        hasattr(given, "__len__")
        and hasattr(given, "__getitem__")
        and not isinstance(given, str | bytes | dict)
        and not hasattr(given, "dtype")
    )


def _has_items(value: Any) -> bool:
    """Whether this holds several things: a sparse matrix has a shape and no length."""
    return (hasattr(value, "__len__") or hasattr(value, "toarray")) and getattr(
        value, "ndim", 1
    ) > 0


def _is_labelled(value: Any) -> bool:
    """Whether this is one record with its label: no part of a pair (x, y), where it would be a list
    of unlike things.
    """
    return (
        isinstance(value, tuple | list)
        and len(value) == 2
        and _has_items(value[0])
        and (not _has_items(value[1]) or isinstance(value[1], str) or _is_record(value))
    )


def _is_record(value: Sequence[Any]) -> bool:
    """Whether two arrays are one record and its labels: rows of one array have one shape, and many
    records have as many labels.
    """
    try:
        record, labels = (tuple(np.shape(part)) for part in value)
    except ValueError:  # of several lengths
        return False
    many = len(record) > 1 and record[0] == labels[0]
    return len(labels) == 1 and record != labels and not many
