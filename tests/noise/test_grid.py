"""Onto the grid and back. Every rounding keeps the sensitivity it declares, for every input anybody
can send.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st
from hypothesis.extra import numpy as hnp
from scipy import special, stats

from oracles import grid as oracle
from sumus.errors import DataError, PlanError
from sumus.noise import (
    DiscreteGaussian,
    Gaussian,
    Grid,
    Rounding,
    Skellam,
    lift,
    summation_slack_grid,
    to_ring,
)
from sumus.noise.grid import LARGEST_RESOLUTION
from sumus.randomness import RandomSource

anything = hnp.arrays(
    np.float64, st.tuples(st.integers(1, 4), st.integers(1, 40)), elements=st.floats(width=64)
)
anything32 = hnp.arrays(
    np.float32, st.tuples(st.integers(1, 4), st.integers(1, 40)), elements=st.floats(width=32)
)
grids = st.builds(Grid, st.floats(1e-12, 1e12), st.integers(1, LARGEST_RESOLUTION))
exactly_long = hnp.arrays(np.float64, st.integers(1, 60), elements=st.floats(-1, 1)).filter(
    lambda x: np.linalg.norm(x) > 1e-9
)


def integer_norm2(integers: np.ndarray) -> list[int]:
    return [sum(int(value) ** 2 for value in row) for row in integers]


@settings(max_examples=300, deadline=None)
@given(grid=grids, records=st.one_of(anything, anything32))
def test_no_input_makes_a_truncated_record_longer_than_declared(
    grid: Grid, records: np.ndarray
) -> None:
    integers = grid.encode_truncated(records)
    declared = grid.sensitivity_grid(Rounding.TRUNCATED, records.shape[1])
    assert declared == grid.resolution
    assert max(integer_norm2(integers)) <= declared**2


@pytest.mark.deep
@settings(max_examples=300, deadline=None)
@given(
    grid=grids,
    direction=exactly_long,
    stretch=st.sampled_from([1.0, 1.0 + 2.0**-52, 1.0 - 2.0**-53, 1.0 + 1e-7]),
)
def test_a_record_clipped_with_rounding_errors_does_not_slip_over_the_bound(
    grid: Grid, direction: np.ndarray, stretch: float
) -> None:
    record = direction / np.linalg.norm(direction) * grid.clip_norm * stretch
    assert integer_norm2(grid.encode_truncated(record[None]))[0] <= grid.resolution**2


def test_a_clipping_that_is_off_cannot_lengthen_a_truncated_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The bound is checked in integers: it holds even if the floating-point clipping before it were
    wrong.
    """
    clipped = Grid._clipped_grid
    monkeypatch.setattr(Grid, "_clipped_grid", lambda grid, records: clipped(grid, records) * 1.001)
    grid = Grid(1.0, 1 << 16)
    integers = grid.encode_truncated(np.array([[3.0, 4.0], [1.0, 0.0], [0.1, 0.1]]))
    assert max(integer_norm2(integers)) <= grid.resolution**2
    assert min(integer_norm2(integers)[:2]) > 0.99 * grid.resolution**2


def test_truncation_goes_towards_zero_from_both_sides() -> None:
    record = np.array([[0.99, -0.99, 1.5, -1.5, 7.0, -7.0]]) / 1000
    assert Grid(1.0, 1000).encode_truncated(record).tolist() == [[0, 0, 1, -1, 7, -7]]


@settings(max_examples=200, deadline=None)
@given(grid=grids, records=st.one_of(anything, anything32), seed=st.integers(0, 2**32))
def test_no_input_makes_a_stochastically_rounded_record_longer_than_declared(
    grid: Grid, records: np.ndarray, seed: int
) -> None:
    integers = oracle.encode_stochastic(grid, records, RandomSource.simulation(seed))
    declared = grid.sensitivity_grid(Rounding.STOCHASTIC, records.shape[1])
    assert max(integer_norm2(integers)) <= declared**2 * (1 + 1e-12)
    assert declared <= grid.resolution + math.sqrt(records.shape[1])


