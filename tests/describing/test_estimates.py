"""Estimates of noisy counts: exact without noise, and intervals that hold as often as they say."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from sumus.data import write_patients
from sumus.describing.columns import LEVELS, statistics_of
from sumus.describing.estimates import Estimate, quantile, ratio, significant, spread
from sumus.plan import ColumnCells
from sumus.plan.cells import WIDE_EDGES
from sumus.tasks import TASKS, Declared, Survival

REPEATS = 400
LEAST = 0.92  # of 400 intervals at 95 %: fewer than this by chance once in a thousand times or less


def bounded(bins: int, low: float = 0.0, high: float = 1.0) -> ColumnCells:
    edges = tuple(np.linspace(low, high, bins + 1).tolist())
    return ColumnCells("x", "bounded", 0, edges=edges)


def counted(cells: ColumnCells, values: np.ndarray) -> np.ndarray:
    return np.bincount(cells.of_numbers(values), minlength=cells.count).astype(np.float64)


@pytest.fixture(scope="module")
def values() -> np.ndarray:
    draw = np.random.default_rng(7)
    some = draw.beta(2.0, 5.0, 5000) * 100.0
    some[:200] = np.nan
    some[200:300] = 140.0
    return some


def test_without_noise_means_and_shares_are_those_of_numpy_up_to_the_cells(
    values: np.ndarray,
) -> None:
    cells = bounded(50, 0.0, 100.0)
    made = statistics_of(cells, counted(cells, values), 0.0)
    present = np.clip(values[~np.isnan(values)], 0.0, 100.0)
    assert made.missing == Estimate(0.04, 0.04, 0.04)
    assert made.above is not None
    assert made.above.value == pytest.approx(100 / 4800)
    assert made.mean is not None
    assert made.std is not None
    assert abs(made.mean.value - present.mean()) <= 1.0 + 1e-9
    assert made.mean.low <= present.mean() <= made.mean.high
    assert made.std.low <= present.std() <= made.std.high
    for level in LEVELS:
        truth = np.quantile(present, level, method="inverted_cdf")
        assert made.quantiles[level].low <= truth <= made.quantiles[level].high
        assert abs(made.quantiles[level].value - truth) <= 2.0


@pytest.mark.parametrize("sigma", [3.0, 20.0])
def test_intervals_hold_the_truth_as_often_as_they_say(values: np.ndarray, sigma: float) -> None:
    cells = bounded(32, 0.0, 100.0)
    exact, present = counted(cells, values), np.clip(values[~np.isnan(values)], 0.0, 100.0)
    truth = {
        "missing": 0.04,
        "mean": present.mean(),
        "std": present.std(),
        **{level: np.quantile(present, level, method="inverted_cdf") for level in LEVELS},
    }
    held = dict.fromkeys(truth, 0)
    draw = np.random.default_rng(11)
    for _ in range(REPEATS):
        made = statistics_of(cells, exact + sigma * draw.normal(size=cells.count), sigma)
        for name, value in truth.items():
            told = made.quantiles[name] if isinstance(name, float) else getattr(made, name)
            held[name] += told.low - 1e-9 <= value <= told.high + 1e-9
    assert min(held.values()) / REPEATS >= LEAST, held


def test_a_share_of_a_category_holds_as_often_as_it_says() -> None:
    cells = ColumnCells("x", "categories", 0, names=("a", "b", "c"))
    exact = np.array([700.0, 250.0, 40.0, 0.0, 10.0])
    draw, held = np.random.default_rng(3), 0
    for _ in range(REPEATS):
        made = statistics_of(cells, exact + 9.0 * draw.normal(size=5), 9.0)
        held += made.shares["b"].low <= 0.25 <= made.shares["b"].high
    assert held / REPEATS >= LEAST


def test_the_interval_of_a_ratio_is_not_wider_than_it_need_be() -> None:
    """Without half a cell of slack Fieller's interval misses about one in twenty."""
    exact, a = np.array([300.0, 500.0, 200.0]), np.array([0.0, 0.5, 1.0])
    draw, held = np.random.default_rng(5), 0
    for _ in range(2000):
        told = ratio(a, np.ones(3), exact + 15.0 * draw.normal(size=3), 15.0)
        assert told is not None
        held += told.low <= 0.45 <= told.high
    assert 0.93 <= held / 2000 <= 0.97


def test_where_noise_is_all_there_is_nothing_is_claimed() -> None:
    cells = bounded(32)
    made = statistics_of(cells, np.random.default_rng(0).normal(size=cells.count) * 50.0, 50.0)
    assert made.mean is None
    assert made.std is None
    assert not made.quantiles
    wide = ColumnCells("x", "wide", 0, edges=WIDE_EDGES)
    nothing = statistics_of(wide, np.random.default_rng(1).normal(size=wide.count), 1.0)
    assert nothing.bounds is None
    assert not nothing.learned


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.floats(-1e4, 1e4), min_size=5, max_size=40),
    st.floats(0.0, 1e3),
    st.sampled_from(LEVELS),
)
def test_no_counts_whatsoever_break_a_statistic(
    counts: list[float], sigma: float, level: float
) -> None:
    noisy = np.array(counts)
    edges = np.linspace(0.0, 1.0, len(noisy) + 1)
    told = quantile(level, edges, noisy, sigma)
    assert 0.0 <= told.low <= told.value <= told.high <= 1.0
    cells = bounded(len(noisy) - 3)
    made = statistics_of(cells, noisy, sigma)
    for estimate in (made.mean, made.std, made.missing):
        if estimate is not None:
            assert math.isfinite(estimate.value)
            assert estimate.low <= estimate.high
    apart = spread(np.linspace(0, 1, len(noisy)), noisy, sigma)
    assert apart is None or apart.low <= apart.value


