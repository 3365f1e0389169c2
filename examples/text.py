"""Texts as tokens: a small transformer with a padding mask, and adapters on a frozen one.

    python examples/text.py

Made-up reviews of four shops are the records. Words become tokens by a fixed hash, so that no list
of words is read off the texts; every text is filled up to one length with token 0, which the model
masks.
"""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import torch
from torch import nn

import sumus
from sumus.runs import RunOptions

PLAN = """
[privacy]
epsilon = 4.0
delta = 1e-4
[federation]
rounds = 12
[training]
algorithm = "dp-sgd"
sampling_rate = 0.25
clip_norm = 1.0
learning_rate = 2.0
"""
TOKENS, LENGTH, WIDTH = 512, 12, 32
GOOD = ["good", "great", "lovely", "sturdy", "quick", "friendly", "fair", "tasty"]
BAD = ["bad", "broken", "late", "rude", "dull", "stale", "loud", "torn"]
THINGS = ["tea", "chair", "lamp", "parcel", "clerk", "soup", "bag", "clock", "price", "door"]


def tokens_of(text: str) -> list[int]:
    """Whole numbers 1 … TOKENS − 1 by a public hash, filled up with 0."""
    words = [1 + zlib.crc32(word.encode()) % (TOKENS - 1) for word in text.split()[:LENGTH]]
    return words + [0] * (LENGTH - len(words))


def made_up_reviews(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens (count, LENGTH) and whether the review is a good one."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 2, count)
    texts = []
    for label in labels:
        said = [
            f"the {generator.choice(THINGS)} was {generator.choice(GOOD if label else BAD)}"
            for _ in range(generator.integers(1, 4))
        ]
        texts.append(" ".join(said))
    return np.array([tokens_of(text) for text in texts]), labels


class SmallTransformer(nn.Module):
    """One block of attention over looked-up tokens; padding is masked and does not count in the
    mean.
    """

    def __init__(self) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(TOKENS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.query, self.key = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.value, self.norm = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits."""
        kept = (tokens != 0).float()
        hidden = self.table(tokens) + self.places(torch.arange(tokens.shape[1]))
        scores = self.query(hidden) @ self.key(hidden).transpose(1, 2) / WIDTH**0.5
        attended = (scores - 1e4 * (1.0 - kept[:, None])).softmax(2) @ self.value(hidden)
        hidden = self.norm(hidden + attended) * kept[..., None]
        logits: torch.Tensor = self.head(hidden.sum(1) / kept.sum(1, keepdim=True).clamp_min(1.0))
        return logits


def main() -> None:
    torch.manual_seed(0)
    whole = SmallTransformer()
    adapted = sumus.lora(whole, rank=4, targets=["query", "value"], train=["head"])
    silos = [made_up_reviews(400, seed) for seed in range(4)]
    for name, model in {"whole": whole, "adapters": adapted}.items():
        trained = sum(part.numel() for part in model.parameters() if part.requires_grad)
        run = sumus.train(
            sumus.TrainingPlan.from_toml(PLAN),
            model=model,
            silos=silos,
            name="made-up-reviews",
            # made-up records may be used as often as one likes
            options=RunOptions(root=Path("runs"), name=f"text-{name}", max_epsilon=1e6),
        )
        print(f"{name}: {trained} numbers trained, accuracy {run.accuracy:.1%}, {run.path}")
    print(run.account)


if __name__ == "__main__":
    main()
