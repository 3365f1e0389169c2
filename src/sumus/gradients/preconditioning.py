"""Public linear maps in front of clipping: a record's gradient g becomes P·g, which is clipped.

    released     Σ_j trunc(r/C · clip_C(P·g_j)) + noise
    decoded      Pᵀ·(released)                              in the order of the model's flat vector

P is made of public things before a record is touched (the round's model, made-up inputs, released
sums), so clip_C(P·g) has norm at most C whatever P is: nothing in the account changes
(docs/mathematics.md, theorem 16). Rounding errors of P·g lie in front of the clipping and cost
nothing either; what must hold is that a record's P·g depends on no other record, and `examination`
looks at the bits with the map in place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, Self, final

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

from sumus.gradients.parts import Outer, Rows

__all__ = ["Block", "KroneckerMap", "PublicMap", "SecondMoments", "blocks_of"]

Vector = npt.NDArray[np.float64]
# sides up to this long have a whole matrix, longer ones (vocabularies) a diagonal
LARGEST_SIDE: Final = 1024
_WIDTH: Final = 16  # matrix kernels treat rows of such multiples alike, wherever they lie


class PublicMap(Protocol):
    """A linear map P on per-record gradients that is public."""

    def part(self, start: int, part: Outer | Rows) -> Outer | Rows:
        """P on a stretch of every record's gradient.

        Args:
            start: where the stretch begins in the model's flat vector; it ends with a layer.
            part: in the order of the flat vector; what is returned has the same size, in an order
                of the map's own.
        """
        ...

    def transpose(self, released: Vector) -> Vector:
        """Pᵀ: from the map's order and scale to the model's flat vector."""
        ...


@final
@dataclass(frozen=True)
class Block:
    """A matrix of parameters in the flat vector, with a column for the bias that follows it.

    Args:
        start: of its weights.
        outputs, width: of the matrix; a vector without a matrix has one output.
        bias: whether a bias of `outputs` numbers follows.
    """

    start: int
    outputs: int
    width: int
    bias: bool

    @property
    def columns(self) -> int:
        """Of the matrix with its bias."""
        return self.width + int(self.bias)

    @property
    def size(self) -> int:
        """Parameters."""
        return self.outputs * self.columns

    def matrices(self, flat: torch.Tensor) -> torch.Tensor:
        """(…, outputs, columns) of stretches (…, size) in the order of the flat vector."""
        if not self.bias:
            return flat.reshape(*flat.shape[:-1], self.outputs, self.width)
        weights, bias = flat[..., : -self.outputs], flat[..., -self.outputs :, None]
        shape = (*flat.shape[:-1], self.outputs, self.width)
        return torch.cat([weights.reshape(shape), bias], -1)

    def flat(self, matrices: torch.Tensor) -> torch.Tensor:
        """The inverse of `matrices`."""
        weights = matrices[..., : self.width].flatten(-2)
        return torch.cat([weights, matrices[..., self.width]], -1) if self.bias else weights


def blocks_of(model: nn.Module) -> tuple[Block, ...]:
    """The parameters of a model that take a gradient, matrix by matrix, in flat order: weights of
    layers (a convolution's as outputs × the rest) with their bias, embeddings, projections of
    attention; what is no matrix (norms) as vectors.
    """
    named = [(name, each) for name, each in model.named_parameters() if each.requires_grad]
    blocks: list[Block] = []
    start = taken = 0
    for place, (name, each) in enumerate(named):
        if place < taken:
            continue
        after = named[place + 1] if place + 1 < len(named) else None
        bias = after is not None and each.dim() > 1 and _is_bias(name, each, *after)
        outputs = each.shape[0] if each.dim() > 1 else 1
        blocks.append(Block(start, outputs, each.numel() // outputs, bias))
        start += blocks[-1].size
        taken = place + 1 + int(bias)
    return tuple(blocks)


def _is_bias(name: str, weight: nn.Parameter, other: str, bias: nn.Parameter) -> bool:
    """Whether the second is the bias of the first: `layer.weight` and `layer.bias`, one number an
    output.
    """
    return bias.shape == weight.shape[:1] and other == name.removesuffix("weight") + "bias"


@final
class KroneckerMap:
    """P = ⊕ L_b ⊗ R_b over the matrices b of a model: g_b ↦ L_b·g_b·R_b.

    A fully connected layer's δ ⊗ [a, 1] becomes (L·δ) ⊗ (R·[a, 1]): no gradient is stored.

    Args:
        blocks: that tile the flat vector in order.
        sides: (L, R) for each, symmetric: a matrix, or a vector for a diagonal; float64.
    """

    def __init__(
        self, blocks: Sequence[Block], sides: Sequence[tuple[torch.Tensor, torch.Tensor]]
    ) -> None:
        self._blocks = tuple(blocks)
        self._sides = tuple(sides)
        self._singles = tuple(
            (_aligned(left.float()), _aligned(right.float())) for left, right in sides
        )
        self._at = {block.start: index for index, block in enumerate(self._blocks)}

    @classmethod
    def of_moments(
        cls,
        blocks: Sequence[Block],
        moments: Iterable[tuple[torch.Tensor, torch.Tensor]],
        *,
        damping: float,
    ) -> Self:
        """From second moments of gradients, E[g·gᵀ] and E[gᵀ·g] of each block:

        L = (E[g·gᵀ]/mean eigenvalue + damping)^(−1/2), and so R.

        Args:
            moments: a vector for a side with a diagonal; all zero: that side is left alone.
            damping: above zero, in mean eigenvalues; the larger, the closer to no map at all.
        """
        return cls(
            blocks, [(_root(left, damping), _root(right, damping)) for left, right in moments]
        )

    def part(self, start: int, part: Outer | Rows) -> Outer | Rows:
        """As `PublicMap.part`; outer products stay outer products."""
        first = self._at[start]
        if isinstance(part, Outer):
            left, right = self._singles[first]
            inputs = part.inputs
            if part.bias:
                inputs = functional.pad(inputs, (0, 1), value=1.0)
            return Outer(_times(part.deltas, left), _times(inputs, right), bias=False)
        pieces = []
        place = 0
        while place < part.size:
            index = self._at[start + place]
            block, (left, right) = self._blocks[index], self._singles[index]
            matrices = block.matrices(part.values[:, place : place + block.size])
            moved = _times(matrices, right).transpose(1, 2)
            pieces.append(_times(moved, left).transpose(1, 2).flatten(1))
            place += block.size
        return Rows(torch.cat(pieces, 1) if len(pieces) > 1 else pieces[0].contiguous())

    def transpose(self, released: Vector) -> Vector:
        """As `PublicMap.transpose`, in float64."""
        moved = np.empty(len(released))
        vector = torch.from_numpy(np.asarray(released, dtype=np.float64))
        for block, (left, right) in zip(self._blocks, self._sides, strict=True):
            stretch = slice(block.start, block.start + block.size)
            matrix = vector[stretch].view(block.outputs, block.columns)
            matrix = matrix @ right if right.dim() == 2 else matrix * right
            matrix = left @ matrix if left.dim() == 2 else left[:, None] * matrix
            moved[stretch] = block.flat(matrix).numpy()
        return moved


@final
class SecondMoments:
    """E[g·gᵀ] and E[gᵀ·g] of each block over made-up records.

    Args:
        blocks: that tile the flat vector in order.
    """

    def __init__(self, blocks: Sequence[Block]) -> None:
        self._blocks = tuple(blocks)
        self._at = {block.start: index for index, block in enumerate(self._blocks)}
        self._sides = [
            (_empty_side(block.outputs), _empty_side(block.columns, whole=block.outputs > 1))
            for block in self._blocks
        ]

    def add(self, start: int, part: Outer | Rows) -> None:
        """Add a stretch of every record's gradient, as `PublicMap.part` is given it."""
        if isinstance(part, Outer):
            left, right = self._sides[self._at[start]]
            deltas, inputs = part.deltas.double(), part.inputs.double()
            if part.bias:
                inputs = functional.pad(inputs, (0, 1), value=1.0)
            _add_squares(left, deltas * inputs.norm(dim=1, keepdim=True))
            _add_squares(right, inputs * deltas.norm(dim=1, keepdim=True))
            return
        place = 0
        while place < part.size:
            index = self._at[start + place]
            block, (left, right) = self._blocks[index], self._sides[index]
            matrices = block.matrices(part.values[:, place : place + block.size]).double()
            _add_squares(left, matrices.transpose(1, 2).flatten(0, 1))
            _add_squares(right, matrices.flatten(0, 1))
            place += block.size

    def sides(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """(E[g·gᵀ], E[gᵀ·g]) of each block, up to a factor; a vector where a side is too long for a
        matrix.
        """
        return self._sides


def _empty_side(size: int, *, whole: bool = True) -> torch.Tensor:
    """Zeros for a matrix, or for a diagonal where a side is long or the block a vector (norms)."""
    whole = whole and 1 < size <= LARGEST_SIDE
    return torch.zeros((size, size) if whole else (size,), dtype=torch.float64)


def _add_squares(side: torch.Tensor, rows: torch.Tensor) -> None:
    """side += rowsᵀ·rows, or its diagonal."""
    if side.dim() == 2:
        side.addmm_(rows.T, rows)
    else:
        side += rows.square().sum(0)


def _root(moment: torch.Tensor, damping: float) -> torch.Tensor:
    """(moment/mean eigenvalue + damping)^(−1/2) of a symmetric matrix or of a diagonal; where there
    is nothing, or nothing finite, no change. A matrix stays a matrix: the products that every
    round's map takes are those that were looked at in the first (`examination`).
    """
    whole = moment.dim() == 2
    mean = float(moment.diagonal().mean() if whole else moment.mean())
    if not (np.isfinite(mean) and mean > 0.0 and bool(torch.isfinite(moment).all())):
        ones = torch.ones(len(moment), dtype=torch.float64)
        return torch.diag(ones) if whole else ones
    scaled = moment.double() / mean
    if not whole:
        diagonal: torch.Tensor = (scaled.clamp_min(0.0) + damping) ** -0.5
        return diagonal
    spread, directions = torch.linalg.eigh((scaled + scaled.T) / 2)
    root: torch.Tensor = (directions * (spread.clamp_min(0.0) + damping) ** -0.5) @ directions.T
    return root


def _aligned(side: torch.Tensor) -> torch.Tensor:
    """A matrix with zeros around it up to a multiple of `_WIDTH`; a diagonal as it is."""
    beyond = -len(side) % _WIDTH
    return functional.pad(side, (0, beyond, 0, beyond)) if side.dim() == 2 else side


def _times(rows: torch.Tensor, side: torch.Tensor) -> torch.Tensor:
    """Every last axis times a symmetric matrix or a diagonal."""
    side = side.to(rows.dtype)
    if side.dim() == 1:
        return (rows * side).contiguous()
    width = rows.shape[-1]
    wide = functional.pad(rows, (0, len(side) - width)).flatten(0, -2)
    return (wide @ side)[:, :width].reshape(rows.shape).contiguous()
