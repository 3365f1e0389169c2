"""What the columns of a table are, as far as names and values show it: one kind out of a fixed list.

    number       counts and measurements            decimal comma   the same, written 48,5
    category     text with values that repeat       flag            yes or no by the file's own type
    identifier   says nothing about a new record    date            says nothing as text
    free text    sentences                          constant        one value wherever there is one
    mixed        numbers, and words among them

Guarantee: a finding holds a name and a kind, never a value and never a count. A kind is a fact about
    all values of its column together; whoever reads the plan learns it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

import numpy as np
from numpy.typing import NDArray

from sumus.data import (
    Column,
    NumberColumn,
    OwnTable,
    TextColumn,
    as_text,
    holds_numbers,
    looks_like,
    names_a_person,
    names_an_identifier,
    readable_numbers,
    repeats,
    with_decimal_points,
)

__all__ = ["Finding", "Kind", "finding_of", "holds_classes", "person_columns"]

Kind = Literal[
    "number",
    "decimal comma",
    "flag",
    "category",
    "identifier",
    "date",
    "free text",
    "constant",
    "mixed",
]
_MISSING_WORDS = frozenset(("none", "-", ".", "nan"))
_LEAST_RECORDS = 20  # fewer differ by chance
_LEAST_DIGITS = 5  # of whole numbers that are all different and of one length
_WORDS = 4  # of a sentence, on the average
_SENTENCES = 0.5  # share of values that are different, of free text
_MOST_NUMBERS = 10  # classes that are numbers: more of them are a quantity


@final
@dataclass(frozen=True)
class Finding:
    """A column, what kind it is, and why it is left out if it is."""

    name: str
    kind: Kind
    left_out: str | None = None

    @property
    def is_number(self) -> bool:
        """Whether bounds would scale it."""
        return self.kind in ("number", "decimal comma")


_LEFT_OUT: dict[str, str] = {
    "identifier": "an identifier says nothing about a new record",
    "date": "a date is no number here: add a column such as days or an age",
    "free text": "sentences are no categories: data.columns and data.texts make numbers of them",
    "constant": "one value in all records tells them apart by nothing",
    "mixed": "some of its values are no numbers: correct them, or list all as categories",
}


def finding_of(column: Column, *, dated: bool = False) -> Finding:
    """What kind a column is.

    Args:
        column: as the file holds it.
        dated: the file's own type says that it holds dates.
    """
    kind: Kind = "date" if dated else _kind(column)
    unwritable = None if column.name.isprintable() else "no plan can hold its name: rename it"
    return Finding(column.name, kind, _LEFT_OUT.get(kind) or unwritable)


def _kind(column: Column) -> Kind:
    if names_an_identifier(column.name):
        return "identifier"
    if isinstance(column, NumberColumn) and column.bounds == (0.0, 1.0):
        return "flag"  # what its file declares needs no look at the values
    if isinstance(column, TextColumn) and column.declared:
        return "category"
    if _distinct(column) <= 1:
        return "constant"
    if holds_numbers(column):
        return _kind_of_numbers(column, "number")
    seen = looks_like(column)
    if seen == "commas":
        return _kind_of_numbers(with_decimal_points(column), "decimal comma")
    if seen == "dates":
        return "date"
    if isinstance(column, TextColumn) and _is_prose(column):
        return "free text"
    return "identifier" if seen == "distinct" else "category"


def _kind_of_numbers(column: Column, kind: Kind) -> Kind:
    """Numbers that only tell records apart are no numbers, and words among numbers are errors."""
    read = readable_numbers(column)
    if isinstance(column, TextColumn) and np.any(np.isnan(read.values) & ~_missing(column)):
        return "mixed"
    values = read.values[np.isfinite(read.values)]
    if len(values) < _LEAST_RECORDS or len(np.unique(values)) < len(values):
        return kind
    if np.any(values != np.rint(values)):
        return kind
    digits = np.floor(np.log10(np.maximum(np.abs(values), 1.0)))
    alike = np.all(digits == digits[0]) and digits[0] + 1 >= _LEAST_DIGITS
    counted = np.array_equal(values, values[0] + np.arange(len(values)))
    return "identifier" if counted or alike else kind


def _missing(column: TextColumn) -> NDArray[np.bool_]:
    """Records without a value, or with a word that means so among numbers."""
    words = [value.casefold() in _MISSING_WORDS for value in column.values]
    return np.array([*words, True])[column.codes]


def _distinct(column: Column) -> int:
    if isinstance(column, NumberColumn):
        return len(np.unique(column.values[~np.isnan(column.values)]))
    return len(np.unique(column.codes[column.codes >= 0]))


def _is_prose(column: TextColumn) -> bool:
    present = int((column.codes >= 0).sum())
    if present < _LEAST_RECORDS or len(column.values) < _SENTENCES * present:
        return False
    return float(np.mean([len(value.split()) for value in column.values])) >= _WORDS


def holds_classes(column: Column) -> bool:
    """Whether the values of a label column are names of classes rather than a quantity."""
    if isinstance(column, NumberColumn) and column.bounds == (0.0, 1.0):
        return True
    return not holds_numbers(column) or _distinct(as_text(column)) <= _MOST_NUMBERS


def person_columns(table: OwnTable) -> tuple[str, ...]:
    """Columns that are called like the identifier of a person and whose values repeat."""
    return tuple(
        name for name, column in table.columns.items() if names_a_person(name) and repeats(column)
    )
