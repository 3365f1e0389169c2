"""Per-record gradients of single layers: a table from a layer's type to what its gradient is made of.

    LAYERS[nn.Linear]                    # δ ⊗ [a, 1], never stored
    LAYERS[nn.Conv2d]                    # a sum of such products over positions

A layer is in the table if its gradient is known from what entered it (a) and from the loss gradient
at its output (δ). A model with any other layer that has parameters goes through `vmapped`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, cast, final

import torch
from torch import nn
from torch.nn import functional

from sumus.gradients.convolutions import Convolution, ConvolutionWeights
from sumus.gradients.parts import Outer, Part, Positions, Rows, kept_as_factors, products
from sumus.gradients.windows import Window

__all__ = ["LAYERS", "LayerGradient", "aligned"]

Weights = tuple[torch.Tensor, torch.Tensor | None] | ConvolutionWeights
"""A weight matrix (outputs, inputs) and its bias, at aligned widths."""
_ALIGNED_WIDTH = 16  # float32 numbers in 64 bytes; matrix kernels treat rows that start there alike


class LayerGradient(ABC):
    """A layer with a weight matrix and perhaps a bias, at its place in the flat vector.

    Args:
        layer: of torch's own type.
        start: where its weights begin in the flat vector; the bias follows them.
    """

    on_devices = True
    """Whether other devices than the processor can compute it."""

    def __init__(self, layer: nn.Linear | nn.modules.conv._ConvNd, start: int) -> None:
        self._shape, self.start = tuple(layer.weight.shape), start
        self._bias = layer.bias is not None
        self._outputs, self._width = self._shape[0], math.prod(self._shape[1:])

    @property
    def size(self) -> int:
        """Parameters."""
        return self._outputs * (self._width + int(self._bias))

    @property
    def stored(self) -> int:
        """Numbers of a record's gradient that may have to be stored."""
        return 0

    @property
    def factors(self) -> int:
        """Numbers that its factors need, about."""
        return sum(self._shape)

    def unpack(self, parameters: torch.Tensor) -> Weights:
        """Matrix and bias from the flat vector."""
        end = self.start + self._outputs * self._width
        bias = parameters[end : end + self._outputs] if self._bias else None
        return self._weights(parameters[self.start : end].view(self._shape), bias)

    @abstractmethod
    def _weights(self, weight: torch.Tensor, bias: torch.Tensor | None) -> Weights:
        """As `apply` and `back` take them."""

    @abstractmethod
    def apply(self, hidden: torch.Tensor, weights: Weights) -> tuple[torch.Tensor, torch.Tensor]:
        """What the matrix sees of its input, and the layer's output."""

    @abstractmethod
    def back(self, flow: torch.Tensor, weights: Weights, shape: torch.Size) -> torch.Tensor:
        """The loss gradient at the input, from the one at the output.

        Args:
            shape: of the input.
        """

    @abstractmethod
    def parts(
        self, entered: torch.Tensor, delta: torch.Tensor, shape: torch.Size, *, ghost: bool
    ) -> list[Part]:
        """The cheapest form of the per-record gradients, in flat order.

        Args:
            entered: what the matrix saw.
            delta: the loss gradient at the output.
            shape: of the input.
            ghost: whether factors over positions may be kept, for sums that are rounded once.
        """

    def whole(self, entered: torch.Tensor, delta: torch.Tensor, shape: torch.Size) -> Outer | Rows:
        """The per-record gradients as one part in the order of the model's flat vector."""
        first, *bias = self.parts(entered, delta, shape, ghost=False)
        if isinstance(first, Outer):
            return first
        ordered = self._in_model_order(first.as_rows())
        return Rows(torch.cat([ordered, *(part.as_rows() for part in bias)], dim=1))

    def restore(self, vector: torch.Tensor) -> None:
        """Bring this layer's part of a sum from the order of its parts to that of the model, in
        place.
        """
        part = vector[self.start : self.start + self._outputs * self._width]
        part.copy_(self._in_model_order(part[None])[0].clone())

    @abstractmethod
    def _in_model_order(self, rows: torch.Tensor) -> torch.Tensor:
        """Stored gradients of the weights, brought to the order of the model."""


