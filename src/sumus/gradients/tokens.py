"""Gradients of tables in which tokens are looked up: the rows that a record touched, and no others.

    G[v] = Σ_{p: token_p = v} δ_p        positions of one token, added in float64 in their order

A record of T tokens touches at most T rows of a table that may have tens of thousands. They are
stored once, each with its place, so the squared norm is that of a stored row of T·width numbers,
and what holds for stored rows (`kernels`) holds for them: other coordinates are exactly zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np
import numpy.typing as npt
import torch

from sumus.gradients.kernels import compiled, row_norms2

__all__ = ["Tokens"]

Scale = npt.NDArray[np.float64]
Floats = npt.NDArray[np.floating[Any]]
Places = npt.NDArray[np.int64]


@final
@dataclass(frozen=True)
class Tokens:
    """The rows of a table that every record of a chunk touched.

    Args:
        values: (records, places, width), what the record adds to each of them; zeros beyond the
            record's last one.
        places: (records, places), their numbers in the table.
        rows: of the table.
    """

    values: torch.Tensor
    places: torch.Tensor
    rows: int

    @classmethod
    def of(cls, deltas: torch.Tensor, tokens: torch.Tensor, *, rows: int, padding: int) -> Self:
        """Add up the positions of each token.

        Guarantee: a record with a token outside of the table is not finite and contributes zero.

        Args:
            deltas: (records, positions, width), the gradient at what was looked up.
            tokens: (records, positions).
            rows: of the table.
            padding: a token whose row takes no gradient; −1: none.
        """
        values, places = torch.zeros_like(deltas), torch.zeros_like(tokens)
        _merge(
            deltas.contiguous().numpy(),
            tokens.contiguous().numpy(),
            rows,
            padding,
            values.numpy(),
            places.numpy(),
        )
        return cls(values, places, rows)

    @property
    def size(self) -> int:
        """Coordinates of one record's gradient."""
        return self.rows * self.values.shape[2]

    def tensors(self) -> list[torch.Tensor]:
        """What a record's gradient is computed from, records first."""
        return [self.values, self.places]

    def add_norms2(self, norms2: Scale) -> None:
        """Add squared norms of the first len(norms2) records."""
        row_norms2(self.values.flatten(1).numpy(), norms2)

    def add_truncated(self, scale: Scale, first: int, total_grid: npt.NDArray[Any]) -> None:
        """Add trunc(scale · gradient) of the records from `first` on."""
        records = slice(first, first + len(scale))
        _add_truncated(
            self.values.numpy()[records], self.places.numpy()[records], scale, total_grid
        )

    def add_weighted(self, scale: Scale, total: torch.Tensor) -> None:
        """Add Σ_j scale_j · gradient_j in float64."""
        _add_weighted(self.values.numpy(), self.places.numpy(), scale, total.numpy())

    def add_to_units(
        self, rows: slice, weights: Scale, slots: Places, place: int, sums: Scale
    ) -> None:
        """sums[slot, place:] += weight · gradient of some rows, in float64 and in their order."""
        values, places = self.values.numpy()[rows], self.places.numpy()[rows]
        _add_to_units(values, places, weights, slots, place, sums)

    def as_rows(self) -> torch.Tensor:
        """The gradients, stored."""
        dense = self.values.new_zeros(len(self.values), self.rows, self.values.shape[2])
        places = self.places[..., None].expand_as(self.values)
        return dense.scatter_add_(1, places, self.values).flatten(1)


@compiled
def _merge(
    deltas: Floats, tokens: Places, rows: int, padding: int, values: Floats, places: Places
) -> None:
    """Positions of one token become one entry, in the order in which tokens first occur."""
    positions, width = deltas.shape[1], deltas.shape[2]
    sums = np.zeros((positions, width))
    for record in range(len(tokens)):
        entries = 0
        for position in range(positions):
            token = tokens[record, position]
            if token == padding:
                continue
            if token < 0 or token >= rows:
                entries = 0
                values[record, :, :] = np.nan
                break
            entry = 0
            while entry < entries and places[record, entry] != token:
                entry += 1
            if entry == entries:
                places[record, entry] = token
                sums[entry, :] = 0.0
                entries += 1
            for index in range(width):
                sums[entry, index] += np.float64(deltas[record, position, index])
        for entry in range(entries):
            for index in range(width):
                values[record, entry, index] = sums[entry, index]


@compiled
def _add_truncated(
    values: Floats, places: Places, scale: Scale, total_grid: npt.NDArray[Any]
) -> None:
    """total += trunc(scale_j · entry) at the entry's place, in float64; records of scale 0 add
    nothing.
    """
    width = values.shape[2]
    for record in range(scale.size):
        factor = scale[record]
        if factor == 0.0:
            continue
        for entry in range(values.shape[1]):
            first = places[record, entry] * width
            for index in range(width):
                value = np.float64(values[record, entry, index]) * factor
                total_grid[first + index] += np.int64(value)


@compiled
def _add_weighted(values: Floats, places: Places, scale: Scale, total: Scale) -> None:
    """total += scale_j · entry at the entry's place in float64; records of scale 0 are left out, so
    that 0 · NaN cannot enter.
    """
    width = values.shape[2]
    for record in range(scale.size):
        factor = scale[record]
        if factor == 0.0:
            continue
        for entry in range(values.shape[1]):
            first = places[record, entry] * width
            for index in range(width):
                total[first + index] += np.float64(values[record, entry, index]) * factor


@compiled
def _add_to_units(
    values: Floats, places: Places, weights: Scale, slots: Places, place: int, sums: Scale
) -> None:
    """sums[slot_j, place:] += w_j · entry at the entry's place in float64, one row after the
    other.
    """
    width = values.shape[2]
    for record in range(slots.size):
        total, weight = sums[slots[record]], weights[record]
        for entry in range(values.shape[1]):
            first = place + places[record, entry] * width
            for index in range(width):
                total[first + index] += weight * np.float64(values[record, entry, index])
