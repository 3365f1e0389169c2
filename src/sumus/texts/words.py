"""Words hashed into buckets: a vector for texts that needs no weights and knows no meaning."""

from __future__ import annotations

import functools
import hashlib
import re
import unicodedata
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["BUCKETS", "hashed_words"]

BUCKETS = 256
_WORD = re.compile(r"\w+")


def hashed_words(texts: Sequence[str]) -> NDArray[np.float32]:
    """One vector per text: every different word adds +1 or −1 to one of 256 buckets, both chosen by
    a fixed public hash, and the sum is brought to length 1.

    Guarantee: row j is a function of text j alone; ‖row‖₂ ≤ 1 up to the rounding of float32, and a
        text without any word is 0.
    """
    out = np.zeros((len(texts), BUCKETS))
    for row, text in enumerate(texts):
        for word in set(_WORD.findall(unicodedata.normalize("NFKC", text).casefold())):
            bucket, sign = _bucket(word)
            out[row, bucket] += sign
    lengths = np.sqrt(np.square(out).sum(axis=1, keepdims=True))
    return (out / np.where(lengths > 0.0, lengths, 1.0)).astype(np.float32)


@functools.lru_cache(maxsize=1 << 16)
def _bucket(word: str) -> tuple[int, float]:
    """The bucket of a word, and its sign."""
    digest = hashlib.sha256(word.encode(errors="surrogatepass")).digest()
    return digest[0], 1.0 if digest[1] & 1 else -1.0
