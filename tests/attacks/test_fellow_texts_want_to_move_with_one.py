"""A text wants to move the vectors of other texts, so that its presence is seen in them.

Every text is computed by itself in its own length, and what the cache holds are the same bits.
"""

from __future__ import annotations

import numpy as np
import pytest

from sumus.data.text_vectors import text_vectors
from sumus.texts import load_sentences
from support.made_up_network import files_of, in_place_of_minilm, write_network

torch = pytest.importorskip("torch")
NOTES = [f"{'no ' * (n % 7)}fever, {'bad ' * (n % 4)}knee" for n in range(12)]
LONG = "pain in the left knee " * 40


def test_control_filled_up_to_the_longest_a_vector_hangs_on_its_company(tmp_path):
    write_network(tmp_path)
    sentences = load_sentences(files_of(tmp_path), "minilm")

    def filled_up(texts):
        pieces = [sentences.tokenizer.encode(text).ids for text in texts]
        most = max(map(len, pieces))
        rows = [torch.tensor(ids + [0] * (most - len(ids))) for ids in pieces]
        return torch.stack([sentences.network(row).mean(0) for row in rows]).numpy()

    alone, together = filled_up(NOTES), filled_up([*NOTES, LONG])
    assert not np.allclose(alone, together[:-1], atol=1e-3)


def test_a_vector_has_the_same_bits_in_every_company(tmp_path):
    write_network(tmp_path)
    sentences = load_sentences(files_of(tmp_path), "minilm")
    alone = np.concatenate([sentences([note]) for note in NOTES])
    np.testing.assert_array_equal(sentences([*NOTES, LONG])[:-1], alone)
    np.testing.assert_array_equal(sentences(NOTES[::-1])[::-1], alone)


def test_nor_does_it_hang_on_what_was_asked_for_earlier(tmp_path, monkeypatch):
    in_place_of_minilm(tmp_path / "one", monkeypatch)
    text_vectors("minilm", [LONG, NOTES[3]])
    with_company = text_vectors("minilm", NOTES)
    in_place_of_minilm(tmp_path / "two", monkeypatch)
    np.testing.assert_array_equal(text_vectors("minilm", NOTES), with_company)
