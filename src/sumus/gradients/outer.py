"""Gradients of a fully connected layer that sees one vector a record: products that are never stored.

δ_j ⊗ [a_j, 1]        ‖·‖² = ‖δ_j‖² · (‖a_j‖² + 1)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
import numpy.typing as npt
import torch

from sumus.gradients.kernels import (
    add_outer_to_units,
    add_outer_truncated,
    outer_norms2,
    row_norms2,
)

__all__ = ["Outer", "add_contraction", "weighted_factors"]

Scale = npt.NDArray[np.float64]
Slots = npt.NDArray[np.int64]


@final
@dataclass(frozen=True)
class Outer:
    """δ_j ⊗ [a_j, 1] of every record j of a chunk."""

    deltas: torch.Tensor
    inputs: torch.Tensor
    bias: bool

    @property
    def size(self) -> int:
        """Coordinates of one record's gradient."""
        return self.deltas.shape[1] * (self.inputs.shape[1] + int(self.bias))

    def tensors(self) -> list[torch.Tensor]:
        """What a record's gradient is computed from, records first."""
        return [self.deltas, self.inputs]

    @cached_property
    def _inputs2(self) -> Scale:
        """‖a_j‖²."""
        squares = np.zeros(len(self.inputs))
        row_norms2(self.inputs.numpy(), squares)
        return squares

    def add_norms2(self, norms2: Scale) -> None:
        """Add squared norms of the first len(norms2) records."""
        outer_norms2(self.deltas.numpy(), self.inputs.numpy(), self._inputs2, self.bias, norms2)

    def add_truncated(self, scale: Scale, first: int, total_grid: npt.NDArray[np.int32]) -> None:
        """Add trunc(scale · gradient) of the records from `first` on."""
        outputs, inner = self.deltas.shape[1], self.inputs.shape[1]
        weights, bias = (
            total_grid[: outputs * inner].reshape(outputs, inner),
            total_grid[outputs * inner :],
        )
        records = slice(first, first + len(scale))
        add_outer_truncated(
            self.deltas.numpy()[records],
            self.inputs.numpy()[records],
            self._inputs2[records],
            scale,
            weights,
            bias,
        )

    def add_weighted(self, scale: Scale, total: torch.Tensor) -> None:
        """Add Σ_j scale_j · gradient_j in float64."""
        deltas, inputs = weighted_factors(self.deltas, self.inputs, scale)
        add_contraction(deltas, inputs, self.bias, total)

    def add_to_units(
        self, rows: slice, weights: Scale, slots: Slots, place: int, sums: Scale
    ) -> None:
        """sums[slot, place:] += weight · gradient of some rows, in float64 and in their order."""
        deltas, inputs = self.deltas.numpy()[rows], self.inputs.numpy()[rows]
        add_outer_to_units(deltas, inputs, self.bias, weights, slots, place, sums)

    def as_rows(self) -> torch.Tensor:
        """The gradients, stored."""
        weights = (self.deltas[:, :, None] * self.inputs[:, None, :]).flatten(1)
        return torch.cat([weights, self.deltas], dim=1) if self.bias else weights


def weighted_factors(
    deltas: torch.Tensor, inputs: torch.Tensor, scale: Scale
) -> tuple[torch.Tensor, torch.Tensor]:
    """The factors in float64, δ times the record's scale; records of scale 0 become zero even where
    they held NaN.
    """
    weights = torch.from_numpy(scale).view(-1, *[1] * (deltas.dim() - 1))
    kept_deltas = torch.where(weights > 0.0, deltas[: len(scale)].double(), 0.0)
    kept_inputs = torch.where(weights > 0.0, inputs[: len(scale)].double(), 0.0)
    return kept_deltas * weights, kept_inputs


def add_contraction(
    deltas: torch.Tensor, inputs: torch.Tensor, bias: bool, total: torch.Tensor
) -> None:
    """total += Σ_j δ_j ⊗ [a_j, 1]."""
    weights = deltas.shape[1] * inputs.shape[1]
    total[:weights].view(deltas.shape[1], inputs.shape[1]).addmm_(deltas.t(), inputs)
    if bias:
        total[weights:] += deltas.sum(0)
