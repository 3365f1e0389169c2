"""Compiled loops that clip record gradients, put them on the integer grid and add them up.

Every loop treats one record after the other with the same instructions, so what a record
contributes depends on that record only, bit for bit. A record's gradient comes in one of two
shapes: a *row* of d floats, or an *outer product* δ ⊗ a of a fully connected layer, which is never
stored.

    scale_j = r / max(‖g_j‖, C) · (1 − 2^-20)            r = resolution, C = clip norm, norms in float64
    integers += trunc(scale_j · g_j)                       towards zero, so no coordinate grows

Guarantee: ‖trunc(scale_j · g_j)‖₂ ≤ r for every finite float gradient with d ≤ 2^28 coordinates and
    every C ≥ 1e-100; a record with a NaN or an infinity has scale 0 and contributes exactly zero.
    Proof: a coordinate that survives truncation has magnitude at least 1, so it and its factors are
    normal floats (of an outer product too, whose inputs have lengths between 2^-60 and 2^60 or are
    brought to length 1) and carry at most three relative errors of 2^-24 (float32 scale, factor and
    product; float64 errors are smaller); the norm is low by at most d·2^-53 ≤ 2^-25 relatively:
    squares of a row that underflow belong to coordinates below 1e-140, which truncate to zero, and
    a factor whose squares underflow makes the record count as not finite. (1 − 2^-20)(1 + 2^-24)³(1
    + 2^-24) < 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from sumus.files import compiled as _compiled

__all__ = [
    "LARGEST_DIMENSION",
    "SMALLEST_CLIP_NORM",
    "SMALLEST_SQUARE",
    "Singles",
    "add_linear_truncated",
    "add_outer_to_units",
    "add_outer_truncated",
    "add_rows_rounded",
    "add_rows_to_units",
    "add_rows_truncated",
    "add_rows_weighted",
    "compiled",
    "outer_norms2",
    "row_norms2",
    "run_pass",
    "scales",
    "to_capped_residual",
    "to_residuals",
]

Floats = npt.NDArray[np.floating]
Singles = npt.NDArray[np.float32]
LARGEST_DIMENSION = 1 << 28
SMALLEST_CLIP_NORM = 1e-100
SMALLEST_SQUARE = 1e-280  # a sum of squares below it may have lost digits to underflow
_SHRINK = 1.0 - 2.0**-20
# float32 scales must be normal numbers with room on both sides; outside this range the product is
# taken in float64
_SMALLEST_SCALE, _LARGEST_SCALE = 2.0**-100, 2.0**100
# between these |scale·δ| is at most r·2^60, and a factor of it that underflows makes products far
# below one grid step
_SHORTEST_INPUT, _LONGEST_INPUT = 2.0**-60, 2.0**60
# numbers of `sumus.tasks.Link`, written out: machine code is kept until this file changes
_SOFTMAX, _LOGISTIC, _HUBER, _EXPONENTIAL = 0, 1, 3, 4
_TOGETHER = 32  # records of a linear model that stay in cache from logits to integers


def compiled(function: Callable[..., Any]) -> Any:
    """Compile; sums may be reordered (vectorised), the same way for every record."""
    return _compiled(function, fastmath={"reassoc", "contract", "nsz"}, error_model="numpy")


@compiled
def row_norms2(rows: Floats, norms2: npt.NDArray[np.float64]) -> None:
    """Add each row's squared L2 norm, summed in float64, to `norms2` (NaN and inf propagate)."""
    for record in range(norms2.size):
        row = rows[record]
        total = 0.0
        for index in range(row.size):
            value = np.float64(row[index])
            total += value * value
        norms2[record] += total