@pytest.mark.deep
@settings(max_examples=300, deadline=None)
@given(
    grid=st.builds(Grid, st.floats(1e-6, 1e6), st.integers(1, 1 << 20)),
    update=hnp.arrays(np.float64, st.integers(1, 60), elements=st.floats(-1, 1)),
    direction=exactly_long,
    scale=st.floats(0, 1e5),
)
def test_one_record_moves_a_rounded_sum_by_no_more_than_declared(
    grid: Grid, update: np.ndarray, direction: np.ndarray, scale: float
) -> None:
    dimension = min(update.size, direction.size)
    first = update[:dimension] * scale * grid.clip_norm
    moved = direction[:dimension]
    assume(np.linalg.norm(moved) > 1e-9)
    second = first + moved / np.linalg.norm(moved) * grid.clip_norm
    # rounding of the addition itself is the caller's float slack
    true_distance = np.linalg.norm(second - first) / grid.clip_norm
    slack = max(0.0, (true_distance - 1.0) * grid.resolution) + 1e-6
    difference = grid.encode_summed(second) - grid.encode_summed(first)
    declared = grid.sensitivity_grid(Rounding.SUMMED, dimension, float_slack_grid=slack)
    assert math.sqrt(integer_norm2(difference[None])[0]) <= declared


def test_rounding_a_sum_really_can_cost_the_square_root_of_the_dimension() -> None:
    """The declared Δ₂ = r + √d is not idle: two sums half a step apart everywhere end a whole step
    apart everywhere.
    """
    grid = Grid(1.0, 4)
    low, high = np.full(10_000, 0.1249), np.full(10_000, 0.1251)
    difference = grid.encode_summed(high) - grid.encode_summed(low)
    assert math.sqrt(integer_norm2(difference[None])[0]) == 100.0
    assert np.linalg.norm(high - low) < 0.021


def test_records_that_are_not_finite_become_zero_and_leave_the_others_alone() -> None:
    grid = Grid(1.0, 1 << 16)
    records = np.array(
        [
            [math.nan, 0.5],
            [math.inf, 0.0],
            [-math.inf, math.nan],
            [0.6, -0.8],
            [5e-324, 0.0],
            [0.0, 0.0],
        ]
    )
    expected = [[0, 0], [0, 0], [0, 0], [39321, -52428], [0, 0], [0, 0]]
    assert grid.encode_truncated(records).tolist() == expected
    assert (
        oracle.encode_stochastic(grid, records, RandomSource.simulation(1))[:3].tolist()
        == expected[:3]
    )


def test_huge_records_keep_their_direction() -> None:
    grid = Grid(2.0, 1000)
    for huge in (3e38, 1e300, 1.7e308):
        assert grid.encode_truncated(np.array([[0.6 * huge, -0.8 * huge]])).tolist() in (
            [[600, -800]],
            [[599, -799]],
            [[600, -799]],
            [[599, -800]],
        )


def test_stochastic_rounding_is_unbiased_where_nothing_is_refused() -> None:
    """Mean over 4,000 roundings of one short vector; a standard error is below 0.008 steps: false
    alarm 1e-9 a coordinate.
    """
    grid = Grid(1.0, 1000)
    record = np.linspace(-0.0123, 0.0456, 16)
    integers = oracle.encode_stochastic(
        grid, np.tile(record, (4000, 1)), RandomSource.simulation(5)
    )
    assert np.abs(integers.mean(axis=0) - record * 1000).max() < 6.1 * 0.5 / math.sqrt(4000)
    assert set(np.unique(integers - np.floor(record * 1000))) == {0, 1}


def test_stochastic_rounding_retries_until_short_enough() -> None:
    """A full-length record in many dimensions is refused now and then; the accepted ones obey the
    tighter of the two bounds.
    """
    grid = Grid(1.0, 64)
    dimension = 4096
    declared = grid.sensitivity_grid(Rounding.STOCHASTIC, dimension)
    assert declared < grid.resolution + math.sqrt(dimension) - 10
    # every coordinate at exactly one grid step
    record = np.full((200, dimension), 1.0 / math.sqrt(dimension))
    record[:, ::2] *= 0.5
    norms2 = integer_norm2(oracle.encode_stochastic(grid, record, RandomSource.simulation(6)))
    assert max(norms2) <= declared**2
    assert max(norms2) > 0.5 * dimension


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_an_update_that_is_not_finite_releases_nothing(bad: float) -> None:
    with pytest.raises(DataError, match="nothing was released"):
        Grid(1.0, 1 << 16).encode_summed(np.array([0.0, bad]))


