"""The two questions most people ask: what ε does this noise buy, and what noise does this ε
need?
"""

from __future__ import annotations

import math

from sumus.accounting.accountant import ACCOUNTANTS, epsilon_of
from sumus.accounting.calibration import least_noise
from sumus.accounting.release import Queries, Release, noisy_queries
from sumus.errors import GuaranteeError
from sumus.files import choice, number, whole
from sumus.noise import LAWS, noise_law

__all__ = ["calibrate", "epsilon"]


def epsilon(
    *,
    noise_multiplier: float,
    steps: int,
    delta: float,
    sampling_rate: float = 1.0,
    mechanism: str = "skellam",
    accountant: str = "pld",
    dimension: int = 1,
    resolution_bits: int = 16,
) -> float:
    """ε at δ of `steps` adaptively composed, Poisson-subsampled sums with the given total noise.

    Guarantee: upper bound for add/remove neighbours and integer queries whose L2 sensitivity is
        2^resolution_bits grid steps.

    Args:
        noise_multiplier: σ, standard deviation of the noise in the sum over all silos, in clip
            norms.
        steps: noisy sums that are released (or counted as if they were).
        sampling_rate: q, Poisson probability that a record joins a step.
        mechanism: name of a law, "skellam", "discrete-gaussian" or "gaussian".
        accountant: "pld", "renyi" or "renyi-mironov".
        dimension: coordinates of the released vector.
        resolution_bits: log2 of the grid steps per clip norm.
    """
    sigma = number(above=0.0).check("noise_multiplier", noise_multiplier)
    choice(*LAWS).check("mechanism", mechanism)
    _check(
        steps=steps,
        delta=delta,
        sampling_rate=sampling_rate,
        dimension=dimension,
        resolution_bits=resolution_bits,
    )
    queries = _queries(sigma, steps, sampling_rate, mechanism, dimension, resolution_bits)
    spent = epsilon_of(Release((queries,)), delta=delta, accountant=accountant)
    if not math.isfinite(spent):
        raise GuaranteeError(
            f"no finite ε at δ = {delta:g} for noise multiplier {sigma:g}. Add noise."
        )
    return spent


def calibrate(
    *,
    epsilon: float,
    delta: float,
    steps: int,
    sampling_rate: float = 1.0,
    mechanism: str = "skellam",
    accountant: str = "pld",
    dimension: int = 1,
    resolution_bits: int = 16,
) -> float:
    """The least total noise multiplier whose ε is at most the target, from the safe side. Arguments
    as in `epsilon`.
    """
    _check(
        steps=steps,
        delta=delta,
        sampling_rate=sampling_rate,
        dimension=dimension,
        resolution_bits=resolution_bits,
    )
    choice(*ACCOUNTANTS).check("accountant", accountant)
    number(above=0.0).check("epsilon", epsilon)
    choice(*LAWS).check("mechanism", mechanism)
    return least_noise(
        lambda sigma: Release(
            (_queries(sigma, steps, sampling_rate, mechanism, dimension, resolution_bits),)
        ),
        limit=lambda sigma: Release((Queries(sigma, sampling_rate, steps),)),
        epsilon=epsilon,
        delta=delta,
        accountant=accountant,
    )


def _queries(
    sigma: float,
    steps: int,
    sampling_rate: float,
    mechanism: str,
    dimension: int,
    resolution_bits: int,
) -> Queries:
    resolution = float(1 << resolution_bits)
    noise = noise_law(mechanism, (sigma * resolution) ** 2)
    return noisy_queries(
        noise, l2_grid=resolution, dimension=dimension, sampling_rate=sampling_rate, count=steps
    )


def _check(
    *, steps: int, delta: float, sampling_rate: float, dimension: int, resolution_bits: int
) -> None:
    whole(low=1).check("steps", steps)
    number(above=0.0, below=1.0).check("delta", delta)
    number(above=0.0, high=1.0).check("sampling_rate", sampling_rate)
    whole(low=1).check("dimension", dimension)
    whole(low=0, high=24).check("resolution_bits", resolution_bits)
