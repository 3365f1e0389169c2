"""One layer's per-record gradients of one chunk, in the cheapest form that its clipping needs.

    Outer       δ_j ⊗ [a_j, 1] of a fully connected layer: norm in closed form, never stored (`outer`)
    Rows        one stored gradient row per record: convolutions, and whatever `torch.func` returns
    Tokens      the rows of a table that a record touched (`tokens`)
    Tied        the same of a table that is multiplied with too (`tied`)
    Positions   Σ_p δ_jp ⊗ [a_jp, 1] kept as factors (tokens, pixels): ghost norms, for sums that are rounded once

All know their squared norms, can add themselves truncated record by record (not `Positions`) and
can add their weighted sum in float64. Vectors are laid out as weights, row by row, then bias.

Reference: ghost norms, Goodfellow 2015 (arXiv:1510.01799) and Li et al. 2022 (arXiv:2110.05679);
    book-keeping, Bu et al. 2023
(arXiv:2210.00038).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, final

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from sumus.gradients.kernels import (
    SMALLEST_SQUARE,
    add_rows_to_units,
    add_rows_truncated,
    add_rows_weighted,
    row_norms2,
)
from sumus.gradients.outer import Outer, add_contraction, weighted_factors
from sumus.gradients.tied import Tied
from sumus.gradients.tiles import LINE, Sums, by_own_loops, write_products
from sumus.gradients.tokens import Tokens

__all__ = [
    "ChunkGradients",
    "Outer",
    "Part",
    "Positions",
    "Rows",
    "Tied",
    "Tokens",
    "kept_as_factors",
    "products",
]

Scale = npt.NDArray[np.float64]
Slots = npt.NDArray[np.int64]

# Rounding errors of the ghost norm are below 2^-30 of (Σ_p ‖δ_p‖·‖a_p‖)²: fewer than 2^22
# operations of unit 2^-53 each.
_GHOST_ERROR2 = 2.0**-30
# A record whose positions cancel to less than 1/256 of their sizes is clipped as if they did not,
# which bounds the error of summing them.
_GHOST_FLOOR2 = 2.0**-16
# The error analysis of `Positions` counts operations up to this many positions.
_MOST_GHOST_POSITIONS = 1024
# Writing and reading back a stored gradient costs about as much as this many multiplications per
# coordinate.
_STORED_PASS_COST = 32


@final
@dataclass(frozen=True)
class Rows:
    """One stored gradient row per record."""

    values: torch.Tensor

    @property
    def size(self) -> int:
        """Coordinates of one record's gradient."""
        return self.values.shape[1]

    def tensors(self) -> list[torch.Tensor]:
        """What a record's gradient is computed from, records first."""
        return [self.values]

    def add_norms2(self, norms2: Scale) -> None:
        """Add squared norms of the first len(norms2) records."""
        row_norms2(self.values.numpy(), norms2)

    def add_truncated(self, scale: Scale, first: int, total_grid: npt.NDArray[np.int32]) -> None:
        """Add trunc(scale · gradient) of the records from `first` on."""
        add_rows_truncated(self.values.numpy()[first : first + len(scale)], scale, total_grid)

    def add_weighted(self, scale: Scale, total: torch.Tensor) -> None:
        """Add Σ_j scale_j · gradient_j in float64."""
        add_rows_weighted(self.values.numpy(), scale, total.numpy())

    def add_to_units(
        self, rows: slice, weights: Scale, slots: Slots, place: int, sums: Scale
    ) -> None:
        """sums[slot, place:] += weight · gradient of some rows, in float64 and in their order."""
        add_rows_to_units(self.values.numpy()[rows], weights, slots, place, sums)

    def as_rows(self) -> torch.Tensor:
        """The gradients, stored."""
        return self.values


