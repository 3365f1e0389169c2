"""Outputs and Jacobians of a chunk of records as numbers below public bounds, and what a step does
with them.

    stored = StoredChunk.within(outputs, parts, …)
    stored.moved(u, rows)                           # z_x + A_x·u
    stored.add_pulled(residuals, rows, gradient)    # + Σ A_xᵀ·r_x

All arithmetic is float64, in whatever order the machine's matrix products sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

__all__ = ["Measured", "Product", "StoredChunk", "Table"]

Floats = npt.NDArray[np.float64]


@final
@dataclass(frozen=True)
class Product:
    """J = B ⊗ a on a stretch of the flat vector: a layer's weights, and its bias behind them.

    Args:
        start: of the weights.
        left: B, (records, outputs, the layer's outputs).
        right: a, (records, the layer's inputs), with a one behind them for a bias.
        bias: whether there is one.
    """

    start: int
    left: Floats
    right: Floats
    bias: bool

    @property
    def size(self) -> int:
        """Parameters."""
        return int(self.left.shape[2] * self.right.shape[1])

    def finite(self) -> npt.NDArray[np.bool_]:
        """Whether a record's numbers are all finite."""
        found = np.isfinite(self.left).all(axis=(1, 2)) & np.isfinite(self.right).all(axis=1)
        return np.asarray(found)

    def first(self, count: int) -> Product:
        """Of the first records."""
        return Product(self.start, self.left[:count], self.right[:count], self.bias)

    def kept(self, finite: npt.NDArray[np.bool_], *, compared: bool) -> Product:
        """Zeros for all but these records; centred over the outputs if these are compared."""
        right = self.right if finite.all() else np.where(finite[:, None], self.right, 0.0)
        left = _kept(self.left, finite, compared=compared)
        return Product(self.start, left, right, self.bias)

    def gram(self) -> Floats:
        """J·Jᵀ of every record."""
        squares = np.einsum("ri,ri->r", self.right, self.right)
        table: Floats = (self.left @ self.left.transpose(0, 2, 1)) * squares[:, None, None]
        return table

    def apply(self, move: Floats, rows: slice) -> Floats:
        """J·u of some records."""
        inner = self.right[rows] @ self._matrix(move).T
        found: Floats = np.einsum("rko,ro->rk", self.left[rows], inner)
        return found

    def add_pulled(self, residuals: Floats, rows: slice, gradient: Floats) -> None:
        """gradient += Σ Jᵀ·r over some records."""
        deltas = np.einsum("rko,rk->ro", self.left[rows], residuals)
        matrix = deltas.T @ self.right[rows]
        outputs, width = matrix.shape
        width -= int(self.bias)
        middle = self.start + outputs * width
        gradient[self.start : middle] += matrix[:, :width].reshape(-1)
        if self.bias:
            gradient[middle : middle + outputs] += matrix[:, width]

    def _matrix(self, move: Floats) -> Floats:
        outputs, width = self.left.shape[2], self.right.shape[1] - int(self.bias)
        middle = self.start + outputs * width
        weights = move[self.start : middle].reshape(outputs, width)
        if not self.bias:
            return weights
        return np.concatenate([weights, move[middle : middle + outputs, None]], axis=1)


@final
@dataclass(frozen=True)
class Table:
    """J as it is on a stretch of the flat vector.

    Args:
        start: of the stretch.
        rows: (records, outputs, parameters).
    """

    start: int
    rows: Floats

    @property
    def size(self) -> int:
        """Parameters."""
        return int(self.rows.shape[2])

    def finite(self) -> npt.NDArray[np.bool_]:
        """Whether a record's numbers are all finite."""
        return np.asarray(np.isfinite(self.rows).all(axis=(1, 2)))

    def first(self, count: int) -> Table:
        """Of the first records."""
        return Table(self.start, self.rows[:count])

    def kept(self, finite: npt.NDArray[np.bool_], *, compared: bool) -> Table:
        """Zeros for all but these records; centred over the outputs if these are compared."""
        return Table(self.start, _kept(self.rows, finite, compared=compared))

    def gram(self) -> Floats:
        """J·Jᵀ of every record."""
        table: Floats = self.rows @ self.rows.transpose(0, 2, 1)
        return table

    def apply(self, move: Floats, rows: slice) -> Floats:
        """J·u of some records."""
        found: Floats = self.rows[rows] @ move[self.start : self.start + self.size]
        return found

    def add_pulled(self, residuals: Floats, rows: slice, gradient: Floats) -> None:
        """gradient += Σ Jᵀ·r over some records."""
        part = self.rows[rows]
        flat = residuals.reshape(-1) @ part.reshape(-1, self.size)
        gradient[self.start : self.start + self.size] += flat


@final
@dataclass(frozen=True)
class Measured:
    """z and J of a chunk's records, centred where outputs are compared and zero where they are not
    finite, and how long they are.

    Args:
        outputs: z, (records, outputs).
        parts: of J.
        reach: how far a unit residual reaches through J, at most (`_jacobian_reach`).
        length: ‖J‖_F, a hair longer.
        outputs_length: ‖z‖.
    """

    outputs: Floats
    parts: tuple[Product | Table, ...]
    reach: Floats
    length: Floats
    outputs_length: Floats

    @classmethod
    def of(cls, outputs: Floats, parts: tuple[Product | Table, ...], *, compared: bool) -> Measured:
        """Record by record.

        Args:
            compared: outputs count by their differences alone (softmax), so that what they have in
                common is taken out.
        """
        finite = np.asarray(np.isfinite(outputs).all(axis=1))
        for part in parts:
            finite = finite & part.finite()
        outputs = np.where(finite[:, None], outputs, 0.0)
        parts = tuple(part.kept(finite, compared=compared) for part in parts)
        if compared:
            outputs = outputs - outputs.mean(axis=1, keepdims=True)
        gram = sum((part.gram() for part in parts), np.zeros((1, 1, 1)))
        size = sum(part.size for part in parts)
        reach = _jacobian_reach(gram, numbers=size, compared=compared)
        length = np.sqrt(np.einsum("rkk->r", gram)) * (1.0 + 2.0**-30)
        return cls(outputs, parts, reach, length, np.linalg.norm(outputs, axis=1))


@final
@dataclass(frozen=True)
class StoredChunk:
    """z_x and A_x = s_x·J_x of the records of a chunk.

    Guarantee: a record's numbers follow from that record, the parameters and public bounds. With R
        the bound and up to a relative 2^-20: of a softmax no two rows of A_x are farther apart than
        √2·R and none is longer, otherwise ‖A_x‖ ≤ R; ‖A_x‖_F ≤ `whole_norm`; ‖z_x‖ ≤
        `outputs_norm`. A record whose numbers are not finite has zeros.

    Args:
        outputs: z, (records, outputs).
        scales: s.
        parts: of J, which tile the flat vector.
    """

    outputs: Floats
    scales: Floats
    parts: tuple[Product | Table, ...]

    @classmethod
    def within(
        cls,
        outputs: Floats,
        parts: tuple[Product | Table, ...],
        *,
        compared: bool,
        jacobian_norm: float,
        whole_norm: float,
        outputs_norm: float,
    ) -> StoredChunk:
        """Numbers brought below the bounds, record by record.

        Args:
            outputs: z.
            parts: of J.
            compared: see `Measured.of`.
        """
        whole = Measured.of(outputs, parts, compared=compared)
        most = np.maximum(whole.reach / jacobian_norm, whole.length / whole_norm)
        scales = 1.0 / np.maximum(most, 1.0)
        shrunk = np.minimum(1.0, outputs_norm / np.maximum(whole.outputs_length, outputs_norm))
        return cls(whole.outputs * shrunk[:, None], scales, whole.parts)

    def moved(self, move: Floats, rows: slice) -> Floats:
        """z + A·u of some records."""
        answers = sum((part.apply(move, rows) for part in self.parts), np.zeros(1))
        found: Floats = self.outputs[rows] + self.scales[rows, None] * answers
        return found

    def add_pulled(self, residuals: Floats, rows: slice, gradient: Floats) -> None:
        """gradient += Σ Aᵀ·r over some records."""
        scaled = residuals * self.scales[rows, None]
        for part in self.parts:
            part.add_pulled(scaled, rows, gradient)


def _kept(rows: Floats, finite: npt.NDArray[np.bool_], *, compared: bool) -> Floats:
    """Derivatives (records, outputs, …) with zeros for some records, and without what all outputs
    have in common.
    """
    kept = rows if finite.all() else np.where(finite[:, None, None], rows, 0.0)
    return kept - kept.mean(axis=1, keepdims=True) if compared else kept


def _jacobian_reach(gram: Floats, *, numbers: int, compared: bool) -> Floats:
    """An upper bound of how far a unit residual reaches through each record's J: ‖J‖, or for
    residuals that add up to zero the largest distance of two rows over √2, and the longest row.

    Entries of `gram` are good to a relative (numbers + 8)·2^-53 of the product of two rows' lengths;
    that much is added.
    """
    squares = np.einsum("rkk->rk", gram)
    slack = (8.0 * numbers + 256.0) * 2.0**-53 * squares.max(axis=1)
    if compared:
        apart = squares[:, :, None] + squares[:, None, :] - 2.0 * gram
        most = np.maximum(apart.max(axis=(1, 2)), squares.max(axis=1))
        longest: Floats = np.sqrt((most + slack) / 2.0)
        return longest
    # a symmetric matrix is no longer than its largest row of absolute values, nor than its trace
    rows = np.abs(gram).sum(axis=2).max(axis=1)
    bound: Floats = np.sqrt(np.minimum(rows, squares.sum(axis=1)) + slack * gram.shape[1])
    return bound
