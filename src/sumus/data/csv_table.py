"""Reads a CSV file into columns, with nothing but the standard library and numpy if need be.

Every column is kept as its distinct strings and one integer per row, so later work (numbers,
hashes, classes) is done once per distinct value. Where pyarrow is there it splits the lines, and a
million rows take a few seconds; the columns are the same.
"""

from __future__ import annotations

import csv
import io
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sumus.data.columns import MISSING_WORDS, TextColumn
from sumus.data.csv_arrow import arrow_rows, whole_lines
from sumus.data.packed import unpacked
from sumus.data.text_blocks import TextBlocks
from sumus.errors import DataError

__all__ = ["columns_of_rows", "read_csv"]

_SEPARATORS = ",;\t|"
_ROWS_AT_ONCE = 65_536


def read_csv(path: Path, *, encoding: str | None = None) -> dict[str, TextColumn]:
    """All columns of a CSV file with a header line, in file order.

    The separator is the most frequent of comma, semicolon, tab and bar in the header. Values are
    stripped of surrounding blanks; empty, NA, N/A, NaN, null and ? mean missing. Quotes follow RFC
    4180; blank lines are skipped.

    Args:
        path: a file of text, packed with gzip, bzip2, xz or zstandard or not.
        encoding: `data.encoding`; omitted: what the byte order mark says, otherwise UTF-8.
    """
    try:
        with unpacked(path) as stream:
            return _read(path, TextBlocks(path, stream, encoding))
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} must be UTF-8 text: {error.reason} at byte {error.start}. Save it as UTF-8, or "
            "declare data.encoding (--encoding of `sumus new` and `sumus predict`)."
        ) from None
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror or error}. Check data.path."
        ) from None


def _read(path: Path, blocks: TextBlocks) -> dict[str, TextColumn]:
    row, separator, lines = _first_row(path, blocks)
    header = _header(path, row)
    fast = arrow_rows(blocks, header, separator, lines)
    with blocks.text() as rest:
        reader = csv.reader(rest, delimiter=separator, strict=True)
        values, codes = _numbered(path, header, _rows(path, reader, fast.lines), fast.rows)
    if not fast.parts:
        return _named(header, values, codes)
    if len(codes[0]):
        fast.add(values, codes)
    return {name: _column(name, *fast.column(place)) for place, name in enumerate(header)}


def columns_of_rows(path: Path, rows: Iterator[list[str]]) -> dict[str, TextColumn]:
    """Columns of rows of strings, the first of which is the header; rules as in `read_csv`.

    Args:
        path: where they come from, for errors.
        rows: none of them empty.
    """
    header = _header(path, next(rows, None))
    return _named(header, *_numbered(path, header, rows, 0))


def _named(
    header: list[str], values: list[tuple[str, ...]], codes: list[NDArray[np.int32]]
) -> dict[str, TextColumn]:
    return {
        name: _column(name, words, each)
        for name, words, each in zip(header, values, codes, strict=True)
    }


def _first_row(path: Path, blocks: TextBlocks) -> tuple[list[str] | None, str, int]:
    """The header's values, the separator and how many lines the header took, which are taken off
    the blocks.
    """
    block = whole_lines(blocks)
    text, taken = io.StringIO(block.decode(), newline=""), list[str]()
    separator = max(_SEPARATORS, key=text.readline().count)
    text.seek(0)
    reader = csv.reader(_noted(text, taken), delimiter=separator, strict=True)
    row = next(_rows(path, reader, 0), None)
    blocks.put_back(block[len("".join(taken).encode()) :])
    return row, separator, len(taken)


def _noted(lines: Iterable[str], taken: list[str]) -> Iterator[str]:
    for line in lines:
        taken.append(line)
        yield line


def _rows(path: Path, reader: Iterator[list[str]], lines: int) -> Iterator[list[str]]:
    """Rows that are not blank; faults of the CSV syntax become one-line errors.

    Args:
        lines: of the file that stand before.
    """
    try:
        yield from filter(None, reader)
    except csv.Error as error:
        line = lines + getattr(reader, "line_num", 0)
        raise DataError(
            f"{path}, line {line}: {error}. Close every quote, and double a quote inside a quoted "
            "value."
        ) from None


def _numbered(
    path: Path, header: list[str], rows: Iterator[list[str]], done: int
) -> tuple[list[tuple[str, ...]], list[NDArray[np.int32]]]:
    """Distinct values and codes of every column.

    Args:
        done: rows that stand before, for errors.
    """
    numbers = [_numbering() for _ in header]
    blocks: list[list[NDArray[np.int32]]] = [[] for _ in header]
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
    return [tuple(each) for each in numbers], [np.concatenate([none, *each]) for each in blocks]


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


def _column(
    name: str, raw: Sequence[str], codes: NDArray[np.int32], clean: bool = False
) -> TextColumn:
    """Strip values, mark the missing ones and give equal values one number.

    Args:
        clean: nothing is to be stripped, and nothing means missing.
    """
    if clean:
        return TextColumn(name, raw, codes)
    numbers = _numbering()
    stripped = [value.strip() for value in raw]
    places = [-1 if value.casefold() in MISSING_WORDS else numbers[value] for value in stripped]
    return TextColumn(
        name=name, values=tuple(numbers), codes=np.array(places, dtype=np.int32)[codes]
    )
