"""Clipped integer sums of linear models whose loss has a link, in one compiled pass.

    δ_j = μ(W·x_j + b) − y_j             μ: softmax, σ or identity (`sumus.tasks.Link`)
    ∇f_j = δ_j ⊗ [x_j, 1]

A few records at a time go from outputs to integers while they are in cache, without a tensor or a
line of Python in between: for batches of some hundred records that is most of the time. Other
roundings go through `layers`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from sumus.gradients.kernels import Singles, add_linear_truncated
from sumus.noise import Grid
from sumus.tasks import Link, Loss

__all__ = ["LinearModel", "LinearSum"]


@final
@dataclass(frozen=True)
class LinearModel:
    """The shape of a linear model in single precision and its loss.

    Args:
        outputs, features: of the weight matrix.
        bias: whether there is one.
        link: from its outputs to the expected label.
        class_weights: of the loss; empty: all the same.
    """

    outputs: int
    features: int
    bias: bool
    link: Link
    class_weights: tuple[float, ...] = ()

    @classmethod
    def of(cls, model: nn.Module, loss: Loss) -> LinearModel | None:
        """The shape of a model that is one fully connected layer, perhaps behind `nn.Flatten`; of
        anything else, or of a loss without a link, None.
        """
        chain = list(model) if type(model) is nn.Sequential else [model]
        layer = chain[-1] if chain else None
        if type(layer) is not nn.Linear or layer.weight.dtype != torch.float32:
            return None
        if any(
            type(before) is not nn.Flatten or (before.start_dim, before.end_dim) != (1, -1)
            for before in chain[:-1]
        ):
            return None
        outputs, features = layer.weight.shape
        link = loss.link(outputs)
        if link is None:
            return None
        return cls(outputs, features, layer.bias is not None, link, loss.class_weights)

    def at(self, parameters: torch.Tensor) -> LinearSum:
        """The model with these parameters, flat."""
        flat, split = parameters.contiguous().numpy(), self.outputs * self.features
        weights = flat[:split].reshape(self.outputs, self.features)
        return LinearSum(
            weights, flat[split:], self.link, np.array(self.class_weights, dtype=np.float32)
        )


@final
@dataclass(frozen=True, eq=False)
class LinearSum:
    """A linear model at its parameters; an empty bias means none."""

    weights: Singles
    bias: Singles
    link: Link
    class_weights: Singles

    def add(
        self, x: torch.Tensor, y: torch.Tensor, *, grid: Grid, integers: npt.NDArray[np.int64]
    ) -> tuple[Singles, int, int]:
        """Add every record's truncated gradient to `integers`; returns δ, the number of clipped and
        of non-finite records.

        Guarantee: as in `kernels`; the caller keeps records · r below 2^31 and has checked the
            labels.
        """
        deltas = np.empty((len(x), len(self.weights)), np.float32)
        rows = x.reshape(len(x), -1).contiguous().numpy()
        clipped, nonfinite = add_linear_truncated(
            self.weights,
            self.bias,
            rows,
            y.reshape(len(y), -1).numpy(),
            int(self.link),
            self.class_weights,
            grid.clip_norm,
            float(grid.resolution),
            deltas,
            integers,
        )
        return deltas, clipped, nonfinite
