"""A text as one vector of length 1: the mean of what a frozen network says of its word pieces
(Reimers and Gurevych 2019, 1908.10084).
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray

from sumus.errors import DataError
from sumus.texts.transformer import Transformer

__all__ = ["Sentences", "load_sentences"]

_TOKENS = 128  # of a text that are read, the number that the network was trained with


@final
@dataclass(frozen=True)
class Sentences:
    """Texts in, vectors out, one text after the other.

        s(text) = m/‖m‖,   m = mean over the text's first 128 word pieces of the network's vectors

    Guarantee: row j is a function of text j alone, bit for bit on one machine: every text is
        computed by itself in its own length, so there is no company that kernels could see.
        ‖row‖₂ ≤ 1 up to the rounding of float32.

    Args:
        tokenizer: word pieces of one text.
        network: vectors of word pieces.
    """

    tokenizer: Any
    network: Transformer

    @property
    def width(self) -> int:
        """Numbers a text."""
        return self.network.width

    @property
    def arithmetic(self) -> str:
        """What decides on the last bits of a vector besides text and weights."""
        capability = torch.backends.cpu.get_cpu_capability()
        return f"torch {torch.__version__}, {capability}, {torch.get_num_threads()} threads"

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One vector per text, (texts, width)."""
        out = np.zeros((len(texts), self.width), np.float32)
        with torch.inference_mode():
            for row, text in enumerate(texts):
                # a lone surrogate, as a broken file may hold, is no character
                clean = text.encode(errors="replace").decode()
                tokens = torch.tensor(self.tokenizer.encode(clean).ids, dtype=torch.int64)
                mean = self.network(tokens).mean(0)
                out[row] = (mean / mean.norm().clamp_min(1e-12)).numpy()
        return out


def load_sentences(files: Mapping[str, bytes], name: str) -> Sentences:
    """The network of the files `model.safetensors`, `tokenizer.json` and `config.json`.

    Args:
        files: what they hold, compared with what it should be; nothing in them is run.
        name: of the network, for people.
    """
    try:
        tokenizers = importlib.import_module("tokenizers")
        read = importlib.import_module("safetensors.torch").load
    except ImportError as error:
        raise DataError(
            f"texts by a network need {error.name}. Run: pip install 'sumus[text]'"
        ) from None
    try:
        config = json.loads(files["config.json"])
        layers, heads = int(config["num_hidden_layers"]), int(config["num_attention_heads"])
        tiny, kind = float(config["layer_norm_eps"]), str(config["hidden_act"])
        weights = {
            name: tensor.float()
            for name, tensor in read(files["model.safetensors"]).items()
            if tensor.is_floating_point()
        }
        tokenizer = tokenizers.Tokenizer.from_buffer(files["tokenizer.json"])
    except Exception as error:  # of whatever kind: a file is not what it should be
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise DataError(f"{name} holds no network of texts: {reason}. Fetch it again.") from None
    if kind != "gelu":
        raise DataError(f"{name}: config.json: hidden_act must be gelu, got {kind!r}.")
    network = Transformer(weights, layers, heads, tiny)
    tokenizer.no_padding()
    tokenizer.enable_truncation(min(_TOKENS, network.places))
    return Sentences(tokenizer, network)
