"""Text columns as vectors: the public maps that `data.texts` names, and a cache of what takes long.

    words     each different word in one of 256 buckets, by a fixed hash        [256 numbers; missing]
    minilm    a frozen network, published and the same for everybody            [384 numbers; missing]

The cache holds what texts mean, which is as private as the texts: it stands in a folder that only
its owner can read, one for every user, and knows a text by the SHA-256 of weights and text.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import sqlite3
import stat
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import numpy as np
from numpy.typing import NDArray

from sumus.data.columns import Indices, TextColumn
from sumus.data.fetched.weights import WEIGHTS, read_weights
from sumus.data.locations import cache_folder
from sumus.errors import DataError
from sumus.texts import BUCKETS, hashed_words

if TYPE_CHECKING:
    from sumus.texts import Sentences

__all__ = ["TEXT_WIDTHS", "TextVectors", "text_vectors"]

Vectors = NDArray[np.float32]

TEXT_WIDTHS: Final = {"minilm": 384, "words": BUCKETS}
"""Numbers a text, by the map's name."""

_TOGETHER = 64  # texts between two commits, a second or two of work
_ASKED_AT_ONCE = 500


@final
@dataclass(frozen=True)
class TextVectors:
    """A text as a vector of a public map; a missing one only sets its flag.

    Args:
        kind: one of `TEXT_WIDTHS`.
    """

    column: TextColumn
    kind: str

    @property
    def width(self) -> int:
        return TEXT_WIDTHS[self.kind] + 1

    def write(self, rows: Indices, out: Vectors) -> None:
        codes = self.column.codes[rows]
        present = codes >= 0
        used, place = np.unique(codes[present], return_inverse=True)
        if len(used):
            vectors = text_vectors(self.kind, [self.column.values[code] for code in used])
            out[present, :-1] = vectors[place]
        out[~present, -1] = 1.0


def text_vectors(kind: str, texts: Sequence[str]) -> Vectors:
    """One vector for every text.

    Guarantee: row j is a function of text j and of public weights alone, whatever else is asked for
        and whatever the cache holds.

    Args:
        kind: one of `TEXT_WIDTHS`.
        texts: any; those that differ are computed once.
    """
    if kind == "words":
        return hashed_words(texts)
    weights = WEIGHTS[kind]
    sentences = _sentences(kind, weights.digest)
    if sentences.width != TEXT_WIDTHS[kind]:
        raise DataError(
            f"the weights of {kind} make {sentences.width} numbers of a text, not "
            f"{TEXT_WIDTHS[kind]}. Run: sumus data prepare {kind}"
        )
    # other arithmetic has other last bits: a text must not get them by having been seen there
    key = hashlib.sha256(f"{weights.digest} {sentences.arithmetic}".encode()).digest()
    with _cache(f"{kind}-{key.hex()[:16]}.sqlite") as cache:
        return _looked_up(cache, sentences, texts, key)


@functools.lru_cache(maxsize=2)
def _sentences(kind: str, digest: str) -> Sentences:
    """The network, read once, of the very bytes that were compared; the digest stands for them."""
    try:
        from sumus.texts import load_sentences
    except ImportError:
        raise DataError(
            "texts by a network need torch. Run: pip install 'sumus[train,text]'"
        ) from None
    return load_sentences(read_weights(WEIGHTS[kind]), kind)


def _looked_up(
    cache: sqlite3.Connection, sentences: Sentences, texts: Sequence[str], key: bytes
) -> Vectors:
    """Vectors from the cache; those that are not there are computed and kept."""
    names = [hashlib.sha256(key + text.encode(errors="surrogatepass")).digest() for text in texts]
    known = _known(cache, names, width=sentences.width)
    absent = {name: text for name, text in zip(names, texts, strict=True) if name not in known}
    for part in _parts(list(absent.items()), told=len(absent) > _TOGETHER):
        for (name, _), vector in zip(part, sentences([text for _, text in part]), strict=True):
            known[name] = vector
        with cache:
            cache.executemany(
                "INSERT OR REPLACE INTO vectors VALUES (?, ?)",
                [(name, known[name].astype("<f4").tobytes()) for name, _ in part],
            )
    out = np.empty((len(texts), sentences.width), np.float32)
    for row, name in enumerate(names):
        out[row] = known[name]
    return out


def _known(cache: sqlite3.Connection, names: list[bytes], *, width: int) -> dict[bytes, Vectors]:
    """What the cache holds of these names; an entry of another length is none."""
    wanted, held = list(dict.fromkeys(names)), dict[bytes, bytes]()
    for start in range(0, len(wanted), _ASKED_AT_ONCE):
        asked = wanted[start : start + _ASKED_AT_ONCE]
        places = ", ".join("?" * len(asked))
        query = f"SELECT name, vector FROM vectors WHERE name IN ({places})"  # noqa: S608 - question marks
        held.update(cache.execute(query, asked).fetchall())
    return {
        name: np.frombuffer(vector, "<f4").astype(np.float32)
        for name, vector in held.items()
        if len(vector) == 4 * width
    }


def _parts(items: list[tuple[bytes, str]], *, told: bool) -> Iterator[list[tuple[bytes, str]]]:
    """Groups of texts, with a bar on a terminal where there are many."""
    from rich.console import Console
    from rich.progress import track

    starts = range(0, len(items), _TOGETHER)
    for start in track(
        starts,
        description=f"reading {len(items):,} texts",
        console=Console(stderr=True),
        disable=not told or not sys.stderr.isatty(),
        transient=True,
    ):
        yield items[start : start + _TOGETHER]


@contextlib.contextmanager
def _cache(name: str) -> Iterator[sqlite3.Connection]:
    """A file of vectors by name that only its owner can read.

    Guarantee: an entry is in it whole or not at all, whoever else writes and whenever a process is
        killed.
    """
    path = _own_folder() / name
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        cache = sqlite3.connect(path, timeout=60.0)
        try:
            with cache:
                cache.execute(
                    "CREATE TABLE IF NOT EXISTS vectors (name BLOB PRIMARY KEY, vector BLOB)"
                    " WITHOUT ROWID"
                )
            yield cache
        finally:
            cache.close()
    except (OSError, sqlite3.Error) as error:
        raise DataError(
            f"{path} cannot be used as a cache of texts: {error}. Remove it, or set SUMUS_DATA to a "
            "folder of your own."
        ) from None


def _own_folder() -> Path:
    """The folder of this user's texts.

    Guarantee: belongs to this user, is no link, and nobody else can enter it.
    """
    path = cache_folder() / f"texts-{os.getuid()}"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        state = path.lstat()
    except OSError as error:
        raise DataError(
            f"{path} cannot be made: {error.strerror or error}. Set SUMUS_DATA to a folder of your "
            "own."
        ) from None
    if (
        not stat.S_ISDIR(state.st_mode)
        or state.st_uid != os.getuid()
        or stat.S_IMODE(state.st_mode) & 0o077
    ):
        raise DataError(
            f"{path} holds what texts mean and must be a folder that only you can enter. Run: chmod "
            "700 on it if it is yours, or remove it."
        )
    return path