@compiled
def outer_norms2(
    deltas: Floats,
    inputs: Floats,
    inputs2: npt.NDArray[np.float64],
    bias: bool,
    norms2: npt.NDArray[np.float64],
) -> None:
    """Add ‖δ ⊗ [a, 1]‖² = ‖δ‖²·(‖a‖² + 1) of each record to `norms2`; without bias ‖δ‖²·‖a‖².
    `inputs2` holds ‖a‖².
    """
    for record in range(norms2.size):
        delta2, input2 = 0.0, inputs2[record]
        for index in range(deltas.shape[1]):
            value = np.float64(deltas[record, index])
            delta2 += value * value
        norms2[record] += delta2 * (input2 + (1.0 if bias else 0.0))
        if (delta2 < SMALLEST_SQUARE and deltas[record].any()) or (
            input2 < SMALLEST_SQUARE and inputs[record].any()
        ):
            norms2[record] = np.inf


@compiled
def scales(
    norms2: npt.NDArray[np.float64],
    clip_norm: float,
    resolution: float,
    out: npt.NDArray[np.float64],
) -> tuple[int, int]:
    """Grid steps per unit of each record's gradient; 0 for a record that is not finite. Returns
    (clipped, non-finite) counts.
    """
    clipped, nonfinite = 0, 0
    for record in range(norms2.size):
        norm = np.sqrt(norms2[record])
        if not np.isfinite(norm):
            out[record] = 0.0
            nonfinite += 1
            continue
        if norm > clip_norm:
            clipped += 1
        out[record] = resolution / max(norm, clip_norm) * _SHRINK
    return clipped, nonfinite


@compiled
def add_rows_truncated(
    rows: Floats, scale: npt.NDArray[np.float64], total: npt.NDArray[np.int32]
) -> None:
    """total += trunc(scale_j · row_j) for every record j. The caller keeps records · r below
    2^31.
    """
    for record in range(scale.size):
        factor = scale[record]
        if factor == 0.0:
            continue
        row = rows[record]
        if _SMALLEST_SCALE < factor < _LARGEST_SCALE:
            narrow = np.float32(factor)
            for index in range(total.size):
                total[index] += np.int32(row[index] * narrow)
        else:
            for index in range(total.size):
                total[index] += np.int32(np.float64(row[index]) * factor)


@compiled
def add_outer_truncated(
    deltas: Floats,
    inputs: Floats,
    inputs2: npt.NDArray[np.float64],
    scale: npt.NDArray[np.float64],
    weight_total: npt.NDArray[np.int32],
    bias_total: npt.NDArray[np.int32],
) -> None:
    """weight_total += trunc(scale_j · δ_j ⊗ a_j), bias_total += trunc(scale_j · δ_j); an empty
    `bias_total` means no bias.

    Where a is very long or short (`inputs2` holds ‖a‖²) it is brought to unit length first and δ
    takes its length, so that no factor over- or underflows unless its product truncates to zero.
    """
    width, together = inputs.shape[1], 4  # records that share one pass over the totals
    units = np.zeros((together, width), inputs.dtype)
    steep = np.zeros(together, inputs.dtype)
    lengths = np.zeros(together)
    as_it_is = np.zeros(together, np.bool_)
    for first in range(0, scale.size, together):
        for slot in range(together):
            record = first + slot
            present = record < scale.size and scale[record] != 0.0
            length = np.sqrt(inputs2[record]) if present else 0.0
            as_it_is[slot] = _SHORTEST_INPUT < length < _LONGEST_INPUT
            lengths[slot] = 1.0 if as_it_is[slot] else length
            if not as_it_is[slot]:
                units[slot] = 0.0
            if not as_it_is[slot] and length > 0.0:
                units[slot] = inputs[record] / length
        row0 = inputs[first] if as_it_is[0] else units[0]
        row1 = inputs[first + 1] if as_it_is[1] else units[1]
        row2 = inputs[first + 2] if as_it_is[2] else units[2]
        row3 = inputs[first + 3] if as_it_is[3] else units[3]
        for output in range(deltas.shape[1]):
            for slot in range(together):
                record = first + slot
                steep[slot] = 0.0
                if record < scale.size and scale[record] != 0.0:
                    delta = np.float64(deltas[record, output]) * scale[record]
                    if bias_total.size:
                        bias_total[output] += np.int32(delta)
                    steep[slot] = delta * lengths[slot]
            weights = weight_total[output]
            steep0, steep1, steep2, steep3 = steep[0], steep[1], steep[2], steep[3]
            for index in range(width):
                weights[index] += (
                    np.int32(steep0 * row0[index])
                    + np.int32(steep1 * row1[index])
                    + np.int32(steep2 * row2[index])
                    + np.int32(steep3 * row3[index])
                )


