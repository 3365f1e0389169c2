"""Convolutions over lines, images and volumes, one record after the other: forward, back, and the
gradient of the weights of every record.

Numbers lie with channels last. On the processor all three are sums over tables of places (`tiles`),
without patches; on other devices patches are cut out and torch's own products are taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, final

import numpy as np
import torch
from torch.nn import functional

from sumus.gradients.tiles import LINE, Sums, add_pasted, by_own_loops, write_products
from sumus.gradients.windows import Tables, Window, channels_first, channels_last

__all__ = [
    "Convolution",
    "ConvolutionWeights",
    "outputs_first",
    "outputs_last",
    "weight_gradients",
]

_DEVICE_SIDES: Final = 2  # torch puts patches back together for images only


class ConvolutionWeights(NamedTuple):
    """The weights of a convolution as products take them, outputs filled up to whole lines.

    Args:
        forward: (taps, outputs).
        back: (outputs, taps), taps filled up too.
        bias: zeros where there is none.
    """

    forward: torch.Tensor
    back: torch.Tensor
    bias: torch.Tensor


@final
@dataclass(frozen=True)
class Convolution:
    """A convolution across all channels.

    Args:
        window: that slides over a record.
        channels: that enter.
        outputs: that leave.
    """

    window: Window
    channels: int
    outputs: int

    @property
    def taps(self) -> int:
        """Numbers under the window."""
        return math.prod(self.window.kernel) * self.channels

    @property
    def on_devices(self) -> bool:
        """Whether other devices than the processor can compute it."""
        return len(self.window.kernel) == _DEVICE_SIDES and set(self.window.dilation) == {1}

    def weights(self, weight: torch.Tensor, bias: torch.Tensor | None) -> ConvolutionWeights:
        """From torch's layout (outputs, channels, sides …)."""
        line = LINE // weight.element_size()
        matrix = weight.movedim(1, -1).flatten(1)
        below, right = -self.outputs % line, -self.taps % line
        back = functional.pad(matrix, (0, right, 0, below)).contiguous()
        filled = back.new_zeros(len(back))
        if bias is not None:
            filled[: self.outputs] = bias
        return ConvolutionWeights(back[:, : self.taps].t().contiguous(), back, filled)

    def forward(
        self, images: torch.Tensor, weights: ConvolutionWeights
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(records, numbers) of images that are filled up, and (records, outputs, sides …)."""
        pixels = self.window.filled(channels_last(images))
        tables, entered = self._tables(images), pixels.flatten(1)
        width = weights.forward.shape[1]
        positions = len(tables.corners)
        if by_own_loops(images):
            made = entered.new_empty(len(entered), positions * width)
            write_products(
                entered.numpy(),
                weights.forward.reshape(1, -1).numpy(),
                weights.bias.numpy(),
                made.numpy(),
                *_forward(tables, width),
            )
        else:
            made = torch.addmm(weights.bias, tables.patches(entered).flatten(0, 1), weights.forward)
        made = made.view(len(entered), *tables.positions, width)
        return entered, channels_first(made[..., : self.outputs])

    def back(
        self, flow: torch.Tensor, weights: ConvolutionWeights, sides: tuple[int, ...]
    ) -> torch.Tensor:
        """The gradient at the input from the one at the output.

        Args:
            flow: (records, outputs, sides …).
            sides: of what entered.
        """
        tables = self.window.tables(sides, self.channels)
        deltas = self._wide(flow, weights.back.shape[0])
        if by_own_loops(flow):
            images = deltas.new_zeros(len(flow), tables.size)
            add_pasted(
                deltas.flatten(1).numpy(),
                weights.back.numpy(),
                *_back(tables, *weights.back.shape),
                np.concatenate([tables.corners, tables.taps[:: tables.run]]),
                len(tables.corners),
                tables.run,
                images.numpy(),
            )
            pixels = images.view(len(flow), *tables.shape)
            return channels_first(self.window.cropped(pixels))
        patches = (deltas @ weights.back)[..., : self.taps]
        entries = patches.view(*patches.shape[:2], -1, self.channels)
        columns = entries.permute(0, 3, 2, 1).flatten(1, 2)
        window = self.window
        return functional.fold(
            columns, sides, window.kernel, padding=window.padding, stride=window.stride
        )

    def weight_rows(
        self, entered: torch.Tensor, flow: torch.Tensor, sides: tuple[int, ...]
    ) -> torch.Tensor:
        """(records, taps · outputs): the gradient of every record's weights, outputs last.

        Args:
            entered: what `forward` returned.
            flow: the gradient at its outputs.
            sides: of what entered `forward`.
        """
        tables = self.window.tables(sides, self.channels)
        line = LINE // flow.element_size()
        deltas = self._wide(flow, self.outputs + -self.outputs % line)
        records, _, width = deltas.shape
        if by_own_loops(flow):
            rows = deltas.new_empty(records, self.taps * width)
            write_products(
                entered.numpy(),
                deltas.flatten(1).numpy(),
                np.zeros(width, rows.numpy().dtype),
                rows.numpy(),
                *_gradient(tables, width),
            )
        else:
            rows = torch.bmm(tables.patches(entered).transpose(1, 2), deltas).flatten(1)
        if width == self.outputs:
            return rows
        return rows.view(records, self.taps, width)[..., : self.outputs].flatten(1)

    def in_model_order(self, rows: torch.Tensor) -> torch.Tensor:
        """Rows of gradients from (taps, outputs) to torch's (outputs, channels, sides …)."""
        return outputs_first(rows, (self.outputs, self.channels, self.taps // self.channels))

    def patches(self, entered: torch.Tensor, sides: tuple[int, ...]) -> torch.Tensor:
        """(records, positions, taps) of what `forward` returned."""
        return self.window.tables(sides, self.channels).patches(entered)

    def _tables(self, images: torch.Tensor) -> Tables:
        return self.window.tables(images.shape[2:], self.channels)

    def _wide(self, flow: torch.Tensor, width: int) -> torch.Tensor:
        """(records, positions, whole lines of outputs)."""
        deltas = channels_last(flow).flatten(1, -2)
        return functional.pad(deltas, (0, width - self.outputs)) if width > self.outputs else deltas


def weight_gradients(window: Window, images: torch.Tensor, flow: torch.Tensor) -> torch.Tensor:
    """(records, sides … · channels · outputs): the gradient of every record's weights, outputs last.

    Args:
        images: (records, channels, sides …) that entered.
        flow: (records, outputs, sides …), the gradient at the outputs.
    """
    convolution = Convolution(window, images.shape[1], flow.shape[1])
    entered = window.filled(channels_last(images)).flatten(1)
    return convolution.weight_rows(entered, flow, tuple(images.shape[2:]))


def outputs_first(rows: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Rows of gradients from (sides …, channels, outputs) to torch's (outputs, channels, sides …).

    Args:
        shape: of the weights, in torch's order.
    """
    outputs, channels = shape[:2]
    return rows.view(len(rows), -1, channels, outputs).permute(0, 3, 2, 1).flatten(1)


def outputs_last(rows: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """The inverse of `outputs_first`."""
    outputs, channels = shape[:2]
    return rows.view(len(rows), outputs, channels, -1).permute(0, 3, 2, 1).flatten(1)


def _forward(tables: Tables, width: int) -> Sums:
    """Pixels under each window times weights."""
    positions, taps = len(tables.corners), len(tables.taps)
    return Sums.of(
        tables.corners, np.arange(positions) * width, tables.taps, np.arange(taps) * width
    )


def _gradient(tables: Tables, width: int) -> Sums:
    """Pixels under each window times gradients at its output."""
    positions, taps = len(tables.corners), len(tables.taps)
    return Sums.of(
        tables.taps, np.arange(taps) * width, tables.corners, np.arange(positions) * width
    )


def _back(tables: Tables, outputs: int, taps: int) -> Sums:
    """Gradients at the outputs times weights: patches, one after the other."""
    positions, terms = np.arange(len(tables.corners)), np.arange(outputs)
    return Sums.of(positions * outputs, positions * taps, terms, terms * taps)
