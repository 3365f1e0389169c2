"""Products of matrices whose numbers are picked by tables of places: convolutions without patches.

    c[place_r, ·] = Σ_t a[row_r + step_t] · b[line_t, ·]  (+ start)

A convolution takes the pixel at `step_t` of the window at `row_r`; its weights' gradient is the same
sum with the two tables exchanged; a sum over the positions of a record has tables of equal distances.
Nothing is cut out of an image before.

A tile of a few rows and one line of memory of columns is kept in registers over the whole sum, which
compilers do not do by themselves: `_tile` spells it out. Every record is treated by itself, by the
same instructions in the same order wherever it lies, so its bits cannot depend on its company.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from sumus.files import compiled as _compiled

__all__ = [
    "LINE",
    "Sums",
    "add_pasted",
    "by_own_loops",
    "run_back",
    "run_forward",
    "write_products",
]

Floats = npt.NDArray[np.floating[Any]]
Places = npt.NDArray[np.int64]

LINE: Final = 64
"""Bytes of a line of memory: what a tile has of columns."""
_ROWS: Final = 5  # of a tile: with one more, machines with 16 registers run out of them
# kinds of steps of a program (`trunks`)
FILL, CONVOLUTION, MAXIMUM, TANH, SIGMOID, RELU = range(6)
# what a step's numbers mean: its slots in a row, lanes of the target, numbers of the source;
KIND, SOURCE, TARGET, WIDTH, SIZE = range(5)
# tables of windows, of runs of neighbours in them, the length of a run;
CORNERS, POSITIONS, RUNS, COUNT, RUN = range(5, 10)
# products of a convolution: forward, of its weights' gradient, back;
FORWARD, FORWARD_ROWS, GRADIENT, GRADIENT_ROWS, BACK, BACK_ROWS, TAPS = range(10, 17)
# where its weights lie, (taps, outputs) and turned round, and its bias; its outputs;
WEIGHTS, TURNED, TURNED_WIDTH, BIAS, OUTPUTS = range(17, 22)
# where its gradients go, whether the one at its input is needed; which number was largest
ROWS_AT, BIAS_AT, NEEDED, WHERE, COLUMNS = range(22, 27)
# tanh(x)/x as a quotient of polynomials in x², exact to 6e-9 up to where tanh rounds to one
_LARGEST = 7.905
_OVER0, _OVER1, _OVER2 = 0.999999994, 0.134503122, 0.00357861902
_OVER3, _OVER4 = 2.20167259e-05, 1.54178681e-08
_UNDER1, _UNDER2, _UNDER3, _UNDER4 = 0.467836402, 0.0261908374, 0.000342302585, 8.59489459e-07


def by_own_loops(tensor: torch.Tensor) -> bool:
    """Whether compiled loops can read a tensor; elsewhere torch's own operators stand in."""
    return tensor.device.type == "cpu"


class Sums(NamedTuple):
    """The tables of one product.

    Args:
        tables: rows, their places, steps and lines, one after the other.
        rows: how many, at least a tile of them; the last one is repeated to fill it.
        terms: steps, and as many lines.
    """

    tables: Places
    rows: int
    terms: int

    @classmethod
    def of(cls, rows: Places, places: Places, steps: Places, lines: Places) -> Sums:
        """Tables for c[place_r] = Σ_t a[row_r + step_t] · b[line_t]."""
        count = max(len(rows), _ROWS)
        filled = [
            np.append(each, np.repeat(each[-1:], count - len(each))) for each in (rows, places)
        ]
        return cls(np.concatenate([*filled, steps, lines]).astype(np.int64), count, len(steps))