@final
class LinearLayer(LayerGradient):
    """A fully connected layer, of one vector or of several positions a record."""

    def _weights(self, weight: torch.Tensor, bias: torch.Tensor | None) -> Weights:
        return aligned(weight, bias)

    def apply(self, hidden: torch.Tensor, weights: Weights) -> tuple[torch.Tensor, torch.Tensor]:
        """The input as it is."""
        weight, bias = weights[:2]
        surplus = weight.shape[1] - self._width
        wide = functional.pad(hidden, (0, surplus)) if surplus else hidden
        filled = functional.linear(wide, weight, bias)
        return hidden, filled[..., : self._outputs] if len(weight) > self._outputs else filled

    def back(self, flow: torch.Tensor, weights: Weights, shape: torch.Size) -> torch.Tensor:
        """δ·W."""
        surplus = len(weights[0]) - self._outputs
        wide = functional.pad(flow, (0, surplus)) if surplus else flow
        filled = wide.reshape(-1, wide.shape[-1]) @ weights[0]
        return filled[:, : self._width].reshape(shape)

    def parts(
        self, entered: torch.Tensor, delta: torch.Tensor, shape: torch.Size, *, ghost: bool
    ) -> list[Part]:
        """One product, or one a position."""
        if delta.dim() == 2:
            return [Outer(delta.contiguous(), entered.contiguous(), self._bias)]
        entered, delta = entered.flatten(1, -2), delta.flatten(1, -2)
        return products(delta, entered, bias=self._bias, ghost=ghost)

    def _in_model_order(self, rows: torch.Tensor) -> torch.Tensor:
        return rows


@final
class ConvolutionLayer(LayerGradient):
    """A convolution over all channels: a matrix product with patches, (sides …, channel)."""

    def __init__(self, layer: nn.modules.conv._ConvNd, start: int) -> None:
        super().__init__(layer, start)
        self._convolution = Convolution(Window.of(layer), self._shape[1], self._outputs)
        self.on_devices = self._convolution.on_devices

    @property
    def stored(self) -> int:
        """One row per record, unless positions are kept as factors."""
        return self._outputs * self._width

    def _weights(self, weight: torch.Tensor, bias: torch.Tensor | None) -> Weights:
        return self._convolution.weights(weight, bias)

    def apply(self, hidden: torch.Tensor, weights: Weights) -> tuple[torch.Tensor, torch.Tensor]:
        """The input with zeros around it."""
        return self._convolution.forward(hidden, cast(ConvolutionWeights, weights))

    def back(self, flow: torch.Tensor, weights: Weights, shape: torch.Size) -> torch.Tensor:
        """Patches of the gradient, added up where they came from."""
        return self._convolution.back(flow, cast(ConvolutionWeights, weights), tuple(shape[2:]))

    def parts(
        self, entered: torch.Tensor, delta: torch.Tensor, shape: torch.Size, *, ghost: bool
    ) -> list[Part]:
        """Stored rows in the order (sides …, channel, output), or factors over positions."""
        sides, flow = tuple(shape[2:]), delta.flatten(2).transpose(1, 2)
        if ghost and kept_as_factors(flow.shape[1], self._width, self._outputs):
            weights: Part = Positions(self._convolution.patches(entered, sides), flow, bias=False)
        else:
            weights = Rows(self._convolution.weight_rows(entered, delta, sides))
        return [weights, Rows(flow.sum(1))] if self._bias else [weights]

    def _in_model_order(self, rows: torch.Tensor) -> torch.Tensor:
        return self._convolution.in_model_order(rows)


LAYERS: Final[Mapping[type[nn.Module], type[LayerGradient]]] = MappingProxyType(
    {
        nn.Linear: LinearLayer,
        nn.Conv1d: ConvolutionLayer,
        nn.Conv2d: ConvolutionLayer,
        nn.Conv3d: ConvolutionLayer,
    }
)
"""A layer's type to its per-record gradient."""


def aligned(
    weight: torch.Tensor, bias: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """A matrix (outputs, inputs) and its bias filled up with zeros to aligned widths."""
    below, right = -weight.shape[0] % _ALIGNED_WIDTH, -weight.shape[1] % _ALIGNED_WIDTH
    weight = functional.pad(weight, (0, right, 0, below)) if below or right else weight
    return weight, functional.pad(bias, (0, below)) if bias is not None and below else bias
