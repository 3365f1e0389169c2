"""Models and records of one's own, as a user gives them in Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn


class LayerNormPerceptron(nn.Module):
    """Linear layers with a normalisation between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(12, 9), nn.LayerNorm(9), nn.Linear(9, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits."""
        return self.last(torch.tanh(self.norm(self.first(x))))


class Perceptron(nn.Module):
    """Linear layers only."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(12, 9), nn.ReLU(), nn.Linear(9, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits."""
        return self.layers(x)


class SmallConvolutions(nn.Module):
    """Convolutions with groups and a stride, behind them a normalisation of groups."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 4, 3, stride=2, padding=1),
            nn.GroupNorm(2, 4),
            nn.Tanh(),
            nn.Conv2d(4, 6, 3, groups=2),
            nn.Flatten(),
            nn.LazyLinear(3),
        )
        self.layers(torch.zeros(1, 1, 12, 12))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits."""
        return self.layers(x)


class Tokens(nn.Module):
    """The mean of looked-up tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.last = nn.Embedding(20, 5), nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits."""
        return self.last(self.table(x).mean(dim=1))


def seeded(kind: type[nn.Module]) -> nn.Module:
    """A model with public first parameters; the generator of torch is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(11)
        return kind()


def records(shape: tuple[int, ...], *, silos: int = 4, tokens: int = 0) -> dict[str, Any]:
    """Records and labels of a few silos of unequal size, from integers only."""
    out = {}
    for silo in range(silos):
        count = 90 + 15 * silo
        size = int(np.prod(shape))
        index = np.arange(count * size, dtype=np.uint64).reshape(count, size)
        mixed = (index * np.uint64(2654435761) + np.uint64(977 * silo + 1)) % np.uint64(1 << 20)
        y = (mixed[:, :3].argmax(axis=1)).astype(np.int64)
        if tokens:
            out[f"house-{silo}"] = (
                (mixed % np.uint64(tokens)).astype(np.int64).reshape(count, *shape),
                y,
            )
        else:
            x = mixed.astype(np.float64) / float(1 << 20)
            out[f"house-{silo}"] = (x.astype(np.float32).reshape(count, *shape), y)
    return out
