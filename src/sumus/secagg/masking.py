"""Masks: AES-256-CTR keystreams added over the ring Z_(2^bits), and the packing of ring elements on the wire.

A vector lives in the smallest unsigned word that holds the modulus. Addition wraps inside the word; reducing to the modulus
once at the end is exact because the modulus divides the word size. The keystream is made in pieces that stay in cache, so a
mask costs little more than its encryption. (Sharing the pieces out between two cores was 1.1 to 1.2 times as fast on the clock and
took a tenth more work: the interpreter's lock changes hands twice a piece.)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from sumus.errors import LocalProtocolError, PeerProtocolError
from sumus.secagg.compiled import compiled

__all__ = ["Words", "add_masks", "as_words", "pack", "packed_bytes", "raw_bytes", "reduce", "unpack", "word_type"]

Words = npt.NDArray[np.unsignedinteger]

_PIECE_BYTES = 1 << 17
_ZEROS = memoryview(bytes(_PIECE_BYTES))


def word_type(modulus_bits: int) -> np.dtype[np.unsignedinteger]:
    """The smallest unsigned word that holds the modulus."""
    return np.dtype(np.uint16 if modulus_bits <= 16 else np.uint32 if modulus_bits <= 32 else np.uint64)


def as_words(vector: npt.ArrayLike, *, modulus_bits: int, length: int) -> Words:
    """A private copy of an integer vector, reduced into the ring.

    Args:
        vector: integers of any numpy integer type; negative numbers stand for their residues.
        modulus_bits: the ring is Z_(2^modulus_bits).
        length: d, the agreed number of words.
    """
    values = np.asarray(vector)
    if values.dtype.kind not in "iu":
        raise LocalProtocolError(f"vectors must hold integers, got {values.dtype}. Round to the grid before the secure sum.")
    if values.shape != (length,):
        raise LocalProtocolError(f"the vector must have shape ({length},), got {values.shape}. Check the model against the plan.")
    words = values.astype(word_type(modulus_bits), copy=True)
    reduce(words, modulus_bits)
    return words


def raw_bytes(words: Words) -> memoryview:
    """The words' own memory, byte by byte."""
    return words.data.cast("B")


def reduce(words: Words, modulus_bits: int) -> None:
    """Bring words into [0, 2^modulus_bits), in place."""
    if modulus_bits < 8 * words.itemsize:
        np.bitwise_and(words, words.dtype.type((1 << modulus_bits) - 1), out=words)


def add_masks(words: Words, masks: Sequence[tuple[bytes, int]]) -> None:
    """Add (+1) or subtract (−1) the masks of all given (seed, sign), in place.

    Guarantee: under one fresh uniform 256-bit seed the result is indistinguishable from uniform words; adding and subtracting
        the same seed cancels exactly.
    """
    start = modes.CTR(bytes(16))
    streams = [(Cipher(algorithms.AES(seed), start).encryptor(), sign) for seed, sign in masks]
    step = _PIECE_BYTES // words.itemsize
    buffer = np.empty(min(step, words.size), dtype=words.dtype)
    raw = raw_bytes(buffer)
    for first in range(0, words.size, step):  # piece by piece and not mask by mask, so that the piece stays in cache
        target = words[first : first + step]
        zeros, room, piece = _ZEROS[: target.nbytes], raw[: target.nbytes], buffer[: target.size]
        for stream, sign in streams:
            stream.update_into(zeros, room)
            (np.add if sign > 0 else np.subtract)(target, piece, out=target)


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
    """Reduced words as a little-endian bit stream without gaps; a view of the words where that is what they are."""
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
        raise PeerProtocolError(f"a vector of {length} words of {modulus_bits} bits has {size} bytes, got {len(packed)}.")
    word = word_type(modulus_bits)
    if modulus_bits == 8 * word.itemsize:
        return np.frombuffer(packed, dtype=word.newbyteorder("<")).astype(word, copy=False)
    if (unused := 8 * size - length * modulus_bits) and packed[-1] >> (8 - unused):
        raise PeerProtocolError("a packed vector has bits set behind its end. The sender does not encode canonically.")
    cells = np.zeros((size + 7) // 8, dtype="<u8")
    cells.view(np.uint8)[:size] = np.frombuffer(packed, dtype=np.uint8)
    out = np.empty(length, dtype=word)
    _unpack_words(cells.astype(np.uint64, copy=False), modulus_bits, out)
    return out
