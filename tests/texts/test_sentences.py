"""Texts become vectors as the papers say, each by itself."""

from __future__ import annotations

import json

import numpy as np
import pytest

from oracles.sentences import sentence_vector, word_pieces
from sumus.errors import DataError
from sumus.texts import load_sentences
from support.made_up_network import SPECIAL, WORDS, files_of, write_network

pytest.importorskip("torch")
TEXTS = [
    "Short of breath since Monday.",
    "pain in the left knee",
    "knees, bad!",
    "xylophone of pained breath",
    "",
]


@pytest.mark.parametrize(("layers", "heads", "width"), [(1, 1, 8), (2, 3, 24), (3, 2, 10)])
def test_it_is_the_formula_of_the_papers(tmp_path, layers, heads, width):
    weights = write_network(tmp_path, width=width, layers=layers, heads=heads)
    got = load_sentences(files_of(tmp_path), "minilm")(TEXTS)
    for text, vector in zip(TEXTS, got, strict=True):
        tokens = word_pieces(text, [*SPECIAL, *WORDS])
        wanted = sentence_vector(tokens, weights, layers=layers, heads=heads)
        np.testing.assert_allclose(vector, wanted, atol=2e-6)
    np.testing.assert_allclose(np.linalg.norm(got, axis=1), 1.0, atol=1e-6)


def test_a_long_text_counts_up_to_its_128th_piece(tmp_path):
    weights = write_network(tmp_path)
    sentences = load_sentences(files_of(tmp_path), "minilm")
    long = "knee " * 500
    tokens = word_pieces("knee " * 126, [*SPECIAL, *WORDS])
    assert len(tokens) == 128
    wanted = sentence_vector(tokens, weights, layers=2, heads=3)
    np.testing.assert_allclose(sentences([long])[0], wanted, atol=2e-6)
    np.testing.assert_array_equal(sentences([long]), sentences([long + "bad"]))


def test_no_text_at_all_and_what_is_no_character(tmp_path):
    write_network(tmp_path)
    sentences = load_sentences(files_of(tmp_path), "minilm")
    assert sentences([]).shape == (0, 24)
    assert np.isfinite(sentences(["\ud800 knee", "\0", "🦵" * 1000])).all()


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("config.json", "{}", "holds no network of texts: 'num_hidden_layers'"),
        ("config.json", "[", "holds no network of texts"),
        ("model.safetensors", "no tensors", "holds no network of texts"),
        ("tokenizer.json", "{}", "holds no network of texts"),
    ],
)
def test_other_files_are_refused_in_one_line(tmp_path, name, content, complaint):
    write_network(tmp_path)
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=complaint) as caught:
        load_sentences(files_of(tmp_path), "minilm")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"hidden_act": "relu"}, "must be gelu"),
        ({"num_hidden_layers": 7}, r"has no encoder\.layer\.6"),
        ({"num_attention_heads": 5}, "has no 5 heads"),
    ],
)
def test_another_network_is_refused(tmp_path, change, complaint):
    write_network(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(DataError, match=complaint):
        load_sentences(files_of(tmp_path), "minilm")


def test_without_the_extra_the_error_names_it(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    with pytest.raises(DataError, match=r"need tokenizers\. Run: pip install 'sumus\[text\]'"):
        load_sentences({}, "minilm")
