"""Federated data from python objects: arrays, torch tensors, torch datasets, without importing torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sumus.data.partition import split
from sumus.data.silos import FederatedData, Records, SiloRecords
from sumus.errors import DataError

__all__ = ["from_arrays"]


def from_arrays(
    silos: Sequence[Any],
    *,
    tests: Sequence[Any] | None = None,
    names: Sequence[str] | None = None,
    classes: int | None = None,
    name: str = "own data",
    test_fraction: float = 0.2,
    validation_fraction: float = 0.0,
    split_seed: int = 0,
) -> FederatedData:
    """Federated data from one object per silo.

    An object is a pair (x, y) of arrays or tensors, or a dataset with a length whose items are pairs (x, y).

    Guarantee: records keep their values (as float32); with `tests` every given training record trains or validates, without it
        the test part is split off as the plan would.

    Args:
        silos: training records, one object per silo.
        tests: test records, one object per silo; omitted: `test_fraction` of the silo's records.
        names: of the silos; omitted: silo-0, silo-1, …
        classes: number of labels, public; omitted: the largest label plus one, which is an assumption.
        name: of the data set, for records and reports.
        test_fraction: share of each silo that is kept for testing if no test records are given.
        validation_fraction: share of the training part that is kept for tuning.
        split_seed: public seed of the split.
    """
    _check_lengths(silos, tests, names)
    titles = [str(each) for each in names] if names is not None else [f"silo-{index}" for index in range(len(silos))]
    given = [_records(each, title) for each, title in zip(silos, titles, strict=True)]
    held_out = None if tests is None else [_records(each, f"{title} (test)") for each, title in zip(tests, titles, strict=True)]
    shape = given[0].x.shape[1:]
    everything = [*zip(titles, given, strict=True), *zip(titles, held_out or [], strict=False)]
    for title, records in everything:
        if records.x.shape[1:] != shape:
            raise DataError(f"silo {title!r} has records of shape {records.x.shape[1:]}, the first silo has {shape}. Make them alike.")
    largest = max(int(records.y.max(initial=-1)) for _, records in everything)
    found = classes if classes is not None else largest + 1
    if largest >= found:
        raise DataError(f"labels must be 0 … {found - 1}, got {largest}. Raise classes or number the labels from 0.")
    members = []
    for index, (title, records) in enumerate(zip(titles, given, strict=True)):
        fraction = test_fraction if held_out is None else 0.0
        train, validation, test = (
            Records(records.x[part], records.y[part])
            for part in split(len(records), test_fraction=fraction, validation_fraction=validation_fraction, seed=split_seed, silo=title)
        )
        members.append(SiloRecords(title, train, validation, test if held_out is None else held_out[index]))
    lines = ["record counts of the silos are taken as public"]
    if classes is None:
        lines.append(f"the number of classes, {found}, was read off the labels (pass classes= to declare it)")
    return FederatedData(name, tuple(members), tuple(shape), found, tuple(map(str, range(found))), tuple(lines))


def _check_lengths(silos: Sequence[Any], tests: Sequence[Any] | None, names: Sequence[str] | None) -> None:
    if not len(silos):
        raise DataError("silos must hold at least one object, got none. Pass one pair (x, y) or dataset per silo.")
    for what, given in (("tests", tests), ("names", names)):
        if given is not None and len(given) != len(silos):
            raise DataError(f"{what} must have one entry per silo ({len(silos)}), got {len(given)}. Add or remove some.")


def _records(given: Any, title: str) -> Records:
    x, y = _pair(given, title)
    x, y = _array(x, title), _array(y, title)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if x.ndim < 1 or y.ndim != 1 or len(x) != len(y):
        raise DataError(
            f"silo {title!r} must have one label per record, got records {x.shape} and labels {y.shape}. Check the pair (x, y)."
        )
    if x.dtype.kind not in "fiub" or y.dtype.kind not in "fiub":
        raise DataError(f"silo {title!r} must hold numbers, got {x.dtype} records and {y.dtype} labels. Encode text first.")
    if y.dtype.kind == "f" and not np.array_equal(y, np.floor(y)):
        raise DataError(f"silo {title!r} has labels that are not whole numbers. Number the classes 0, 1, 2, …")
    if len(y) and y.min() < 0:
        raise DataError(f"silo {title!r} has a negative label, {y.min()}. Number the classes 0, 1, 2, …")
    records = np.atleast_2d(x.T).T.astype(np.float32)  # a vector is one feature per record
    if not np.isfinite(records).all():
        raise DataError(f"silo {title!r} has {int((~np.isfinite(records)).sum())} values that are not finite. Fill or remove them.")
    return Records(records, y.astype(np.int64))


def _pair(given: Any, title: str) -> tuple[Any, Any]:
    """The pair (x, y) an object stands for; a dataset is read item by item."""
    if isinstance(given, Records):
        return given.x, given.y
    if isinstance(given, tuple | list) and len(given) == 2 and all(hasattr(each, "__len__") for each in given):
        return given[0], given[1]
    if (
        hasattr(given, "__len__")
        and hasattr(given, "__getitem__")
        and not isinstance(given, str | bytes | dict)
        and not hasattr(given, "dtype")
    ):
        items = [given[index] for index in range(len(given))]
        if items and all(isinstance(item, tuple | list) and len(item) == 2 for item in items):
            return [_array(x, title) for x, _ in items], [_array(y, title) for _, y in items]
    raise DataError(f"silo {title!r} must be a pair (x, y) or a dataset of pairs, got {type(given).__name__}. Pass (records, labels).")


def _array(given: Any, title: str) -> NDArray[Any]:
    """A numpy array of an array, a tensor (through detach, cpu and numpy) or nested lists."""
    for step in ("detach", "cpu", "numpy"):
        if hasattr(given, step) and not isinstance(given, np.ndarray):
            given = getattr(given, step)()
    try:
        return np.asarray(given)
    except ValueError as error:
        raise DataError(f"silo {title!r} has records of different shapes: {error}. Make them alike.") from None