def _tile_of(
    typing: Any,
    a: Any,
    a_start: Any,
    b: Any,
    b_start: Any,
    start: Any,
    start_at: Any,
    c: Any,
    c_start: Any,
    tables: Any,
    rows_at: Any,
    places_at: Any,
    steps_at: Any,
    lines_at: Any,
    terms: Any,
) -> Any:
    """c[c_start + place_r + lane] = Σ_t a[a_start + row_r + step_t] · b[b_start + line_t + lane] +
    start[start_at + lane] for the rows of a tile and all lanes of a line; arrays are flat.
    """
    arrays, lanes = (a, b, start, c), LINE // (a.dtype.bitwidth // 8)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        number, place = context.get_value_type(a.dtype), ir.IntType(64)
        vector = ir.VectorType(number, lanes)

        def data(position: int) -> Any:
            kind = signature.args[position]
            return context.make_array(kind)(context, builder, values[position]).data

        def at(pointer: Any, *offsets: Any) -> Any:
            for offset in offsets:
                pointer = builder.gep(pointer, [offset])
            return pointer

        def line_at(pointer: Any) -> Any:
            loaded = builder.load(builder.bitcast(pointer, vector.as_pointer()))
            loaded.align = a.dtype.bitwidth // 8
            return loaded

        def in_all_lanes(value: Any) -> Any:
            empty = ir.Constant(vector, ir.Undefined)
            zeros = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
            first = builder.insert_element(empty, value, ir.IntType(32)(0))
            return builder.shuffle_vector(first, empty, zeros)

        tables_data = data(8)
        picked, others = at(data(0), values[1]), at(data(2), values[3])
        corners = [
            at(picked, builder.load(at(tables_data, values[9], place(row)))) for row in range(_ROWS)
        ]
        steps, lines = at(tables_data, values[11]), at(tables_data, values[12])
        before = builder.block
        body, behind = builder.append_basic_block("terms"), builder.append_basic_block("sums")
        builder.branch(body)
        builder.position_at_end(body)
        term = builder.phi(place)
        term.add_incoming(place(0), before)
        sums = [builder.phi(vector) for _ in range(_ROWS)]
        step = builder.load(at(steps, term))
        other = line_at(at(others, builder.load(at(lines, term))))
        added = []
        for corner, total in zip(corners, sums, strict=True):
            total.add_incoming(ir.Constant(vector, [0.0] * lanes), before)
            each = in_all_lanes(builder.load(at(corner, step)))
            # one rounding where the machine can multiply and add at once
            product = builder.fmul(each, other, flags=("contract",))
            added.append(builder.fadd(total, product, flags=("contract",)))
            total.add_incoming(added[-1], body)
        following = builder.add(term, place(1))
        term.add_incoming(following, body)
        builder.cbranch(builder.icmp_signed("<", following, values[13]), body, behind)
        builder.position_at_end(behind)
        from_start, out = line_at(at(data(4), values[5])), at(data(6), values[7])
        for row, total in enumerate(added):
            there = at(out, builder.load(at(tables_data, values[10], place(row))))
            pointer = builder.bitcast(there, vector.as_pointer())
            builder.store(builder.fadd(total, from_start), pointer).align = a.dtype.bitwidth // 8
        return context.get_dummy_value()

    if any(array.dtype != a.dtype or array.layout != "C" or array.ndim != 1 for array in arrays):
        return None
    whole = types.int64
    return types.void(
        a, whole, b, whole, start, whole, c, whole, tables, whole, whole, whole, whole, whole
    ), generate


_tile: Any = intrinsic(_tile_of)


def compiled(function: Any) -> Any:
    """Compile; sums may be reordered (vectorised), the same way for every record."""
    return _compiled(function, fastmath={"reassoc", "contract", "nsz"}, error_model="numpy")


@compiled
def _add_up(
    a: Floats,
    a_start: int,
    b: Floats,
    b_start: int,
    start: Floats,
    start_at: int,
    c: Floats,
    c_start: int,
    width: int,
    tables: Places,
    at: int,
    rows: int,
    terms: int,
) -> None:
    """One product of one record, `width` lanes in whole lines; its tables begin at `at`."""
    lanes = 64 // a.itemsize
    for lane in range(0, width, lanes):
        for first in range(0, rows, 5):
            row = at + min(first, rows - 5)
            _tile(
                a,
                a_start,
                b,
                b_start + lane,
                start,
                start_at + lane,
                c,
                c_start + lane,
                tables,
                row,
                row + rows,
                at + 2 * rows,
                at + 2 * rows + terms,
                terms,
            )


