"""The compiled loop that adds up second moments of records in integers.

    φ(x, y) = ( x_a², √2·x_a·x_b for a < b, x_a·y_k ),      ‖φ‖² = ‖x‖⁴ + ‖x‖²·‖y‖²
    total  += trunc(r/C·Σ_j w_j·φ(x_j, y_j))                over the rows j of one unit of privacy

The symmetric matrix x·xᵀ is stored as its upper triangle, row by row, with off-diagonals times √2:
every coordinate then carries its own part of the length of x·xᵀ. There may be several matrices, of
which a row adds to one; the K rows x·y_k stand behind the last. Truncation is towards zero, so no
coordinate grows. Numbers of a row that are zero are passed over, which makes one-hot columns cheap.

Guarantee: whatever the rows of a unit hold, the integers that it adds have L2 norm at most r, which
    is checked in integers; they are a function of that unit alone, and sums of integers do not
    depend on their order. A row with a NaN or an infinity adds nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from sumus.files import compiled as _compiled

__all__ = ["add_moments"]

_ROOT = float(np.sqrt(2.0))
_SHRINK = 1.0 - 2.0**-40


def compiled(function: Callable[..., Any]) -> Any:
    """Compile; an overflow is an infinity and no error."""
    return _compiled(function, error_model="numpy")


@compiled
def _add_rounded(
    where: npt.NDArray[np.int64],
    real: npt.NDArray[np.float64],
    resolution: int,
    total: npt.NDArray[np.int64],
) -> None:
    """Add what one unit adds, towards zero and as much shorter as the resolution demands."""
    shrink = 1.0
    while True:
        norm2 = np.int64(0)
        for i in range(len(real)):
            step = np.int64(real[i] * shrink)
            norm2 += step * step
        if norm2 <= np.int64(resolution) * np.int64(resolution):
            break
        shrink *= _SHRINK * resolution / np.sqrt(np.float64(norm2))
    for i in range(len(real)):
        total[where[i]] += np.int64(real[i] * shrink)


@compiled
def add_moments(
    x: npt.NDArray[np.float32],
    y: npt.NDArray[np.float64],
    matrix: npt.NDArray[np.int64],
    edges: npt.NDArray[np.int64],
    weights: npt.NDArray[np.float64],
    matrices: int,
    longest: float,
    resolution: int,
    total: npt.NDArray[np.int64],
) -> tuple[int, int]:
    """Add the moments of all units to `total`; returns how many rows were shortened, and how many
    were not finite.

    Args:
        x: (rows, features), bias included; `y`: (rows, outputs).
        matrix: of each row, which of the `matrices` it adds to.
        edges: unit u has the rows edges[u] … edges[u + 1] − 1.
        weights: of each row in its unit, w_j ≥ 0, at most 1 in sum.
        longest: C, the real length that `resolution` grid steps stand for.
    """
    features, outputs = x.shape[1], y.shape[1]
    triangle = features * (features + 1) // 2
    behind = matrices * triangle
    places, values = np.empty(features, np.int64), np.empty(features)
    several = len(edges) - 1 < len(x)
    # of what a unit adds: where, how much, and where in this list a coordinate stands
    where, real = np.empty(len(total), np.int64), np.empty(len(total))
    slots = np.full(len(total) if several else 0, -1, np.int64)
    shortened, nonfinite = 0, 0
    for unit in range(len(edges) - 1):
        held = 0
        for row in range(edges[unit], edges[unit + 1]):
            there, inputs2, targets2 = 0, 0.0, 0.0
            for a in range(features):
                value = np.float64(x[row, a])
                if value != 0.0:
                    places[there], values[there] = a, value
                    there += 1
                    inputs2 += value * value
            for k in range(outputs):
                targets2 += y[row, k] * y[row, k]
            length = np.sqrt(inputs2 * inputs2 + inputs2 * targets2)
            if not length < np.inf:  # NaN fails too
                nonfinite += 1
                continue
            shortened += not length <= longest * (1.0 + 1e-5)
            factor = weights[row] * resolution / max(length, longest)
            for i in range(there):
                a = places[i]
                start = matrix[row] * triangle + a * features - a * (a - 1) // 2 - a
                for j in range(i, there + outputs):
                    if j < there:
                        place = start + places[j]
                        scaled = values[i] * values[j] * factor
                        scaled = scaled if i == j else scaled * _ROOT
                    else:
                        place = behind + (j - there) * features + a
                        scaled = values[i] * y[row, j - there] * factor
                    if several and slots[place] >= 0:
                        real[slots[place]] += scaled
                        continue
                    if several:
                        slots[place] = held
                    where[held], real[held] = place, scaled
                    held += 1
        _add_rounded(where[:held], real[:held], resolution, total)
        if several:
            slots[where[:held]] = -1
    return shortened, nonfinite
