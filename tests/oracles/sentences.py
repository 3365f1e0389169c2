"""A text's vector from the formulas of the papers, in float64 and without batches: Devlin et al.
2019 (1810.04805) and Reimers and Gurevych 2019 (1908.10084).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


def word_pieces(text: str, vocabulary: Sequence[str]) -> list[int]:
    """Longest pieces first; a word with a part that is no piece is unknown."""
    known = {piece: place for place, piece in enumerate(vocabulary)}
    tokens = [known["[CLS]"]]
    for word in re.findall(r"[a-z0-9]+|[^\sa-z0-9]", text.lower()):
        pieces: list[int] = []
        rest = word
        while rest:
            mark = "##" if pieces else ""
            ends = [end for end in range(len(rest), 0, -1) if mark + rest[:end] in known]
            if not ends:
                pieces = [known["[UNK]"]]
                break
            pieces.append(known[mark + rest[: ends[0]]])
            rest = rest[ends[0] :]
        tokens += pieces
    return [*tokens, known["[SEP]"]]


def sentence_vector(
    tokens: Sequence[int], weights: Mapping[str, NDArray[Any]], *, layers: int, heads: int
) -> Matrix:
    """mean/‖mean‖ of the last layer's vectors."""
    held = {name: value.astype(np.float64) for name, value in weights.items()}

    def norm(rows: list[Matrix], name: str) -> list[Matrix]:
        out = []
        for row in rows:
            spread = math.sqrt(float(((row - row.mean()) ** 2).mean()) + 1e-12)
            scaled = (row - row.mean()) / spread
            out.append(scaled * held[f"{name}.LayerNorm.weight"] + held[f"{name}.LayerNorm.bias"])
        return out

    def dense(row: Matrix, name: str) -> Matrix:
        out: Matrix = held[f"{name}.weight"] @ row + held[f"{name}.bias"]
        return out

    def gelu(row: Matrix) -> Matrix:
        return np.array([0.5 * v * (1.0 + math.erf(v / math.sqrt(2.0))) for v in row])

    rows = [
        held["embeddings.word_embeddings.weight"][token]
        + held["embeddings.position_embeddings.weight"][place]
        + held["embeddings.token_type_embeddings.weight"][0]
        for place, token in enumerate(tokens)
    ]
    rows = norm(rows, "embeddings")
    for layer in range(layers):
        name = f"encoder.layer.{layer}"
        queries, keys, values = (
            [np.split(dense(row, f"{name}.attention.self.{part}"), heads) for row in rows]
            for part in ("query", "key", "value")
        )
        mixed = []
        for query in queries:
            parts = []
            for head in range(heads):
                scores = [float(query[head] @ key[head]) for key in keys]
                raised = np.exp(np.array(scores) / math.sqrt(len(query[head])))
                shares = raised / raised.sum()
                parts.append(sum(s * v[head] for s, v in zip(shares, values, strict=True)))
            mixed.append(dense(np.concatenate(parts), f"{name}.attention.output.dense"))
        rows = norm([a + b for a, b in zip(rows, mixed, strict=True)], f"{name}.attention.output")
        wide = [gelu(dense(row, f"{name}.intermediate.dense")) for row in rows]
        back = [dense(row, f"{name}.output.dense") for row in wide]
        rows = norm([a + b for a, b in zip(rows, back, strict=True)], f"{name}.output")
    mean: Matrix = np.mean(rows, axis=0)
    return mean / math.sqrt(float(mean @ mean))
