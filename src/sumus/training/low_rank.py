"""Low-rank adapters with a frozen public half: few numbers to train on top of a large frozen model.

    adapted = sumus.lora(model, rank=4, targets=["query", "value"], train=["head"])
    sumus.train(plan, model=adapted, silos=silos)
    merged(run.module)                              # the same layers as before, weights W + c·B·A

A layer W·x + b becomes

    W·x + b + c·B·(A·x),   A (rank × inputs) drawn once from a public seed and frozen, B trained from 0

Only B is in the flat vector. The model is linear in B, so the sum of the silos' updates of B is the
update of their common model exactly; with A trained as well it would not be, since a mean of
products is no product of means (FFA-LoRA, Sun et al. 2024, 2403.12313).
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence
from typing import final

import torch
from torch import nn

from sumus.errors import PlanError

__all__ = ["LowRank", "lora", "merged"]


@final
class LowRank(nn.Module):
    """A frozen linear layer with a trained product beside it.

    Args:
        layer: that stays as it is.
        down: A, frozen.
        scale: c.
    """

    down: torch.Tensor

    def __init__(self, layer: nn.Linear, down: torch.Tensor, scale: float) -> None:
        super().__init__()
        self.layer, self.scale = layer, scale
        self.register_buffer("down", down)
        self.up = nn.Parameter(down.new_zeros(layer.out_features, len(down)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """W·x + b + c·B·(A·x)."""
        inner = nn.functional.linear(x, self.down) * self.scale
        out: torch.Tensor = self.layer(x) + nn.functional.linear(inner, self.up)
        return out

    def folded(self) -> nn.Linear:
        """One linear layer that computes the same."""
        layer = copy.deepcopy(self.layer)
        with torch.no_grad():
            layer.weight += self.scale * self.up @ self.down
        return layer


def lora(
    model: nn.Module,
    *,
    rank: int,
    targets: Sequence[str],
    train: Sequence[str] = (),
    seed: int = 0,
    scale: float = 1.0,
) -> nn.Module:
    """A copy of a model in which adapters are trained, and nothing else but what is named.

    Guarantee: A follows from `seed`, the layer's name and shape alone, so every silo has the same
        one and it costs no privacy; parameters outside of adapters and `train` take no gradient.

    Args:
        model: stays as it is.
        rank: of every adapter, 1 … the layer's smaller side.
        targets: linear layers, by the last parts of their names ("query", "attention.output.dense").
        train: further parameters that are trained, by the beginnings of their names, such as a head.
        seed: public.
        scale: c.
    """
    adapted = copy.deepcopy(model).requires_grad_(False)
    found: set[str] = set()
    inside = _inside_attention(adapted)
    for name, layer in list(adapted.named_modules()):
        wanted = [target for target in targets if f".{name}".endswith(f".{target}")]
        if not wanted or not isinstance(layer, nn.Linear):
            continue
        if name in inside:
            rule = f"must not be a part of nn.MultiheadAttention, as {name} is"
            fix = "Write the projections of attention as nn.Linear layers."
            raise PlanError("targets", wanted[0], rule, fix)
        if not 1 <= rank <= min(layer.weight.shape):
            rule = f"must lie in 1 … {min(layer.weight.shape)} for {name}"
            raise PlanError("rank", rank, rule, "Choose another rank.")
        parent, _, last = name.rpartition(".")
        adapter = LowRank(layer, _drawn(layer, name, rank, seed), scale)
        setattr(adapted.get_submodule(parent), last, adapter.train(layer.training))
        found.update(wanted)
    missing = [target for target in targets if target not in found]
    if missing or not targets:
        rule = "must name linear layers of the model by the last parts of their names"
        fix = f"It has {', '.join(_linear_layers(model)[:8]) or 'none'}."
        raise PlanError("targets", missing[0] if missing else None, rule, fix)
    for beginning in train:
        _unfreeze(adapted, beginning)
    return adapted


def _unfreeze(model: nn.Module, beginning: str) -> None:
    """Train the parameters whose names begin so."""
    named = [
        parameter
        for name, parameter in model.named_parameters()
        if f"{name}.".startswith(f"{beginning}.")
    ]
    if not named:
        rule = "must be the beginning of a parameter's name"
        raise PlanError("train", beginning, rule, "Check the spelling.")
    for parameter in named:
        parameter.requires_grad_()


def _linear_layers(model: nn.Module) -> list[str]:
    """The last parts of the names of its linear layers."""
    layers = (name for name, part in model.named_modules() if isinstance(part, nn.Linear))
    return sorted({name.rpartition(".")[2] for name in layers})


def merged(model: nn.Module) -> nn.Module:
    """A copy in which every adapter is folded into its layer, W + c·B·A."""
    folded = copy.deepcopy(model)
    for name, layer in list(folded.named_modules()):
        if isinstance(layer, LowRank):
            parent, _, last = name.rpartition(".")
            setattr(folded.get_submodule(parent), last, layer.folded())
    return folded


def _drawn(layer: nn.Linear, name: str, rank: int, seed: int) -> torch.Tensor:
    """A with rows of length about 1, other ones for other layers."""
    digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:7]))
    numbers = torch.randn(rank, layer.in_features, generator=generator, dtype=torch.float64)
    drawn: torch.Tensor = (numbers / layer.in_features**0.5).to(layer.weight.dtype)
    return drawn


def _inside_attention(model: nn.Module) -> frozenset[str]:
    """Layers whose weights nn.MultiheadAttention reads without calling them."""
    return frozenset(
        f"{name}.{child}" if name else child
        for name, module in model.named_modules()
        if isinstance(module, nn.MultiheadAttention)
        for child, _ in module.named_modules()
        if child
    )