@compiled
def _write_outputs(weights: Singles, bias: Singles, x: Singles, out: Singles) -> None:
    """out_j = W·x_j + b; every record goes through the same loop, four records and two outputs at a
    time, the last ones repeated.
    """
    last, last_output = len(x) - 1, len(weights) - 1
    for first in range(0, len(x), 4):
        record1, record2, record3 = min(first + 1, last), min(first + 2, last), min(first + 3, last)
        row0, row1, row2, row3 = x[first], x[record1], x[record2], x[record3]
        for output in range(0, len(weights), 2):
            other = min(output + 1, last_output)
            one, two = weights[output], weights[other]
            one0, one1, one2, one3 = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
            two0, two1, two2, two3 = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
            for index in range(one.size):
                one0 += one[index] * row0[index]
                one1 += one[index] * row1[index]
                one2 += one[index] * row2[index]
                one3 += one[index] * row3[index]
                two0 += two[index] * row0[index]
                two1 += two[index] * row1[index]
                two2 += two[index] * row2[index]
                two3 += two[index] * row3[index]
            out[first, output], out[first, other] = one0, two0
            out[record1, output], out[record1, other] = one1, two1
            out[record2, output], out[record2, other] = one2, two2
            out[record3, output], out[record3, other] = one3, two3
    if bias.size:
        for record in range(len(x)):
            for output in range(len(weights)):
                out[record, output] += bias[output]


@compiled
def to_residuals(deltas: Singles, y: npt.NDArray[Any], link: int) -> None:
    """From outputs z to the residuals μ(z) − y, in place: softmax, or each output by itself
    (logistic, exponential, Huber or identity). A row of `y` is a class, or a number for every
    output.
    """
    for record in range(len(deltas)):
        delta, label = deltas[record], y[record]
        if link == _SOFTMAX:
            largest, mass = delta[0], np.float32(0)
            for output in range(1, delta.size):
                largest = max(largest, delta[output])
            for output in range(delta.size):
                delta[output] = np.exp(delta[output] - largest)
                mass += delta[output]
            for output in range(delta.size):
                delta[output] /= mass
            delta[np.int64(label[0])] -= np.float32(1)
        elif link == _LOGISTIC:
            for k in range(delta.size):
                odds = np.float32(1) + np.exp(-delta[k])
                delta[k] = np.float32(1) / odds - np.float32(label[k])
        elif link == _EXPONENTIAL:
            for k in range(delta.size):
                if delta[k] > np.float32(0):
                    delta[k] = np.float32(0)
                delta[k] = np.exp(delta[k]) - np.float32(label[k])
        else:
            for k in range(delta.size):
                delta[k] = delta[k] - np.float32(label[k])
                # a residual that is not a number stays one, and its record adds nothing
                if link == _HUBER and delta[k] > np.float32(1):
                    delta[k] = np.float32(1)
                elif link == _HUBER and delta[k] < np.float32(-1):
                    delta[k] = np.float32(-1)