@settings(max_examples=200, deadline=None)
@given(
    start=st.floats(-1e9, 1e9), step=st.floats(-2.0, 2.0), scale=st.sampled_from([1.0, 1e-3, 1e300])
)
def test_an_update_beyond_the_grid_stops_nobody_and_its_sensitivity_holds(
    start: float, step: float, scale: float
) -> None:
    """A record whose presence moves a coordinate across 2^40 grid steps: the silo answers all the
    same, and no further apart.
    """
    grid = Grid(1.0, 1 << 16)
    edge = scale * 2.0**24 + np.array([start, -start])
    first, second = grid.encode_summed(edge), grid.encode_summed(edge + step)
    assert np.abs(np.stack([first, second])).max() <= 2**40
    moved = [abs(int(a) - int(b)) for a, b in zip(first, second, strict=True)]
    exact = [
        abs(Fraction(float(a)) - Fraction(float(b))) * 2**16
        for a, b in zip(edge, edge + step, strict=True)
    ]
    assert all(far <= near + 1 + Fraction(1, 2**12) for far, near in zip(moved, exact, strict=True))


def test_decode_inverts_encode_up_to_one_step() -> None:
    grid = Grid(3.0, 1 << 14)
    values = np.linspace(-0.1, 0.1, 101)
    assert (
        np.abs(grid.encode_truncated(values[None])[0] * grid.granularity - values).max()
        < grid.granularity
    )
    assert np.abs(
        grid.encode_summed(values) * grid.granularity - values
    ).max() <= grid.granularity / 2 * (1 + 1e-9)


@settings(max_examples=200, deadline=None)
@given(modulus_bits=st.integers(1, 64), data=st.data())
def test_lift_returns_every_centred_integer_and_sums_survive_the_ring(
    modulus_bits: int, data: st.DataObject
) -> None:
    half = 1 << (modulus_bits - 1)
    centred = st.integers(-half, half - 1)
    values = np.array(data.draw(st.lists(centred, min_size=1, max_size=9)), dtype=np.int64)
    residues = to_ring(values, modulus_bits)
    assert all(
        int(r) == int(v) % (1 << modulus_bits) for r, v in zip(residues, values, strict=True)
    )
    assert lift(residues, modulus_bits).tolist() == values.tolist()
    total = sum(map(int, values))
    if -half <= total < half:
        with np.errstate(over="ignore"):
            wrapped = residues.sum(dtype=np.uint64)
        assert lift(
            np.array([wrapped]) & np.uint64((1 << modulus_bits) - 1), modulus_bits
        ).tolist() == [total]


def test_lift_takes_the_words_a_32_bit_ring_is_sent_in() -> None:
    assert lift(np.array([0, 1, 2**31 - 1, 2**31, 2**32 - 1], dtype=np.uint32), 32).tolist() == [
        0,
        1,
        2**31 - 1,
        -(2**31),
        -1,
    ]


@pytest.mark.parametrize("modulus_bits", [8, 9, 10])
@pytest.mark.parametrize("sampled", [True, False])
def test_overflow_bound_is_above_the_exact_probability_and_of_its_order(
    modulus_bits: int, sampled: bool
) -> None:
    """Small enough to be summed: B ~ Binomial(40, 0.1) records of 8 steps and two Skellam draws in
    each of ten coordinates.
    """
    noise, half, dimension = Skellam(300.0), 1 << (modulus_bits - 1), 10
    points = np.arange(-1500, 1501)
    law = special.ive(np.abs(points), 600.0)
    exact = 0.0
    for records in range(41):
        weight = stats.binom.pmf(records, 40, 0.1) if sampled else float(records == 4)
        wraps = float(law[np.abs(points + 8 * records) >= half].sum())
        exact += weight * -math.expm1(dimension * math.log1p(-min(wraps, 1 - 1e-16)))
    bound = oracle.overflow_probability(
        Grid(1.0, 8),
        expected_records=4.0,
        sampled=sampled,
        noise=noise,
        noise_draws=2,
        dimension=dimension,
        modulus_bits=modulus_bits,
    )
    assert exact <= bound <= 100 * exact**0.8


