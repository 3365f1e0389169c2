"""Stored Jacobians behind a public map: every row of J becomes P·row.

    B ⊗ [a, 1]   ↦   (B·L) ⊗ (R·[a, 1])        a fully connected layer, in factors still
    a table      ↦   P·row of every output

A move u in front of the map is Pᵀ·u of the parameters: J·Pᵀ·u = (P·Jᵀ)ᵀ·u.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from sumus.gradients.parts import Outer, Rows
from sumus.gradients.preconditioning import PublicMap
from sumus.gradients.stored_tangents import Floats, Product, Table

__all__ = ["mapped_parts", "tensors_of"]


def mapped_parts(
    parts: Sequence[Product | Table], mapped: PublicMap
) -> tuple[Product | Table, ...]:
    """Parts of J behind the map, as float32 like those in front of it, in the map's order."""
    return tuple(
        _mapped_product(part, mapped) if isinstance(part, Product) else _mapped_table(part, mapped)
        for part in _joined(parts)
    )


def tensors_of(outputs: Floats, parts: Sequence[Product | Table]) -> list[torch.Tensor]:
    """All stored numbers, records first."""
    arrays = [outputs]
    for part in parts:
        arrays += [part.left, part.right] if isinstance(part, Product) else [part.rows]
    return [torch.from_numpy(np.ascontiguousarray(array)) for array in arrays]


def _joined(parts: Sequence[Product | Table]) -> list[Product | Table]:
    """With neighbouring tables in one: a map takes a layer's weights together with its bias."""
    joined: list[Product | Table] = []
    for part in parts:
        last = joined[-1] if joined else None
        if isinstance(part, Table) and isinstance(last, Table):
            joined[-1] = Table(last.start, np.concatenate([last.rows, part.rows], axis=2))
        else:
            joined.append(part)
    return joined


def _mapped_product(part: Product, mapped: PublicMap) -> Product:
    left = torch.from_numpy(np.ascontiguousarray(part.left))
    right = torch.from_numpy(np.ascontiguousarray(part.right))
    moved = mapped.part(part.start, Outer(left.flatten(0, 1), right, bias=False))
    if not isinstance(moved, Outer):
        raise TypeError("a public map made a table of factors")
    return Product(
        part.start,
        _stored(moved.deltas.view(left.shape)),
        _stored(moved.inputs),
        bias=False,
    )


def _mapped_table(part: Table, mapped: PublicMap) -> Table:
    rows = torch.from_numpy(np.ascontiguousarray(part.rows))
    moved = mapped.part(part.start, Rows(rows.flatten(0, 1)))
    if not isinstance(moved, Rows):
        raise TypeError("a public map made factors of a table")
    return Table(part.start, _stored(moved.values.view(rows.shape)))


def _stored(tensor: torch.Tensor) -> Floats:
    numbers: Floats = tensor.float().double().numpy()
    return numbers
