"""The text of a file as blocks of UTF-8, whatever its encoding.

A byte order mark says what the encoding is; without one it is UTF-8 unless the plan declares
another.
"""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from sumus.data.packed import AT_ONCE
from sumus.errors import DataError

__all__ = ["TextBlocks"]

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
LONGEST_LINE = 2**26


class TextBlocks:
    """Blocks of UTF-8 in file order; what was read too far can be put back.

    Guarantee: no line is longer than 64 MB, so that whoever collects one needs no more memory.

    Args:
        path: for errors.
        stream: the bytes.
        declared: `data.encoding`, for a file without byte order mark.
    """

    def __init__(self, path: Path, stream: IO[bytes], declared: str | None) -> None:
        self._path = path
        self._blocks = self._utf8(stream, declared)
        self._back: list[bytes] = []
        self._open_line = 0

    def next(self) -> bytes:
        """The next block, empty at the end."""
        if self._back:
            return self._back.pop()
        block = next(filter(None, self._blocks), b"")
        end = max(block.rfind(b"\n"), block.rfind(b"\r"))
        self._open_line = self._open_line + len(block) if end < 0 else len(block) - end - 1
        if self._open_line > LONGEST_LINE:
            raise DataError(
                f"{self._path} has a line of more than 64 MB. It is no table of records; check "
                "data.path."
            )
        return block

    def put_back(self, block: bytes) -> None:
        """Have `block` come next."""
        if block:
            self._back.append(block)

    def text(self) -> io.TextIOWrapper:
        """Everything that is left, line ends as they are."""
        return io.TextIOWrapper(
            io.BufferedReader(_Rest(self), AT_ONCE), encoding="utf-8", newline=""
        )

    def _utf8(self, stream: IO[bytes], declared: str | None) -> Iterator[bytes]:
        first = stream.read(AT_ONCE)
        mark, marked = next(
            ((mark, name) for mark, name in _MARKS if first.startswith(mark)), (b"", None)
        )
        encoding = marked or declared or "utf-8"
        if encoding == "utf-8":
            yield first[len(mark) :]
            while block := stream.read(AT_ONCE):
                yield block
            return
        decoder = codecs.getincrementaldecoder(encoding)()
        block = first
        try:
            while block:
                yield decoder.decode(block).encode()
                block = stream.read(AT_ONCE)
            yield decoder.decode(b"", final=True).encode()
        except UnicodeError as error:
            reason = getattr(error, "reason", str(error))
            fix = "Correct data.encoding or --encoding" if marked is None else "Save it as UTF-8"
            raise DataError(f"{self._path} must be {encoding} text: {reason}. {fix}.") from None


class _Rest(io.RawIOBase):
    """What is left of the blocks, as a stream."""

    def __init__(self, blocks: TextBlocks) -> None:
        self._blocks = blocks

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = self._blocks.next()
        self._blocks.put_back(block[len(buffer) :])
        count = min(len(block), len(buffer))
        buffer[:count] = block[:count]
        return count
