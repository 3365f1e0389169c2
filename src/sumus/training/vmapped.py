"""Per-record gradients of any module through `torch.func`: one record at a time by construction, all of a chunk at once in practice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import final

import torch
from torch import nn
from torch.func import grad, vmap
from torch.nn import functional

from sumus.errors import GuaranteeError
from sumus.training.parts import ChunkGradients, Part, Rows
from sumus.training.stateless import call_with

__all__ = ["RecordLoss", "VmapPath", "cross_entropy", "squared_error"]

RecordLoss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def cross_entropy(logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of one record; the binary logistic loss if the model has one output."""
    if logits.shape[1] == 1:
        return functional.binary_cross_entropy_with_logits(logits[:, 0], y.to(logits.dtype))
    return functional.cross_entropy(logits, y)


def squared_error(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """½(f(x) − y)² of one record and one output."""
    return 0.5 * (outputs[0, 0] - y[0].to(outputs.dtype)) ** 2


@final
class VmapPath:
    """`vmap(grad(loss))` over the records of a chunk."""

    name = "vmap"

    def __init__(self, model: nn.Module, loss: RecordLoss) -> None:
        self._shapes = {name: parameter.shape for name, parameter in model.named_parameters() if parameter.requires_grad}
        self.dimension = sum(shape.numel() for shape in self._shapes.values())
        self.numbers_per_record = 4 * self.dimension  # torch's own copy, the rows, and activations

        def record_loss(weights: Mapping[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return loss(call_with(model, weights, x[None]), y[None])

        self._gradients = vmap(grad(record_loss), in_dims=(None, 0, 0), randomness="error")

    def bind(self, parameters: torch.Tensor) -> ChunkGradients:
        """The gradients of any chunk at these parameters."""
        weights, start = {}, 0
        for name, shape in self._shapes.items():
            weights[name] = parameters[start : start + shape.numel()].view(shape)
            start += shape.numel()
        return partial(self._parts, weights)

    def _parts(self, pieces: Mapping[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor, *, ghost: bool) -> list[Part]:
        """One stored row per record; there are no factors to keep, so `ghost` changes nothing."""
        try:
            gradients = self._gradients(dict(pieces), x, y)
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            if "randomness" in reason or "inplace" in reason or "in-place" in reason:
                fix = "Keep randomness and running statistics out of forward()"
                raise GuaranteeError(f"model cannot be shown one record at a time: {reason} {fix}.") from None
            raise
        return [Rows(torch.cat([gradients[name].reshape(len(x), -1) for name in self._shapes], dim=1))]

    def restore(self, vector: torch.Tensor) -> torch.Tensor:
        """Rows are in flat order already."""
        return vector
