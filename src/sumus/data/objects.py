"""Federated data from python objects that are no tables: arrays, tensors, datasets, loaders;
without importing torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sumus.data.array_labels import labels_of
from sumus.data.column_warnings import listed
from sumus.data.object_arrays import array_of, features_of
from sumus.data.object_pairs import pair_of, without_loader
from sumus.data.object_persons import silos_of_persons
from sumus.data.partition import split_by_record
from sumus.data.persons import PersonRules
from sumus.data.silos import FederatedData, Records, SiloRecords
from sumus.data.table import beyond_bounds
from sumus.errors import DataError
from sumus.plan import DEFAULT_ROWS_PER_PERSON, UNNAMED
from sumus.tasks import TASKS, Task

__all__ = ["from_arrays"]

_WHOLE_NUMBERS = (
    "whether records are whole numbers was read off all of them, where one fraction decides, and "
    "is taken as public"
)


def from_arrays(
    silos: Sequence[Any] | Mapping[str, Any],
    *,
    tests: Sequence[Any] | Mapping[str, Any] | None = None,
    groups: Sequence[Any] | Mapping[str, Any] | None = None,
    test_groups: Sequence[Any] | Mapping[str, Any] | None = None,
    names: Sequence[str] | None = None,
    task: Task = TASKS["classification"],
    classes: int | Sequence[str] | None = None,
    missing: str | None = None,
    name: str | None = None,
    test_fraction: float = 0.2,
    validation_fraction: float = 0.0,
    split_seed: int = 0,
    records_per_person: int = DEFAULT_ROWS_PER_PERSON,
    silos_per_person: int = 1,
) -> FederatedData:
    """Federated data from one object per silo.

    An object is a pair (x, y) of arrays, tensors, sparse matrices or lists, a dataset with a length
    whose items are pairs (x, y), or a loader of such a dataset.

    Guarantee: records keep their values (as float32, whole numbers as they are); with `tests` every
        training record trains or validates, without it the test part is split off. Either way a
        record's part follows from that record alone: one more or less moves no other. With `groups`
        the same holds of persons with all their rows, of which no more than `records_per_person`
        are used.

    Args:
        silos: training records, one object per silo; or a mapping of the silos' names to their
            objects.
        tests: test records, likewise; omitted: about `test_fraction` of the silo's records.
        groups: whose every row is, one array of identifiers (text or whole numbers) per silo,
            likewise: all rows with one identifier are one person. For plans with `privacy.unit = "person"`.
        test_groups: of the test records, where these are given; nobody may train and test.
        names: of the silos; omitted: those of the mapping, or silo-0, silo-1, …
        task: what is learned from the labels, as the plan declares them.
        classes: number of classes, or their names in order, public; omitted: read off the labels,
            which is an assumption, and refused where these look like a quantity or one is rare.
        missing: "flag" gives every feature a second one that says whether it is missing; omitted: a
            missing value (NaN) is refused.
        name: of the data set, for ledger, records and reports; omitted: `UNNAMED`, whose ledger
            adds up everything that nobody named.
        test_fraction: share of the records that is kept for testing if no test records are given; a
            record's chance.
        validation_fraction: share of the training part that is kept for tuning, likewise.
        split_seed: public seed of the split.
        records_per_person: M, the most rows of a person that count, public.
        silos_per_person: the most silos that one person is in; from 2 on a person is in the same
            part everywhere.
    """
    of_silos = {"tests": tests, "groups": groups, "test_groups": test_groups}
    silos, (tests, groups, test_groups), names = _in_order(silos, of_silos, names)
    given_lists = {"tests": tests, "groups": groups, "test_groups": test_groups, "names": names}
    _check_lengths(silos, given_lists)
    rules = PersonRules(
        most=records_per_person,
        silos=silos_per_person,
        test_fraction=test_fraction if tests is None else 0.0,
        validation_fraction=validation_fraction,
        seed=split_seed,
    )
    titles = (
        [str(title) for title in names]
        if names is not None
        else [f"silo-{index}" for index in range(len(silos))]
    )
    for title in (*titles, *(() if name is None else (name,))):
        if not title.strip() or not title.isprintable():
            raise DataError(
                f"names of silos and data sets must be printable text, got {title!r}. Give another "
                "name."
            )
    objects = [without_loader(each) for each in (*silos, *(tests or ()))]
    wheres = [*titles, *(f"{title} (test)" for title in titles[: len(tests or ())])]
    arrays = [_arrays(each, where) for (each, _), where in zip(objects, wheres, strict=True)]
    rows = [
        features_of(x, where, missing=missing) for (x, _), where in zip(arrays, wheres, strict=True)
    ]
    labels, stored = labels_of(
        task, [(where, y) for (_, y), where in zip(arrays, wheres, strict=True)], classes
    )
    read = [Records(x, y) for x, y in zip(rows, stored, strict=True)]
    alike = _alike(read)
    given, held_out = alike[: len(titles)], None if tests is None else alike[len(titles) :]
    shape = given[0].x.shape[1:]
    for where, records in zip(wheres, alike, strict=True):
        if records.x.shape[1:] != shape:
            raise DataError(
                f"silo {where!r} has records of shape {records.x.shape[1:]}, the first silo has "
                f"{shape}. Make them alike."
            )
    members = (
        silos_of_persons(titles, given, held_out, groups, test_groups, rules)
        if groups is not None
        else _silos_of_records(titles, given, held_out, rules)
    )
    lines = [*dict.fromkeys(line for _, notes in objects for line in notes), *labels.assumptions]
    if any(records.x.dtype.kind == "i" for records in read if len(records)):
        lines.append(_WHOLE_NUMBERS)
    return FederatedData(
        name=name if name is not None else UNNAMED,
        silos=tuple(members),
        shape=tuple(shape),
        labels=labels.facts,
        assumptions=tuple(lines),
        remarks=beyond_bounds(labels.clamped, listed(list(labels.facts.columns or ("label",)))),
        split_by_record=True,
        same_part_everywhere=groups is not None and rules.silos > 1,
    )


def _silos_of_records(
    titles: Sequence[str],
    given: Sequence[Records],
    held_out: Sequence[Records] | None,
    rules: PersonRules,
) -> list[SiloRecords]:
    """Every silo with its records in the parts that each of them decides on."""
    members = []
    for index, (title, records) in enumerate(zip(titles, given, strict=True)):
        train, validation, test = (
            Records(records.x[part], records.y[part])
            for part in split_by_record(
                records.x,
                records.y,
                test_fraction=rules.test_fraction,
                validation_fraction=rules.validation_fraction,
                seed=rules.seed,
                silo=title,
            )
        )
        members.append(
            SiloRecords(title, train, validation, test if held_out is None else held_out[index])
        )
    return members


def _in_order(
    silos: Sequence[Any] | Mapping[str, Any],
    of_silos: Mapping[str, Sequence[Any] | Mapping[str, Any] | None],
    names: Sequence[str] | None,
) -> tuple[Sequence[Any], list[Sequence[Any] | None], Sequence[str] | None]:
    """Objects, what belongs to them and names in one order, where a mapping may have named them."""
    if not isinstance(silos, Mapping):
        plain: list[Sequence[Any] | None] = []
        for what, given in of_silos.items():
            if isinstance(given, Mapping):
                raise DataError(
                    f"{what} must be a list like silos, got a mapping. Pass both as lists, or both "
                    "by name."
                )
            plain.append(given)
        if not isinstance(silos, list | tuple) and (
            hasattr(silos, "__getitem__") or not hasattr(silos, "__iter__")
        ):
            raise DataError(
                f"silos must be one table, or hold one object per silo in a list or by name, got "
                f"{type(silos).__name__}. Write silos=[…]."
            )
        return list(silos), plain, names
    if names is not None:
        raise DataError(
            "names must be left out where silos is a mapping, whose keys are the names. Remove "
            "names=."
        )
    lists: list[Sequence[Any] | None] = []
    for what, given in of_silos.items():
        if isinstance(given, Mapping) and set(given) != set(silos):
            raise DataError(f"{what} must have the same names as silos. Add or remove some.")
        lists.append([given[title] for title in silos] if isinstance(given, Mapping) else given)
    return list(silos.values()), lists, [str(title) for title in silos]


def _alike(parts: list[Records]) -> list[Records]:
    """An empty list of records says nothing about their form: it takes that of the others. Whole
    numbers stay whole if all are.
    """
    filled = [part.x for part in parts if len(part)]
    if not filled:
        return parts
    whole = all(x.dtype.kind == "i" for x in filled)
    rows = [part.x if len(part) else filled[0][:0] for part in parts]
    return [
        Records(x if whole else x.astype(np.float32, copy=False), part.y)
        for x, part in zip(rows, parts, strict=True)
    ]


def _check_lengths(silos: Sequence[Any], lists: Mapping[str, Sequence[Any] | None]) -> None:
    if not len(silos):
        raise DataError(
            "silos must hold at least one object, got none. Pass one pair (x, y) or dataset per "
            "silo."
        )
    for what, given in lists.items():
        if given is not None and len(given) != len(silos):
            raise DataError(
                f"{what} must have one entry per silo ({len(silos)}), got {len(given)}. Add or "
                "remove some."
            )


def _arrays(given: Any, title: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """One silo's records and labels as arrays of one length."""
    x, y = (array_of(each, title) for each in pair_of(given, title))
    if x.ndim < 1 or y.ndim < 1 or len(x) != len(y):
        raise DataError(
            f"silo {title!r} must have one label per record, got records {x.shape} and labels "
            f"{y.shape}. Check the pair (x, y)."
        )
    return x, y