@compiled
def write_products(
    a: Floats, b: Floats, start: Floats, c: Floats, tables: Places, rows: int, terms: int
) -> None:
    """c_j[place_r + lane] = Σ_t a_j[row_r + step_t] · b_j[line_t + lane] + start[lane], for every
    record j.

    Args:
        a, b, c: a row per record; `b` may have a single one for all.
        start: one number a lane, whole lines of them; as many lanes are written.
        tables, rows, terms: of `Sums`.
    """
    a_flat, b_flat, c_flat = a.reshape(-1), b.reshape(-1), c.reshape(-1)
    for record in range(len(c)):
        b_start = 0 if len(b) == 1 else record * b.shape[1]
        _add_up(
            a_flat,
            record * a.shape[1],
            b_flat,
            b_start,
            start,
            0,
            c_flat,
            record * c.shape[1],
            start.size,
            tables,
            0,
            rows,
            terms,
        )


@compiled
def _paste(
    patches: Floats, width: int, tables: Places, corners_at: int, corners: int,
    starts_at: int, starts: int, run: int, image: Floats, image_at: int,
) -> None:  # fmt: skip
    """image[corner_p + start_k + i] += patches[p, k·run + i]: patches are put back to where windows
    lie.
    """
    for position in range(corners):
        corner = image_at + tables[corners_at + position]
        for k in range(starts):
            here, there = corner + tables[starts_at + k], position * width + k * run
            pixels, patch = image[here : here + run], patches[there : there + run]
            for index in range(run):
                pixels[index] += patch[index]


@compiled
def add_pasted(
    a: Floats, b: Floats, tables: Places, rows: int, terms: int,
    places: Places, corners: int, run: int, images: Floats,
) -> None:  # fmt: skip
    """images_j[corner_p + start_k + i] += Σ_t a_j[row_p + step_t] · b[line_t + k·run + i], for every
    record j.

    Args:
        a: a row per record.
        b: (terms, whole lines of columns).
        tables, rows, terms: of `Sums`; places follow each other at the width of `b`.
        places: the windows' corners, then where each run of a window begins.
        corners: how many.
        run: numbers of a window that are neighbours in an image.
        images: flat, a row per record.
    """
    width = b.shape[1]
    patches, start = np.empty(rows * width, a.dtype), np.zeros(width, a.dtype)
    a_flat, b_flat = a.reshape(-1), b.reshape(-1)
    for record in range(len(images)):
        _add_up(
            a_flat,
            record * a.shape[1],
            b_flat,
            0,
            start,
            0,
            patches,
            0,
            width,
            tables,
            0,
            rows,
            terms,
        )
        _paste(
            patches, width, places, 0, corners, corners, places.size - corners, run,
            images[record], 0,
        )  # fmt: skip


@compiled
def _fill(numbers: Floats, begin: int, size: int) -> None:
    """Zeros; a loop, because slices that are assigned to take long to compile."""
    these = numbers[begin : begin + size]
    for index in range(size):
        these[index] = 0.0


@compiled
def _copy(source: Floats, here: int, target: Floats, there: int, size: int) -> None:
    """target[there + i] = source[here + i]."""
    given, taken = source[here : here + size], target[there : there + size]
    for index in range(size):
        taken[index] = given[index]


@compiled
def _curve(numbers: npt.NDArray[np.float32], half: float, rest: float) -> None:
    """numbers = half · tanh(half · numbers) + rest, to a few units of the last place; NaN stays."""
    largest = np.float32(_LARGEST)
    for index in range(numbers.size):
        value = numbers[index] * half
        value = largest if value > largest else value
        value = -largest if value < -largest else value
        square = value * value
        over, under = np.float32(_OVER4), np.float32(_UNDER4)
        over, under = over * square + np.float32(_OVER3), under * square + np.float32(_UNDER3)
        over, under = over * square + np.float32(_OVER2), under * square + np.float32(_UNDER2)
        over, under = over * square + np.float32(_OVER1), under * square + np.float32(_UNDER1)
        over, under = over * square + np.float32(_OVER0), under * square + np.float32(1.0)
        numbers[index] = value * over / under * half + rest


