from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from oracles.secagg_federation import modular_sum
from sumus.errors import RoundAborted
from sumus.randomness import RandomSource
from sumus.secagg import secure_sum
from sumus.secagg.alternatives.galois import (
    degree_for,
    evaluation_weights,
    multiply_blocks,
    power_rows,
)
from sumus.secagg.alternatives.gopa import gopa_neighbours
from sumus.secagg.alternatives.turbo import turbo_groups


def vectors(silos: int, bits: int, length: int = 11) -> list[np.ndarray]:
    generator = np.random.default_rng(silos)
    return [
        generator.integers(0, 2**64, length, dtype=np.uint64) >> np.uint64(64 - bits)
        for _ in range(silos)
    ]


@pytest.mark.parametrize("protocol", ["trusted", "gopa", "turbo"])
@pytest.mark.parametrize("silos", [1, 2, 3, 7, 12, 40])
@pytest.mark.parametrize("bits", [16, 20, 32, 64])
def test_all_aggregators_give_the_same_sum(protocol: str, silos: int, bits: int) -> None:
    given = vectors(silos, bits)
    for drop in ({}, {"masked": {silos // 2}}) if silos > 2 else ({},):
        result = secure_sum(given, modulus_bits=bits, drop=drop, protocol=protocol)
        alive = [given[silo] for silo in sorted(result.survivors)]
        assert len(alive) == silos - len(drop)
        assert result.total.tolist() == modular_sum(alive, bits)


def test_gopa_cannot_go_on_when_a_neighbour_vanishes_before_rolling_back() -> None:
    given = vectors(10, 32)
    with pytest.raises(RoundAborted, match="rolled back"):
        secure_sum(given, drop={"masked": {3}, "unmask": {4}}, protocol="gopa")
    assert secure_sum(given, drop={"unmask": {4}}, protocol="gopa").survivors == frozenset(
        range(10)
    )


def test_gopa_neighbours_are_mutual_and_few() -> None:
    for silos in (1, 2, 3, 4, 10, 1000):
        neighbours = gopa_neighbours(silos)
        assert all(silo in neighbours[other] for silo in range(silos) for other in neighbours[silo])
        assert all(len(set(own)) == len(own) <= 20 for own in neighbours)
        assert all(silo not in own for silo, own in enumerate(neighbours))


def test_turbo_goes_on_while_a_majority_of_every_group_is_left() -> None:
    given = vectors(20, 32)
    groups = turbo_groups(20)
    assert len(groups) == 2
    for gone in itertools.islice(itertools.combinations(groups[0], 4), 6):
        result = secure_sum(given, drop={"unmask": set(gone)}, protocol="turbo")
        assert result.total.tolist() == modular_sum(given, 32)
    with pytest.raises(RoundAborted):
        secure_sum(given, drop={"unmask": set(groups[0][:5])}, protocol="turbo")


def test_turbo_sends_about_a_group_of_vectors_and_secagg_one() -> None:
    given = vectors(20, 32, length=20_000)
    packed = 80_000
    turbo, secagg = (secure_sum(given, protocol=protocol) for protocol in ("turbo", "secagg"))
    assert max(turbo.bytes_up.values()) > 9 * packed
    assert max(secagg.bytes_up.values()) < 1.1 * packed


@pytest.mark.parametrize("degree", range(1, 9))
def test_the_galois_ring_interpolates_every_polynomial(degree: int) -> None:
    """Shares f(i) made by powers, opened by Lagrange weights, from every small set of points."""
    random_words = RandomSource.simulation(degree)
    generator = random.Random(degree)
    points = generator.sample(range(1, 2**degree), min(2**degree - 1, 4))
    coefficients = [random_words.words(3 * degree).reshape(3, degree) for _ in points]
    shares = []
    for point in points:
        share = coefficients[0].copy()
        for coefficient, power in zip(
            coefficients[1:], power_rows(point, powers=len(points) - 1, degree=degree), strict=True
        ):
            share += multiply_blocks(coefficient, power)
        shares.append(share)
    opened = np.zeros_like(shares[0])
    for share, weight in zip(shares, evaluation_weights(tuple(points), degree), strict=True):
        opened += multiply_blocks(share, weight)
    assert np.array_equal(opened, coefficients[0])


def test_there_are_enough_points_for_a_group() -> None:
    assert [degree_for(points) for points in (1, 2, 3, 4, 7, 8, 255)] == [1, 2, 2, 3, 3, 4, 8]