@pytest.mark.parametrize("noise", [Skellam(1e6), DiscreteGaussian(1e6), Gaussian(1e3)], ids=str)
def test_overflow_bound_falls_with_room_and_rises_with_everything_else(
    noise: Skellam | DiscreteGaussian | Gaussian,
) -> None:
    def bound(**changes: float) -> float:
        arguments = {
            "expected_records": 900.0,
            "sampled": True,
            "noise_draws": 5,
            "dimension": 100,
            "modulus_bits": 18,
        } | changes
        return oracle.overflow_probability(Grid(1.0, 64), noise=noise, **arguments)  # type: ignore[arg-type]

    assert 0.0 < bound() < 1.0
    assert bound(modulus_bits=19) < bound()
    assert bound(expected_records=1000.0) > bound()
    assert bound(noise_draws=9) > bound()
    assert bound(dimension=10_000) > bound()
    assert bound(rounded_sums=500) > bound()
    assert bound(sampled=False) < bound()
    assert bound(modulus_bits=16) == 1.0
    assert bound(expected_records=0.0, modulus_bits=32) == pytest.approx(0.0, abs=1e-300)


def test_plan_typical_ring_never_wraps_and_a_small_one_is_found_out() -> None:
    grid = Grid(1.0, 1 << 16)
    plan = {
        "expected_records": 10 * 11 * 512.0,
        "sampled": True,
        "noise": Skellam((6.8 * 65536) ** 2 / 10),
        "noise_draws": 110,
    }
    assert oracle.overflow_probability(grid, dimension=26_010, modulus_bits=34, **plan) < 2.0**-40  # type: ignore[arg-type]
    assert oracle.overflow_probability(grid, dimension=26_010, modulus_bits=32, **plan) == 1.0  # type: ignore[arg-type]


def test_float_slack_bounds_the_error_of_a_real_float32_sum() -> None:
    rng = np.random.default_rng(4)
    records = rng.normal(size=(512, 50))
    records /= np.linalg.norm(records, axis=1, keepdims=True)
    records = records.astype(np.float32)
    exact = records.astype(np.float64).sum(axis=0)
    error_grid = np.linalg.norm(np.add.reduce(records, axis=0).astype(np.float64) - exact) * 1000
    assert (
        0
        < error_grid
        < summation_slack_grid(terms=512, resolution=1000, unit_roundoff=2.0**-24) / 2
    )
    assert summation_slack_grid(terms=512, resolution=1 << 16) < 1e-5
    assert summation_slack_grid(terms=1, resolution=1 << 16) == 0.0


def test_bad_grids_are_refused_in_one_line() -> None:
    for clip_norm in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(PlanError, match="clip_norm must be a positive number"):
            Grid(clip_norm, 16)
    for resolution in (0, -4, LARGEST_RESOLUTION + 1, 2.5):
        with pytest.raises(PlanError, match="resolution must be an integer"):
            Grid(1.0, resolution)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="dimension must be at least 1"):
        Grid(1.0, 16).sensitivity_grid(Rounding.TRUNCATED, 0)
    with pytest.raises(PlanError, match="rounding must be"):
        Grid(1.0, 16).sensitivity_grid("nearest", 5)  # type: ignore[arg-type]
    for slack in (-1.0, math.nan, math.inf):
        with pytest.raises(PlanError, match="float_slack_grid"):
            Grid(1.0, 16).sensitivity_grid(Rounding.SUMMED, 5, float_slack_grid=slack)
    for modulus_bits in (0, 65):
        with pytest.raises(PlanError, match="modulus_bits"):
            lift(np.zeros(1, dtype=np.uint64), modulus_bits)
    with pytest.raises(PlanError, match="terms"):
        summation_slack_grid(terms=1 << 24, resolution=1, unit_roundoff=2.0**-24)
