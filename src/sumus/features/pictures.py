"""Made-up pictures and what they teach: a mean and a covariance of features that are nobody's data.

A feature map suits a noisy linear model the better, the less its features have in common across
records: what all records share takes up norm, and norm is what noise is measured against. So
features are centred and partly whitened,

    z = (V·diag(λ + floor)^(−a/2)·Vᵀ)·(φ(x) − mean),

or, where only the m strongest directions are kept, without the turn back, V and λ cut to them,

    z = diag(λ + floor)^(−a/2)·Vᵀ·(φ(x) − mean),

with the degree a = 1/2 unless the plan has another (0 centres, 1 whitens wholly and blows up what
pictures hardly ever show). Mean and covariance V·diag(λ)·Vᵀ are those of φ on made-up pictures:
overlapping ellipses and rectangles with shading and stripes on black, drawn from a public seed.
Natural statistics of edges and occlusion are enough; no record of any silo is involved.

Reference: occluding random shapes as a model of images, Lee, Mumford, Huang 2001, "dead leaves".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, final

import numpy as np
import torch
from torch.nn import functional

from sumus.randomness import RandomSource

__all__ = ["Whitened", "aligned_width", "made_up_pictures"]

_PICTURES: Final = 5000
_MOST_SHAPES: Final = 11
_BATCH: Final = 500
_FLOOR: Final = 0.1  # of the mean eigenvalue


def aligned_width(width: int) -> int:
    """The next multiple of 16 numbers (64 bytes): rows of such matrices are treated alike by every
    matrix kernel.
    """
    return width + -width % 16


def made_up_pictures(count: int, shape: Sequence[int], *, seed: int = 0) -> torch.Tensor:
    """(count, channels, height, width) pictures of 3 to 11 overlapping shapes, values in [0, 1],
    the same for everybody.

    Args:
        count: pictures.
        shape: (channels, height, width); channels are equal.
        seed: public.
    """
    channels, height, width = shape
    source = RandomSource.simulation(seed, "made-up pictures")
    down = ((torch.arange(height) - (height - 1) / 2) / (height / 2)).view(1, height, 1)
    right = ((torch.arange(width) - (width - 1) / 2) / (width / 2)).view(1, 1, width)
    shapes = torch.from_numpy(3 + source.below(_MOST_SHAPES - 2, count)).view(count, 1, 1)
    picture = torch.zeros(count, height, width)
    for index in range(_MOST_SHAPES):
        inside, shade = _shape(source, count, down, right)
        picture = torch.where(inside & (index < shapes), shade.clamp(0.0, 1.0), picture)
    return picture[:, None].expand(count, channels, height, width)


def _shape(
    source: RandomSource, count: int, down: torch.Tensor, right: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """For each picture one ellipse or rectangle: where it is, and how bright it would be
    everywhere.
    """

    def uniform(low: float, high: float) -> torch.Tensor:
        return torch.from_numpy(
            (low + (high - low) * source.uniforms(count)).astype(np.float32)
        ).view(-1, 1, 1)

    def normal(centre: float, spread: float) -> torch.Tensor:
        return torch.from_numpy((centre + spread * source.normals(count)).astype(np.float32)).view(
            -1, 1, 1
        )

    across, along = right - normal(0.0, 0.35), down - normal(0.0, 0.35)
    angle = uniform(0.0, math.pi)
    length, breadth = normal(-1.1, 0.6).exp(), normal(-1.1, 0.6).exp()
    first = (across * angle.cos() + along * angle.sin()) / length
    second = (along * angle.cos() - across * angle.sin()) / breadth
    round_one = uniform(0.0, 1.0) < 0.5
    inside = torch.where(
        round_one, first**2 + second**2 < 1.0, (first.abs() < 1.0) & (second.abs() < 1.0)
    )
    stripes = torch.sin(
        uniform(math.log(2.0), math.log(20.0)).exp()
        * (right * (3 * angle).cos() + down * (3 * angle).sin())
    )
    striped = (uniform(0.0, 1.0) < 0.4) * uniform(0.0, 0.4)
    return inside, uniform(0.0, 1.0) + normal(0.0, 0.15) * first + striped * stripes


def _turned(directions: torch.Tensor) -> torch.Tensor:
    """Columns with their largest number above zero: which of two opposite eigenvectors a machine
    finds is chance, and silos that found different ones would learn against each other.
    """
    largest = directions.gather(0, directions.abs().argmax(0, keepdim=True))
    turned: torch.Tensor = directions * largest.sign()
    return turned


@final
class Whitened:
    """Features of a map, centred and partly whitened by its features of made-up pictures.

    Args:
        components: m, the directions that are kept, the strongest first; None: all, not turned.
        degree: a, of whitening, 0 … 1.
    """

    def __init__(
        self,
        transform: Callable[[torch.Tensor], torch.Tensor],
        shape: Sequence[int],
        *,
        components: int | None = None,
        degree: float = 0.5,
    ) -> None:
        self._transform = transform
        with torch.inference_mode():
            pictures = made_up_pictures(_PICTURES, shape)
            features = torch.cat(
                [
                    transform(pictures[start : start + _BATCH])
                    for start in range(0, _PICTURES, _BATCH)
                ]
            ).double()
            mean = features.mean(0)
            spread, directions = torch.linalg.eigh(torch.cov((features - mean).T))
            damped = (spread.clamp_min(0.0) + _FLOOR * spread.mean()) ** (-degree / 2.0)
            matrix = (directions * damped) @ directions.T
            if components is not None:  # eigenvalues rise
                matrix = (_turned(directions) * damped).flip(1)[:, :components]
        self._width, self._kept = matrix.shape
        above, beyond = (aligned_width(side) - side for side in matrix.shape)
        self._matrix = functional.pad(matrix, (0, beyond, 0, above)).float()
        self._shift = functional.pad(-(mean @ matrix), (0, beyond)).float()

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        """(batch, channels, height, width) → (batch, features)."""
        features = self._transform(images)
        padded = functional.pad(features, (0, len(self._matrix) - self._width))
        return torch.addmm(self._shift, padded, self._matrix)[:, : self._kept]
