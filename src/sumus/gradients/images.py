"""Convolution and maximum over images with channels last, as compiled loops over one image after
the other.

A convolution becomes a matrix product with its patches, which are what its per-record gradients are
made of anyway: they are cut out once and used twice. Each image is treated by the same instructions
wherever it lies in its batch.
"""

from __future__ import annotations

from typing import Any, NamedTuple, final

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from sumus.gradients.kernels import compiled

__all__ = ["Convolution", "Maximum", "Window", "aligned", "by_own_loops"]

Pixels = npt.NDArray[np.floating]
_ALIGNED_WIDTH = 16  # float32 numbers in 64 bytes; matrix kernels treat rows that start there alike


class Window(NamedTuple):
    """What slides over an image, in pixels, height before width."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]

    def positions(self, height: int, width: int) -> tuple[int, int]:
        """How often the window fits."""
        sides = zip((height, width), self.kernel, self.stride, self.padding, strict=True)
        down, right = (
            (side + 2 * padding - kernel) // stride + 1 for side, kernel, stride, padding in sides
        )
        return down, right


def _cut(pixels: torch.Tensor, window: Window) -> torch.Tensor:
    """(images, rows, columns, height · width · channels): the pixels under the window, zeros beyond
    the edge.
    """
    above, left = window.padding
    pixels = functional.pad(pixels, (0, 0, left, left, above, above)) if above or left else pixels
    images, height, width, channels = pixels.shape
    rows, columns = Window(window.kernel, window.stride, (0, 0)).positions(height, width)
    image, row, column, _ = pixels.stride()
    # a line of a patch is one run of memory, so this is one fast copy (`contiguous`: windows of one
    # line overlap without one)
    shape = (images, rows, columns, window.kernel[0], window.kernel[1] * channels)
    lines = pixels.as_strided(
        shape, (image, row * window.stride[0], column * window.stride[1], row, 1)
    )
    return lines.reshape(images, rows, columns, -1).contiguous()


@compiled
def _paste(patches: Pixels, kernel: Any, stride: Any, padding: Any, image: Pixels) -> None:
    """Add patches back to where they were cut from; the transpose of `_cut`."""
    images, height, width, channels = image.shape
    run = kernel[1] * channels
    for record in range(images):
        for row in range(patches.shape[1]):
            for column in range(patches.shape[2]):
                patch = patches[record, row, column]
                left = column * stride[1] - padding[1]
                for k in range(kernel[0]):
                    y = row * stride[0] - padding[0] + k
                    start = k * run
                    if y < 0 or y >= height:
                        continue
                    if left >= 0 and left + kernel[1] <= width:
                        line = image[record, y, left : left + kernel[1]].reshape(-1)
                        for index in range(run):
                            line[index] += patch[start + index]
                    else:
                        for x in range(kernel[1]):
                            if 0 <= left + x < width:
                                for channel in range(channels):
                                    image[record, y, left + x, channel] += patch[
                                        start + x * channels + channel
                                    ]


@compiled
def _maximum(
    image: Pixels, kernel: Any, stride: Any, largest: Pixels, place: npt.NDArray[np.int32]
) -> None:
    """The largest pixel under the window, channel by channel, and which one it was; NaN counts as
    largest.
    """
    for record in range(image.shape[0]):
        for row in range(largest.shape[1]):
            for column in range(largest.shape[2]):
                best, where = largest[record, row, column], place[record, row, column]
                corner = image[record, row * stride[0], column * stride[1]]
                for channel in range(best.size):
                    best[channel] = corner[channel]
                    where[channel] = 0
                for k in range(1, kernel[0] * kernel[1]):
                    pixel = image[
                        record, row * stride[0] + k // kernel[1], column * stride[1] + k % kernel[1]
                    ]
                    here = np.int32(k)
                    for channel in range(best.size):
                        value, so_far = pixel[channel], best[channel]
                        larger = (value > so_far) | (value != value)
                        best[channel] = value if larger else so_far
                        where[channel] = here if larger else where[channel]


@compiled
def _maximum_back(
    gradient: Pixels, place: npt.NDArray[np.int32], kernel: Any, stride: Any, image: Pixels
) -> None:
    """Add each gradient to the pixel that was largest."""
    for record in range(image.shape[0]):
        for row in range(gradient.shape[1]):
            for column in range(gradient.shape[2]):
                flow, where = gradient[record, row, column], place[record, row, column]
                for k in range(kernel[0] * kernel[1]):
                    pixel = image[
                        record, row * stride[0] + k // kernel[1], column * stride[1] + k % kernel[1]
                    ]
                    for channel in range(flow.size):
                        pixel[channel] += flow[channel] if where[channel] == k else 0.0


def by_own_loops(images: torch.Tensor) -> bool:
    """Whether compiled loops can read a tensor; elsewhere torch's own operators stand in."""
    return images.device.type == "cpu"


