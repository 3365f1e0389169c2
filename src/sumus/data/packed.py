"""Opens a file that may be packed, as a stream of the bytes inside it that cannot grow without
bound.
"""

from __future__ import annotations

import bz2
import gzip
import importlib
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from sumus.errors import DataError

__all__ = ["AT_ONCE", "BOUND", "RATIO", "most_unpacked", "packing_of", "unpacked"]

AT_ONCE = 2**23
"""Bytes that are read at once."""

BOUND = 2**26
"""Bytes that any packed file may unpack to."""

RATIO = 250
"""How many times its own size a packed file may unpack to, beyond `BOUND`: text packs 5 to 50 times
smaller, and what packs a thousand times smaller is one value over and over.
"""

_PACKINGS = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zX": "xz",
    b"\x28\xb5\x2f\xfd": "zstandard",
}


def packing_of(first: bytes) -> str | None:
    """How a file with these first bytes is packed, None if it is not."""
    return next((name for magic, name in _PACKINGS.items() if first.startswith(magic)), None)


def most_unpacked(path: Path) -> int:
    """Bytes that may come out of a packed file."""
    return max(BOUND, RATIO * path.stat().st_size)


@contextmanager
def unpacked(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of a file, unpacked where it is packed with gzip, bzip2, xz or zstandard.

    Guarantee: no more than `RATIO` times the file's size, or `BOUND` bytes, ever come out of it; a
        damaged stream is a `DataError`.
    """
    with path.open("rb") as file:
        packing = packing_of(file.read(4))
        file.seek(0)
        if packing is None:
            yield cast(IO[bytes], file)
            return
        with _opened(path, file, packing) as inside:
            try:
                yield cast(
                    IO[bytes],
                    io.BufferedReader(_Bounded(path, inside, most_unpacked(path)), AT_ONCE),
                )
            except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile):
                raise _damaged(path, packing) from None
            except OSError as error:
                if error.errno is not None:
                    raise
                # bz2 and arrow say so by an error without a number
                raise _damaged(path, packing) from None


def _damaged(path: Path, packing: str) -> DataError:
    return DataError(
        f"{path} is damaged: its {packing} stream ends early or is broken. Get it again."
    )


def _opened(path: Path, file: Any, packing: str) -> Any:
    openers: dict[str, Callable[[Any], Any]] = {
        "gzip": lambda packed: gzip.GzipFile(fileobj=packed),
        "bzip2": bz2.BZ2File,
        "xz": lzma.LZMAFile,
        "zstandard": lambda packed: _zstandard(path, packed),
    }
    return openers[packing](file)


def _zstandard(path: Path, file: Any) -> Any:
    try:
        arrow = importlib.import_module("pyarrow")
    except ImportError:
        raise DataError(
            f"{path} is packed with zstandard, which needs pyarrow. Run: pip install "
            "'sumus[tables]' (or unpack it)."
        ) from None
    return arrow.CompressedInputStream(file, "zstd")


class _Bounded(io.RawIOBase):
    """A stream that is refused once more than `most` bytes came out of it."""

    def __init__(self, path: Path, inside: Any, most: int) -> None:
        self._path, self._inside, self._left = path, inside, most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = self._inside.read(len(buffer))
        self._left -= len(block)
        if self._left < 0:
            raise DataError(
                f"{self._path} unpacks to more than {RATIO} times its size, like a file made to "
                "fill a machine. Unpack it yourself if you trust it."
            )
        buffer[: len(block)] = block
        return len(block)