# -- learned bounds


@pytest.mark.parametrize("scale", [1e-4, 1.0, 3e6])
@pytest.mark.parametrize("shift", [-2.0, 0.0, 10.0])
def test_learned_bounds_hold_nearly_all_records_and_are_not_far_off(
    scale: float, shift: float
) -> None:
    draw = np.random.default_rng(2)
    some = (draw.normal(size=20_000) + shift) * scale
    cells = ColumnCells("x", "wide", 0, edges=WIDE_EDGES)
    noisy = counted(cells, some) + 12.0 * draw.normal(size=cells.count)
    made = statistics_of(cells, noisy, 12.0)
    assert made.learned
    assert made.bounds is not None
    low, high = made.bounds
    assert ((some >= low) & (some <= high)).mean() >= 0.97
    reach = np.abs(np.quantile(some, [0.01, 0.99])).max()
    assert max(abs(low), abs(high)) <= 2.0 * reach


def test_nothing_is_learned_where_most_records_drown_in_noise() -> None:
    """Half of the records share a value and stand out, the others are spread below the noise: the
    cell of the former is no range.
    """
    draw = np.random.default_rng(9)
    some = np.concatenate([np.zeros(2000), 10.0 ** draw.uniform(-5.0, 5.0, 2000)])
    cells = ColumnCells("x", "wide", 0, edges=WIDE_EDGES)
    made = statistics_of(cells, counted(cells, some) + 25.0 * draw.normal(size=cells.count), 25.0)
    assert made.bounds is None
    assert not made.quantiles


def test_a_handful_of_outliers_does_not_stretch_learned_bounds() -> None:
    """Nor does the largest value show: the bounds are the same with and without one."""
    draw = np.random.default_rng(4)
    some = draw.uniform(0.0, 9.0, 5000)
    cells = ColumnCells("x", "wide", 0, edges=WIDE_EDGES)
    noise = 10.0 * draw.normal(size=cells.count)
    plain = statistics_of(cells, counted(cells, some) + noise, 10.0).bounds
    rich = statistics_of(cells, counted(cells, np.append(some, 1e11)) + noise, 10.0).bounds
    assert plain == rich == (0.0, 10.0)


def test_empty_cells_hardly_ever_stand_out() -> None:
    draw = np.random.default_rng(6)
    found = sum(significant(draw.normal(size=220), 1.0).any() for _ in range(1000))
    assert found <= 30


# -- times and events


def test_a_curve_of_times_is_kaplan_meiers_and_its_interval_holds() -> None:
    """Against the textbook's product over the people themselves, without noise; with noise the
    interval holds the curve of these very people.
    """
    cuts = (30.0, 90.0, 180.0, 365.0)
    task = TASKS["survival"].of(Declared({}, {}, intervals=cuts))
    draw = np.random.default_rng(8)
    times, ends = draw.exponential(300.0, 4000), draw.uniform(0.0, 800.0, 4000)
    events = (times <= ends).astype(np.int64)
    assert isinstance(task, Survival)
    codes = task.encode(np.minimum(times, ends), events)
    cells = ColumnCells("days", "survival", 0, edges=cuts)
    exact = np.bincount(codes, minlength=cells.count).astype(np.float64)
    kept, curve = 1.0, []
    for interval in range(len(cuts)):
        at_risk = (codes > 2 * interval).sum()
        kept *= 1.0 - (codes == 2 * interval + 1).sum() / at_risk
        curve.append(kept)
    plain = statistics_of(cells, exact, 0.0)
    assert [each.value for _, each in plain.survival] == pytest.approx(curve)
    assert [name for name, _ in plain.cells][1:3] == ["event in 0 – 30", "followed to 30, no event"]
    held = np.zeros(len(cuts))
    for _ in range(REPEATS):
        made = statistics_of(cells, exact + 8.0 * draw.normal(size=cells.count), 8.0)
        held += [
            each.low <= truth <= each.high
            for (_, each), truth in zip(made.survival, curve, strict=True)
        ]
    assert held.min() / REPEATS >= LEAST


@pytest.mark.parametrize(("sigma", "least"), [(12.3, 0.98), (44.0, 0.93)])
def test_learned_bounds_of_the_invented_patients_hold_what_the_page_says(
    tmp_path: Path, sigma: float, least: float
) -> None:
    """docs/describe.md: 6,000 rows, nine columns, ε = 1 and ε = 0.25."""
    rows = list(csv.DictReader(write_patients(tmp_path / "p.csv").open(encoding="utf-8")))
    cells = ColumnCells("x", "wide", 0, edges=WIDE_EDGES)
    draw = np.random.default_rng(0)
    for name in ("age", "stay_days", "blood_pressure", "creatinine", "earlier_visits"):
        some = np.array([float(row[name] or "nan") for row in rows])
        exact, present = counted(cells, some), some[~np.isnan(some)]
        for _ in range(100):
            noisy = exact + sigma * draw.normal(size=cells.count)
            bounds = statistics_of(cells, noisy, sigma, records=len(rows)).bounds
            assert bounds is not None
            assert ((present >= bounds[0]) & (present <= bounds[1])).mean() >= least


def test_noise_beyond_what_is_possible_makes_nothing_certain() -> None:
    below = Estimate(-0.03, -0.04, -0.02).within(0.0, 1.0)
    assert (below.value, below.low, below.plus_minus) == (0.0, 0.0, pytest.approx(0.01))
    above = Estimate(1.2, 1.1, 1.3).within(0.0, 1.0)
    assert (above.value, above.high, above.plus_minus) == (1.0, 1.0, pytest.approx(0.1))
    inside = Estimate(0.01, -0.01, 0.03).within(0.0, 1.0)
    assert (inside.value, inside.low, inside.high) == (0.01, 0.0, 0.03)
