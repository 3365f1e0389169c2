"""The bound on the length of a vector of noise: against draws, against its own assumption, and how
tight it is.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from sumus.noise import LAWS, noise_norm_bound
from sumus.randomness import RandomSource

VARIANCES = (0.25, 1.0, 50.0, 1e6)


@pytest.mark.parametrize("name", sorted(LAWS))
@pytest.mark.parametrize("variance", VARIANCES)
def test_the_bound_of_a_laws_moments_rises_faster_than_the_square_of_the_rate(
    name: str, variance: float
) -> None:
    """K(λ)/λ² does not fall: what the proof asks of every law."""
    law = LAWS[name].of_variance(variance)
    rates = np.geomspace(1e-3, 30.0, 200)
    ratios = [law.log_mgf_bound(rate) / rate**2 for rate in rates]
    assert all(b >= a * (1.0 - 1e-9) for a, b in pairwise(ratios))
    assert ratios[0] >= 0.5 * law.variance_grid * (1.0 - 1e-4)


@pytest.mark.parametrize("name", sorted(LAWS))
@pytest.mark.parametrize("variance", VARIANCES)
@pytest.mark.parametrize("dimension", [1, 6, 200])
def test_noise_is_longer_no_more_often_than_stated(
    name: str, variance: float, dimension: int
) -> None:
    """At 2^-6, 2,000 vectors: 31 would be expected at most, 70 have probability below 1e-9."""
    law = LAWS[name].of_variance(variance)
    draws, weights = 2000, (1.0, 3.0)
    source = RandomSource.simulation(11, "norms", name)
    noise = sum(
        weight * law.sample((draws, dimension), source).astype(np.float64) for weight in weights
    )
    bound = noise_norm_bound({(law, weight): 1 for weight in weights}, dimension, bits=6)
    longer = int((np.linalg.norm(noise, axis=1) > bound).sum())
    assert longer <= 70


@pytest.mark.parametrize("name", sorted(LAWS))
def test_the_bound_is_near_the_expected_norm_for_models(name: str) -> None:
    law = LAWS[name].of_variance(1e6)
    for dimension, most in ((26010, 1.04), (650, 1.25), (10, 3.3)):
        bound = noise_norm_bound({(law, 1.0): 10}, dimension, bits=42)
        expected = math.sqrt(10 * law.variance_grid * dimension)
        assert expected < bound < most * expected


def test_no_noise_is_no_length() -> None:
    assert noise_norm_bound({}, 5, bits=42) == 0.0
