"""What in a table looks wrong to somebody who knows tables: identifiers, dates and decimal commas
taken for features.

A line names columns and never a value. Names are public; values are looked at only in columns that
the plan does not declare, whose kind is read off the file anyway.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import numpy as np

from sumus.data.columns import Column, NumberColumn, TextColumn

__all__ = [
    "WARNING",
    "column_warnings",
    "listed",
    "looks_like",
    "names_a_person",
    "names_an_identifier",
    "repeated_persons",
    "repeats",
]

WARNING = "warning: "
"""How a line begins that is no assumption but a doubt."""

_SHARE = 0.9  # of the values that are there
_LEAST_RECORDS = 20  # fewer are different in every record by chance

_PEOPLE = r"(patient|person|subject|customer|client|user|participant)"
_ID_NAME = re.compile(
    rf"(^|.*[^a-z])(id|uuid|guid|mrn|ssn|pid)|{_PEOPLE}([ _.-]?(no|nr|num|number|key|code))?",
    re.IGNORECASE,
)
_PERSON_NAME = re.compile(rf"(.*[^a-z])?({_PEOPLE}|pid|mrn|ssn)", re.IGNORECASE)
_ID_CAMEL = re.compile(r".*[a-z]I[dD]")
_TIME = r"([T ]\d{1,2}:\d{2}.*)?"
_DATE = re.compile(
    rf"\d{{4}}[-/.]\d{{1,2}}[-/.]\d{{1,2}}{_TIME}|\d{{1,2}}[-/.]\d{{1,2}}[-/.](\d{{4}}|\d{{2}}){_TIME}"
)
_COMMA = re.compile(r"[+-]?(\d*|\d{1,3}(\.\d{3})+),\d+")
_COMMA_OR_WHOLE = re.compile(r"[+-]?(\d*|\d{1,3}(\.\d{3})+),?\d+")

_LINES = {
    "identifiers": (
        "{} look like identifiers, which say nothing about a new record: leave them out of "
        "data.columns"
    ),
    "distinct": (
        "almost every record has a text of its own in {} (identifiers, names, free text): leave "
        "them out of data.columns, or name free text in data.texts"
    ),
    "dates": "{} look like dates and are hashed as text: write them as numbers, such as days or an age",
    "commas": (
        "numbers in {} are written with a decimal comma and are hashed as text: name them in "
        "data.decimal_comma, or write them with a point"
    ),
    "repeated": (
        "values of {} repeat: what is protected is one record, not a person with several of them "
        "(data.person_column protects persons)"
    ),
    "people": (
        "{} look like the identifier of a person: what is protected is one record, not a person "
        "with several of them (data.person_column protects persons)"
    ),
}


def column_warnings(
    columns: Mapping[str, Column],
    *,
    features: tuple[str, ...],
    declared: frozenset[str],
    may_look: bool,
    persons: bool = False,
) -> list[str]:
    """One line for each kind of doubt.

    Args:
        columns: all columns but silos and labels.
        features: those that become features.
        declared: those that the plan bounds or lists; they are used as it says.
        may_look: whether values of identifiers may be looked at too (the plan leaves the choice of
            columns to the file).
        persons: whether persons are the unit; then nobody needs to be told that records are not.
    """
    doubts: dict[str, list[str]] = {kind: [] for kind in _LINES}
    for name, column in columns.items():
        identifies = names_an_identifier(name)
        if identifies and name in features:
            doubts["identifiers"].append(name)
        if identifies and (name in declared or not may_look):
            doubts["people"].append(name)
        elif identifies and repeats(column):
            doubts["repeated"].append(name)
        if (
            name in features
            and name not in declared
            and not identifies
            and (kind := looks_like(column)) is not None
        ):
            doubts[kind].append(name)
    told = [kind for kind in _LINES if not (persons and kind in ("repeated", "people"))]
    return [WARNING + _LINES[kind].format(listed(doubts[kind])) for kind in told if doubts[kind]]


def repeated_persons(column: Column) -> list[str]:
    """How many persons of a column have several rows, for the silo's own eyes: no record or report
    may hold it.
    """
    values = (
        column.values[~np.isnan(column.values)]
        if isinstance(column, NumberColumn)
        else column.codes[column.codes >= 0]
    )
    rows = np.unique(values, return_counts=True)[1]
    several = int(np.count_nonzero(rows > 1))
    if not several:
        return []
    have = "1 value" if several == 1 else f"{several:,} values"
    return [
        f"{have} of {column.name} stand in several rows, one in {int(rows.max()):,}: trained per "
        "record, each of these rows is protected by itself"
    ]


def listed(names: list[str]) -> str:
    """A few names of columns."""
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def names_an_identifier(name: str) -> bool:
    """Whether a column is called like an identifier, such as id, caseId or patient_no."""
    return bool(_ID_NAME.fullmatch(name.strip()) or _ID_CAMEL.fullmatch(name.strip()))


def names_a_person(name: str) -> bool:
    """Whether a column is called like the identifier of a person, such as patient_id."""
    return bool(_PERSON_NAME.match(name.strip())) and names_an_identifier(name)


def repeats(column: Column) -> bool:
    """Whether a value stands in several records."""
    values = (
        column.values[~np.isnan(column.values)]
        if isinstance(column, NumberColumn)
        else column.codes[column.codes >= 0]
    )
    return len(np.unique(values)) < len(values)


def looks_like(column: Column) -> str | None:
    """What an undeclared column looks like, if it looks wrong: identifiers, dates, commas (decimal
    ones), or distinct (a text of its own in almost every record).
    """
    if isinstance(column, NumberColumn):
        values = column.values
        # 1, 2, 3, …
        counted = len(values) >= _LEAST_RECORDS and np.array_equal(
            values, values[0] + np.arange(len(values))
        )
        return "identifiers" if counted else None
    if _share(column, _DATE.fullmatch) >= _SHARE:
        return "dates"
    if (
        _share(column, _COMMA.fullmatch) > 0.0
        and _share(column, _COMMA_OR_WHOLE.fullmatch) >= _SHARE
    ):
        return "commas"
    present = int((column.codes >= 0).sum())
    if not column.declared and present >= _LEAST_RECORDS and len(column.values) >= _SHARE * present:
        return "distinct"
    return None


def _share(column: TextColumn, matches: Callable[[str], object]) -> float:
    """The part of the values that are there for which `matches` holds."""
    present = column.codes[column.codes >= 0]
    if not len(present):
        return 0.0
    return float(np.array([matches(value) is not None for value in column.values])[present].mean())
