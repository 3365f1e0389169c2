"""Per-record gradients of a chain of layers: one batched pass forward, one back to the layers'
outputs, no gradient of any weight that is summed over records.

For a chain of layers of `LAYERS` with parameter-free layers between them, a record's gradient is
made of what entered a layer and of the loss gradient at its output. Linear models need no backward
pass at all: the gradient at the outputs is all there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, final

import torch
from torch import nn

from sumus.gradients.layers import LAYERS, LayerGradient, Weights
from sumus.gradients.parts import ChunkGradients, Part, Rows
from sumus.gradients.passes import Pass, pass_through
from sumus.gradients.preconditioning import PublicMap
from sumus.gradients.tiles import by_own_loops
from sumus.gradients.trunks import Trunk
from sumus.purity import fresh_chain, layers_of, require_precision
from sumus.tasks import Loss

__all__ = ["LayeredPath"]

_Factors = tuple[LayerGradient, torch.Tensor, torch.Tensor, torch.Size]


@final
class LayeredPath:
    """A chain of layers whose per-record gradients come from one batched pass.

    Args:
        steps: a layer without parameters, or the gradient of one with some, in order.
        loss: at the chain's outputs.
        trunk: that does the first steps at once on the processor.
        behind: how many they are.
    """

    def __init__(
        self, steps: Sequence[Pass | LayerGradient], loss: Loss, trunk: Trunk | None, behind: int
    ) -> None:
        self._steps, self._loss = tuple(steps), loss
        self._trunk, self._behind = trunk, behind
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
        steps: list[Pass | LayerGradient] = []
        start = 0
        layers = list(layers_of(chain))
        for layer in layers:
            if not any(True for _ in layer.parameters()):
                steps.append(pass_through(layer))
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
        return cls(steps, loss, *Trunk.of(layers, require_precision(model)))

    def bind(self, parameters: torch.Tensor, mapped: PublicMap | None = None) -> ChunkGradients:
        """The gradients of any chunk at these parameters, one part or two per layer that has some,
        in flat order; behind a public map one part per layer, in the map's order.
        """
        pieces = [layer.unpack(parameters) for layer in self._layers]
        if mapped is not None:
            return partial(self._mapped, pieces, mapped)
        if self._trunk is not None and by_own_loops(parameters):
            return partial(self._behind_trunk, self._trunk, self._trunk.weights(parameters), pieces)
        return partial(self._parts, pieces)

    def _behind_trunk(
        self,
        trunk: Trunk,
        weights: torch.Tensor,
        pieces: Sequence[Weights],
        x: torch.Tensor,
        y: torch.Tensor,
        *,
        ghost: bool,
    ) -> list[Part]:
        """The trunk's parameters as one part of stored rows, those of the other layers as they
        are.
        """
        kept, hidden = trunk.forward(x, weights)
        first = sum(isinstance(step, LayerGradient) for step in self._steps[: self._behind])
        factors, flow = self._there_and_back(
            self._steps[self._behind :], pieces[first:], hidden, y, whole=True
        )
        return [Rows(trunk.rows(kept, flow, weights, x.shape)), *_parts_of(factors, ghost=ghost)]

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
            mapped.part(layer.start, layer.whole(entered, delta, shape))
            for layer, entered, delta, shape in self._there_and_back(self._steps, pieces, x, y)[0]
        ]

    def _parts(
        self, pieces: Sequence[Weights], x: torch.Tensor, y: torch.Tensor, *, ghost: bool
    ) -> list[Part]:
        """The parts of each layer."""
        return _parts_of(self._there_and_back(self._steps, pieces, x, y)[0], ghost=ghost)

    def _there_and_back(
        self,
        steps: Sequence[Pass | LayerGradient],
        pieces: Sequence[Weights],
        hidden: torch.Tensor,
        y: torch.Tensor,
        *,
        whole: bool = False,
    ) -> tuple[list[_Factors], torch.Tensor]:
        """Forward through steps of the chain and back to the outputs of its layers: what entered
        each, the loss gradient at its output, and the shape of its input; and the gradient at the
        last step that was reached.

        Args:
            whole: whether to go back through all steps; otherwise to the first layer's output.
        """
        kept: list[Any] = []
        weights = iter(pieces)
        for step in steps:
            if isinstance(step, LayerGradient):
                own, shape = next(weights), hidden.shape
                entered, hidden = step.apply(hidden, own)
                kept.append((own, entered, shape))
            else:
                hidden, left = step.forward(hidden)
                kept.append(left)
        flow = self._loss.output_gradient(hidden, y)
        factors: list[_Factors] = []
        for step, left in zip(reversed(steps), reversed(kept), strict=True):
            if not isinstance(step, LayerGradient):
                flow = step.back(flow, left)
                continue
            own, entered, shape = left
            factors.append((step, entered, flow, shape))
            if step is self._layers[0] and not whole:
                break
            flow = step.back(flow, own, shape)
        return factors[::-1], flow

    @property
    def on_devices(self) -> bool:
        """Whether other devices than the processor can compute it."""
        return all(layer.on_devices for layer in self._layers)

    def restore(self, vector: torch.Tensor) -> torch.Tensor:
        """From the order of the parts to the flat order of the model, in place."""
        for layer in self._layers:
            layer.restore(vector)
        return vector


def _parts_of(factors: Sequence[_Factors], *, ghost: bool) -> list[Part]:
    return [
        part
        for layer, entered, delta, shape in factors
        for part in layer.parts(entered, delta, shape, ghost=ghost)
    ]
