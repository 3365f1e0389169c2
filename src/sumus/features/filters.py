"""Filter banks for images, written down once: Gabor wavelets, and their second level, scattering.

All maps read colour images as grey, take roots of responses (which evens out strong and weak
edges), average them over cells of four by four pixels, and give every block norm 1, so that bright
and dark pictures count alike.

Reference: scattering, Bruna and Mallat 2013 (arXiv:1203.1513).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import final

import torch
from torch.nn import functional

__all__ = ["GaborBank", "PhaseBank", "ScatterBank", "gabor_filters"]


def gabor_filters(
    *, orientations: int, wavelength: float, spread: float, size: int
) -> torch.Tensor:
    """(2 · orientations, 1, size, size): even and odd Gabor filters in turn, without a constant
    part, each of norm 1.

    exp(−|u|²/(2·spread²)) · (cos, sin)(2π·⟨u, direction⟩/wavelength), directions evenly over half a
    turn.
    """
    reach = torch.arange(size, dtype=torch.float64) - (size - 1) / 2
    down, right = torch.meshgrid(reach, reach, indexing="ij")
    envelope = torch.exp(-(down**2 + right**2) / (2 * spread**2))
    filters = []
    for index in range(orientations):
        angle = math.pi * index / orientations
        phase = 2 * math.pi * (right * math.cos(angle) + down * math.sin(angle)) / wavelength
        even = envelope * torch.cos(phase)
        even = even - envelope * (even.sum() / envelope.sum())
        odd = envelope * torch.sin(phase)
        filters += [even / even.norm(), odd / odd.norm()]
    return torch.stack(filters)[:, None].float()


def _bank(orientations: int) -> torch.Tensor:
    """Filters of wavelength 4; coarser ones are the same filters on smaller images. Channels last,
    where convolution is fast.
    """
    filters = gabor_filters(orientations=orientations, wavelength=4.0, spread=1.6, size=7)
    return filters.clone(memory_format=torch.channels_last)


def _respond(images: torch.Tensor, filters: torch.Tensor) -> torch.Tensor:
    return functional.conv2d(images, filters, padding=filters.shape[-1] // 2)


def _modulus(images: torch.Tensor, filters: torch.Tensor) -> torch.Tensor:
    """√(even² + odd²) per orientation: how much of a wavelength there is, wherever its crests
    lie.
    """
    responses = _respond(images, filters)
    return (responses[:, 0::2].square() + responses[:, 1::2].square()).sqrt()


def _halved(images: torch.Tensor) -> torch.Tensor:
    return functional.avg_pool2d(images, 2, ceil_mode=True)


def _block(maps: torch.Tensor, cells: tuple[int, int]) -> torch.Tensor:
    """Roots averaged over cells, one row of norm 1 per record."""
    return functional.normalize(
        functional.adaptive_avg_pool2d(maps.sqrt(), cells).flatten(1), dim=1
    )


def _quarter(shape: Sequence[int]) -> tuple[int, int]:
    return math.ceil(shape[1] / 4), math.ceil(shape[2] / 4)


@final
class GaborBank:
    """Moduli of 8 orientations at two scales on a 7 × 7 grid, and the image at half its size: 16·49
    + 196 = 980 of 28 × 28.
    """

    def __init__(self, shape: Sequence[int]) -> None:
        self._filters, self._cells = _bank(8), _quarter(shape)

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        """(batch, channels, height, width) → (batch, features)."""
        fine = images.mean(1, keepdim=True)
        coarse = _halved(fine)
        blocks = [functional.normalize(coarse.flatten(1), dim=1)]
        blocks += [_block(_modulus(image, self._filters), self._cells) for image in (fine, coarse)]
        return torch.cat(blocks, dim=1)


@final
class PhaseBank:
    """Both signs of even and odd filters, 4 orientations, two scales: 32·49 + 196 = 1,764 of 28 ×
    28.

    What a modulus forgets, whether an edge goes from dark to bright or a line is bright on dark, is
    kept.
    """

    def __init__(self, shape: Sequence[int]) -> None:
        self._filters, self._cells = _bank(4), _quarter(shape)

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        """(batch, channels, height, width) → (batch, features)."""
        fine = images.mean(1, keepdim=True)
        coarse = _halved(fine)
        blocks = [functional.normalize(coarse.flatten(1), dim=1)]
        for image in (fine, coarse):
            responses = _respond(image, self._filters)
            blocks.append(
                _block(torch.cat([responses.relu(), (-responses).relu()], dim=1), self._cells)
            )
        return torch.cat(blocks, dim=1)


@final
class ScatterBank:
    """`GaborBank` and a second level: 4 orientations over each fine modulus at half size, on a 4 ×
    4 grid; 980 + 512 of 28 × 28.
    """

    def __init__(self, shape: Sequence[int]) -> None:
        self._first, self._fine, self._second = GaborBank(shape), _bank(8), _bank(4)

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        """(batch, channels, height, width) → (batch, features)."""
        edges = _halved(_modulus(images.mean(1, keepdim=True), self._fine))
        records, orientations, height, width = edges.shape
        second = _modulus(edges.reshape(records * orientations, 1, height, width), self._second)
        return torch.cat(
            [self._first(images), _block(second.reshape(records, -1, height, width), (4, 4))], dim=1
        )
