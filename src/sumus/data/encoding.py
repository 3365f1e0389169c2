"""The public rules by which a row of a table becomes features, apart from any rows.

    encoding = Encoding((ColumnRule("age", "scaled", low=0.0, high=120.0),
                         ColumnRule("sex", "one-hot", categories=("f", "m"))))
    encoding.encode(columns, rows)       # (rows, 5) float32, the same bits wherever it is computed

A rule holds what the plan declares or, where it declares nothing, which of the fixed encoders of
`columns` was chosen. Whoever has the rules encodes new rows as a run's own were.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Self, final

import numpy as np
from numpy.typing import NDArray

from sumus.data.columns import (
    BUCKETS,
    KNOTS,
    Column,
    Encoder,
    HashedText,
    KnottedNumber,
    NumberColumn,
    OneHot,
    ScaledNumber,
    TextColumn,
)
from sumus.data.labels import as_text, canonical, parse_numbers, spelt
from sumus.data.text_vectors import TEXT_WIDTHS, TextVectors
from sumus.errors import DataError, StorageError, dotted
from sumus.files import from_json, plain_json
from sumus.plan import DataPlan

__all__ = ["ColumnRule", "Encoding", "encode_rows", "undeclared_feature"]

Mask = NDArray[np.bool_]
_ROWS_AT_ONCE = 8192  # rows that are encoded while they are in the cache
_FLAGS: Final = {"true": "1", "false": "0"}


@final
@dataclass(frozen=True)
class ColumnRule:
    """How one column becomes features.

    Args:
        name: of the column.
        kind: the encoder: "scaled", "knotted", "one-hot", "hashed", or a map of `data.texts`.
        low: of a scaled column, public; likewise `high`.
        categories: of a one-hot column, in the order of their features.
    """

    name: str
    kind: str
    low: float | None = None
    high: float | None = None
    categories: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        bounds = (self.low, self.high)
        sound = {
            "scaled": None not in bounds and not self.categories and _rising(self.low, self.high),
            "knotted": bounds == (None, None) and not self.categories,
            "one-hot": bounds == (None, None)
            and 0 < len(self.categories) == len(set(self.categories)),
            "hashed": bounds == (None, None) and not self.categories,
            **dict.fromkeys(TEXT_WIDTHS, bounds == (None, None) and not self.categories),
        }
        if not sound.get(self.kind, False):
            raise StorageError(
                f"the rule of column {self.name!r} is no rule of this version: {self.kind!r:.40} "
                f"with bounds {bounds} and {len(self.categories)} categories. Use the version that "
                "wrote it."
            )

    @property
    def width(self) -> int:
        """Features that the column becomes."""
        widths = {"scaled": 2, "knotted": len(KNOTS) + 1, "hashed": 2 * BUCKETS + 1}
        widths |= {kind: width + 1 for kind, width in TEXT_WIDTHS.items()}
        return widths.get(self.kind, len(self.categories) + 1)

    @classmethod
    def declared(cls, name: str, data: DataPlan) -> Self | None:
        """The rule that a plan's `data.texts`, `data.categories` or `data.bounds` give a column;
        None where they say nothing of it.
        """
        if name in (data.texts or {}):
            return cls(name, (data.texts or {})[name])
        categories, bounds = (data.categories or {}).get(name), (data.bounds or {}).get(name)
        if categories is not None:
            return cls(name, "one-hot", categories=canonical(categories, name))
        return None if bounds is None else cls(name, "scaled", low=bounds[0], high=bounds[1])

    def read(self, column: Column, fix: str | None = None, *, key: str | None = None) -> Column:
        """The column as the rule's encoder takes it, or a refusal that names the first record whose
        value it cannot be.

        Args:
            column: of the rule's name.
            fix: what to do about a value that is no number.
            key: what asks for numbers; omitted: the plan's key.
        """
        if self.kind in ("scaled", "knotted"):
            asked = dotted("data.bounds", self.name) if self.kind == "scaled" else None
            asked = key or asked or f"column {self.name}"
            return parse_numbers(_flags_as_numbers(column), asked, fix)
        text = as_text(column) if isinstance(column, NumberColumn) else column
        if not self.categories:
            return replace(text, name=self.name)
        # a value that is spelt like a category is one; otherwise 1.0 is 1 and TRUE is True
        spellings = {spelt(category): category for category in reversed(self.categories)}
        spellings |= {category: category for category in self.categories}
        values = tuple(
            spellings.get(value, spellings.get(spelt(value), value)) for value in text.values
        )
        return replace(text, values=values)

    def encoder(self, column: Column, fix: str | None = None) -> Encoder:
        """The encoder of a column's rows; arguments as for `read`."""
        values = self.read(column, fix)
        if isinstance(values, NumberColumn):
            if self.low is not None and self.high is not None:
                return ScaledNumber(values, self.low, self.high)
            return KnottedNumber(values)
        if self.kind in TEXT_WIDTHS:
            return TextVectors(values, self.kind)
        return OneHot(values, self.categories) if self.categories else HashedText(values)

    def missing(self, values: Column) -> Mask:
        """Rows without a value, of a column that was `read`."""
        if isinstance(values, NumberColumn):
            return np.isnan(values.values)
        absent: Mask = values.codes < 0
        return absent

    def outside(self, values: Column) -> Mask:
        """Rows whose number is beyond the public bounds, so that it counts as the nearest one."""
        if not isinstance(values, NumberColumn):
            return np.zeros(len(values), dtype=bool)
        low = KNOTS[0] if self.low is None else self.low
        high = KNOTS[-1] if self.high is None else self.high
        return (values.values < low) | (values.values > high)

    def unlisted(self, values: Column) -> Mask:
        """Rows whose value is none of the categories, so that it shares the last feature with
        missing ones.
        """
        if not isinstance(values, TextColumn) or not self.categories:
            return np.zeros(len(values), dtype=bool)
        known = set(self.categories)
        unknown = np.array([*(value not in known for value in values.values), False])
        rows: Mask = unknown[values.codes]
        return rows


