"""Convolutions, activations and maxima in a row, as one program for compiled loops: a record goes
through all of them and back before the next one, and stays in the fast memory of the processor.

    trunk = Trunk.of(layers)                        # how many of a chain's first layers are such
    kept, hidden = trunk.forward(x, weights)        # weights = trunk.weights(parameters)
    rows = trunk.rows(kept, flow, weights, x.shape) # per-record gradients of its parameters

What the layers make of a record lies in one row, each in a slot of its own, channels last and filled
up to whole lines of memory. `tiles` has the loops and the meaning of a step's numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, final

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

from sumus.gradients.tiles import (
    BACK,
    BACK_ROWS,
    BIAS,
    BIAS_AT,
    COLUMNS,
    CONVOLUTION,
    CORNERS,
    COUNT,
    FILL,
    FORWARD,
    FORWARD_ROWS,
    GRADIENT,
    GRADIENT_ROWS,
    KIND,
    LINE,
    MAXIMUM,
    NEEDED,
    OUTPUTS,
    POSITIONS,
    RELU,
    ROWS_AT,
    RUN,
    RUNS,
    SIGMOID,
    SIZE,
    SOURCE,
    TANH,
    TAPS,
    TARGET,
    TURNED,
    TURNED_WIDTH,
    WEIGHTS,
    WHERE,
    WIDTH,
    Sums,
    run_back,
    run_forward,
)
from sumus.gradients.windows import Window, channels_first, channels_last

__all__ = ["Trunk"]

_ACTIVATIONS: Final[dict[type[nn.Module], int]] = {
    nn.Tanh: TANH,
    nn.Sigmoid: SIGMOID,
    nn.ReLU: RELU,
}
_CONVOLUTIONS: Final = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_MAXIMA: Final = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)


@final
@dataclass(frozen=True)
class _Program:
    """The steps for records of one shape.

    Args:
        steps: a row of numbers each.
        tables: of all steps.
        kept: numbers of all slots.
        scratch: numbers that a step needs at most.
        out: where the last slot begins.
        positions: of the output.
        width: lanes of the output.
    """

    steps: npt.NDArray[np.int64]
    tables: npt.NDArray[np.int64]
    kept: int
    scratch: int
    out: int
    positions: tuple[int, ...]
    width: int


@final
class Trunk:
    """The first layers of a chain.

    Args:
        layers: convolutions across all channels, activations, maxima.
        dtype: of the numbers.
    """

    def __init__(self, layers: Sequence[nn.Module], dtype: torch.dtype) -> None:
        self._layers, self._lanes = tuple(layers), LINE // dtype.itemsize
        self._convolutions = [layer for layer in layers if isinstance(layer, _CONVOLUTIONS)]
        self.channels = self._convolutions[-1].out_channels
        self.size = sum(each.numel() for layer in layers for each in layer.parameters())
        self._programs: dict[tuple[int, ...], _Program] = {}

    @classmethod
    def of(cls, layers: Iterable[nn.Module], dtype: torch.dtype) -> tuple[Self | None, int]:
        """The trunk that a chain begins with, and how many layers it has."""
        first: list[nn.Module] = []
        for layer in layers:
            # two activations in one slot would forget what the first one made
            again = first and type(first[-1]) in _ACTIVATIONS and type(layer) in _ACTIVATIONS
            if not _known(layer) or again:
                break
            first.append(layer)
        if not any(isinstance(layer, _CONVOLUTIONS) for layer in first):
            return None, 0
        return cls(first, dtype), len(first)

    def weights(self, parameters: torch.Tensor) -> torch.Tensor:
        """What the loops multiply with, from the beginning of the flat vector: of every convolution
        (taps, outputs), (outputs, taps) and the bias, in whole lines.
        """
        pieces, start = [], 0
        for layer in self._convolutions:
            outputs, taps = layer.out_channels, layer.weight[0].numel()
            weight = parameters[start : start + outputs * taps].view(layer.weight.shape)
            start += outputs * taps
            below, right = -outputs % self._lanes, -taps % self._lanes
            back = functional.pad(weight.movedim(1, -1).flatten(1), (0, right, 0, below))
            bias = parameters.new_zeros(outputs + below)
            if layer.bias is not None:
                bias[:outputs] = parameters[start : start + outputs]
                start += outputs
            pieces += [back[:, :taps].t().flatten(), back.flatten(), bias]
        return torch.cat(pieces)

    def forward(self, x: torch.Tensor, weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What all layers made of each record, and (records, channels, sides …) of the last."""
        program = self._program(x.shape)
        kept = x.new_empty(len(x), program.kept)
        run_forward(
            channels_last(x).flatten(1).numpy(),
            kept.numpy(),
            program.steps,
            program.tables,
            weights.numpy(),
        )
        end = program.out + math.prod(program.positions) * program.width
        made = kept[:, program.out : end].view(len(x), *program.positions, program.width)
        return kept, channels_first(made[..., : self.channels])

    def rows(
        self, kept: torch.Tensor, flow: torch.Tensor, weights: torch.Tensor, shape: torch.Size
    ) -> torch.Tensor:
        """(records, parameters): weights in the order (taps, outputs), each with its bias behind it.

        Args:
            kept: by `forward`.
            flow: the loss gradient at its output.
            shape: of what entered.
        """
        program = self._program(shape)
        given = functional.pad(channels_last(flow), (0, program.width - self.channels))
        rows = flow.new_empty(len(flow), self.size)
        run_back(
            kept.numpy(),
            given.flatten(1).numpy(),
            program.steps,
            program.tables,
            weights.numpy(),
            program.out,
            program.scratch,
            rows.numpy(),
        )
        return rows

    def _program(self, shape: torch.Size) -> _Program:
        known = tuple(shape[1:])
        if known not in self._programs:
            self._programs[known] = _Writer(self._lanes).write(self._layers, known)
        return self._programs[known]


