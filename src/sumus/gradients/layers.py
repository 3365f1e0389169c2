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

from sumus.gradients.images import Convolution, Window, aligned
from sumus.gradients.parts import Outer, Part, Rows, products

__all__ = ["LAYERS", "LayerGradient", "pair"]

Weights = tuple[torch.Tensor, torch.Tensor | None]
"""A weight matrix (outputs, inputs) and its bias, at aligned widths."""


class LayerGradient(ABC):
    """A layer with a weight matrix and perhaps a bias, at its place in the flat vector.

    Args:
        layer: of torch's own type.
        start: where its weights begin in the flat vector; the bias follows them.
    """

    def __init__(self, layer: nn.Linear | nn.Conv2d, start: int) -> None:
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
        return aligned(self._matrix(parameters[self.start : end].view(self._shape)), bias)

    @abstractmethod
    def apply(self, hidden: torch.Tensor, weights: Weights) -> tuple[torch.Tensor, torch.Tensor]:
        """What the matrix sees of its input, and the layer's output. Parameters take no
        gradient.
        """

    def parts(self, entered: torch.Tensor, delta: torch.Tensor, *, ghost: bool) -> list[Part]:
        """The cheapest form of the per-record gradients, in flat order.

        Args:
            entered: what the matrix saw.
            delta: the loss gradient at the output.
            ghost: whether factors over positions may be kept, for sums that are rounded once.
        """
        if delta.dim() == 2:
            return [Outer(delta.contiguous(), entered.contiguous(), self._bias)]
        entered, delta = entered.flatten(1, -2), self._outputs_last(delta).flatten(1, -2)
        return products(delta, entered, width=self._width, bias=self._bias, ghost=ghost)

    def whole(self, entered: torch.Tensor, delta: torch.Tensor) -> Outer | Rows:
        """The per-record gradients as one part in the order of the model's flat vector."""
        first, *bias = self.parts(entered, delta, ghost=False)
        if isinstance(first, Outer):
            return first
        ordered = self._in_model_order(first.as_rows())
        return Rows(torch.cat([ordered, *(part.as_rows() for part in bias)], dim=1))

    @abstractmethod
    def restore(self, vector: torch.Tensor) -> None:
        """Bring this layer's part of a sum from the order of its parts to that of the model, in
        place.
        """

    def _matrix(self, weight: torch.Tensor) -> torch.Tensor:
        """The weights as (outputs, inputs), inputs in the order of what the matrix sees."""
        return weight

    def _outputs_last(self, delta: torch.Tensor) -> torch.Tensor:
        """The gradient at the output with outputs as its last axis."""
        return delta

    def _in_model_order(self, rows: torch.Tensor) -> torch.Tensor:
        """Stored gradients of the weights, brought to the order of the model."""
        return rows


@final
class LinearLayer(LayerGradient):
    """A fully connected layer, of one vector or of several positions a record."""

    def apply(self, hidden: torch.Tensor, weights: Weights) -> tuple[torch.Tensor, torch.Tensor]:
        """The input as it is."""
        weight, bias = weights
        surplus = weight.shape[1] - self._width
        wide = functional.pad(hidden, (0, surplus)) if surplus else hidden
        filled = functional.linear(wide, weight, bias)
        return hidden, filled[..., : self._outputs] if len(weight) > self._outputs else filled

    def restore(self, vector: torch.Tensor) -> None:
        """Parts are in the model's order already."""


@final
class ConvolutionLayer(LayerGradient):
    """A convolution over all channels: a matrix product with patches, (row, column, channel)."""

    def __init__(self, layer: nn.Conv2d, start: int) -> None:
        super().__init__(layer, start)
        self._window = Window(
            pair(layer.kernel_size),
            pair(layer.stride),
            pair(cast(tuple[int, ...], layer.padding)),
        )

    @property
    def stored(self) -> int:
        """One row per record, unless positions are kept as factors."""
        return self._outputs * self._width

    def apply(self, hidden: torch.Tensor, weights: Weights) -> tuple[torch.Tensor, torch.Tensor]:
        """The patches of the input."""
        filled, patches = Convolution.apply(hidden, *weights, self._window)  # type: ignore[no-untyped-call]
        surplus = len(weights[0]) > self._outputs
        return patches.flatten(1, 2), filled[:, : self._outputs] if surplus else filled

    def restore(self, vector: torch.Tensor) -> None:
        """From (output, row, column, channel) to (output, channel, row, column)."""
        part = vector[self.start : self.start + self._outputs * self._width]
        part.copy_(self._in_model_order(part[None])[0].clone())

    def _in_model_order(self, rows: torch.Tensor) -> torch.Tensor:
        outputs, channels, height, width = self._shape
        stored = rows.view(-1, outputs, height, width, channels)
        return stored.permute(0, 1, 4, 2, 3).reshape(len(rows), -1)

    def _matrix(self, weight: torch.Tensor) -> torch.Tensor:
        return weight.permute(0, 2, 3, 1).flatten(1)

    def _outputs_last(self, delta: torch.Tensor) -> torch.Tensor:
        return delta.permute(0, 2, 3, 1)


LAYERS: Final[Mapping[type[nn.Module], type[LayerGradient]]] = MappingProxyType(
    {nn.Linear: LinearLayer, nn.Conv2d: ConvolutionLayer}
)
"""A layer's type to its per-record gradient."""


def pair(value: int | tuple[int, ...]) -> tuple[int, int]:
    """Height and width of a setting that may be one number for both."""
    return (value, value) if isinstance(value, int) else (value[0], value[1])
