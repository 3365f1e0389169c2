"""A network of texts with made-up weights, in the files of a published one."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sumus.data import text_vectors
from sumus.data.fetched.weights import WEIGHTS, Weights

WORDS = [
    "short",
    "of",
    "breath",
    "since",
    "monday",
    "pain",
    "in",
    "the",
    "left",
    "knee",
    "no",
    "fever",
    "good",
    "bad",
    "##s",
    "##ed",
    ".",
    ",",
    "!",
]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]


def made_up_weights(
    *, width: int, layers: int, inner: int, places: int = 512, seed: int = 0
) -> dict[str, NDArray[Any]]:
    """Random weights by the names of published checkpoints."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> NDArray[np.float32]:
        drawn: NDArray[np.float32] = rng.normal(size=shape).astype(np.float32)
        return drawn / np.float32(np.sqrt(shape[-1]))

    def norm(name: str) -> dict[str, NDArray[Any]]:
        return {
            f"{name}.LayerNorm.weight": 1.0 + 0.1 * normal(width),
            f"{name}.LayerNorm.bias": normal(width),
        }

    def dense(name: str, outputs: int, inputs: int) -> dict[str, NDArray[Any]]:
        return {f"{name}.weight": normal(outputs, inputs), f"{name}.bias": normal(outputs)}

    held: dict[str, NDArray[Any]] = {
        "embeddings.word_embeddings.weight": normal(len(SPECIAL) + len(WORDS), width),
        "embeddings.position_embeddings.weight": normal(places, width),
        "embeddings.token_type_embeddings.weight": normal(2, width),
        "embeddings.position_ids": np.arange(places, dtype=np.int64)[None],
        **norm("embeddings"),
    }
    for layer in range(layers):
        name = f"encoder.layer.{layer}"
        for part in ("query", "key", "value"):
            held |= dense(f"{name}.attention.self.{part}", width, width)
        held |= dense(f"{name}.attention.output.dense", width, width)
        held |= norm(f"{name}.attention.output") | norm(f"{name}.output")
        held |= dense(f"{name}.intermediate.dense", inner, width)
        held |= dense(f"{name}.output.dense", width, inner)
    return held


def write_network(
    folder: Path,
    *,
    width: int = 24,
    layers: int = 2,
    heads: int = 3,
    inner: int = 40,
    seed: int = 0,
) -> dict[str, NDArray[Any]]:
    """The three files of a network, and its weights."""
    tokenizers = pytest.importorskip("tokenizers")
    save = pytest.importorskip("safetensors.numpy").save_file
    folder.mkdir(parents=True, exist_ok=True)
    weights = made_up_weights(width=width, layers=layers, inner=inner, seed=seed)
    save(weights, folder / "model.safetensors")
    vocabulary = {word: place for place, word in enumerate([*SPECIAL, *WORDS])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.enable_padding(length=16)  # as published: what is loaded must not fill up
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "layer_norm_eps": 1e-12,
        "hidden_act": "gelu",
    }
    (folder / "config.json").write_text(json.dumps(config))
    return weights


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of the three files."""
    return {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
        for name in ("model.safetensors", "tokenizer.json", "config.json")
    }


def in_place_of_minilm(folder: Path, monkeypatch: pytest.MonkeyPatch, *, seed: int = 0) -> Weights:
    """Let a made-up network of MiniLM's width, in a folder of prepared data, stand for it."""
    monkeypatch.setenv("SUMUS_DATA", str(folder))
    monkeypatch.setenv("HOME", str(folder / "home"))
    write_network(folder / "minilm", width=384, layers=1, heads=12, inner=8, seed=seed)
    weights = dataclasses.replace(WEIGHTS["minilm"], digests=digests(folder / "minilm"))
    monkeypatch.setattr(text_vectors, "WEIGHTS", {"minilm": weights})
    return weights


def files_of(folder: Path) -> dict[str, bytes]:
    """What the network's files hold, by name."""
    names = ("model.safetensors", "tokenizer.json", "config.json")
    return {name: (folder / name).read_bytes() for name in names}
