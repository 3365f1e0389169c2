"""Masks: AES-256-CTR keystreams added over the ring Z_(2^bits), and the packing of ring elements on
the wire.

A vector lives in the smallest unsigned word that holds the modulus. Addition wraps inside the word;
reducing to the modulus once at the end is exact because the modulus divides the word size.
Keystreams are made piece by piece and not mask by mask, so that a piece stays in cache and a mask
costs little more than its encryption. (Sharing the pieces out between two cores was 1.1 to 1.2
times as fast on the clock and took a tenth more work: the interpreter's lock changes hands twice a
piece.)
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from sumus.errors import LocalProtocolError, PeerProtocolError
from sumus.files import compiled

__all__ = [
    "Words",
    "add_masks",
    "as_integers",
    "as_words",
    "pack",
    "packed_bytes",
    "raw_bytes",
    "reduce_words",
    "unpack",
    "word_type",
    "write_masked",
]

Words = npt.NDArray[np.unsignedinteger]
Masks = Sequence[tuple[bytes, int]]  # (seed, +1 or −1)

_PIECE_BYTES = 1 << 17
_ZEROS = memoryview(bytes(_PIECE_BYTES))


def word_type(modulus_bits: int) -> np.dtype[np.unsignedinteger]:
    """The smallest unsigned word that holds the modulus."""
    return np.dtype(
        np.uint16 if modulus_bits <= 16 else np.uint32 if modulus_bits <= 32 else np.uint64
    )


def as_integers(vector: npt.ArrayLike, length: int) -> npt.NDArray[np.integer]:
    """The vector itself, if it holds `length` integers."""
    values = np.asarray(vector)
    if values.dtype.kind not in "iu":
        raise LocalProtocolError(
            f"vectors must hold integers, got {values.dtype}. Round to the grid before the secure "
            "sum."
        )
    if values.shape != (length,):
        raise LocalProtocolError(
            f"the vector must have shape ({length},), got {values.shape}. Check the model against "
            "the plan."
        )
    return values


def as_words(vector: npt.ArrayLike, *, modulus_bits: int, length: int) -> Words:
    """A private copy of an integer vector, reduced into the ring.

    Args:
        vector: integers of any numpy integer type; negative numbers stand for their residues.
        modulus_bits: the ring is Z_(2^modulus_bits).
        length: d, the agreed number of words.
    """
    words = as_integers(vector, length).astype(word_type(modulus_bits), copy=True)
    reduce_words(words, modulus_bits)
    return words


def raw_bytes(words: Words) -> memoryview:
    """The words' own memory, byte by byte."""
    return words.data.cast("B")


def reduce_words(words: Words, modulus_bits: int) -> None:
    """Bring words into [0, 2^modulus_bits), in place."""
    if modulus_bits < 8 * words.itemsize:
        np.bitwise_and(words, words.dtype.type((1 << modulus_bits) - 1), out=words)


class _Keystreams:
    """The masks of several seeds, made side by side in pieces that stay in cache."""

    def __init__(self, masks: Masks, *, word: np.dtype[np.unsignedinteger], length: int) -> None:
        start = modes.CTR(bytes(16))
        self._streams = [
            (Cipher(algorithms.AES(seed), start).encryptor(), np.add if sign > 0 else np.subtract)
            for seed, sign in masks
        ]
        self.step = _PIECE_BYTES // word.itemsize
        self._piece = np.empty(min(self.step, length), dtype=word)
        self._raw = raw_bytes(self._piece)

    def apply(self, target: Words) -> None:
        """Add every mask's next `target.size` words to the target."""
        zeros, room, piece = (
            _ZEROS[: target.nbytes],
            self._raw[: target.nbytes],
            self._piece[: target.size],
        )
        for stream, add in self._streams:
            stream.update_into(zeros, room)
            add(target, piece, out=target)


def add_masks(words: Words, masks: Masks) -> None:
    """Add (+1) or subtract (−1) the masks of all given (seed, sign), in place.

    Guarantee: under one fresh uniform 256-bit seed the result is indistinguishable from uniform
        words; adding and subtracting the same seed cancels exactly.
    """
    streams = _Keystreams(masks, word=words.dtype, length=words.size)
    for first in range(0, words.size, streams.step):
        streams.apply(words[first : first + streams.step])


