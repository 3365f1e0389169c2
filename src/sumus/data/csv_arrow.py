"""The fast way through a CSV file: Arrow splits blocks of lines that every reader understands alike.

A block is left to the standard library's reader, and everything behind it too, where a quote stands
at an unusual place, a line ends with a carriage return alone, a line has too few or too many values,
or bytes are no UTF-8: then its errors and its reading count.
"""

from __future__ import annotations

import codecs
import csv
import importlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sumus.data.columns import MISSING_WORDS
from sumus.data.text_blocks import TextBlocks
from sumus.data.words import Words

__all__ = ["ArrowRows", "arrow_rows", "whole_lines"]

_MANY = 20_000  # distinct values that are kept in one buffer
# printable ASCII with blanks around it is stripped alike by everybody
_ASCII = r"^ *([!-~]([ -~]*[!-~])?)? *$"


@final
@dataclass
class ArrowRows:
    """Rows that Arrow has read, a list of dictionary-coded arrays per column.

    Args:
        columns: number of columns.
        rows: read so far.
        lines: of the file, the header's included.
    """

    columns: int
    rows: int = 0
    lines: int = 0
    parts: list[list[Any]] = field(default_factory=list)

    def add(self, values: Sequence[Sequence[str]], codes: Sequence[NDArray[np.int32]]) -> None:
        """Rows that were read in another way, as distinct values and positions in them."""
        arrow = importlib.import_module("pyarrow")
        self.parts.append(
            [
                arrow.DictionaryArray.from_arrays(
                    arrow.array(each, arrow.int32()), arrow.array(words, arrow.large_string())
                )
                for words, each in zip(values, codes, strict=True)
            ]
        )

    def column(self, place: int) -> tuple[Sequence[str], NDArray[np.int32], bool]:
        """Distinct values of a column, the position of every row's value, and whether values are
        stripped already and −1 marks the missing ones.
        """
        arrow = importlib.import_module("pyarrow")
        compute = importlib.import_module("pyarrow.compute")
        parts = [part[place] for part in self.parts]
        for part in self.parts:
            part[place] = None
        whole = arrow.chunked_array(parts).unify_dictionaries()
        del parts
        words = whole.chunk(0).dictionary
        codes = np.concatenate([chunk.indices.to_numpy() for chunk in whole.chunks])
        codes = codes.astype(np.int32, copy=False)
        plain = len(words) >= _MANY and compute.all(
            compute.match_substring_regex(words, _ASCII), min_count=0
        )
        if not plain or not plain.as_py():
            return tuple(words.to_pylist()), codes, False
        trimmed = compute.utf8_trim(words, characters=" ")
        lower, missing = compute.ascii_lower(trimmed), arrow.array(sorted(MISSING_WORDS))
        absent = compute.is_in(lower, value_set=missing.cast(words.type))
        there = compute.if_else(absent, arrow.scalar(None, words.type), trimmed).dictionary_encode()
        if len(there.dictionary) == len(words):
            return Words(there.dictionary), codes, True
        places = there.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)
        return Words(there.dictionary), places[codes], True


def arrow_rows(blocks: TextBlocks, header: Sequence[str], separator: str, lines: int) -> ArrowRows:
    """Rows from the blocks' beginning to the first block that Arrow is not sure to read like the
    standard library; that one and the rest stay in `blocks`.

    Args:
        blocks: behind the header.
        header: names of the columns, all different.
        separator: between values.
        lines: that the header took.
    """
    found = ArrowRows(len(header), lines=lines)
    try:
        arrow = importlib.import_module("pyarrow")
        reader = importlib.import_module("pyarrow.csv")
    except ImportError:
        return found
    kind = arrow.dictionary(arrow.int32(), arrow.large_string())
    names = [str(place) for place in range(len(header))]
    around = np.array([ord("\n"), ord("\r"), ord(separator)], dtype=np.uint8)
    while block := whole_lines(blocks):
        if not _is_plain(block, around):
            blocks.put_back(block)
            return found
        try:
            table = reader.read_csv(
                arrow.BufferReader(block),
                reader.ReadOptions(column_names=names, block_size=len(block) + 1),
                reader.ParseOptions(
                    delimiter=separator, newlines_in_values=b'"' in block, double_quote=True
                ),
                reader.ConvertOptions(
                    column_types=dict.fromkeys(names, kind),
                    null_values=[],
                    strings_can_be_null=False,
                ),
            )
        except arrow.ArrowInvalid as error:
            if "Empty CSV" in str(error):  # blank lines only
                found.lines += block.count(b"\n")
                continue
            blocks.put_back(block)
            return found
        arrays = [table.column(name).combine_chunks() for name in names]
        if any(_too_long(array) for array in arrays):
            blocks.put_back(block)
            return found
        found.parts.append(arrays)
        found.rows += table.num_rows
        found.lines += block.count(b"\n")
    return found


def whole_lines(blocks: TextBlocks) -> bytes:
    """Bytes up to a line's end outside of quotes; at the end of the file, all that is left."""
    collected = blocks.next()
    while True:
        end = collected.rfind(b"\n")
        if end >= 0 and collected.count(b'"', 0, end) % 2:
            end = collected.rfind(b"\n", 0, collected.rfind(b'"', 0, end))
        if end >= 0:
            blocks.put_back(collected[end + 1 :])
            return collected[: end + 1]
        more = blocks.next()
        if not more:
            return collected
        collected += more


def _is_plain(block: bytes, around: NDArray[np.uint8]) -> bool:
    """Whether quotes stand around whole values or doubled inside of them, and lines end alike for
    everybody.

    Args:
        around: what may stand beside a quoted value.
    """
    if block.startswith(codecs.BOM_UTF8):  # in the middle of a file it is a value
        return False
    if b"\0" in block or block.count(b"\r") != block.count(b"\r\n"):
        return False
    if b'"' not in block:
        return True
    text = np.frombuffer(b"\n" + block + b"\n", dtype=np.uint8)
    quotes = np.flatnonzero(text == ord('"'))
    if len(quotes) % 2:
        return False
    first, last = quotes[0::2], quotes[1::2]
    doubled = first[1:] == last[:-1] + 1  # a value goes on behind a doubled quote
    opens = np.isin(text[first - 1], around)
    closes = np.isin(text[last + 1], around)
    return bool(
        opens[0] and closes[-1] and (opens[1:] | doubled).all() and (closes[:-1] | doubled).all()
    )


def _too_long(array: Any) -> bool:
    """Whether the standard library's reader may refuse a value for its length."""
    compute = importlib.import_module("pyarrow.compute")
    longest = compute.max(compute.binary_length(array.dictionary)).as_py()
    return bool(longest is not None and longest > csv.field_size_limit())
