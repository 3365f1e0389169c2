"""The certified divergence against every input of small federations, in 40 digits."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from oracles.coins import renyi_divergence
from sumus.accounting import poisson_binomial, poisson_binomial_curve
from sumus.accounting.poisson_binomial import Neighbours
from sumus.errors import PlanError

ORDERS = [2, 3, 7, 20, 33]


def coins(updates: list[float], trials: int, theta: float) -> list[float]:
    """Every silo's update in [−1, 1] as its coins' probabilities."""
    return [0.5 + theta * update for update in updates for _ in range(trials)]


@pytest.mark.parametrize("neighbours", ["zero", "replace"])
@pytest.mark.parametrize(
    ("silos", "trials", "theta"),
    [(1, 3, 0.25), (2, 1, 0.25), (2, 3, 0.4), (3, 2, 0.1), (4, 1, 0.45)],
)
def test_no_input_on_a_lattice_exceeds_the_curve_and_some_input_comes_close(
    silos: int, trials: int, theta: float, neighbours: Neighbours
) -> None:
    curve = poisson_binomial_curve(silos=silos, trials=trials, theta=theta, neighbours=neighbours)(
        np.array(ORDERS)
    )
    worst = dict.fromkeys(ORDERS, 0.0)
    lattice = [-1.0, -0.4, 0.0, 1.0]
    for others in itertools.combinations_with_replacement(lattice, silos - 1):
        for mine, instead in itertools.product(lattice, repeat=2):
            if neighbours == "zero" and mine != 0.0 and instead != 0.0:
                continue
            for order in ORDERS:
                first, second = (
                    coins([mine, *others], trials, theta),
                    coins([instead, *others], trials, theta),
                )
                worst[order] = max(worst[order], renyi_divergence(order, first, second))
    for order, bound in zip(ORDERS, curve, strict=True):
        assert worst[order] <= bound
        if order in (2, 3, 20):  # computed orders; the others are chords
            assert bound <= worst[order] * 1.0051 + 1e-10


@settings(max_examples=60, deadline=None)
@given(
    trials=st.integers(1, 4),
    theta=st.sampled_from([0.05, 0.2, 0.45]),
    updates=st.lists(st.floats(-1, 1), min_size=1, max_size=5),
    instead=st.floats(-1, 1),
    order=st.integers(2, 60),
)
def test_no_input_at_all_exceeds_the_curve(
    trials: int, theta: float, updates: list[float], instead: float, order: int
) -> None:
    first, second = coins(updates, trials, theta), coins([instead, *updates[1:]], trials, theta)
    zero = coins([0.0, *updates[1:]], trials, theta)
    replace = poisson_binomial_curve(
        silos=len(updates), trials=trials, theta=theta, neighbours="replace"
    )(np.array([order]))[0]
    absent = poisson_binomial_curve(
        silos=len(updates), trials=trials, theta=theta, neighbours="zero"
    )(np.array([order]))[0]
    assert renyi_divergence(order, first, second) <= replace
    assert renyi_divergence(order, first, zero) <= absent
    assert renyi_divergence(order, zero, first) <= absent


@pytest.mark.parametrize("others", [1, 2, 7, 12])
def test_search_visits_every_number_of_leaning_coins(
    others: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without pruning the branches end in each of the others + 1 laws."""
    seen = set()

    def recording(pair: np.ndarray) -> np.ndarray:
        if pair.shape[1] == others + 2:
            seen.add(tuple(np.round(pair[0], 9)))
        return np.zeros(1)

    monkeypatch.setattr(poisson_binomial, "_divergences", recording)
    monkeypatch.setattr(poisson_binomial, "_SURPLUS", math.nan)  # nothing is ever below the best
    poisson_binomial._certified_maximum(poisson_binomial._protected(1, 0.7, 0.3), others, 0.2)
    assert len(seen) == others + 1


@pytest.mark.deep
@pytest.mark.parametrize("theta", [0.05, 0.25])
def test_a_larger_federation_matches_forty_digits_at_the_extreme_inputs(theta: float) -> None:
    """200 coins, all other silos at +c: the curve is above and within 0.5 % of the largest
    divergence found there.
    """
    silos, trials = 10, 20
    curve = poisson_binomial_curve(silos=silos, trials=trials, theta=theta, neighbours="replace")
    first, second = (
        coins([1.0] * silos, trials, theta),
        coins([-1.0] + [1.0] * (silos - 1), trials, theta),
    )
    for order in (2, 8, 32):
        exact = renyi_divergence(order, first, second)
        assert exact <= curve(np.array([order]))[0] <= exact * 1.0051 + 1e-10


@pytest.mark.deep
def test_many_coins_behave_like_the_gaussian_they_become() -> None:
    silos, trials, theta = 40, 32, 0.05
    variance = silos * trials * (0.25 - theta**2)
    curve = poisson_binomial_curve(silos=silos, trials=trials, theta=theta, neighbours="zero")
    for order in (2, 4, 8):
        assert curve(np.array([order]))[0] == pytest.approx(
            order * (trials * theta) ** 2 / (2 * variance), rel=0.03
        )


def test_curve_moves_the_way_it_must() -> None:
    orders = np.arange(2, 65)

    def curve(
        silos: int = 8,
        trials: int = 4,
        theta: float = 0.2,
        dimension: int = 1,
        neighbours: Neighbours = "zero",
    ) -> np.ndarray:
        return poisson_binomial_curve(
            silos=silos, trials=trials, theta=theta, dimension=dimension, neighbours=neighbours
        )(orders)

    base = curve()
    assert (np.diff(base) >= 0).all()
    assert (curve(silos=16) < base).all()
    assert (curve(trials=8) > base).all()
    assert (curve(theta=0.25) > base).all()
    assert (curve(neighbours="replace") > base).all()
    assert np.allclose(curve(dimension=50), 50 * base, rtol=1e-15)
    assert math.isinf(poisson_binomial_curve(silos=2, trials=1, theta=0.1)(np.array([4096]))[0])


def test_bad_numbers_are_refused_in_one_line() -> None:
    with pytest.raises(PlanError, match="theta must lie strictly"):
        poisson_binomial_curve(silos=2, trials=2, theta=0.5)
    with pytest.raises(PlanError, match="silos × trials"):
        poisson_binomial_curve(silos=0, trials=2, theta=0.2)
    with pytest.raises(PlanError, match="silos × trials"):
        poisson_binomial_curve(silos=100, trials=64, theta=0.2)
    with pytest.raises(PlanError, match="neighbours must be"):
        poisson_binomial_curve(silos=2, trials=2, theta=0.2, neighbours="remove")  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="dimension"):
        poisson_binomial_curve(silos=2, trials=2, theta=0.2, dimension=0)
