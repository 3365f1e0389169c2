"""Linearised records of any length and shape, and passes over them with bins that a test chooses."""

from __future__ import annotations

import math
from typing import cast

import numpy as np

from sumus.gradients import StoredChunk, Units
from sumus.gradients.stored_tangents import Product, Table
from sumus.guarantee import TangentBounds
from sumus.guarantee.algorithms.non_expansive_pass import ConvexBounds
from sumus.randomness import RandomSource
from sumus.tasks import Link
from sumus.training.local.tangent_pass import tangent_pass

__all__ = ["LINKS", "FixedBins", "Raw", "bounds_for", "labels_for", "matrices", "moved"]


class FixedBins:
    """A source whose bins the test chooses, so that neighbours can be coupled record by record."""

    def __init__(self, *assignments: np.ndarray) -> None:
        self._assignments = list(assignments)

    def below(self, bound: int, count: int) -> np.ndarray:
        return self._assignments.pop(0)[:count]


LINKS = {
    # link: outputs, length of a residual, β at R = 1
    Link.SOFTMAX: (3, math.sqrt(2.0), 0.5),
    Link.LOGISTIC: (1, 1.0, 0.25),
    Link.HUBER: (2, math.sqrt(2.0), 1.0),
}


def bounds_for(
    link: Link, *, cap: int, t: float = 1.0, constants: Link | None = None
) -> TangentBounds:
    """At R = 1; `constants`: of another link, as of two classes for one logit."""
    _, length, smoothness = LINKS[link if constants is None else constants]
    convex = ConvexBounds(
        gradient_norm=t * length, smoothness=smoothness, residual_cap=t, bin_cap=cap
    )
    return TangentBounds(
        convex=convex, jacobian_norm=1.0, whole_norm=6.0, outputs_norm=4096.0, move_norm=32.0
    )


class Raw:
    """Outputs and Jacobians as a network may have them: factors and a table, of any length."""

    def __init__(
        self, rng: np.random.Generator, count: int, link: Link, *, reach: float = 1.0
    ) -> None:
        outputs, self.reach = LINKS[link][0], reach
        loud = 10.0 ** rng.uniform(-3, 3, size=(count, 1, 1))
        self.z = 10.0 ** rng.uniform(-1, 2) * rng.normal(size=(count, outputs))
        # what all outputs have in common may be far longer than what tells them apart
        common = 10.0 ** rng.uniform(-1, 6, size=(count, 1, 1)) * rng.normal(size=(count, 1, 2))
        self.left = loud * (rng.normal(size=(count, outputs, 2)) + common)
        self.right = rng.normal(size=(count, 3))
        self.rows = loud * rng.normal(size=(count, outputs, 3))
        self.link = link

    def __call__(self, chosen: np.ndarray, *, bounded: bool = True) -> StoredChunk:
        far = 1.0 if bounded else 1e30
        parts = (
            Product(0, self.left[chosen], self.right[chosen], bias=True),
            Table(6, self.rows[chosen]),
        )
        return StoredChunk.within(
            self.z[chosen],
            parts,
            compared=self.link is Link.SOFTMAX,
            jacobian_norm=self.reach * far,
            whole_norm=6.0 * far,
            outputs_norm=4096.0 * far,
        )


def matrices(chunk: StoredChunk, rows: int) -> np.ndarray:
    """A_x of every record, column by column."""
    moves = [chunk.moved(unit, slice(0, rows)) - chunk.outputs[:rows] for unit in np.eye(9)]
    return np.stack(moves, axis=2)


def labels_for(rng: np.random.Generator, link: Link, count: int) -> np.ndarray:
    if link is Link.HUBER:
        return rng.uniform(-1.0, 1.0, size=(count, 2))
    return rng.integers(0, 2 if link is Link.LOGISTIC else 3, size=(count, 1))


def moved(
    raw: Raw,
    y: np.ndarray,
    assigned: list[np.ndarray],
    *,
    bins: int,
    step: float,
    bounds: TangentBounds,
    chunk: int = 5,
    bounded: bool = True,
    decay: float = 0.0,
) -> np.ndarray:
    return tangent_pass(
        lambda rows: raw(rows, bounded=bounded),
        y,
        dimension=9,
        chunk=chunk,
        units=Units.single(len(y)),
        link=raw.link,
        bins=bins,
        passes=len(assigned),
        step=step,
        decay=decay,
        bounds=bounds,
        source=cast(RandomSource, FixedBins(*assigned)),
    )
