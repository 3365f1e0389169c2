"""Stochastic rounding record by record in numpy, and a Chernoff bound on the overflow of a ring."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from sumus.noise import Grid, Law, Rounding
from sumus.randomness import RandomSource

# each accepted with probability ≥ 1 − β = 0.39, so giving up has probability below 1e-27
_ROUNDING_RETRIES = 128
_CHERNOFF_RATES = 257


def encode_stochastic(
    grid: Grid, records: npt.NDArray[np.floating], source: RandomSource
) -> npt.NDArray[np.int64]:
    """Each record (last axis) clipped and rounded up or down at random, drawn again until it is
    short enough.

    Guarantee: the integer L2 norm is at most `sensitivity_grid(STOCHASTIC, d)` for every input
        and every random word. Unconditioned it is unbiased; the condition holds with
        probability at least 1 − e^(−1/2). Non-finite records become zero.
    """
    scaled = grid._clipped_grid(records)
    rows = scaled.reshape(-1, scaled.shape[-1])
    longest2 = int(grid.sensitivity_grid(Rounding.STOCHASTIC, rows.shape[1]) ** 2)
    floors = np.floor(rows)
    # what is left if every retry fails
    integers = grid.encode_truncated(records).reshape(rows.shape)
    pending = np.arange(len(rows))
    for _ in range(_ROUNDING_RETRIES):
        coins = source.uniforms(pending.size * rows.shape[1]).reshape(pending.size, -1)
        rounded = (floors[pending] + (coins < (rows - floors)[pending])).astype(np.int64)
        short = np.square(rounded).sum(axis=-1) <= longest2
        integers[pending[short]] = rounded[short]
        pending = pending[~short]
        if not pending.size:
            break
    return integers.reshape(scaled.shape)


def overflow_probability(
    grid: Grid,
    *,
    expected_records: float,
    sampled: bool,
    noise: Law,
    noise_draws: int,
    dimension: int,
    modulus_bits: int,
    rounded_sums: int = 0,
) -> float:
    """A bound on the probability that any coordinate of the sum leaves [−m/2, m/2).

    With B records in the sum a coordinate is at most r·B + rounded_sums + noise, either way.
        Chernoff, for every s > 0: P[wrap] ≤ 2d·exp(log E e^(srB) + log E e^(s·noise) − s·(m/2 −
        rounded_sums)),
    where log E e^(srB) ≤ E·(e^(sr) − 1) for any sum of independent coins with mean E. The least
    over 257 values of s.

    Args:
        expected_records: E, expected record gradients in one sum (N·S·b).
        sampled: whether B is random (Poisson sampling) or exactly E.
        noise: law of one draw; `noise_draws` of them are in the sum.
        dimension: d, coordinates of one vector.
        modulus_bits: log₂ m.
        rounded_sums: vectors of kind `summed` in the sum, each up to one step longer than its
            parts.
    """
    room = 2.0 ** (modulus_bits - 1) - rounded_sums
    signal = grid.resolution * expected_records
    if signal >= room:
        return 1.0
    spread = noise_draws * noise.variance_grid + grid.resolution * signal
    least_log = 0.0
    for rate in (room - signal) / spread * np.exp2(np.linspace(-6.0, 2.0, _CHERNOFF_RATES)):
        growth = (
            math.expm1(min(rate * grid.resolution, 700.0)) if sampled else rate * grid.resolution
        )
        log_sum = (
            expected_records * growth + noise_draws * noise.log_mgf_bound(float(rate)) - rate * room
        )
        least_log = min(least_log, math.log(2.0 * dimension) + log_sum)
    return math.exp(least_log)
