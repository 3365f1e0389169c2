"""The compiled loop that adds up second moments of records in integers.

    φ(x, y) = ( x_a², √2·x_a·x_b for a < b, x_a·y_k ),      ‖φ‖² = ‖x‖⁴ + ‖x‖²·‖y‖²
    total  += trunc(r/C·φ)                                  towards zero, so no coordinate grows

The symmetric matrix x·xᵀ is stored as its upper triangle, row by row, with off-diagonals times √2,
and behind it the K rows x·y_k: every coordinate then carries its own part of the length of x·xᵀ.
Numbers of a record that are zero are passed over, which makes one-hot columns cheap.

Guarantee: whatever a record holds, the integers it adds have L2 norm at most r, which is checked in
    integers; they are a function of that record alone, and sums of integers do not depend on their
    order. A record with a NaN or an infinity adds nothing.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sumus.files import compiled

__all__ = ["add_moments"]

_ROOT = float(np.sqrt(2.0))
_SHRINK = 1.0 - 2.0**-40


def _add_moments(
    x: npt.NDArray[np.float32],
    y: npt.NDArray[np.float64],
    longest: float,
    resolution: int,
    total: npt.NDArray[np.int64],
) -> tuple[int, int]:
    """Add the moments of all records to `total`; returns how many were shortened, and how many were
    not finite.

    Args:
        x: (records, features), bias included; `y`: (records, outputs).
        longest: C, the real length that `resolution` grid steps stand for.
    """
    features, outputs = x.shape[1], y.shape[1]
    behind = features * (features + 1) // 2
    places, values = np.empty(features, np.int64), np.empty(features)
    steps = np.empty(behind + features * outputs, np.int64)
    shortened, nonfinite = 0, 0
    for record in range(len(x)):
        there, inputs2, targets2 = 0, 0.0, 0.0
        for a in range(features):
            value = np.float64(x[record, a])
            if value != 0.0:
                places[there], values[there] = a, value
                there += 1
                inputs2 += value * value
        for k in range(outputs):
            targets2 += y[record, k] * y[record, k]
        length = np.sqrt(inputs2 * inputs2 + inputs2 * targets2)
        if not length < np.inf:  # NaN fails too
            nonfinite += 1
            continue
        factor = resolution / max(length, longest)
        fits = length <= longest * (1.0 + 1e-5)
        while True:
            held, norm2 = 0, np.int64(0)
            for i in range(there):
                for j in range(i, there):
                    scaled = values[i] * values[j] * factor
                    step = np.int64(scaled if i == j else scaled * _ROOT)
                    steps[held] = step
                    norm2 += step * step
                    held += 1
                for k in range(outputs):
                    step = np.int64(values[i] * y[record, k] * factor)
                    steps[held] = step
                    norm2 += step * step
                    held += 1
            if norm2 <= np.int64(resolution) * np.int64(resolution):
                break
            factor *= _SHRINK * resolution / np.sqrt(np.float64(norm2))
        shortened += not fits
        held = 0
        for i in range(there):
            a = places[i]
            row = a * features - a * (a - 1) // 2 - a
            for j in range(i, there):
                total[row + places[j]] += steps[held]
                held += 1
            for k in range(outputs):
                total[behind + k * features + a] += steps[held]
                held += 1
    return shortened, nonfinite


add_moments = compiled(_add_moments, error_model="numpy")
"""`_add_moments` in machine code."""
