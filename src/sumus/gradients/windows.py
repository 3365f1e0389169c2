"""Windows that slide over lines, images or volumes, as tables of places (`tiles`).

    window = Window((3, 3), (1, 1), (1, 1), (1, 1))
    tables = window.tables((28, 28), channels=16)
    tables.corners        # where each window begins in an image that is filled up with zeros
    tables.taps           # where each of its numbers lies from there

Numbers lie with channels last. A window's number at corner p and tap t is at corners_p + taps_t.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Self, final

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

__all__ = ["Tables", "Window", "channels_first", "channels_last"]

Places = npt.NDArray[np.int64]
Sides = tuple[int, ...]


@final
@dataclass(frozen=True)
class Tables:
    """Where the windows over images of one size have their numbers.

    Args:
        shape: of an image with channels last, filled up on all sides.
        corners: of the windows.
        pixels: under a window, from its corner.
        taps: the numbers of these, channels last.
        positions: how often the window fits along each side.
        run: neighbouring taps that are neighbours in memory too, as many.
        inside: where the lines of the image begin among the zeros around it.
    """

    shape: Sides
    corners: Places
    pixels: Places
    taps: Places
    positions: Sides
    run: int
    inside: Places

    @property
    def size(self) -> int:
        """Numbers of an image that is filled up."""
        return math.prod(self.shape)

    def patches(self, images: torch.Tensor) -> torch.Tensor:
        """(images, positions, taps) of images that are filled up and flat."""
        places = torch.from_numpy(self.corners[:, None] + self.taps).to(images.device)
        return images[:, places.flatten()].view(len(images), *places.shape)


@final
@dataclass(frozen=True)
class Window:
    """What slides over an image, a number for each side.

    Args:
        kernel: pixels under it.
        stride: from one position to the next.
        padding: zeros around the image.
        dilation: from one pixel under it to the next.
    """

    kernel: Sides
    stride: Sides
    padding: Sides
    dilation: Sides

    @classmethod
    def of(cls, layer: nn.Module) -> Self:
        """Of a convolution or a maximum of torch's own."""
        axes = int(type(layer).__name__[-2])  # Conv2d, MaxPool1d
        settings = (
            getattr(layer, name) for name in ("kernel_size", "stride", "padding", "dilation")
        )
        return cls(*(each if isinstance(each, tuple) else (each,) * axes for each in settings))

    def positions(self, sides: Sequence[int]) -> Sides:
        """How often the window fits."""
        settings = zip(sides, self.kernel, self.stride, self.padding, self.dilation, strict=True)
        return tuple(
            (side + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
            for side, kernel, stride, padding, dilation in settings
        )

    def tables(self, sides: Sequence[int], channels: int, width: int | None = None) -> Tables:
        """Of images of this size.

        Args:
            width: from one pixel to the next in memory; omitted: as many as there are channels.
        """
        return _tables(self, tuple(sides), channels, width or channels)

    def filled(self, pixels: torch.Tensor) -> torch.Tensor:
        """Images with channels last, with the zeros around them."""
        if not any(self.padding):
            return pixels
        around = [(0, 0), *((side, side) for side in reversed(self.padding))]
        return functional.pad(pixels, [side for pair in around for side in pair])

    def cropped(self, pixels: torch.Tensor) -> torch.Tensor:
        """The inverse of `filled`."""
        for axis, padding in enumerate(self.padding, 1):
            pixels = pixels.narrow(axis, padding, pixels.shape[axis] - 2 * padding)
        return pixels


@cache
def _tables(window: Window, sides: Sides, channels: int, width: int) -> Tables:
    positions = window.positions(sides)
    filled = [side + 2 * padding for side, padding in zip(sides, window.padding, strict=True)]
    strides = [width * math.prod(filled[axis + 1 :]) for axis in range(len(filled))]

    def lattice(counts: Sides, distances: Sides) -> Places:
        """Places of a lattice, the last side fastest."""
        places = np.zeros(1, np.int64)
        for count, distance, stride in zip(counts, distances, strides, strict=True):
            places = (places[:, None] + np.arange(count) * distance * stride).reshape(-1)
        return places

    pixels, corners = lattice(window.kernel, window.dilation), lattice(positions, window.stride)
    together = window.dilation[-1] == 1 and channels == width
    beginning = sum(
        padding * stride for padding, stride in zip(window.padding, strides, strict=True)
    )
    return Tables(
        shape=(*filled, width),
        corners=corners,
        pixels=pixels,
        taps=(pixels[:, None] + np.arange(channels)).reshape(-1),
        positions=positions,
        run=channels * (window.kernel[-1] if together else 1),
        inside=beginning + lattice((*sides[:-1], 1), (1,) * len(sides)),
    )


def channels_last(images: torch.Tensor) -> torch.Tensor:
    """(images, channels, sides …) as (images, sides …, channels), in that order in memory."""
    return images.movedim(1, -1).contiguous()


def channels_first(pixels: torch.Tensor) -> torch.Tensor:
    """A view of what `channels_last` returns, as torch's layers have it."""
    return pixels.movedim(-1, 1)