@compiled
def _activate(kind: int, numbers: Floats) -> None:
    """A function of single numbers, in place."""
    if kind == RELU:
        for index in range(numbers.size):
            numbers[index] = numbers[index] if not numbers[index] <= 0.0 else 0.0
    elif numbers.itemsize == 4:
        half = np.float32(1.0 if kind == TANH else 0.5)
        _curve(numbers, half, np.float32(1.0) - half)
    elif kind == TANH:
        for index in range(numbers.size):
            numbers[index] = np.tanh(numbers[index])
    else:
        for index in range(numbers.size):
            numbers[index] = 1.0 / (1.0 + np.exp(-numbers[index]))


@compiled
def _activate_back(kind: int, made: Floats, flow: Floats) -> None:
    """The gradient times the derivative, which follows from what was made."""
    one = made.dtype.type(1.0)
    for index in range(made.size):
        value = made[index]
        if kind == RELU:
            flow[index] = flow[index] if not value <= 0.0 else 0.0
        elif kind == TANH:
            flow[index] *= one - value * value
        else:
            flow[index] *= value * (one - value)


@compiled
def _larger(value: Any, number: Any, best: Any, where: Any) -> Any:
    """The larger of two numbers and which one it is; NaN counts as largest."""
    larger = (value > best) | (value != value)
    return (value, number) if larger else (best, where)


@compiled
def _maximum(row: Floats, step: Places, tables: Places) -> None:
    """The largest number under each window, channel by channel, and which one it was."""
    width, taps, last = step[WIDTH], step[RUNS], step[COUNT] - 1
    for position in range(step[POSITIONS]):
        corner = step[SOURCE] + tables[step[CORNERS] + position]
        here, there = step[TARGET] + position * width, step[WHERE] + position * width
        best, where = row[here : here + width], row[there : there + width]
        for k in range(0, last + 1, 4):  # four at once; the last one may be looked at again
            at1, at2, at3 = min(k + 1, last), min(k + 2, last), min(k + 3, last)
            corner0, corner1 = corner + tables[taps + k], corner + tables[taps + at1]
            corner2, corner3 = corner + tables[taps + at2], corner + tables[taps + at3]
            pixel0, pixel1 = row[corner0 : corner0 + width], row[corner1 : corner1 + width]
            pixel2, pixel3 = row[corner2 : corner2 + width], row[corner3 : corner3 + width]
            number0, number1 = np.float32(k), np.float32(at1)
            number2, number3 = np.float32(at2), np.float32(at3)
            for channel in range(width):
                largest, number = pixel0[channel], number0
                if k > 0:
                    largest, number = _larger(largest, number0, best[channel], where[channel])
                largest, number = _larger(pixel1[channel], number1, largest, number)
                largest, number = _larger(pixel2[channel], number2, largest, number)
                largest, number = _larger(pixel3[channel], number3, largest, number)
                best[channel], where[channel] = largest, number


@compiled
def _maximum_back(row: Floats, flow: Floats, step: Places, tables: Places) -> None:
    """Add each gradient to the number that was largest."""
    width = step[WIDTH]
    _fill(flow, step[SOURCE], step[SIZE])
    for position in range(step[POSITIONS]):
        corner = step[SOURCE] + tables[step[CORNERS] + position]
        here, there = step[TARGET] + position * width, step[WHERE] + position * width
        given, where = flow[here : here + width], row[there : there + width]
        for k in range(step[COUNT]):
            begin, number = corner + tables[step[RUNS] + k], np.float32(k)
            pixel = flow[begin : begin + width]
            for channel in range(width):
                pixel[channel] += given[channel] if where[channel] == number else 0.0


