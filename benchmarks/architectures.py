"""Networks as people write them, each with a batch, for `gradients.py`.

    ARCHITECTURES["lstm"].model(OURS)       # a module of torch's own layers
    ARCHITECTURES["lstm"].model(PEER)       # Opacus's layers where it has its own

A network is a module with a forward pass of its own unless it is a chain. Layers that Opacus
replaces (attention, recurrence) are taken from a table of layers, so that everything else is one code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import torch
from opacus.layers import DPGRU, DPLSTM, DPMultiheadAttention
from torch import nn
from torch.nn import functional

from sumus.training import flat_parameters, load_flat, lora
from sumus.training.models import build_model

__all__ = ["ARCHITECTURES", "OURS", "PEER", "Architecture", "Layers"]

WORDS, CLASSES = 10_000, 10


@dataclass(frozen=True)
class Layers:
    """Where attention and recurrence come from."""

    attention: Any
    lstm: Any
    gru: Any


OURS: Final = Layers(nn.MultiheadAttention, nn.LSTM, nn.GRU)
PEER: Final = Layers(DPMultiheadAttention, DPLSTM, DPGRU)


@dataclass(frozen=True)
class Architecture:
    """A network and the batch that it is trained on.

    Args:
        make: the network.
        shape: of a record.
        records: of a batch.
        tokens: records are texts below this many words; 0: they are numbers.
        images: whether a memory layout with channels last exists.
        classes: of labels.
    """

    make: Callable[[Layers], nn.Module]
    shape: tuple[int, ...]
    records: int
    tokens: int = 0
    images: bool = False
    classes: int = CLASSES

    def model(self, layers: Layers) -> nn.Module:
        """With parameters that are the same for every contender."""
        model = self.make(layers)
        generator = torch.Generator().manual_seed(0)
        load_flat(model, 0.05 * torch.randn(flat_parameters(model).numel(), generator=generator))
        return model

    def batch(self, records: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Made-up records and labels; texts are filled up."""
        generator, count = torch.Generator().manual_seed(1), records or self.records
        x = torch.randn(count, *self.shape, generator=generator)
        if self.tokens:
            x = torch.randint(1, self.tokens, (count, *self.shape), generator=generator)
            x[:, self.shape[0] * 3 // 4 :] = 0
        return x, torch.randint(0, self.classes, (count,), generator=generator)


class ResidualBlock(nn.Module):
    """Two convolutions, each with a normalisation of groups, beside the way past them."""

    def __init__(self, entering: int, leaving: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(entering, leaving, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(leaving, leaving, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.GroupNorm(8, leaving) for _ in range(2))
        self.past = nn.Conv2d(entering, leaving, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = functional.relu(self.norms[0](self.first(x)))
        out: torch.Tensor = functional.relu(self.norms[1](self.second(hidden)) + self.past(x))
        return out


class ResidualNetwork(nn.Module):
    """A small residual network on coloured images."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, 1, 1)
        self.blocks = nn.Sequential(
            ResidualBlock(16, 16, 1), ResidualBlock(16, 32, 2), ResidualBlock(32, 64, 2)
        )
        self.head = nn.Linear(64, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.blocks(functional.relu(self.stem(x))).mean((2, 3)))
        return logits


def series() -> nn.Module:
    """Convolutions over nine series of measurements, as a chain."""
    return nn.Sequential(
        nn.Conv1d(9, 32, 9, 2, 4), nn.ReLU(), nn.Conv1d(32, 64, 5, 2, 2), nn.ReLU(),
        nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(64, CLASSES),
    )  # fmt: skip


def volumes() -> nn.Module:
    """Convolutions over a volume, as of a scan, as a chain."""
    return nn.Sequential(
        nn.Conv3d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv3d(16, 32, 3, 2, 1), nn.ReLU(),
        nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(32, CLASSES),
    )  # fmt: skip


class Series(nn.Module):
    """The same with a forward pass of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(9, 32, 9, 2, 4), nn.Conv1d(32, 64, 5, 2, 2)
        self.head = nn.Linear(64, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = functional.relu(self.second(functional.relu(self.first(x))))
        logits: torch.Tensor = self.head(hidden.mean(2))
        return logits


def mean_of(hidden: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Over the places of a text that are not filled up."""
    kept = (tokens != 0).to(hidden.dtype)[..., None]
    return (hidden * kept).sum(1) / kept.sum(1).clamp_min(1.0)


class MeanOfWords(nn.Module):
    """The mean of looked-up words, and two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 64)
        self.inner, self.head = nn.Linear(64, 64), nn.Linear(64, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(functional.relu(self.inner(mean_of(self.words(x), x))))
        return logits


class Recurrent(nn.Module):
    """A recurrence over looked-up words; the mean of its states is classified."""

    def __init__(self, recurrence: Any) -> None:
        super().__init__()
        self.words, self.cell = nn.Embedding(WORDS, 64), recurrence(64, 64, batch_first=True)
        self.head = nn.Linear(64, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(mean_of(self.cell(self.words(x))[0], x))
        return logits


class AttentionBlock(nn.Module):
    """Attention and a dense network, each with a normalisation behind it."""

    def __init__(self, width: int, attention: Any) -> None:
        super().__init__()
        self.attention = attention(width, 4, batch_first=True)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        attended = self.attention(x, x, x, key_padding_mask=padding, need_weights=False)[0]
        hidden = self.first(x + attended)
        out: torch.Tensor = self.second(hidden + self.down(functional.gelu(self.up(hidden))))
        return out


class Transformer(nn.Module):
    """Looked-up tokens (0 is padding) and places, blocks of attention, the mean, classes."""

    def __init__(self, places: int, attention: Any, width: int = 128) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(places, width)
        self.blocks = nn.ModuleList(AttentionBlock(width, attention) for _ in range(2))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.words(x) + self.places(torch.arange(x.shape[1]).expand(x.shape))
        for block in self.blocks:
            hidden = block(hidden, x == 0)
        logits: torch.Tensor = self.head(mean_of(hidden, x))
        return logits


class OwnAttention(nn.Module):
    """Scaled products of queries and keys, written by hand."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.out = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        records, places, width = x.shape
        query, key, value = (
            layer(x).view(records, places, 4, width // 4).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        shares = (query @ key.transpose(2, 3) / (width // 4) ** 0.5).softmax(-1)
        out: torch.Tensor = self.out((shares @ value).transpose(1, 2).reshape(x.shape))
        return out


class NextWord(nn.Module):
    """A word from those before it: words are compared with the table that they were looked up in."""

    def __init__(self, words: int = 2000, width: int = 64) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.attention, self.norm = OwnAttention(width), nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.words(x)
        hidden = self.norm(hidden + self.attention(hidden))
        logits: torch.Tensor = self.head(mean_of(hidden, x))
        return logits


class DenseBlock(nn.Module):
    """Attention written by hand and a dense network."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = OwnAttention(width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x + self.attention(x))
        out: torch.Tensor = self.second(hidden + self.down(functional.gelu(self.up(hidden))))
        return out


class Adaptable(nn.Module):
    """A transformer over 32 vectors."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.blocks = nn.Sequential(DenseBlock(width), DenseBlock(width))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.blocks(x).mean(1))
        return logits


class Adapter(nn.Module):
    """A frozen layer with a trained product beside it, of layers that Opacus knows."""

    def __init__(self, frozen: nn.Module, down: torch.Tensor, scale: float) -> None:
        super().__init__()
        rank, entering = down.shape
        self.layer, self.scale = frozen, scale
        self.down = nn.Linear(entering, rank, bias=False).requires_grad_(False)
        self.down.weight.copy_(down)
        self.up = nn.Linear(rank, int(frozen.out_features), bias=False)  # type: ignore[arg-type]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(x) + self.up(self.down(x) * self.scale)
        return out


def adapted(layers: Layers) -> nn.Module:
    """Adapters of rank 8 beside frozen projections of attention, and a trained head."""
    torch.manual_seed(0)
    model = lora(Adaptable(), rank=8, targets=["query", "value", "up", "down"], train=["head"])
    if layers is PEER:
        with torch.no_grad():
            for parent in list(model.modules()):
                for name, child in list(parent.named_children()):
                    if type(child).__name__ == "LowRank":
                        made: Any = child
                        setattr(parent, name, Adapter(made.layer, made.down, made.scale))
    return model


def _built(name: str, shape: tuple[int, ...], **more: Any) -> Callable[[Layers], nn.Module]:
    return lambda layers: build_model(name, shape=shape, outputs=CLASSES, **more)


ARCHITECTURES: Final = MappingProxyType(
    {
        "linear": Architecture(_built("softmax", (1280,)), (1280,), 256),
        "mlp": Architecture(_built("mlp", (784,), hidden=(256, 128)), (784,), 256),
        "cnn": Architecture(_built("cnn", (1, 28, 28)), (1, 28, 28), 512, images=True),
        "resnet": Architecture(lambda layers: ResidualNetwork(), (3, 32, 32), 64, images=True),
        "conv1d": Architecture(lambda layers: series(), (9, 128), 256),
        "conv1d module": Architecture(lambda layers: Series(), (9, 128), 256),
        "conv3d": Architecture(lambda layers: volumes(), (1, 16, 16, 16), 64),
        "text": Architecture(lambda layers: MeanOfWords(), (64,), 256, tokens=WORDS),
        "lstm": Architecture(lambda layers: Recurrent(layers.lstm), (32,), 64, tokens=WORDS),
        "gru": Architecture(lambda layers: Recurrent(layers.gru), (32,), 64, tokens=WORDS),
        "transformer": Architecture(
            lambda layers: Transformer(64, layers.attention), (64,), 64, tokens=WORDS
        ),
        "tied": Architecture(lambda layers: NextWord(), (32,), 64, tokens=2000, classes=2000),
        "lora": Architecture(adapted, (32, 128), 64),
    }
)
"""Networks by name."""
