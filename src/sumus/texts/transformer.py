"""The forward pass of a BERT encoder (Devlin et al. 2019, 1810.04805), for one text at a time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from torch import Tensor
from torch.nn import functional

from sumus.errors import DataError

__all__ = ["Transformer"]


@final
@dataclass(frozen=True)
class Transformer:
    """Token and position vectors, then layers of attention and of a dense network.

        h ← norm(E[token] + P[place] + T[0])
        h ← norm(h + W_o·concat_a softmax(q_a·k_aᵀ/√d)·v_a)        every layer, heads a of width d
        h ← norm(h + W_2·gelu(W_1·h))

    Guarantee: the result is a function of these tokens alone: no other text is in the call, and no
        place is filled up.

    Args:
        weights: by the names of published checkpoints.
        layers: how many there are.
        heads: of every layer's attention.
        tiny: added to the variance in norms.
    """

    weights: Mapping[str, Tensor]
    layers: int
    heads: int
    tiny: float

    def __post_init__(self) -> None:
        wanted = {"embeddings.word_embeddings.weight", "embeddings.position_embeddings.weight"}
        wanted |= {f"encoder.layer.{self.layers - 1}.output.dense.weight"}
        absent = sorted(wanted - set(self.weights))
        if absent or self.width % self.heads:
            what = f"has no {absent[0]}" if absent else f"has no {self.heads} heads of equal width"
            raise DataError(f"the network of texts {what}. Use the weights of a BERT encoder.")

    @property
    def width(self) -> int:
        """Numbers a token."""
        return self.weights["embeddings.word_embeddings.weight"].shape[1]

    @property
    def places(self) -> int:
        """The most tokens of a text."""
        return self.weights["embeddings.position_embeddings.weight"].shape[0]

    def __call__(self, tokens: Tensor) -> Tensor:
        """Vectors of the tokens of one text, (tokens, width)."""
        embedded = (
            self.weights["embeddings.word_embeddings.weight"][tokens]
            + self.weights["embeddings.position_embeddings.weight"][: len(tokens)]
            + self.weights["embeddings.token_type_embeddings.weight"][0]
        )
        hidden = self._norm("embeddings", embedded)
        for layer in range(self.layers):
            name = f"encoder.layer.{layer}"
            attended = self._dense(f"{name}.attention.output", self._attention(name, hidden))
            hidden = self._norm(f"{name}.attention.output", hidden + attended)
            inner = functional.gelu(self._dense(f"{name}.intermediate", hidden))
            hidden = self._norm(f"{name}.output", hidden + self._dense(f"{name}.output", inner))
        return hidden

    def _attention(self, name: str, hidden: Tensor) -> Tensor:
        """What every token takes from all tokens of its text, heads side by side."""
        query, key, value = (
            functional.linear(
                hidden,
                self.weights[f"{name}.attention.self.{part}.weight"],
                self.weights[f"{name}.attention.self.{part}.bias"],
            )
            .reshape(len(hidden), self.heads, -1)
            .transpose(0, 1)
            for part in ("query", "key", "value")
        )
        scores = query @ key.transpose(1, 2) / math.sqrt(query.shape[2])
        return (scores.softmax(2) @ value).transpose(0, 1).reshape(hidden.shape)

    def _dense(self, name: str, inputs: Tensor) -> Tensor:
        weight, bias = (self.weights[f"{name}.dense.{part}"] for part in ("weight", "bias"))
        return functional.linear(inputs, weight, bias)

    def _norm(self, name: str, inputs: Tensor) -> Tensor:
        weight, bias = (self.weights[f"{name}.LayerNorm.{part}"] for part in ("weight", "bias"))
        return functional.layer_norm(inputs, weight.shape, weight, bias, self.tiny)