@final
@dataclass(frozen=True)
class Positions:
    """Σ_p δ_jp ⊗ [a_jp, 1] with factors of shape (records, positions, ·); only for sums that are
    rounded once.
    """

    deltas: torch.Tensor
    inputs: torch.Tensor
    bias: bool

    @property
    def size(self) -> int:
        """Coordinates of one record's gradient."""
        return self.deltas.shape[2] * (self.inputs.shape[2] + int(self.bias))

    def tensors(self) -> list[torch.Tensor]:
        """What a record's gradient is computed from, records first."""
        return [self.deltas, self.inputs]

    def add_norms2(self, norms2: Scale) -> None:
        """Add upper bounds of the squared norms, tight to 2^-30 unless positions cancel almost
        completely.

        ‖Σ_p δ_p ⊗ ã_p‖² = Σ_pq ⟨δ_p, δ_q⟩·⟨ã_p, ã_q⟩ in float64, plus its own error bound, and at
        least (Σ_p ‖δ_p‖·‖ã_p‖ / 256)².
        """
        deltas, inputs = self.deltas[: len(norms2)].double(), self.inputs[: len(norms2)].double()
        delta_products = torch.bmm(deltas, deltas.transpose(1, 2))
        input_products = torch.bmm(inputs, inputs.transpose(1, 2)) + float(self.bias)
        ghost2 = (delta_products * input_products).sum((1, 2)).clamp_min(0.0)
        sizes = (
            delta_products.diagonal(dim1=1, dim2=2).sqrt()
            * input_products.diagonal(dim1=1, dim2=2).sqrt()
        )
        size2 = sizes.sum(1).square()
        norms2 += torch.maximum(ghost2 + _GHOST_ERROR2 * size2, _GHOST_FLOOR2 * size2).numpy()
        for factor in (deltas, inputs):  # squares that underflowed: the record counts as not finite
            lost = (factor.square().sum(2) < SMALLEST_SQUARE) & (factor != 0.0).any(2)
            norms2[lost.any(1).numpy()] = np.inf

    def add_weighted(self, scale: Scale, total: torch.Tensor) -> None:
        """Add Σ_j scale_j · gradient_j in float64."""
        deltas, inputs = weighted_factors(self.deltas, self.inputs, scale)
        add_contraction(deltas.flatten(0, 1), inputs.flatten(0, 1), self.bias, total)

    def add_to_units(
        self, rows: slice, weights: Scale, slots: Slots, place: int, sums: Scale
    ) -> None:
        """sums[slot, place:] += weight · gradient of some rows, in float64 and in their order."""
        Rows(self.as_rows()).add_to_units(rows, weights, slots, place, sums)

    def as_rows(self) -> torch.Tensor:
        """The gradients, stored."""
        weights = torch.bmm(self.deltas.transpose(1, 2), self.inputs).flatten(1)
        return torch.cat([weights, self.deltas.sum(1)], dim=1) if self.bias else weights


Part = Outer | Rows | Tokens | Tied | Positions


def kept_as_factors(positions: int, width: int, outputs: int) -> bool:
    """Whether factors over positions cost less than stored rows, where sums are rounded once."""
    # multiplications per record: products among positions and a sum, both in float64, against one
    # gradient and passes over it
    ghost_cost = 2 * positions * (positions * (width + outputs) + width * outputs)
    cheaper = ghost_cost < (positions + _STORED_PASS_COST) * width * outputs
    return cheaper and positions <= _MOST_GHOST_POSITIONS


def products(deltas: torch.Tensor, inputs: torch.Tensor, *, bias: bool, ghost: bool) -> list[Part]:
    """Σ_p δ_jp ⊗ [a_jp, 1] in the form that costs least: factors, or stored rows.

    Args:
        deltas: (records, positions, outputs).
        inputs: (records, positions, width).
        ghost: whether factors over positions may be kept, for sums that are rounded once.
    """
    if ghost and kept_as_factors(deltas.shape[1], inputs.shape[2], deltas.shape[2]):
        return [Positions(deltas, inputs, bias)]
    weights = Rows(_summed_products(deltas, inputs))
    return [weights, Rows(deltas.sum(1))] if bias else [weights]


def _summed_products(deltas: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
    """(records, outputs · width) of Σ_p δ_jp ⊗ a_jp."""
    if not by_own_loops(deltas):
        return torch.bmm(deltas.transpose(1, 2), inputs).flatten(1)
    (records, positions, outputs), width = deltas.shape, inputs.shape[2]
    surplus = -width % (LINE // inputs.element_size())
    wide = width + surplus
    entered = functional.pad(inputs, (0, surplus)) if surplus else inputs.contiguous()
    rows = deltas.new_empty(records, outputs * wide)
    rows_at, terms = np.arange(outputs), np.arange(positions)
    write_products(
        deltas.contiguous().flatten(1).numpy(),
        entered.flatten(1).numpy(),
        np.zeros(wide, rows.numpy().dtype),
        rows.numpy(),
        *Sums.of(rows_at, rows_at * wide, terms * outputs, terms * wide),
    )
    return rows.view(records, outputs, wide)[..., :width].flatten(1)


class ChunkGradients(Protocol):
    """The gradients of one chunk of records at bound parameters."""

    def __call__(self, x: torch.Tensor, y: torch.Tensor, *, ghost: bool) -> list[Part]: ...
