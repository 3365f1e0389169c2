"""Persons among records that were given in Python: whose row it is comes as one array per silo."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sumus.data.columns import TextColumn
from sumus.data.object_arrays import array_of
from sumus.data.persons import PersonRules, by_person, ids_of_objects
from sumus.data.silos import Records, SiloRecords
from sumus.errors import DataError

__all__ = ["silos_of_persons"]


def silos_of_persons(
    titles: Sequence[str],
    given: Sequence[Records],
    held_out: Sequence[Records] | None,
    groups: Sequence[Any],
    test_groups: Sequence[Any] | None,
    rules: PersonRules,
) -> list[SiloRecords]:
    """Every silo with its persons in the parts that each of them decides on.

    Guarantee: as `by_person`; where test records are given apart, nobody is among those who train
        and those who test, in one silo or, for persons in several silos, in any two.

    Args:
        titles: names of the silos.
        given: their records.
        held_out: their test records, if given apart.
        groups: whose row it is, per silo.
        test_groups: of the test records.
        rules: how many rows count, and the chances of parts.
    """
    ids = [
        _ids(each, title, records)
        for each, title, records in zip(groups, titles, given, strict=True)
    ]
    parts = [
        by_person(records.x, records.y, own, rules=rules, silo=title)
        for records, own, title in zip(given, ids, titles, strict=True)
    ]
    members = [
        SiloRecords(title, *shares, rows_left_out=beyond)
        for title, (shares, beyond) in zip(titles, parts, strict=True)
    ]
    if held_out is None:
        return members
    if test_groups is None:
        raise DataError(
            "test_groups must say whose the test rows are where groups= does for the others. Pass "
            "one array of identifiers per silo."
        )
    tested = [
        _ids(each, f"{title} (test)", records)
        for each, title, records in zip(test_groups, titles, held_out, strict=True)
    ]
    _require_apart(titles, ids, tested, everywhere=rules.silos > 1)
    all_tests = replace(rules, test_fraction=1.0)
    return [
        replace(
            silo, test=by_person(records.x, records.y, own, rules=all_tests, silo=silo.name)[0][2]
        )
        for silo, records, own in zip(members, held_out, tested, strict=True)
    ]


def _ids(given: Any, title: str, records: Records) -> TextColumn:
    array = array_of(given, title)
    if array.ndim != 1 or len(array) != len(records):
        raise DataError(
            f"silo {title!r}: groups must hold one identifier for each of {len(records)} rows, got "
            f"an array of shape {array.shape}. Pass one identifier per row."
        )
    return ids_of_objects(array, f"silo {title!r}:")


def _require_apart(
    titles: Sequence[str],
    ids: Sequence[TextColumn],
    tested: Sequence[TextColumn],
    *,
    everywhere: bool,
) -> None:
    """Refuse persons who train and test: the ε of either speaks of those who do one of them."""
    trained = [set(own.values) for own in ids]
    for title, own, here in zip(titles, tested, trained, strict=True):
        both = set(own.values) & (set().union(*trained) if everywhere else here)
        if both:
            many = "1 person" if len(both) == 1 else f"{len(both)} persons"
            raise DataError(
                f"silo {title!r} has {many} among the test rows who also train. Split by person: "
                "leave tests out to have it done."
            )
