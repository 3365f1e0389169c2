"""Real vectors to integers and back: the grid on which silos add, and the ring in which they are
summed.

One clip norm C is `resolution` = r grid steps, so a grid step is C/r in gradient units. Three ways
onto the grid, each with an integer L2 sensitivity it keeps for *every* input:

    truncated    every record apart, towards zero         Δ₂ = r
    stochastic   every record apart, unbiased, retried    Δ₂ = √min{(r + √d)², r² + d/4 + (r + √d/2)}
    summed       a sum of floats, once, to nearest        Δ₂ = r + (1 + 2^-12)·√d + float slack

Stochastic rounding is drawn again until the record is short enough, which has probability at least
1 − β with β = e^(−1/2), whence the factor √(2·log(1/β)) = 1 of r + √d/2 (`sumus.gradients`).

Reference: Kairouz, Liu, Steinke 2021 (arXiv:2102.06387), conditional rounding; the bound on a
    summed update is the triangle inequality |round(a) − round(b)| ≤ |a − b| + 1 per coordinate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from sumus.errors import DataError, PlanError

__all__ = ["LARGEST_RESOLUTION", "Grid", "Rounding", "lift", "summation_slack_grid", "to_ring"]

LARGEST_RESOLUTION = 1 << 24  # squared integer norms then stay exact in int64 and in float64
# scaling such a float to the grid is off by at most 2^-13 grid steps
_LARGEST_COORDINATE_GRID = 2.0**40
_SCALING_ERROR = 2.0**-12
_ROUNDING_BETA = math.exp(-0.5)


class Rounding(StrEnum):
    """How a real vector gets onto the grid."""

    TRUNCATED = "truncated"
    STOCHASTIC = "stochastic"
    SUMMED = "summed"


@dataclass(frozen=True)
class Grid:
    """The public grid: `clip_norm` in gradient units is `resolution` grid steps.

    Args:
        clip_norm: C, the L2 bound of one record, gradient units.
        resolution: r, grid steps per clip norm, from 1 to 2^24.
    """

    clip_norm: float
    resolution: int

    def __post_init__(self) -> None:
        if not (math.isfinite(self.clip_norm) and self.clip_norm > 0.0):
            raise PlanError(
                "clip_norm",
                self.clip_norm,
                "must be a positive number",
                "Give the L2 bound of one record.",
            )
        if not (isinstance(self.resolution, int) and 1 <= self.resolution <= LARGEST_RESOLUTION):
            raise PlanError(
                "resolution",
                self.resolution,
                "must be an integer in [1, 2^24]",
                "Set resolution_bits to 14 … 18.",
            )

    @property
    def granularity(self) -> float:
        """One grid step in gradient units."""
        return self.clip_norm / self.resolution

    def sensitivity_grid(
        self, rounding: Rounding, dimension: int, *, float_slack_grid: float = 0.0
    ) -> float:
        """Δ₂: the L2 distance, in grid steps, that adding or removing one record can cause.

        Args:
            rounding: how vectors get onto the grid.
            dimension: d, coordinates of one vector.
            float_slack_grid: for `summed` only, what floating-point summation may add (see
                `summation_slack_grid`).
        """
        if dimension < 1:
            raise PlanError(
                "dimension", dimension, "must be at least 1", "Count the model's parameters."
            )
        if rounding not in tuple(Rounding):
            raise PlanError(
                "rounding",
                rounding,
                "must be truncated, stochastic or summed",
                "Use sumus.noise.grid.Rounding.",
            )
        if not 0.0 <= float_slack_grid < math.inf:
            raise PlanError(
                "float_slack_grid",
                float_slack_grid,
                "must be zero or more",
                "See summation_slack_grid.",
            )
        if rounding == Rounding.TRUNCATED:
            return float(self.resolution)
        if rounding == Rounding.SUMMED:
            return (
                self.resolution + (1.0 + _SCALING_ERROR) * math.sqrt(dimension) + float_slack_grid
            )
        return math.sqrt(self._stochastic_norm2_grid(dimension))

    def encode_truncated(self, records: npt.NDArray[np.floating]) -> npt.NDArray[np.int64]:
        """Each record (last axis) clipped to the clip norm and truncated towards zero.

        Guarantee: for every input whatsoever the integer L2 norm of each record is at most r,
            checked in integers. A record with a NaN or an infinity becomes zero, so that one record
            cannot stop a round.
        """
        scaled = self._clipped_grid(records)
        integers = np.trunc(scaled).astype(np.int64)
        # the clipping was inexact
        while (too_long := (norm2 := np.square(integers).sum(axis=-1)) > self.resolution**2).any():
            scaled[too_long] *= (
                (1.0 - 2.0**-40) * self.resolution / np.sqrt(norm2[too_long])[..., None]
            )
            integers[too_long] = np.trunc(scaled[too_long]).astype(np.int64)
        return integers

    def encode_summed(self, update: npt.NDArray[np.floating]) -> npt.NDArray[np.int64]:
        """A whole update, already a sum over records, rounded to the nearest grid point.

        Guarantee: |encode(a) − encode(b)|₂ ≤ r·|a − b|₂/C + (1 + 2^-12)·√d for all finite a and b,
            the last part for the rounding of the scaling itself. Coordinates beyond ±2^40 grid
            steps are clamped there, which is 1-Lipschitz; only an update that is not finite is
            refused.
        """
        values = np.asarray(update, dtype=np.float64)
        if not np.isfinite(values).all():
            raise DataError("update must be finite. Lower the learning rate; nothing was released.")
        with np.errstate(over="ignore"):
            scaled = values * (self.resolution / self.clip_norm)
        return np.rint(np.clip(scaled, -_LARGEST_COORDINATE_GRID, _LARGEST_COORDINATE_GRID)).astype(
            np.int64
        )

    def _stochastic_norm2_grid(self, dimension: int) -> float:
        root = math.sqrt(dimension)
        typical = self.resolution**2 + dimension / 4.0
        typical += math.sqrt(2.0 * math.log(1.0 / _ROUNDING_BETA)) * (self.resolution + root / 2.0)
        return min((self.resolution + root) ** 2, typical)

    def _clipped_grid(self, records: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
        """Records in grid steps, scaled down to norm r where longer; rows that are not finite
        become zero.
        """
        values = np.array(records, dtype=np.float64)
        values[~np.isfinite(values).all(axis=-1)] = 0.0
        largest = np.abs(values).max(axis=-1, keepdims=True, initial=0.0)
        # at most one: squares cannot overflow
        relative = values / np.where(largest > 0.0, largest, 1.0)
        norms = np.sqrt(np.square(relative).sum(axis=-1, keepdims=True))
        # a clip norm infinitely longer than the record: zero
        with np.errstate(divide="ignore", over="ignore"):
            longest = np.maximum(norms, self.clip_norm / largest)
        return np.asarray(relative / longest * self.resolution)


def summation_slack_grid(*, terms: int, resolution: int, unit_roundoff: float = 2.0**-53) -> float:
    """What adding up to `terms` clipped records in floating point, in any order, can add to the L2
    sensitivity of their sum.

    Each of the two neighbouring sums is off by at most γ·Σ_i |x_i| per coordinate, γ = (terms −
    1)·u/(1 − (terms − 1)·u), so the slack is 2γ·terms·r grid steps (Higham 2002, section 4.2).

    Args:
        terms: the most records that one sum may hold, a public number.
        resolution: r, grid steps per clip norm.
        unit_roundoff: u of the accumulator: 2^-53 for float64, 2^-24 for float32.
    """
    if terms < 1 or (terms - 1) * unit_roundoff >= 0.5:
        raise PlanError(
            "terms",
            terms,
            "must be at least 1 and far below 1/u",
            "Sum fewer records or use float64.",
        )
    gamma = (terms - 1) * unit_roundoff / (1.0 - (terms - 1) * unit_roundoff)
    return 2.0 * gamma * terms * resolution


def to_ring(values_grid: npt.NDArray[np.int64], modulus_bits: int) -> npt.NDArray[np.uint64]:
    """Integers to their residues 0 … m − 1."""
    _check_modulus_bits(modulus_bits)
    return np.asarray(values_grid, dtype=np.int64).astype(np.uint64) & np.uint64(
        (1 << modulus_bits) - 1
    )


def lift(residues: npt.NDArray[np.unsignedinteger], modulus_bits: int) -> npt.NDArray[np.int64]:
    """Residues of Z_m to the centred integers −m/2 … m/2 − 1."""
    _check_modulus_bits(modulus_bits)
    words = np.asarray(residues)
    unused = 8 * words.itemsize - modulus_bits
    if unused < 0:  # words that are too narrow for the ring
        return lift(words.astype(np.uint64), modulus_bits)
    word, signed = words.dtype.type, np.dtype(f"i{words.itemsize}")
    # the ring's sign bit becomes the word's; no copy is wider than the words until the last one
    raised = np.ascontiguousarray(words << word(unused) if unused else words).view(signed)
    return (raised >> signed.type(unused) if unused else raised).astype(np.int64)


def _check_modulus_bits(modulus_bits: int) -> None:
    if not 1 <= modulus_bits <= 64:
        raise PlanError("modulus_bits", modulus_bits, "must lie in [1, 64]", "Use 32.")