@compiled
def run_forward(
    x: Floats, kept: Floats, program: npt.NDArray[np.int64], tables: Places, weights: Floats
) -> None:
    """A trunk's layers (`trunks`), one record after the other; all that they make stays in `kept`."""
    flat = kept.reshape(-1)
    for record in range(len(kept)):
        row, begin = kept[record], record * kept.shape[1]
        for place in range(len(program)):
            step = program[place]
            kind, run = step[KIND], step[RUN]
            if kind == FILL:
                _fill(row, step[TARGET], step[SIZE])
                for k in range(step[COUNT]):
                    there = step[TARGET] + tables[step[RUNS] + k]
                    if step[SOURCE] < 0:
                        _copy(x[record], k * run, row, there, run)
                    else:
                        _copy(row, step[SOURCE] + k * run, row, there, run)
            elif kind == CONVOLUTION:
                _add_up(
                    flat, begin + step[SOURCE], weights, step[WEIGHTS], weights, step[BIAS],
                    flat, begin + step[TARGET], step[WIDTH], tables, step[FORWARD],
                    step[FORWARD_ROWS], step[TAPS],
                )  # fmt: skip
            elif kind == MAXIMUM:
                _maximum(row, step, tables)
            else:
                _activate(kind, row[step[SOURCE] : step[SOURCE] + step[SIZE]])


@compiled
def _convolution_back(
    kept: Floats, begin: int, flow: Floats, step: Places, tables: Places, weights: Floats,
    gradient: Floats, scratch: Floats, zeros: Floats,
) -> None:  # fmt: skip
    """The gradients of one record's weights and, if needed, of what entered."""
    width, outputs, delta = step[WIDTH], step[OUTPUTS], step[TARGET]
    direct = width == outputs  # else the lanes that fill a line up are cut off
    _add_up(
        kept, begin + step[SOURCE], flow, delta, zeros, 0, gradient if direct else scratch,
        step[ROWS_AT] if direct else 0, width, tables, step[GRADIENT], step[GRADIENT_ROWS],
        step[POSITIONS],
    )  # fmt: skip
    if not direct:
        for tap in range(step[TAPS]):
            for output in range(outputs):
                gradient[step[ROWS_AT] + tap * outputs + output] = scratch[tap * width + output]
    if step[BIAS_AT] >= 0:
        _fill(gradient, step[BIAS_AT], outputs)
        bias = gradient[step[BIAS_AT] : step[BIAS_AT] + outputs]
        for position in range(step[POSITIONS]):
            given = flow[delta + position * width : delta + position * width + outputs]
            for output in range(outputs):
                bias[output] += given[output]
    if step[NEEDED]:
        _fill(flow, step[SOURCE], step[SIZE])
        _add_up(
            flow, delta, weights, step[TURNED], zeros, 0, scratch, 0, step[TURNED_WIDTH], tables,
            step[BACK], step[BACK_ROWS], width,
        )  # fmt: skip
        _paste(
            scratch, step[TURNED_WIDTH], tables, step[CORNERS], step[POSITIONS], step[RUNS],
            step[COUNT], step[RUN], flow, step[SOURCE],
        )  # fmt: skip


@compiled
def run_back(
    kept: Floats, given: Floats, program: npt.NDArray[np.int64], tables: Places, weights: Floats,
    out: int, scratch_size: int, gradients: Floats,
) -> None:  # fmt: skip
    """Back through a trunk: the gradients of every record's weights, from those at its output.

    Args:
        kept: by `run_forward`.
        given: gradients at the trunk's output.
        out: where in a row of `kept` that output lies.
        scratch_size: of what a step makes on the way.
        gradients: a row per record, filled here.
    """
    flow, scratch = np.empty(kept.shape[1], kept.dtype), np.empty(scratch_size, kept.dtype)
    flat, zeros = kept.reshape(-1), np.zeros(scratch_size, kept.dtype)
    for record in range(len(kept)):
        row, begin = kept[record], record * kept.shape[1]
        _copy(given[record], 0, flow, out, given.shape[1])
        for place in range(len(program) - 1, -1, -1):
            step = program[place]
            kind, run = step[KIND], step[RUN]
            if kind == FILL:
                for k in range(step[COUNT] if step[SOURCE] >= 0 else 0):
                    here = step[TARGET] + tables[step[RUNS] + k]
                    _copy(flow, here, flow, step[SOURCE] + k * run, run)
            elif kind == CONVOLUTION:
                _convolution_back(
                    flat, begin, flow, step, tables, weights, gradients[record], scratch, zeros
                )
            elif kind == MAXIMUM:
                _maximum_back(row, flow, step, tables)
            else:
                numbers = slice(step[SOURCE], step[SOURCE] + step[SIZE])
                _activate_back(kind, row[numbers], flow[numbers])
