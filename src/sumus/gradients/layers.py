"""Per-record gradients layer by layer: one batched pass forward, one back to the layers' outputs,
no gradient of any weight.

For a chain of fully connected and convolutional layers with parameter-free layers between them, a
record's gradient is made of what entered a layer (a) and the loss gradient at its output (δ): δ ⊗ a
for a fully connected layer, a sum of such products over positions for a convolution. Linear models
need no backward pass at all: δ is p − y, or f(x) − y for least squares.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast, final

import torch
from torch import nn
from torch.nn import functional

from sumus.gradients.images import Convolution, Maximum, Window, aligned
from sumus.gradients.parts import ChunkGradients, Outer, Part, Positions, Rows
from sumus.purity import fresh_chain, layers_of
from sumus.tasks import Loss

__all__ = ["LayeredPath"]

# The error analysis of `Positions` counts operations up to this many positions.
_MOST_GHOST_POSITIONS = 1024
# Writing and reading back a stored gradient costs about as much as this many multiplications per
# coordinate.
_STORED_PASS_COST = 32


@dataclass(frozen=True)
class _Slot:
    """One step of the chain; `layer` holds parameters if `start` ≥ 0, at that offset of the flat
    vector.
    """

    layer: nn.Module
    start: int
    weight_shape: tuple[int, ...]
    bias: bool


@final
class LayeredPath:
    """A chain of layers whose per-record gradients come from one batched pass."""

    def __init__(self, slots: Sequence[_Slot], dimension: int, loss: Loss) -> None:
        self._slots, self._loss = tuple(slots), loss
        self.dimension = dimension
        holding = [index for index, slot in enumerate(slots) if slot.start >= 0]
        self._last = holding[-1]
        linear = isinstance(slots[-1].layer, nn.Linear) and len(holding) == 1
        self.name = "linear" if linear else "layers"
        # convolutions store a row per record and its patches; fully connected layers only their
        # factors
        stored = sum(math.prod(slot.weight_shape) for slot in slots if len(slot.weight_shape) == 4)
        self.numbers_per_record = 4 * stored + 16 * max(
            (sum(slot.weight_shape) for slot in slots if slot.start >= 0), default=1
        )

    @classmethod
    def of(cls, model: nn.Module, loss: Loss) -> LayeredPath | None:
        """The path for a model that is such a chain, or None."""
        chain = fresh_chain(model)
        if chain is None:
            return None
        slots, start = [], 0
        for layer in layers_of(chain):
            if isinstance(layer, nn.Linear | nn.Conv2d):
                bias = layer.bias is not None
                slots.append(_Slot(layer, start, tuple(layer.weight.shape), bias))
                start += layer.weight.numel() + (len(layer.weight) if bias else 0)
            else:
                slots.append(_Slot(layer, -1, (), bias=False))
        trainable = sum(
            parameter.numel() for parameter in model.parameters() if parameter.requires_grad
        )
        # a layer that occurs twice, or a frozen one, has no place of its own in the flat vector
        if (
            start == 0
            or start != trainable
            or any(not parameter.requires_grad for parameter in model.parameters())
        ):
            return None
        return cls(slots, start, loss)

    def bind(self, parameters: torch.Tensor) -> ChunkGradients:
        """The gradients of any chunk at these parameters, one part per layer that has some, in flat
        order.
        """
        return partial(self._parts, self._unpack(parameters))

    def _unpack(self, parameters: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor | None]]:
        """The weight matrix and bias of every slot that has them, at aligned widths; convolutions
        as (output, row · column · input).
        """
        pieces: list[tuple[torch.Tensor, torch.Tensor | None]] = []
        for slot in self._slots:
            if slot.start < 0:
                continue
            end = slot.start + math.prod(slot.weight_shape)
            weight = parameters[slot.start : end].view(slot.weight_shape)
            weight = weight.permute(0, 2, 3, 1).flatten(1) if weight.dim() == 4 else weight
            pieces.append(
                aligned(weight, parameters[end : end + slot.weight_shape[0]] if slot.bias else None)
            )
        return pieces

    def _parts(
        self,
        pieces: Sequence[tuple[torch.Tensor, torch.Tensor | None]],
        x: torch.Tensor,
        y: torch.Tensor,
        *,
        ghost: bool,
    ) -> list[Part]:
        """Forward through the chain, back to the outputs of its layers, and one part for each."""
        entered: list[torch.Tensor] = []
        outputs: list[torch.Tensor] = []
        weights = iter(pieces)
        hidden = x
        with torch.enable_grad():
            for index, slot in enumerate(self._slots):
                if slot.start < 0:
                    hidden = _pass_through(slot.layer, hidden)
                    continue
                seen, hidden = _apply(slot, hidden, *next(weights))
                if not hidden.requires_grad and index < self._last:
                    hidden.requires_grad_()
                entered.append(seen.detach())
                outputs.append(hidden)
        logits_gradient = self._loss.output_gradient(hidden.detach(), y)
        if hidden.requires_grad:
            deltas: Sequence[torch.Tensor] = torch.autograd.grad(hidden, outputs, logits_gradient)
        else:
            deltas = [logits_gradient]
        held = [slot for slot in self._slots if slot.start >= 0]
        layers = [
            _layer_parts(slot, a, delta, ghost=ghost)
            for slot, a, delta in zip(held, entered, deltas, strict=True)
        ]
        return [part for layer in layers for part in layer]

    def restore(self, vector: torch.Tensor) -> torch.Tensor:
        """From the order of the parts (convolutions: output, height, width, input) to the flat
        order of the model.
        """
        for slot in self._slots:
            if len(slot.weight_shape) == 4:
                outputs, channels, height, width = slot.weight_shape
                segment = vector[slot.start : slot.start + math.prod(slot.weight_shape)]
                segment.copy_(
                    segment.view(outputs, height, width, channels)
                    .permute(0, 3, 1, 2)
                    .reshape(-1)
                    .clone()
                )
        return vector


def _pass_through(layer: nn.Module, hidden: torch.Tensor) -> torch.Tensor:
    """A layer without parameters; the common kind of maximum in our own loops."""
    if (
        isinstance(layer, nn.MaxPool2d)
        and hidden.dim() == 4
        and not layer.ceil_mode
        and not layer.return_indices
    ):
        window = Window(_pair(layer.kernel_size), _pair(layer.stride), _pair(layer.padding))
        if window.padding == (0, 0) and _pair(layer.dilation) == (1, 1):
            pooled: torch.Tensor = Maximum.apply(hidden, window)  # type: ignore[no-untyped-call]
            return pooled
    passed: torch.Tensor = layer(hidden)
    return passed


def _pair(value: int | tuple[int, ...]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[1])


def _apply(
    slot: _Slot, hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """What the layer sees (for a convolution its patches) and what it makes of it. Parameters take
    no gradient.
    """
    width, made = math.prod(slot.weight_shape[1:]), slot.weight_shape[0]
    if isinstance(slot.layer, nn.Conv2d):
        window = Window(
            _pair(slot.layer.kernel_size),
            _pair(slot.layer.stride),
            _pair(cast(tuple[int, ...], slot.layer.padding)),
        )
        filled, seen = Convolution.apply(hidden, weight, bias, window)  # type: ignore[no-untyped-call]
        return seen.flatten(1, 2), filled[:, :made] if weight.shape[0] > made else filled
    wide = (
        functional.pad(hidden, (0, weight.shape[1] - width)) if weight.shape[1] > width else hidden
    )
    filled = functional.linear(wide, weight, bias)
    return hidden, filled[..., :made] if weight.shape[0] > made else filled


def _layer_parts(
    slot: _Slot, entered: torch.Tensor, delta: torch.Tensor, *, ghost: bool
) -> list[Part]:
    """The cheapest form of one layer's per-record gradients, in flat order."""
    if delta.dim() == 2:
        return [Outer(delta.contiguous(), entered.contiguous(), slot.bias)]
    if isinstance(slot.layer, nn.Conv2d):
        delta = delta.permute(0, 2, 3, 1)
    entered, delta = entered.flatten(1, -2), delta.flatten(1, -2)
    positions, width, outputs = (
        delta.shape[1],
        math.prod(slot.weight_shape[1:]),
        slot.weight_shape[0],
    )
    # multiplications per record: products among positions and a sum, both in float64, against one
    # gradient and passes over it
    ghost_cost = 2 * positions * (positions * (width + outputs) + width * outputs)
    cheaper = ghost_cost < (positions + _STORED_PASS_COST) * width * outputs
    if ghost and cheaper and positions <= _MOST_GHOST_POSITIONS:
        return [Positions(delta, entered[..., :width], slot.bias)]
    weights = Rows(torch.bmm(delta.transpose(1, 2), entered)[..., :width].flatten(1))
    return [weights, Rows(delta.sum(1))] if slot.bias else [weights]
