"""Clipped integer sums of softmax regression, logistic regression and least squares in one compiled pass.

    δ_j = softmax(W·x_j + b) − y_j          one output: σ(w·x_j + b) − y_j, or w·x_j + b − y_j for least squares
    ∇f_j = δ_j ⊗ [x_j, 1]

A few records at a time go from logits to integers while they are in cache, without a tensor or a line of Python in between: for
batches of some hundred records that is most of the time. Other roundings go through `layers`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from sumus.mechanism.grid import Grid
from sumus.training.clipping import add_outer_truncated, compiled, outer_norms2, row_norms2, scales

__all__ = ["LinearModel", "LinearSum"]

Singles = npt.NDArray[np.float32]
_TOGETHER = 32  # records in cache


@compiled
def _write_logits(weights: Singles, bias: Singles, x: Singles, out: Singles) -> None:
    """out_j = W·x_j + b; every record goes through the same loop, four records and two outputs at a time, the last ones repeated."""
    last, last_output = len(x) - 1, len(weights) - 1
    for first in range(0, len(x), 4):
        record1, record2, record3 = min(first + 1, last), min(first + 2, last), min(first + 3, last)
        row0, row1, row2, row3 = x[first], x[record1], x[record2], x[record3]
        for output in range(0, len(weights), 2):
            other = min(output + 1, last_output)
            one, two = weights[output], weights[other]
            one0, one1, one2, one3 = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
            two0, two1, two2, two3 = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
            for index in range(one.size):
                one0 += one[index] * row0[index]
                one1 += one[index] * row1[index]
                one2 += one[index] * row2[index]
                one3 += one[index] * row3[index]
                two0 += two[index] * row0[index]
                two1 += two[index] * row1[index]
                two2 += two[index] * row2[index]
                two3 += two[index] * row3[index]
            out[first, output], out[first, other] = one0, two0
            out[record1, output], out[record1, other] = one1, two1
            out[record2, output], out[record2, other] = one2, two2
            out[record3, output], out[record3, other] = one3, two3
    if bias.size:
        for record in range(len(x)):
            for output in range(len(weights)):
                out[record, output] += bias[output]


@compiled
def _logits_to_deltas(deltas: Singles, y: npt.NDArray[np.int64], squared: bool) -> None:
    """From the model's outputs to the gradient of each record's loss at them, in place."""
    for record in range(len(deltas)):
        delta = deltas[record]
        if delta.size > 1:
            largest, mass = delta[0], np.float32(0)
            for output in range(1, delta.size):
                largest = max(largest, delta[output])
            for output in range(delta.size):
                delta[output] = np.exp(delta[output] - largest)
                mass += delta[output]
            for output in range(delta.size):
                delta[output] /= mass
            delta[y[record]] -= np.float32(1)
        else:
            answer = delta[0] if squared else np.float32(1) / (np.float32(1) + np.exp(-delta[0]))
            delta[0] = answer - np.float32(y[record])


@compiled
def _add_linear(
    weights: Singles,
    bias: Singles,
    x: Singles,
    y: npt.NDArray[np.int64],
    squared: bool,
    clip_norm: float,
    resolution: float,
    deltas: Singles,
    integers: npt.NDArray[np.int64],
) -> tuple[int, int]:
    """integers += Σ_j trunc(scale_j · δ_j ⊗ [x_j, 1]), added up in 32 bits; leaves δ behind and returns (clipped, non-finite) counts."""
    total = np.zeros(integers.size, np.int32)
    weight_total = total[: weights.size].reshape(weights.shape)
    clipped, nonfinite = 0, 0
    for first in range(0, len(x), _TOGETHER):
        rows, own = x[first : first + _TOGETHER], deltas[first : first + _TOGETHER]
        _write_logits(weights, bias, rows, own)
        _logits_to_deltas(own, y[first : first + _TOGETHER], squared)
        inputs2, norms2, scale = np.zeros(len(rows)), np.zeros(len(rows)), np.empty(len(rows))
        row_norms2(rows, inputs2)
        outer_norms2(own, rows, inputs2, bias.size > 0, norms2)
        counts = scales(norms2, clip_norm, resolution, scale)
        clipped += counts[0]
        nonfinite += counts[1]
        add_outer_truncated(own, rows, inputs2, scale, weight_total, total[weights.size :])
    for index in range(total.size):
        integers[index] += total[index]
    return clipped, nonfinite


@final
@dataclass(frozen=True)
class LinearModel:
    """The shape of a linear model in single precision and its loss.

    Args:
        outputs, features: of the weight matrix.
        bias: whether there is one.
        squared: least squares instead of cross-entropy.
    """

    outputs: int
    features: int
    bias: bool
    squared: bool

    @classmethod
    def of(cls, model: nn.Module, *, squared: bool) -> LinearModel | None:
        """The shape of a model that is one fully connected layer, perhaps behind `nn.Flatten`; of anything else None."""
        chain = list(model) if type(model) is nn.Sequential else [model]
        layer = chain[-1] if chain else None
        if type(layer) is not nn.Linear or layer.weight.dtype != torch.float32:
            return None
        if any(type(before) is not nn.Flatten or (before.start_dim, before.end_dim) != (1, -1) for before in chain[:-1]):
            return None
        outputs, features = layer.weight.shape
        return cls(outputs, features, bias=layer.bias is not None, squared=squared)

    def at(self, parameters: torch.Tensor) -> LinearSum:
        """The model with these parameters, flat."""
        flat, split = parameters.contiguous().numpy(), self.outputs * self.features
        return LinearSum(flat[:split].reshape(self.outputs, self.features), flat[split:], self.squared)


@final
@dataclass(frozen=True, eq=False)
class LinearSum:
    """A linear model at its parameters; an empty bias means none."""

    weights: Singles
    bias: Singles
    squared: bool

    def add(self, x: torch.Tensor, y: torch.Tensor, *, grid: Grid, integers: npt.NDArray[np.int64]) -> tuple[Singles, int, int]:
        """Add every record's truncated gradient to `integers`; returns δ, the number of clipped and of non-finite records.

        Guarantee: as in `clipping`; the caller keeps records · r below 2^31 and has checked the labels.
        """
        deltas = np.empty((len(x), len(self.weights)), np.float32)
        rows = x.reshape(len(x), -1).contiguous().numpy()
        clipped, nonfinite = _add_linear(
            self.weights, self.bias, rows, y.numpy(), self.squared, grid.clip_norm, float(grid.resolution), deltas, integers
        )
        return deltas, clipped, nonfinite