def _known(layer: nn.Module) -> bool:
    """Whether there are loops for a layer."""
    if isinstance(layer, _MAXIMA):
        return (
            not layer.ceil_mode and not layer.return_indices and not any(Window.of(layer).padding)
        )
    return type(layer) in _ACTIVATIONS or isinstance(layer, _CONVOLUTIONS)


class _Writer:
    """Writes a program, step after step."""

    def __init__(self, lanes: int) -> None:
        self._lanes = lanes
        self._steps: list[dict[int, int]] = []
        self._tables: list[npt.NDArray[np.int64]] = []
        self._length = self._kept = self._weights = self._rows = self._scratch = 0

    def write(self, layers: Sequence[nn.Module], shape: tuple[int, ...]) -> _Program:
        """For records of a shape, channels first."""
        channels, sides = shape[0], tuple(shape[1:])
        width, here = channels, -1  # where the last slot begins; −1: at the record itself
        for layer in layers:
            window = _nothing(sides) if type(layer) in _ACTIVATIONS else Window.of(layer)
            if here < 0 or any(window.padding):
                here = self._fill(window, sides, width, here)
            if isinstance(layer, _CONVOLUTIONS):
                here, sides = self._convolution(layer, sides, width, here)
                width = layer.out_channels + -layer.out_channels % self._lanes
            elif isinstance(layer, _MAXIMA):
                here, sides = self._maximum(window, sides, width, here)
            else:
                kind, size = _ACTIVATIONS[type(layer)], math.prod(sides) * width
                self._steps.append({KIND: kind, SOURCE: here, SIZE: size})
        first = next(step for step in self._steps if step[KIND] == CONVOLUTION)
        first[NEEDED] = 0  # nobody asks for the gradient at what enters the first of them
        steps = np.zeros((len(self._steps), COLUMNS), np.int64)
        for row, step in zip(steps, self._steps, strict=True):
            row[list(step)] = list(step.values())
        tables = np.concatenate(self._tables)
        return _Program(steps, tables, self._kept, self._scratch, here, sides, width)

    def _fill(self, window: Window, sides: tuple[int, ...], width: int, source: int) -> int:
        """Put a record, or what a layer made of it, between zeros."""
        tables = window.tables(sides, width)
        slot = self._slot(tables.size)
        step = {KIND: FILL, SOURCE: source, TARGET: slot, SIZE: tables.size}
        runs = {RUNS: self._table(tables.inside), COUNT: len(tables.inside)}
        self._steps.append(step | runs | {RUN: sides[-1] * width})
        return slot

    def _convolution(
        self, layer: Any, sides: tuple[int, ...], width: int, source: int
    ) -> tuple[int, tuple[int, ...]]:
        """Of what lies between zeros already."""
        tables = Window.of(layer).tables(sides, layer.in_channels, width)
        outputs, taps, positions = layer.out_channels, len(tables.taps), len(tables.corners)
        lanes, turned = outputs + -outputs % self._lanes, taps + -taps % self._lanes
        slot = self._slot(positions * lanes)
        out_at, taps_at = np.arange(positions) * lanes, np.arange(taps) * lanes
        forward = Sums.of(tables.corners, out_at, tables.taps, taps_at)
        gradient = Sums.of(tables.taps, taps_at, tables.corners, out_at)
        back = Sums.of(
            out_at, np.arange(positions) * turned, np.arange(lanes), np.arange(lanes) * turned
        )
        self._scratch = max(self._scratch, gradient.rows * lanes, back.rows * turned)
        step = {KIND: CONVOLUTION, SOURCE: source, TARGET: slot, WIDTH: lanes, SIZE: tables.size}
        step |= self._windows(tables.corners, tables.taps[:: tables.run]) | {RUN: tables.run}
        for names, sums in (
            ((FORWARD, FORWARD_ROWS), forward),
            ((GRADIENT, GRADIENT_ROWS), gradient),
            ((BACK, BACK_ROWS), back),
        ):
            step |= dict(zip(names, (self._table(sums.tables), sums.rows), strict=True))
        step |= {TAPS: taps, OUTPUTS: outputs, NEEDED: 1, TURNED_WIDTH: turned}
        step |= {WEIGHTS: self._weights, TURNED: self._weights + taps * lanes}
        step[BIAS] = step[TURNED] + lanes * turned
        self._weights = step[BIAS] + lanes
        step |= {ROWS_AT: self._rows, BIAS_AT: -1}
        self._rows += taps * outputs
        if layer.bias is not None:
            step[BIAS_AT] = self._rows
            self._rows += outputs
        self._steps.append(step)
        return slot, tables.positions

    def _maximum(
        self, window: Window, sides: tuple[int, ...], width: int, source: int
    ) -> tuple[int, tuple[int, ...]]:
        tables = window.tables(sides, width)
        size = len(tables.corners) * width
        step = {KIND: MAXIMUM, SOURCE: source, TARGET: self._slot(size), WHERE: self._slot(size)}
        step |= self._windows(tables.corners, tables.pixels)
        self._steps.append(step | {WIDTH: width, SIZE: tables.size})
        return step[TARGET], tables.positions

    def _windows(
        self, corners: npt.NDArray[np.int64], runs: npt.NDArray[np.int64]
    ) -> dict[int, int]:
        where = {CORNERS: self._table(corners), POSITIONS: len(corners)}
        return where | {RUNS: self._table(runs), COUNT: len(runs)}

    def _slot(self, size: int) -> int:
        """Room for so many numbers in a record's row."""
        self._kept += size
        return self._kept - size

    def _table(self, places: npt.NDArray[np.int64]) -> int:
        """Where these places begin among all tables."""
        self._tables.append(places)
        self._length += len(places)
        return self._length - len(places)


def _nothing(sides: tuple[int, ...]) -> Window:
    """A window of single pixels."""
    ones = (1,) * len(sides)
    return Window(ones, ones, (0,) * len(sides), ones)
