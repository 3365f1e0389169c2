"""Second moments of a silo's records about their own mean, exactly, rounded once.

    z_j = trunc(q·x_j), t_j = trunc(q·y_j)                 integers, a function of one row
    S   = Σ ω_j·z_j·z_jᵀ − (Σ ω_j·z_j)·(Σ ω_j·z_j)ᵀ / Σ ω_j      and the same with t_j

Sums are integers below 2^53 in every block, so that the fast product of floats is exact; means are
divided out in integers of any length, and each coordinate is rounded to the grid at the end. So what
is rounded is the exact scatter of integer records, whatever their order.

Guarantee: rows are in the ball of radius q·R and targets within ±q·B, in integers (checked), and the
    weights ω of a unit add up to at most `ONE`; the result is within half a grid step of the exact
    one in every coordinate.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from sumus.errors import GuaranteeError

__all__ = ["ONE", "centred_moments"]

ONE: Final = 1 << 12
"""The weight of a whole unit."""
_FINENESS: Final = 1 << 12  # q
_ROWS: Final = 1 << 13  # of a block: 2^12 · (2^13)² · 2^13 = 2^51 at the most
_FRACTION: Final = 1 << 60

Integers = npt.NDArray[np.int64]


def centred_moments(
    x: npt.NDArray[np.float32],
    y: npt.NDArray[np.float64],
    weights: Integers,
    *,
    radius: float,
    target_bound: float,
    per_unit: float,
) -> Integers:
    """The upper triangle of S with off-diagonals times √2, and the rows of targets behind it.

    Args:
        x: (rows, features) without a bias feature; `y`: (rows, outputs).
        weights: ω, of each row.
        radius: R ≤ 2, of the ball that rows are in; `target_bound`: B ≤ 2, of every target vector.
        per_unit: grid steps that a real moment of 1 stands for.
    """
    inputs, targets = _on_grid(x, radius), _on_grid(y, target_bound)
    both = np.hstack([inputs, targets])
    features, width = x.shape[1], both.shape[1]
    upper = np.triu_indices(features)
    behind = (
        np.tile(np.arange(features), y.shape[1]),
        features + np.repeat(np.arange(y.shape[1]), features),
    )
    places = np.hstack([np.vstack(upper), np.vstack(behind)])
    total = int(weights.sum())
    if not total:
        return np.zeros(places.shape[1], dtype=np.int64)
    sums, products = np.zeros(width, np.int64), np.zeros((width, width), np.int64)
    for first in range(0, len(both), _ROWS):
        block = both[first : first + _ROWS]
        weighted = block * weights[first : first + _ROWS, None]
        sums += weighted.sum(axis=0).astype(np.int64)
        products += (block.T @ weighted).astype(np.int64)
    scale = math.floor(per_unit / (float(_FINENESS) ** 2 * ONE) * _FRACTION)
    off = math.floor(per_unit * math.sqrt(2.0) / (float(_FINENESS) ** 2 * ONE) * _FRACTION)
    found = []
    for a, b in places.T.tolist():
        exact = int(products[a, b]) * total - int(sums[a]) * int(sums[b])
        factor = off if a != b and b < features else scale
        # to the nearest: half a divisor more, then down
        found.append((2 * exact * factor + total * _FRACTION) // (2 * total * _FRACTION))
    return np.array(found, dtype=np.int64)


def _on_grid(values: npt.NDArray[np.floating], radius: float) -> npt.NDArray[np.float64]:
    """Whole numbers q·v towards zero, of length at most q·radius; what is longer is shortened, what
    is not finite counts as zero.
    """
    real = np.asarray(values, dtype=np.float64)
    real = np.where(np.isfinite(real).all(axis=1, keepdims=True), real, 0.0)
    largest = np.abs(real).max(axis=1, keepdims=True, initial=1.0)  # squares do not overflow
    lengths = np.sqrt(np.square(real / largest).sum(axis=1, keepdims=True)) * largest
    whole = np.trunc(real * (_FINENESS / np.maximum(lengths / radius, 1.0)) * (1.0 - 2.0**-40))
    squares = np.einsum("ij,ij->i", whole, whole)  # below 2^53, so exact
    if not (squares <= (_FINENESS * radius) ** 2).all():
        raise GuaranteeError("a row is longer than its bound in integers. This is a bug: tell us.")
    return np.asarray(whole)
