"""Layers without parameters, forward and back: a chunk goes in, and what is needed on the way back
stays.

    pass_ = pass_through(nn.Tanh())
    hidden, kept = pass_.forward(hidden)
    flow = pass_.back(flow, kept)

The derivative of common activations follows from their value; whatever else a chain may hold is
differentiated by torch, one layer at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol, final

import torch
from torch import nn

__all__ = ["Pass", "pass_through"]

Kept = Any
_aten = torch.ops.aten


class Pass(Protocol):
    """What a layer without parameters does."""

    def forward(self, hidden: torch.Tensor) -> tuple[torch.Tensor, Kept]:
        """Its output, and what `back` needs."""
        ...

    def back(self, flow: torch.Tensor, kept: Kept) -> torch.Tensor:
        """The gradient at its input from the one at its output."""
        ...


def pass_through(layer: nn.Module) -> Pass:
    """What this layer does, by the fastest way that is known."""
    back = _BACK.get(type(layer))
    if back is not None:
        return _Activation(layer, back)
    if type(layer) is nn.Flatten:
        return _Flat()
    return _Differentiated(layer)


_BACK: Final[dict[type[nn.Module], Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]] = {
    nn.Tanh: lambda flow, made: _aten.tanh_backward(flow, made),
    nn.Sigmoid: lambda flow, made: _aten.sigmoid_backward(flow, made),
    nn.ReLU: lambda flow, made: _aten.threshold_backward(flow, made, 0),
    nn.Identity: lambda flow, made: flow,
}
"""A layer's type to the gradient at its input, from the one at its output and that output."""


@final
@dataclass(frozen=True)
class _Activation:
    """A function of single numbers whose derivative follows from its value."""

    layer: nn.Module
    derivative: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

    def forward(self, hidden: torch.Tensor) -> tuple[torch.Tensor, Kept]:
        made = self.layer(hidden)
        return made, made

    def back(self, flow: torch.Tensor, kept: Kept) -> torch.Tensor:
        return self.derivative(flow, kept)


@final
class _Flat:
    """All numbers of a record in a row."""

    def forward(self, hidden: torch.Tensor) -> tuple[torch.Tensor, Kept]:
        return hidden.flatten(1), hidden.shape

    def back(self, flow: torch.Tensor, kept: Kept) -> torch.Tensor:
        return flow.reshape(kept)


@final
@dataclass(frozen=True)
class _Differentiated:
    """Any layer, by torch."""

    layer: nn.Module

    def forward(self, hidden: torch.Tensor) -> tuple[torch.Tensor, Kept]:
        with torch.enable_grad():
            leaf = hidden.detach().requires_grad_()
            made = self.layer(leaf)
        return made.detach(), (leaf, made)

    def back(self, flow: torch.Tensor, kept: Kept) -> torch.Tensor:
        leaf, made = kept
        gradient: torch.Tensor = torch.autograd.grad(made, leaf, flow)[0]
        return gradient
