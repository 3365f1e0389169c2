"""Gradients of a table in which tokens are looked up and that is multiplied with again, as the head
of a language model is.

    G = δ ⊗ h + E        δ ⊗ h of the head in every row, E in the rows that the record's tokens touch

Kept as two parts with no coordinate in common: rows that were touched, whole, and the product with δ
set to zero there. Squared norms add up, and so do truncated coordinates, without storing G.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np
import numpy.typing as npt
import torch

from sumus.gradients.outer import Outer
from sumus.gradients.tokens import Tokens

__all__ = ["Tied"]

Scale = npt.NDArray[np.float64]
Slots = npt.NDArray[np.int64]


@final
@dataclass(frozen=True)
class Tied:
    """The rows that every record touched, and a product in all others.

    Args:
        product: δ_j ⊗ h_j, where δ_j is zero in the rows of `tokens`.
        tokens: the rows that the record's tokens touched, with what the product adds to them.
    """

    product: Outer
    tokens: Tokens

    @classmethod
    def of(
        cls,
        lookup: tuple[torch.Tensor, torch.Tensor],
        product: tuple[torch.Tensor, torch.Tensor],
        *,
        padding: int,
    ) -> Self:
        """From the factors of both.

        Guarantee: no coordinate is in both parts, and their sum is the gradient.

        Args:
            lookup: (records, positions, width) at what was looked up; (records, positions) tokens.
            product: δ, (records, rows); h, (records, width).
            padding: a token whose row takes no gradient of the lookup; −1: none.
        """
        (entries, tokens), (deltas, inputs) = lookup, product
        rows = deltas.shape[1]
        there = tokens.clamp(0, rows - 1)  # a token outside makes the record not finite, below
        same = tokens[:, :, None] == tokens[:, None, :]
        again = same.tril(-1).any(2) | (tokens == padding)
        added = deltas.gather(1, there)[..., None] * inputs[:, None]
        touched = Tokens.of(
            torch.where(again[..., None], entries, entries + added),
            tokens,
            rows=rows,
            padding=padding,
        )
        rest = deltas.scatter(1, there, 0.0)
        if 0 <= padding < rows:
            rest[:, padding] = deltas[:, padding]
        return cls(Outer(rest, inputs.contiguous(), False), touched)

    @property
    def size(self) -> int:
        """Coordinates of one record's gradient."""
        return self.product.size

    def tensors(self) -> list[torch.Tensor]:
        """What a record's gradient is computed from, records first."""
        return [*self.product.tensors(), *self.tokens.tensors()]

    def add_norms2(self, norms2: Scale) -> None:
        """Add squared norms of the first len(norms2) records."""
        self.product.add_norms2(norms2)
        self.tokens.add_norms2(norms2)

    def add_truncated(self, scale: Scale, first: int, total_grid: npt.NDArray[Any]) -> None:
        """Add trunc(scale · gradient) of the records from `first` on."""
        self.product.add_truncated(scale, first, total_grid)
        self.tokens.add_truncated(scale, first, total_grid)

    def add_weighted(self, scale: Scale, total: torch.Tensor) -> None:
        """Add Σ_j scale_j · gradient_j in float64."""
        self.product.add_weighted(scale, total)
        self.tokens.add_weighted(scale, total)

    def add_to_units(
        self, rows: slice, weights: Scale, slots: Slots, place: int, sums: Scale
    ) -> None:
        """sums[slot, place:] += weight · gradient of some rows, in float64 and in their order."""
        self.product.add_to_units(rows, weights, slots, place, sums)
        self.tokens.add_to_units(rows, weights, slots, place, sums)

    def as_rows(self) -> torch.Tensor:
        """The gradients, stored."""
        return self.product.as_rows() + self.tokens.as_rows()
