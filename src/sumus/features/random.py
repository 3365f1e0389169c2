"""Random features from a public seed: nobody's data chose them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import final

import torch
from torch.nn import functional

from sumus.features.pictures import aligned_width
from sumus.plan import RANDOM_FILTERS, RANDOM_WIDTH
from sumus.randomness import RandomSource

__all__ = ["RandomConvolutions", "RandomProjection"]

_PATCH = 6


@final
class RandomProjection:
    """√2·cos(⟨ω_k, x⟩ + φ_k) with ω ~ N(0, 1) on records scaled to norm 1: an unbiased estimate of
    a Gaussian kernel.

    Reference: Rahimi, Recht 2007, random Fourier features.
    """

    def __init__(self, shape: Sequence[int], *, seed: int) -> None:
        source = RandomSource.simulation(seed, "random projection")
        width = math.prod(shape)
        frequencies = torch.from_numpy(source.normals(width * RANDOM_WIDTH)).view(
            width, RANDOM_WIDTH
        )
        self._frequencies = functional.pad(
            frequencies, (0, 0, 0, aligned_width(width) - width)
        ).float()
        self._phases = torch.from_numpy(2 * math.pi * source.uniforms(RANDOM_WIDTH)).float()

    def __call__(self, records: torch.Tensor) -> torch.Tensor:
        """(batch, …) → (batch, RANDOM_WIDTH)."""
        flat = functional.normalize(records.flatten(1), dim=1)
        padded = functional.pad(flat, (0, len(self._frequencies) - flat.shape[1]))
        return math.sqrt(2.0) * torch.cos(torch.addmm(self._phases, padded, self._frequencies))


@final
class RandomConvolutions:
    """Random 6 × 6 filters of mean 0, rectified both ways, averaged over a 4 × 4 grid.

    Reference: Coates, Ng, Lee 2011, for the encoding; the filters are Gaussian instead of learned.
    """

    def __init__(self, shape: Sequence[int], *, seed: int) -> None:
        source = RandomSource.simulation(seed, "random convolutions")
        drawn = torch.from_numpy(
            source.normals(RANDOM_FILTERS * shape[0] * _PATCH * _PATCH)
        ).float()
        filters = drawn.view(RANDOM_FILTERS, shape[0], _PATCH, _PATCH)
        filters = filters - filters.mean(dim=(1, 2, 3), keepdim=True)
        filters = functional.normalize(filters.flatten(1), dim=1).view_as(filters)
        # where convolution is fast
        self._filters = filters.clone(memory_format=torch.channels_last)

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        """(batch, channels, height, width) → (batch, 2 · RANDOM_FILTERS · 16)."""
        responses = functional.conv2d(images, self._filters, padding=_PATCH // 2)
        both = torch.cat([responses.relu(), (-responses).relu()], dim=1)
        return functional.adaptive_avg_pool2d(both, 4).flatten(1)