@final
@dataclass(frozen=True)
class Encoding:
    """How a row becomes features: the rules of its columns, in the order of their features.

    Guarantee: features are a function of the row and of these rules alone, bit for bit, whatever
        file or frame the row comes from.
    """

    columns: tuple[ColumnRule, ...]

    def __post_init__(self) -> None:
        if not self.columns:
            raise StorageError("an encoding must have a rule for one column or more. Train anew.")

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns."""
        return tuple(rule.name for rule in self.columns)

    @property
    def width(self) -> int:
        """Features of a row."""
        return sum(rule.width for rule in self.columns)

    @classmethod
    def of_plan(cls, data: DataPlan) -> Self | None:
        """The encoding where the plan alone says it: feature columns listed, each with bounds,
        categories or a map of texts; None otherwise.
        """
        if undeclared_feature(data) is not None:
            return None
        rules = (ColumnRule.declared(name, data) for name in data.columns or ())
        return cls(tuple(rule for rule in rules if rule is not None))

    def encoders(self, columns: Mapping[str, Column], fix: str | None = None) -> list[Encoder]:
        """One encoder a rule, over the rows of these columns.

        Args:
            columns: by name; others are left alone.
            fix: what to do about a value that is no number.
        """
        for name in self.names:
            if name not in columns:
                raise DataError(f"there is no column {name!r}, which is encoded. Add it.")
        return [rule.encoder(columns[rule.name], fix) for rule in self.columns]

    def encode(
        self, columns: Mapping[str, Column], rows: NDArray[np.int64] | None = None
    ) -> NDArray[np.float32]:
        """Features of the given rows in that order; of all rows where none are named."""
        if rows is None:
            rows = np.arange(len(columns[self.names[0]]) if self.names[0] in columns else 0)
        return encode_rows(self.encoders(columns), rows)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return dict(plain_json(asdict(self)))

    @classmethod
    def from_json(cls, entries: Any, *, where: str) -> Self:
        """The inverse of `to_json`, strictly; `where`: the file, for the message."""
        return from_json(cls, entries, where=where)


def encode_rows(encoders: Sequence[Encoder], rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """Features of rows, those of every encoder side by side."""
    ends = np.cumsum([encoder.width for encoder in encoders])
    out = np.zeros((len(rows), int(ends[-1])), dtype=np.float32)
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        block = slice(start, start + _ROWS_AT_ONCE)
        for encoder, end in zip(encoders, ends, strict=True):
            encoder.write(rows[block], out[block, end - encoder.width : end])
    return out


def undeclared_feature(data: DataPlan) -> str | None:
    """The key that is missing in a plan that does not say by itself how rows are encoded; None
    where it does.
    """
    if data.columns is None:
        return "data.columns"
    listed = {*(data.bounds or {}), *(data.categories or {}), *(data.texts or {})}
    return next(
        (
            f"{dotted('data.bounds', name)} or {dotted('data.categories', name)}"
            for name in data.columns
            if name not in listed
        ),
        None,
    )


def _rising(low: float | None, high: float | None) -> bool:
    """Whether two numbers are bounds."""
    return low is not None and high is not None and -math.inf < low < high < math.inf


def _flags_as_numbers(column: Column) -> Column:
    """True and false as 1 and 0, whatever else stands in the column."""
    if isinstance(column, NumberColumn):
        return column
    return replace(
        column, values=tuple(_FLAGS.get(value.casefold(), value) for value in column.values)
    )