def write_masked(
    room: memoryview, values: npt.NDArray[np.integer], masks: Masks, *, modulus_bits: int
) -> None:
    """Write the packed, masked vector where it is sent from.

    The same bytes as packing the sum of `as_words` and `add_masks`; the unmasked words exist a
    cached piece at a time only.
    """
    word = word_type(modulus_bits)
    streams = _Keystreams(masks, word=word, length=values.size)
    whole = modulus_bits == 8 * word.itemsize and sys.byteorder == "little"
    # whole words are masked where they are sent from
    words = np.frombuffer(room, word) if whole else np.empty(min(streams.step, values.size), word)
    # a multiple of eight words, so that every piece is whole bytes
    for first in range(0, values.size, streams.step):
        part = values[first : first + streams.step]
        piece = words[first : first + part.size] if whole else words[: part.size]
        np.copyto(piece, part, casting="unsafe")  # negative numbers stand for their residues
        streams.apply(piece)
        if whole:
            continue
        reduce_words(piece, modulus_bits)
        start = packed_bytes(first, modulus_bits)
        room[start : start + packed_bytes(part.size, modulus_bits)] = pack(piece, modulus_bits)


def packed_bytes(length: int, modulus_bits: int) -> int:
    """Bytes on the wire: ⌈length · modulus_bits / 8⌉."""
    return (length * modulus_bits + 7) // 8


@compiled
def _pack_words(words: Words, modulus_bits: int, out: npt.NDArray[np.uint64]) -> None:
    """Write each word's low bits behind those of the one before."""
    for place in range(words.size):
        word, start = np.uint64(words[place]), place * modulus_bits
        cell, shift = start >> 6, start & 63
        out[cell] |= word << np.uint64(shift)
        if shift + modulus_bits > 64:
            out[cell + 1] |= word >> np.uint64(64 - shift)


@compiled
def _unpack_words(packed: npt.NDArray[np.uint64], modulus_bits: int, out: Words) -> None:
    """Read the bits back into words."""
    mask = (np.uint64(1) << np.uint64(modulus_bits)) - np.uint64(1)
    for place in range(out.size):
        start = place * modulus_bits
        cell, shift = start >> 6, start & 63
        word = packed[cell] >> np.uint64(shift)
        if shift + modulus_bits > 64:
            word |= packed[cell + 1] << np.uint64(64 - shift)
        out[place] = word & mask


def pack(words: Words, modulus_bits: int) -> bytes | memoryview:
    """Reduced words as a little-endian bit stream without gaps; a view of the words where that is
    what they are.
    """
    if modulus_bits == 8 * words.itemsize:
        return raw_bytes(words.astype(words.dtype.newbyteorder("<"), copy=False))
    size = packed_bytes(words.size, modulus_bits)
    cells = np.zeros((size + 7) // 8, dtype=np.uint64)
    _pack_words(words, modulus_bits, cells)
    return cells.astype("<u8", copy=False).tobytes()[:size]


def unpack(packed: bytes | memoryview, *, modulus_bits: int, length: int) -> Words:
    """The inverse of `pack`; refuses a stream of another length or with bits set behind its end."""
    size = packed_bytes(length, modulus_bits)
    if len(packed) != size:
        raise PeerProtocolError(
            f"a vector of {length} words of {modulus_bits} bits has {size} bytes, got "
            f"{len(packed)}."
        )
    word = word_type(modulus_bits)
    if modulus_bits == 8 * word.itemsize:
        return np.frombuffer(packed, dtype=word.newbyteorder("<")).astype(word, copy=False)
    if (unused := 8 * size - length * modulus_bits) and packed[-1] >> (8 - unused):
        raise PeerProtocolError(
            "a packed vector has bits set behind its end. The sender does not encode canonically."
        )
    cells = np.zeros((size + 7) // 8, dtype="<u8")
    cells.view(np.uint8)[:size] = np.frombuffer(packed, dtype=np.uint8)
    out = np.empty(length, dtype=word)
    _unpack_words(cells.astype(np.uint64, copy=False), modulus_bits, out)
    return out