@compiled
def to_capped_residual(
    residual: npt.NDArray[np.float64], label: npt.NDArray[Any], link: int, cap: float
) -> None:
    """From the outputs of one record to its residual, in place: p − y with p = μ(z) where p_y ≥ 1 −
    cap, and otherwise the p that keeps it so; links of single outputs: μ(z) − y cut off at ± cap.
    """
    if link == _HUBER:
        for k in range(residual.size):
            residual[k] = min(max(residual[k] - label[k], -cap), cap)
        return
    if link == _LOGISTIC:
        for k in range(residual.size):
            residual[k] = min(max(1.0 / (1.0 + np.exp(-residual[k])) - label[k], -cap), cap)
        return
    if link == _EXPONENTIAL:
        for k in range(residual.size):
            residual[k] = min(max(np.exp(min(residual[k], 0.0)) - label[k], -cap), cap)
        return
    true = np.int64(label[0])
    # loops in place of max() and sum(), which take longer to compile than all the rest
    largest = residual[0]
    for k in range(1, residual.size):
        if residual[k] > largest or np.isnan(residual[k]):
            largest = residual[k]
    for k in range(residual.size):
        residual[k] = np.exp(residual[k] - largest)
    right = residual[true]
    residual[true] = 0.0
    others = 0.0
    for k in range(residual.size):
        others += residual[k]
    wrong = min(others / (others + right), cap)  # 1 − p_y
    for k in range(residual.size):
        residual[k] *= wrong / others if others > 0.0 else 0.0
    residual[true] = -wrong


@compiled
def to_capped_residuals(
    outputs: npt.NDArray[np.float64],
    y: npt.NDArray[Any],
    row_weights: npt.NDArray[np.float64],
    link: int,
    cap: float,
) -> None:
    """From the outputs of several rows to their residuals, in place, each times its weight; empty:
    every row counts once.
    """
    for row in range(len(outputs)):
        to_capped_residual(outputs[row], y[row], link, cap)
        if row_weights.size:
            for k in range(outputs.shape[1]):
                outputs[row, k] *= row_weights[row]


@compiled
def run_pass(
    weights: npt.NDArray[np.float64],
    x: Singles,
    y: npt.NDArray[Any],
    row_weights: npt.NDArray[np.float64],
    order: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    units: npt.NDArray[np.int64],
    link: int,
    step: float,
    decay: float,
    bin_cap: float,
    radius: float,
    residual_cap: float,
) -> None:
    """One noiseless pass of a linear model in place, a step per bin (`training.local.convex_pass`);
    `order[ends[s−1]:ends[s]]` are the rows of bin s, `units[s]` the records that they belong to.

    A row's gradient counts `row_weights` times; empty: every row is a record of its own. A row of
    `y` is a class, or a number for every output.
    """
    outputs, features = weights.shape
    gradient = np.zeros((outputs, features))
    residual = np.empty(outputs)
    begin = 0
    for place in range(ends.size):
        end, count = ends[place], units[place]
        gradient[:] = 0.0
        for position in range(begin, end):
            record = order[position]
            row = x[record]
            for k in range(outputs):
                logit = 0.0
                for f in range(features):
                    logit += weights[k, f] * row[f]
                residual[k] = logit
            to_capped_residual(residual, y[record], link, residual_cap)
            if row_weights.size:
                for k in range(outputs):
                    residual[k] *= row_weights[record]
            for k in range(outputs):
                for f in range(features):
                    gradient[k, f] += residual[k] * row[f]
        scale = step * min(1.0, bin_cap / count) if count else 0.0
        norm2 = 0.0
        for k in range(outputs):
            for f in range(features):
                moved = (1.0 - decay) * weights[k, f] - scale * gradient[k, f]
                weights[k, f] = moved
                norm2 += moved * moved
        if norm2 > radius * radius:
            shrink = radius / np.sqrt(norm2)
            for k in range(outputs):
                for f in range(features):
                    weights[k, f] *= shrink
        begin = end


