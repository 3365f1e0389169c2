"""The one door for random bits.

`RandomSource` is an AES-256-CTR keystream. Its key comes from the operating system unless the
caller names a seed, and a source remembers which of the two it is: noise that protects people may
only be drawn from a source whose `secure` flag is set. Every sampler takes the source as an
argument; there is no global generator.

Reference: NIST SP 800-38A (CTR mode); the key is used for at most 2^64 blocks, far below any
    birthday bound that matters.
"""

from __future__ import annotations

import hashlib
import os
from typing import final

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes

__all__ = ["RandomSource"]

_KEY_BYTES = 32
_ZEROS = bytes(1 << 20)


@final
class RandomSource:
    """A stream of random bits that no one can predict without its 256-bit key.

    Guarantee: built by `RandomSource()` the key is 256 bits of `os.urandom`, never stored
        elsewhere, never printed; two sources are independent. Built by `from_key` the stream is a
        deterministic function of a secret key (used for masks and for noise that may later have to
        be removed). Built by `simulation` the stream is reproducible by anybody: `secure` is False
        and no guarantee may be stated for what it protects.
    """

    __slots__ = ("_stream", "secure")

    def __init__(self) -> None:
        self._start(os.urandom(_KEY_BYTES), secure=True)

    def _start(self, key: bytes, *, secure: bool) -> None:
        self._stream: CipherContext = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
        self.secure = secure

    @classmethod
    def from_key(cls, key: bytes) -> RandomSource:
        """The keystream of a secret 256-bit key that was itself derived from operating-system
        randomness.
        """
        if len(key) != _KEY_BYTES:
            raise ValueError(
                f"key must have {_KEY_BYTES} bytes, got {len(key)}. Derive it with HKDF-SHA256."
            )
        source = cls.__new__(cls)
        source._start(key, secure=True)
        return source

    @classmethod
    def simulation(cls, seed: int, *path: int | str) -> RandomSource:
        """A reproducible stream for simulations and tests; it voids every guarantee (`secure` is
        False).
        """
        label = "/".join(["sumus-simulation", str(seed), *map(str, path)])
        source = cls.__new__(cls)
        source._start(hashlib.sha256(label.encode()).digest(), secure=False)
        return source

    def child(self) -> RandomSource:
        """A source of its own whose key is drawn from this one: as secret as this one, and repeated
        wherever this one is.
        """
        source = RandomSource.__new__(RandomSource)
        source._start(self.bytes(_KEY_BYTES), secure=self.secure)
        return source

    def __repr__(self) -> str:
        return f"RandomSource(secure={self.secure})"

    def fill(self, out: npt.NDArray[np.generic]) -> None:
        """Overwrite a C-contiguous array with random bytes."""
        view = memoryview(out.data).cast("B")
        for start in range(0, len(view), len(_ZEROS)):
            stop = min(start + len(_ZEROS), len(view))
            self._stream.update_into(
                _ZEROS[: stop - start] if stop - start < len(_ZEROS) else _ZEROS, view[start:stop]
            )

    def bytes(self, count: int) -> bytes:
        """`count` random bytes."""
        return self._stream.update(bytes(count))

    def words(self, count: int) -> npt.NDArray[np.uint64]:
        """`count` independent uniform 64-bit words."""
        out = np.empty(count, dtype=np.uint64)
        if count:
            self.fill(out)
        return out

    def uniforms(self, count: int) -> npt.NDArray[np.float64]:
        """`count` uniforms on the 2^53 multiples of 2^-53 in [0, 1)."""
        return (self.words(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def coins(self, probability: float, count: int) -> npt.NDArray[np.bool_]:
        """`count` independent coins that show True with `probability`, exact to 2^-64."""
        if not 0.0 <= probability <= 1.0:
            raise ValueError(
                f"probability must lie in [0, 1], got {probability!r}. Check the sampling rate."
            )
        if probability == 1.0:
            return np.ones(count, dtype=np.bool_)
        # int() of a float times a power of two is exact; floor, so the realised probability never
        # exceeds the declared one
        return self.words(count) < np.uint64(int(probability * 2.0**64))

    def below(self, bound: int, count: int) -> npt.NDArray[np.int64]:
        """`count` independent uniform integers in {0, …, bound − 1}, without modulo bias."""
        if not 1 <= bound <= 1 << 62:
            raise ValueError(
                f"bound must lie in [1, 2^62], got {bound}. Use several draws for more."
            )
        limit = np.uint64((1 << 64) // bound * bound - 1)
        out = np.empty(count, dtype=np.uint64)
        pending = np.arange(count)
        while pending.size:
            words = self.words(pending.size)
            good = words <= limit
            out[pending[good]] = words[good] % np.uint64(bound)
            pending = pending[~good]
        return out.astype(np.int64)

    def permutation(self, count: int) -> npt.NDArray[np.int64]:
        """A uniformly random order of {0, …, count − 1} (ties among 64-bit keys have probability
        below count²·2^-65).
        """
        return np.argsort(self.words(count), kind="stable").astype(np.int64)

    def normals(self, count: int) -> npt.NDArray[np.float64]:
        """`count` standard normals in double precision, for the continuous Gaussian used in
        comparisons only.
        """
        pairs = (count + 1) // 2
        radius = np.sqrt(-2.0 * np.log1p(-self.uniforms(pairs)))
        angle = 2.0 * np.pi * self.uniforms(pairs)
        return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]
