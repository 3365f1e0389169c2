"""Words hashed into buckets."""

from __future__ import annotations

import hashlib

import numpy as np
from hypothesis import given, strategies as st

from sumus.texts import BUCKETS, hashed_words


def test_every_different_word_has_its_bucket_and_sign():
    wanted = np.zeros(BUCKETS)
    for word in ("left", "knee"):
        digest = hashlib.sha256(word.encode()).digest()
        wanted[digest[0]] += 1.0 if digest[1] & 1 else -1.0
    wanted /= np.linalg.norm(wanted)
    np.testing.assert_allclose(hashed_words(["Left KNEE, knee!"])[0], wanted, atol=1e-7)


def test_nothing_to_read_is_zero():
    assert not hashed_words(["", " .,!"]).any()
    assert hashed_words([]).shape == (0, BUCKETS)


@given(st.lists(st.text(), min_size=1, max_size=5), st.integers(0, 4))
def test_a_row_is_a_function_of_its_text_and_no_longer_than_one(texts, place):
    rows = hashed_words(texts)
    one = place % len(texts)
    np.testing.assert_array_equal(rows[one], hashed_words([texts[one]])[0])
    assert np.linalg.norm(rows.astype(np.float64), axis=1).max() <= 1.0 + 1e-6
