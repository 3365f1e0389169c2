from __future__ import annotations

import itertools
import json
import random

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from oracles.secagg_federation import modular_sum
from sumus.cli import main
from sumus.errors import PlanError, ProtocolError, RoundAborted
from sumus.paper import AGGREGATORS, compare_aggregators, sum_with
from sumus.paper.aggregators.galois import (
    degree_for,
    evaluation_weights,
    multiply_blocks,
    power_rows,
)
from sumus.paper.aggregators.gopa import gopa_neighbours
from sumus.paper.aggregators.turbo import turbo_groups
from sumus.randomness import RandomSource
from sumus.secagg.in_process import STAGES


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
    inputs = vectors(silos, bits)
    for drop in ({}, {"masked": {silos // 2}}) if silos > 2 else ({},):
        result = sum_with(protocol, inputs, modulus_bits=bits, drop=drop)
        alive = [inputs[silo] for silo in sorted(result.survivors)]
        assert len(alive) == silos - len(drop)
        assert result.total.tolist() == modular_sum(alive, bits)


def test_gopa_cannot_go_on_when_a_neighbour_vanishes_before_rolling_back() -> None:
    inputs = vectors(10, 32)
    with pytest.raises(RoundAborted, match="rolled back"):
        sum_with("gopa", inputs, drop={"masked": {3}, "unmask": {4}})
    assert sum_with("gopa", inputs, drop={"unmask": {4}}).survivors == frozenset(range(10))


def test_gopa_neighbours_are_mutual_and_few() -> None:
    for silos in (1, 2, 3, 4, 10, 1000):
        neighbours = gopa_neighbours(silos)
        assert all(silo in neighbours[other] for silo in range(silos) for other in neighbours[silo])
        assert all(len(set(own)) == len(own) <= 20 for own in neighbours)
        assert all(silo not in own for silo, own in enumerate(neighbours))


def test_turbo_goes_on_while_a_majority_of_every_group_is_left() -> None:
    inputs = vectors(20, 32)
    groups = turbo_groups(20)
    assert len(groups) == 2
    for gone in itertools.islice(itertools.combinations(groups[0], 4), 6):
        result = sum_with("turbo", inputs, drop={"unmask": set(gone)})
        assert result.total.tolist() == modular_sum(inputs, 32)
    with pytest.raises(RoundAborted):
        sum_with("turbo", inputs, drop={"unmask": set(groups[0][:5])})


def test_turbo_sends_about_a_group_of_vectors_and_secagg_one() -> None:
    inputs = vectors(20, 32, length=20_000)
    packed = 80_000
    turbo, secagg = (sum_with(protocol, inputs) for protocol in ("turbo", "secagg"))
    assert max(turbo.bytes_up.values()) > 9 * packed
    # signatures, keys and what unmasks without the silo are a few kilobytes
    assert max(secagg.bytes_up.values()) < 1.15 * packed


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


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_whatever_the_drop_outs_an_aggregator_is_right_or_refuses(data: st.DataObject) -> None:
    """Also beyond the tolerated number."""
    silos = data.draw(st.integers(1, 12))
    protocol = data.draw(st.sampled_from(list(AGGREGATORS)))
    drop: dict[str, set[int]] = {}
    for silo in range(silos):
        if data.draw(st.booleans()):
            drop.setdefault(data.draw(st.sampled_from(STAGES)), set()).add(silo)
    inputs = vectors(silos, 20, length=4)
    try:
        result = sum_with(protocol, inputs, modulus_bits=20, drop=drop)
    except ProtocolError:
        return
    early = {silo for stage in ("keys", "shares", "masked") for silo in drop.get(stage, ())}
    assert result.survivors == frozenset(range(silos)) - early
    assert result.total.tolist() == modular_sum(
        [inputs[silo] for silo in sorted(result.survivors)], 20
    )


def test_an_unknown_aggregator_is_refused_with_the_closest() -> None:
    with pytest.raises(PlanError, match="Did you mean turbo"):
        sum_with("turba", vectors(3, 32))


def test_the_comparison_runs_every_aggregator_for_real() -> None:
    rows = {row.name: row for row in compare_aggregators(silos=20, length=500)}
    assert list(rows) == ["secagg", "gopa", "turbo", "trusted"]
    assert all(row.milliseconds > 0.0 and row.vectors_up >= 1.0 for row in rows.values())
    assert rows["trusted"].vectors_up == 1.0
    assert rows["turbo"].vectors_up > 9.0 > rows["gopa"].vectors_up
    assert rows["secagg"].reveals == "nothing"
    assert rows["secagg"].tolerates == "9 of 20"
    assert rows["turbo"].tolerates == "4 in each group of 10"


def test_the_command_shows_a_row_for_every_aggregator(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["reproduce", "aggregators", "--silos", "3,5", "--length", "64"]
    assert main([*options, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out.splitlines()[-1])["aggregators"]
    assert [(row["name"], row["silos"]) for row in rows] == [
        (name, silos) for silos in (3, 5) for name in AGGREGATORS
    ]
    assert all(row["length"] == 64 for row in rows)
    assert main(options) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in AGGREGATORS)
    assert main(["reproduce", "aggregators", "--silos", "0"]) == 2
