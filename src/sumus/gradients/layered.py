"""Per-record gradients of a chain of layers: one batched pass forward, one back to the layers'
outputs, no gradient of any weight.

For a chain of layers of `LAYERS` with parameter-free layers between them, a record's gradient is
made of what entered a layer and of the loss gradient at its output. Linear models need no backward
pass at all: the gradient at the outputs is all there is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import final

import torch
from torch import nn

from sumus.gradients.images import Maximum, Window, by_own_loops
from sumus.gradients.layers import LAYERS, LayerGradient, Weights, pair
from sumus.gradients.parts import ChunkGradients, Part
from sumus.gradients.preconditioning import PublicMap
from sumus.purity import fresh_chain, layers_of
from sumus.tasks import Loss

__all__ = ["LayeredPath"]


@final
class LayeredPath:
    """A chain of layers whose per-record gradients come from one batched pass.

    Args:
        steps: a layer without parameters, or the gradient of one with some, in order.
        loss: at the chain's outputs.
    """

    def __init__(self, steps: Sequence[nn.Module | LayerGradient], loss: Loss) -> None:
        self._steps, self._loss = tuple(steps), loss
        self._layers = [step for step in steps if isinstance(step, LayerGradient)]
        self.dimension = sum(layer.size for layer in self._layers)
        linear = len(self._layers) == 1 and type(steps[-1]) is LAYERS[nn.Linear]
        self.name = "linear" if linear else "layers"
        # convolutions store a row per record and its patches; fully connected layers only their
        # factors
        stored = sum(layer.stored for layer in self._layers)
        self.numbers_per_record = 4 * stored + 16 * max(layer.factors for layer in self._layers)

    @classmethod
    def of(cls, model: nn.Module, loss: Loss) -> LayeredPath | None:
        """The path for a model that is such a chain, or None."""
        chain = fresh_chain(model)
        if chain is None:
            return None
        steps: list[nn.Module | LayerGradient] = []
        start = 0
        for layer in layers_of(chain):
            if not any(True for _ in layer.parameters()):
                steps.append(layer)
                continue
            kind = LAYERS.get(type(layer))
            if kind is None:
                return None
            gradient = kind(layer, start)  # type: ignore[arg-type]
            steps.append(gradient)
            start += gradient.size
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
        return cls(steps, loss)

    def bind(self, parameters: torch.Tensor, mapped: PublicMap | None = None) -> ChunkGradients:
        """The gradients of any chunk at these parameters, one part or two per layer that has some,
        in flat order; behind a public map one part per layer, in the map's order.
        """
        pieces = [layer.unpack(parameters) for layer in self._layers]
        return (
            partial(self._parts, pieces)
            if mapped is None
            else partial(self._mapped, pieces, mapped)
        )

    def _mapped(
        self,
        pieces: Sequence[Weights],
        mapped: PublicMap,
        x: torch.Tensor,
        y: torch.Tensor,
        *,
        ghost: bool,
    ) -> list[Part]:
        """Every layer's part behind a public map; there are no factors over positions, so `ghost`
        changes nothing.
        """
        return [
            mapped.part(layer.start, layer.whole(entered, delta))
            for layer, entered, delta in self._factors(pieces, x, y)
        ]

    def _parts(
        self, pieces: Sequence[Weights], x: torch.Tensor, y: torch.Tensor, *, ghost: bool
    ) -> list[Part]:
        """The parts of each layer."""
        return [
            part
            for layer, entered, delta in self._factors(pieces, x, y)
            for part in layer.parts(entered, delta, ghost=ghost)
        ]

    def _factors(
        self, pieces: Sequence[Weights], x: torch.Tensor, y: torch.Tensor
    ) -> Iterator[tuple[LayerGradient, torch.Tensor, torch.Tensor]]:
        """Forward through the chain and back to the outputs of its layers: what entered each, and
        the loss gradient at its output.
        """
        entered: list[torch.Tensor] = []
        outputs: list[torch.Tensor] = []
        weights = iter(pieces)
        hidden = x
        with torch.enable_grad():
            for step in self._steps:
                if isinstance(step, nn.Module):
                    hidden = _pass_through(step, hidden)
                    continue
                what_entered, hidden = step.apply(hidden, next(weights))
                if not hidden.requires_grad and step is not self._layers[-1]:
                    hidden.requires_grad_()
                entered.append(what_entered.detach())
                outputs.append(hidden)
        gradient = self._loss.output_gradient(hidden.detach(), y)
        deltas: Sequence[torch.Tensor] = [gradient]
        if hidden.requires_grad:
            deltas = torch.autograd.grad(hidden, outputs, gradient)
        return zip(self._layers, entered, deltas, strict=True)

    def restore(self, vector: torch.Tensor) -> torch.Tensor:
        """From the order of the parts to the flat order of the model, in place."""
        for layer in self._layers:
            layer.restore(vector)
        return vector


def _pass_through(layer: nn.Module, hidden: torch.Tensor) -> torch.Tensor:
    """A layer without parameters; the common kind of maximum in our own loops."""
    if (
        isinstance(layer, nn.MaxPool2d)
        and by_own_loops(hidden)
        and hidden.dim() == 4
        and not layer.ceil_mode
        and not layer.return_indices
    ):
        window = Window(pair(layer.kernel_size), pair(layer.stride), pair(layer.padding))
        if window.padding == (0, 0) and pair(layer.dilation) == (1, 1):
            pooled: torch.Tensor = Maximum.apply(hidden, window)  # type: ignore[no-untyped-call]
            return pooled
    passed: torch.Tensor = layer(hidden)
    return passed
