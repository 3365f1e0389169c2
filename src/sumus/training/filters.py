"""Filter banks for images, written down once: Gabor wavelets at two scales and a coarse copy of the image."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import final

import torch
from torch.nn import functional

__all__ = ["GaborBank", "gabor_filters"]


def gabor_filters(*, orientations: int, wavelength: float, spread: float, size: int) -> torch.Tensor:
    """(2 · orientations, 1, size, size): even and odd Gabor filters without a constant part, each of norm 1.

    exp(−|u|²/(2·spread²)) · (cos, sin)(2π·⟨u, direction⟩/wavelength), directions evenly over half a turn.
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


@final
class GaborBank:
    """Moduli of 8 orientations at two scales, averaged over a 7 × 7 grid, and the image at half its size; blocks of norm 1.

    980 numbers for 28 × 28 pixels: 16·49 + 196. Colour images are read as grey.
    """

    def __init__(self, shape: Sequence[int]) -> None:
        self._scales = [
            gabor_filters(orientations=8, wavelength=4.0, spread=1.6, size=7),
            gabor_filters(orientations=8, wavelength=8.0, spread=3.2, size=13),
        ]
        self._half = (math.ceil(shape[1] / 2), math.ceil(shape[2] / 2))
        self._cells = (math.ceil(shape[1] / 4), math.ceil(shape[2] / 4))

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        """(batch, channels, height, width) → (batch, features)."""
        grey = images.mean(1, keepdim=True)
        blocks = [functional.adaptive_avg_pool2d(grey, self._half).flatten(1)]
        for filters in self._scales:
            responses = functional.conv2d(grey, filters, padding=filters.shape[-1] // 2)
            moduli = (responses[:, 0::2].square() + responses[:, 1::2].square()).sqrt()
            blocks.append(functional.adaptive_avg_pool2d(moduli, self._cells).flatten(1))
        return torch.cat([functional.normalize(block, dim=1) for block in blocks], dim=1)