@compiled
def add_linear_truncated(
    weights: Singles,
    bias: Singles,
    x: Singles,
    y: npt.NDArray[Any],
    link: int,
    class_weights: Singles,
    clip_norm: float,
    resolution: float,
    deltas: Singles,
    integers: npt.NDArray[np.int64],
) -> tuple[int, int]:
    """integers += Σ_j trunc(scale_j · δ_j ⊗ [x_j, 1]), added up in 32 bits; leaves δ behind and
    returns (clipped, non-finite) counts. δ counts `class_weights` of the label times; empty: once.
    """
    total = np.zeros(integers.size, np.int32)
    weight_total = total[: weights.size].reshape(weights.shape)
    clipped, nonfinite = 0, 0
    for first in range(0, len(x), _TOGETHER):
        rows, residuals = x[first : first + _TOGETHER], deltas[first : first + _TOGETHER]
        _write_outputs(weights, bias, rows, residuals)
        to_residuals(residuals, y[first : first + _TOGETHER], link)
        if class_weights.size:
            for place in range(len(residuals)):
                residuals[place] *= class_weights[np.int64(y[first + place, 0])]
        inputs2, norms2, scale = np.zeros(len(rows)), np.zeros(len(rows)), np.empty(len(rows))
        row_norms2(rows, inputs2)
        outer_norms2(residuals, rows, inputs2, bias.size > 0, norms2)
        counts = scales(norms2, clip_norm, resolution, scale)
        clipped += counts[0]
        nonfinite += counts[1]
        add_outer_truncated(residuals, rows, inputs2, scale, weight_total, total[weights.size :])
    for index in range(total.size):
        integers[index] += total[index]
    return clipped, nonfinite


@compiled
def add_rows_rounded(
    rows: Floats,
    scale: npt.NDArray[np.float64],
    words: npt.NDArray[np.uint32],
    longest2: int,
    total: npt.NDArray[np.int64],
    rejected: npt.NDArray[np.bool_],
) -> None:
    """total += stochastic rounding of scale_j · row_j, one 32-bit word a coordinate, unless its
    squared integer norm exceeds `longest2`.

    A coordinate goes up with probability ⌊2^32·fraction⌋·2^-32. Rejected records add nothing and
    are marked for fresh words.
    """
    rounded = np.empty(total.size, np.int64)
    for record in range(scale.size):
        rejected[record] = False
        factor = scale[record]
        if factor == 0.0:
            continue
        norm2 = np.int64(0)
        for index in range(total.size):
            value = np.float64(rows[record, index]) * factor
            floor = np.floor(value)
            up = np.float64(words[record, index]) < np.floor((value - floor) * 4294967296.0)
            integer = np.int64(floor) + (np.int64(1) if up else np.int64(0))
            rounded[index] = integer
            norm2 += integer * integer
        if norm2 > longest2:
            rejected[record] = True
        else:
            for index in range(total.size):
                total[index] += rounded[index]


@compiled
def add_rows_weighted(
    rows: Floats, scale: npt.NDArray[np.float64], total: npt.NDArray[np.float64]
) -> None:
    """total += scale_j · row_j in float64; records of scale 0 are left out, so that 0 · NaN cannot
    enter.
    """
    for record in range(scale.size):
        factor = scale[record]
        if factor == 0.0:
            continue
        for index in range(total.size):
            total[index] += np.float64(rows[record, index]) * factor


@compiled
def add_rows_to_units(
    rows: Floats,
    weights: npt.NDArray[np.float64],
    slots: npt.NDArray[np.int64],
    place: int,
    sums: npt.NDArray[np.float64],
) -> None:
    """sums[slots_j, place:] += w_j · row_j in float64, one row after the other."""
    for record in range(slots.size):
        row, weight = rows[record], weights[record]
        total = sums[slots[record]][place : place + row.size]
        for index in range(row.size):
            total[index] += weight * np.float64(row[index])


@compiled
def add_outer_to_units(
    deltas: Floats,
    inputs: Floats,
    bias: bool,
    weights: npt.NDArray[np.float64],
    slots: npt.NDArray[np.int64],
    place: int,
    sums: npt.NDArray[np.float64],
) -> None:
    """sums[slots_j, place:] += w_j · δ_j ⊗ [a_j, 1] in float64, one row after the other."""
    outputs, width = deltas.shape[1], inputs.shape[1]
    for record in range(slots.size):
        entered, total = inputs[record], sums[slots[record]]
        for output in range(outputs):
            steep = weights[record] * np.float64(deltas[record, output])
            first = place + output * width
            part = total[first : first + width]
            for index in range(width):
                part[index] += steep * np.float64(entered[index])
            if bias:
                total[place + outputs * width + output] += steep
