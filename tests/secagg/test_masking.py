from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings, strategies as st

from sumus.errors import LocalProtocolError, PeerProtocolError
from sumus.secagg.masking import (
    add_masks,
    as_integers,
    as_words,
    pack,
    packed_bytes,
    reduce_words,
    unpack,
    word_type,
    write_masked,
)


@given(bits=st.integers(1, 64), length=st.integers(1, 70), seed=st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_packing_is_the_little_endian_bit_stream_and_back(
    bits: int, length: int, seed: int
) -> None:
    values = [
        int(v) >> (64 - bits)
        for v in np.random.default_rng(seed).integers(0, 2**64, length, dtype=np.uint64)
    ]
    words = np.array(values, dtype=word_type(bits))
    packed = bytes(pack(words, bits))
    expected = sum(value << (bits * place) for place, value in enumerate(values))
    assert packed == expected.to_bytes(packed_bytes(length, bits), "little")
    assert unpack(packed, modulus_bits=bits, length=length).tolist() == values


@pytest.mark.parametrize("bits", [1, 16, 20, 31, 32, 33, 48, 63, 64])
@pytest.mark.parametrize("length", [1, 7, 1000, 40_000, 70_001])
def test_a_mask_is_the_keystream_added_in_the_ring(bits: int, length: int) -> None:
    seed = bytes(range(32))
    word = word_type(bits)
    stream = (
        Cipher(algorithms.AES(seed), modes.CTR(bytes(16)))
        .encryptor()
        .update(bytes(length * word.itemsize))
    )
    words = as_words(np.arange(length), modulus_bits=bits, length=length)
    before = words.copy()
    add_masks(words, [(seed, 1)])
    step = max(1, length // 50)
    for place in range(0, length, step):
        key = int.from_bytes(stream[place * word.itemsize : (place + 1) * word.itemsize], "little")
        assert int(words[place]) % (1 << bits) == (int(before[place]) + key) % (1 << bits)
    add_masks(words, [(seed, -1)])
    reduce_words(words, bits)
    assert np.array_equal(words, before)


def test_many_masks_over_many_pieces_are_their_keystreams() -> None:
    masks = [(bytes([number] * 32), 1 if number % 2 else -1) for number in range(4)]
    words = np.zeros(300_001, dtype=np.uint32)
    add_masks(words, masks)
    expected = np.zeros_like(words)
    for seed, sign in masks:
        stream = (
            Cipher(algorithms.AES(seed), modes.CTR(bytes(16)))
            .encryptor()
            .update(bytes(words.nbytes))
        )
        (np.add if sign > 0 else np.subtract)(
            expected, np.frombuffer(stream, dtype=np.uint32), out=expected
        )
    assert np.array_equal(words, expected)


@pytest.mark.parametrize("bits", [1, 13, 16, 20, 31, 32, 33, 48, 64])
@pytest.mark.parametrize("length", [1, 7, 16_384, 65_537, 140_001])
@pytest.mark.parametrize("kind", [np.int64, np.uint32, np.int16])
def test_a_message_holds_the_packed_sum_of_vector_and_masks(
    bits: int, length: int, kind: type[np.integer]
) -> None:
    limits = np.iinfo(kind)
    vector = np.random.default_rng(bits).integers(limits.min, limits.max, length, dtype=kind)
    masks = [(bytes([number] * 32), 1 if number % 2 else -1) for number in range(3)]
    words = as_words(vector, modulus_bits=bits, length=length)
    add_masks(words, masks)
    reduce_words(words, bits)
    room = bytearray(packed_bytes(length, bits))
    write_masked(memoryview(room), as_integers(vector, length), masks, modulus_bits=bits)
    assert room == pack(words, bits)


def test_negative_numbers_stand_for_their_residues() -> None:
    words = as_words(np.array([-1, -5, 2**40]), modulus_bits=20, length=3)
    assert words.tolist() == [2**20 - 1, 2**20 - 5, 0]


def test_the_callers_vector_is_left_alone() -> None:
    vector = np.arange(4, dtype=np.uint32)
    words = as_words(vector, modulus_bits=32, length=4)
    add_masks(words, [(bytes(32), 1)])
    assert vector.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "vector",
    [np.zeros(3), np.zeros((3, 1), dtype=int), np.zeros(4, dtype=int), np.array(["a"] * 3)],
)
def test_what_is_no_integer_vector_of_the_agreed_length_is_refused(vector: np.ndarray) -> None:
    with pytest.raises(LocalProtocolError):
        as_words(vector, modulus_bits=32, length=3)


@pytest.mark.parametrize("packed", [bytes(6), bytes(8), b"\xff" * 7, b"\0" * 6 + b"\xf0"])
def test_a_stream_of_other_length_or_with_stray_bits_is_refused(packed: bytes) -> None:
    with pytest.raises(PeerProtocolError):
        unpack(packed, modulus_bits=17, length=3)


@pytest.mark.parametrize("bits", [16, 20, 32, 40, 64])
def test_a_vector_is_masked_where_it_is_sent_from_bit_for_bit(bits) -> None:
    """Whole words in place, others packed: the same bytes as masking a copy and packing it, over
    several pieces and at the end of the words' range.
    """
    length = 70_001
    values = np.random.default_rng(3).integers(-(2**40), 2**40, size=length)
    values[:2] = -(2**62), 2**62
    masks = [(bytes([seed]) * 32, sign) for seed, sign in ((1, 1), (2, -1))]
    words = as_words(values, modulus_bits=bits, length=length)
    add_masks(words, masks)
    reduce_words(words, bits)
    room = bytearray(packed_bytes(length, bits))
    write_masked(memoryview(room), values, masks, modulus_bits=bits)
    assert bytes(room) == bytes(pack(words, bits))
