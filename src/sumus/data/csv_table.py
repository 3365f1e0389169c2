"""Reads a CSV file into columns with nothing but the standard library and numpy.

Every column is kept as its distinct strings and one integer per row, so later work (numbers,
hashes, classes) is done once per distinct value, and a million rows take a few seconds.
"""

from __future__ import annotations

import csv
import gzip
import itertools
import zlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO, cast

import numpy as np
from numpy.typing import NDArray

from sumus.data.columns import MISSING_WORDS, TextColumn
from sumus.errors import DataError

__all__ = ["read_csv"]

_SEPARATORS = ",;\t|"
_ROWS_AT_ONCE = 65_536


def read_csv(path: Path) -> dict[str, TextColumn]:
    """All columns of a CSV file with a header line, in file order.

    The separator is the most frequent of comma, semicolon, tab and bar in the header. Values are
    stripped of surrounding blanks; empty, NA, N/A, NaN, null and ? mean missing. Quotes follow RFC
    4180; blank lines are skipped.

    Args:
        path: a UTF-8 file, with or without byte order mark, packed with gzip or not.
    """
    try:
        with _text(path) as file:
            first = file.readline()
            file.seek(0)
            return _columns(
                path,
                _rows(
                    path, csv.reader(file, delimiter=max(_SEPARATORS, key=first.count), strict=True)
                ),
            )
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} must be UTF-8 text: {error.reason} at byte {error.start}. Save it as UTF-8."
        ) from None
    except (EOFError, zlib.error):
        raise DataError(
            f"{path} is damaged: its gzip stream ends early or is broken. Get it again."
        ) from None
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror or error}. Check data.path."
        ) from None


def _text(path: Path) -> TextIO:
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    if packed:
        return cast(TextIO, gzip.open(path, "rt", encoding="utf-8-sig", newline=""))
    return path.open(encoding="utf-8-sig", newline="")


def _rows(path: Path, reader: Iterator[list[str]]) -> Iterator[list[str]]:
    """Rows that are not blank; faults of the CSV syntax become one-line errors."""
    try:
        yield from filter(None, reader)
    except csv.Error as error:
        line = getattr(reader, "line_num", "?")
        raise DataError(
            f"{path}, line {line}: {error}. Close every quote, and double a quote inside a quoted "
            "value."
        ) from None


def _columns(path: Path, rows: Iterator[list[str]]) -> dict[str, TextColumn]:
    header = _header(path, next(rows, None))
    numbers = [_numbering() for _ in header]
    blocks: list[list[NDArray[np.int32]]] = [[] for _ in header]
    done = 0
    while block := list(itertools.islice(rows, _ROWS_AT_ONCE)):
        if set(map(len, block)) != {len(header)}:
            wrong = next(index for index, row in enumerate(block) if len(row) != len(header))
            raise DataError(
                f"{path}: record {done + wrong + 1} has {len(block[wrong])} values, the header has "
                f"{len(header)} columns. "
                "Quote values that hold the separator, or complete the line."
            )
        for column, values in enumerate(zip(*block, strict=True)):
            blocks[column].append(
                np.fromiter(
                    map(numbers[column].__getitem__, values), dtype=np.int32, count=len(values)
                )
            )
        done += len(block)
    none = np.zeros(0, dtype=np.int32)  # a silo may have lost its last record
    return {
        name: _column(name, tuple(numbers[index]), np.concatenate([none, *blocks[index]]))
        for index, name in enumerate(header)
    }


def _header(path: Path, row: list[str] | None) -> list[str]:
    if row is None:
        raise DataError(
            f"{path} is empty. It needs a header line with column names and one line per record."
        )
    names = [name.strip() for name in row]
    for position, name in enumerate(names, start=1):
        if not name:
            raise DataError(
                f"{path}: column {position} of the header has no name. Name it (or save the table "
                "without its index)."
            )
        if names.count(name) > 1:
            raise DataError(
                f"{path}: column {name!r} appears {names.count(name)} times in the header. Rename "
                "one of them."
            )
    return names


def _numbering() -> defaultdict[str, int]:
    """Numbers 0, 1, 2, … for strings in the order of their first appearance."""
    numbers: defaultdict[str, int] = defaultdict(int)
    numbers.default_factory = numbers.__len__
    return numbers


def _column(name: str, raw: tuple[str, ...], codes: NDArray[np.int32]) -> TextColumn:
    """Strip values, mark the missing ones and give equal values one number."""
    numbers = _numbering()
    stripped = [value.strip() for value in raw]
    places = [-1 if value.casefold() in MISSING_WORDS else numbers[value] for value in stripped]
    return TextColumn(
        name=name, values=tuple(numbers), codes=np.array(places, dtype=np.int32)[codes]
    )