def _folded(patches: torch.Tensor, window: Window, shape: torch.Size) -> torch.Tensor:
    """Patches (images, rows, columns, height · width · channels) added up where they came from."""
    images, height, width, channels = shape
    down, right = window.kernel
    entries = patches[..., : down * right * channels].reshape(images, -1, down, right, channels)
    columns = entries.permute(0, 4, 2, 3, 1).reshape(images, channels * down * right, -1)
    return functional.fold(
        columns, (height, width), window.kernel, padding=window.padding, stride=window.stride
    )


def _channels_last(images: torch.Tensor) -> torch.Tensor:
    return images.permute(0, 2, 3, 1).contiguous()


@final
class Convolution(torch.autograd.Function):
    """(images, weights as a matrix (outputs, height · width · channels), bias, window) → (outputs,
    patches).

    Matrix and bias may be filled up to aligned widths; the outputs then carry the surplus channels,
    to be cut off by the caller.
    """

    @staticmethod
    def forward(
        ctx: Any,
        images: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        window: Window,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        pixels = _channels_last(images)
        patches = _cut(pixels, window)
        if weight.shape[1] > patches.shape[3]:
            patches = functional.pad(patches, (0, weight.shape[1] - patches.shape[3]))
        flat = patches.view(-1, weight.shape[1])
        outputs = flat @ weight.t() if bias is None else torch.addmm(bias, flat, weight.t())
        ctx.window, ctx.shape, ctx.weight = window, pixels.shape, weight
        ctx.mark_non_differentiable(patches)
        ctx.set_materialize_grads(False)  # patches never get a gradient; do not make zeros for them
        return outputs.view(*patches.shape[:3], -1).permute(0, 3, 1, 2), patches

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        if not ctx.needs_input_grad[0]:
            return None, None, None, None
        flow = _channels_last(gradients[0])
        patches = (flow.view(-1, flow.shape[3]) @ ctx.weight).view(*flow.shape[:3], -1)
        if not by_own_loops(flow):
            return _folded(patches, ctx.window, ctx.shape), None, None, None
        pixels = torch.zeros(ctx.shape, dtype=flow.dtype)
        _paste(patches.numpy(), *ctx.window, pixels.numpy())
        return pixels.permute(0, 3, 1, 2), None, None, None


@final
class Maximum(torch.autograd.Function):
    """(images, window without padding) → the maximum under the window."""

    @staticmethod
    def forward(ctx: Any, images: torch.Tensor, window: Window) -> torch.Tensor:
        pixels = _channels_last(images)
        shape = (len(pixels), *window.positions(*pixels.shape[1:3]), pixels.shape[3])
        largest, place = (
            torch.empty(shape, dtype=pixels.dtype),
            torch.empty(shape, dtype=torch.int32),
        )
        _maximum(pixels.numpy(), window.kernel, window.stride, largest.numpy(), place.numpy())
        ctx.window, ctx.shape, ctx.place = window, pixels.shape, place
        return largest.permute(0, 3, 1, 2)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        flow = _channels_last(gradients[0])
        pixels = torch.zeros(ctx.shape, dtype=flow.dtype)
        _maximum_back(
            flow.numpy(), ctx.place.numpy(), ctx.window.kernel, ctx.window.stride, pixels.numpy()
        )
        return pixels.permute(0, 3, 1, 2), None


def aligned(
    weight: torch.Tensor, bias: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """A matrix (outputs, inputs) and its bias filled up with zeros to aligned widths."""
    below, right = -weight.shape[0] % _ALIGNED_WIDTH, -weight.shape[1] % _ALIGNED_WIDTH
    weight = functional.pad(weight, (0, right, 0, below)) if below or right else weight
    return weight, functional.pad(bias, (0, below)) if bias is not None and below else bias
