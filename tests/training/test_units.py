"""A unit of privacy may be made of several rows: it counts once, whatever they are."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from sumus.errors import GuaranteeError
from sumus.gradients import Units
from sumus.guarantee.algorithms.convex_pass import convex_float_slack_grid
from sumus.plan import TrainingPlan, resolve
from sumus.tasks import TASKS, LinearRows, Link
from sumus.training.local.convex_pass import convex_pass
from support.small_data import persons_data

CLASSES = TASKS["classification"]


class FixedBins:
    """A source whose bins the test chooses."""

    def __init__(self, *assignments: np.ndarray) -> None:
        self._assignments = list(assignments)

    def below(self, bound: int, count: int) -> np.ndarray:
        return self._assignments.pop(0)[:count]


def rows_of(rng: np.random.Generator, count: int, features: int) -> np.ndarray:
    x = rng.normal(size=(count, features))
    return (x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1.0) * (1 - 1e-6)).astype(
        np.float32
    )


def grouped(counts: list[int]) -> Units:
    of_row = np.repeat(np.arange(len(counts)), counts)
    return Units(len(counts), of_row, np.repeat(1.0 / np.array(counts), counts))


def run(weights, x, y, units, assigned, *, bins=3, cap=6, step=0.4, **options):
    return convex_pass(
        weights,
        x,
        y,
        task=CLASSES,
        units=units,
        bins=bins,
        passes=1,
        step=step,
        decay=0.0,
        bin_cap=cap,
        feature_bound=1.0,
        residual_cap=1.0,
        source=FixedBins(assigned),
        **options,
    )


def plain_pass(weights, x, y, units, assigned, *, bins, cap, step):
    """The formula, person by person."""
    w = weights.copy()
    for s in range(bins):
        total, mine = np.zeros_like(w), np.flatnonzero(assigned == s)
        for person in mine:
            for j in np.flatnonzero(units.of_row == person):
                z = w @ x[j].astype(np.float64)
                p = np.exp(z - z.max())
                p = p / p.sum() - np.eye(len(w))[y[j]]
                total += units.weights[j] * np.outer(p, x[j])
        w = w - step * min(1.0, cap / max(len(mine), 1)) * total
    return w


def test_the_pass_over_persons_is_the_formula() -> None:
    """Bins are dealt per person, and the cap counts persons: five rows each are no five records."""
    rng = np.random.default_rng(0)
    counts = [1, 5, 2, 7, 3, 1, 1, 4]
    x, y = rows_of(rng, sum(counts), 4), rng.integers(0, 3, sum(counts))
    units, weights = grouped(counts), rng.normal(size=(3, 4))
    assigned = np.array([0, 0, 0, 1, 1, 2, 2, 2])
    for cap in (1, 2, 8):
        ours = run(weights, x, y, units, assigned, cap=cap)
        theirs = plain_pass(weights, x, y, units, assigned, bins=3, cap=cap, step=0.4)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-13)


def test_single_rows_are_bit_for_bit_a_pass_without_units() -> None:
    rng = np.random.default_rng(1)
    x, y, weights = rows_of(rng, 30, 5), rng.integers(0, 3, 30), rng.normal(size=(3, 5))
    assigned = rng.integers(0, 3, 30)
    plain = run(weights, x, y, None, assigned)
    assert np.array_equal(plain, run(weights, x, y, Units.single(30), assigned))
    assert np.array_equal(plain, run(weights, x, y, grouped([1] * 30), assigned))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), repeats=st.integers(2, 10))
def test_repeating_everybodys_rows_changes_nothing_but_rounding(seed: int, repeats: int) -> None:
    """Nor does the order of a person's rows."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 5, 9)
    x, y = rows_of(rng, counts.sum(), 4), rng.integers(0, 3, counts.sum())
    weights, assigned = rng.normal(size=(3, 4)), rng.integers(0, 3, 9)
    once = run(weights, x, y, grouped(list(counts)), assigned)
    of_row = np.repeat(np.arange(9), counts)
    again = np.argsort(np.tile(of_row, repeats), kind="stable") % counts.sum()
    again = rng.permutation(again)
    again = again[np.argsort(of_row[again], kind="stable")]
    more = run(weights, x[again], y[again], grouped(list(counts * repeats)), assigned)
    np.testing.assert_allclose(once, more, rtol=0, atol=1e-13)


@settings(max_examples=120, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    outputs=st.sampled_from([1, 2, 4]),
    bins=st.integers(1, 5),
    room=st.floats(0.3, 1.0),
    spread=st.floats(0.0, 20.0),
    most=st.integers(1, 6),
)
def test_a_person_moves_the_result_by_at_most_gamma_c_over_b(
    seed, outputs, bins, room, spread, most
) -> None:
    """All rows of the last person come or go; the others and their bins stay."""
    rng = np.random.default_rng(seed)
    persons = 12
    counts = rng.integers(1, most + 1, persons)
    x, y = rows_of(rng, counts.sum(), 4), rng.integers(0, max(outputs, 2), counts.sum())
    assigned = rng.integers(0, bins, persons)
    cap = int(np.bincount(assigned, minlength=bins).max())
    smoothness, gradient_norm = (0.25, 1.0) if outputs == 1 else (0.5, math.sqrt(2.0))
    step = room * 2.0 / (smoothness * cap)
    weights = spread * rng.normal(size=(outputs, 4))
    options = {"bins": bins, "cap": cap, "step": step}
    kept = counts[:-1].sum()
    with_person = run(weights, x, y, grouped(list(counts)), assigned, **options)
    without = run(weights, x[:kept], y[:kept], grouped(list(counts[:-1])), assigned, **options)
    assert np.linalg.norm(with_person - without) <= step * gradient_norm * (1 + 1e-9)


def test_rows_of_a_record_and_records_of_a_person_multiply() -> None:
    """A person of two records, each of two rows: quarters."""
    rows = LinearRows(
        np.eye(3, dtype=np.float32)[[0, 1, 0, 1, 2]],
        np.array([0, 1, 0, 0, 1]),
        np.array([0.5, 0.5, 0.5, 0.5, 0.5]),
        np.array([0, 0, 1, 1, 2]),
        Link.LOGISTIC,
    )
    persons = Units(2, np.array([0, 0, 1]), np.array([0.5, 0.5, 1.0]))
    made = persons.expanded(rows)
    assert made.count == 2
    assert made.of_row is not None
    assert made.of_row.tolist() == [0, 0, 0, 0, 1]
    assert made.weights.tolist() == [0.25, 0.25, 0.25, 0.25, 0.5]
    alone = Units.single(3).expanded(rows)
    assert alone.count == 3
    assert alone.weights.tolist() == [0.5] * 5
    moved = run(np.zeros((1, 3)), rows.x, rows.y, made, np.array([0, 0]), bins=1, link=rows.link)
    np.testing.assert_allclose(moved, -0.4 * np.array([[0.25, 0.0, -0.25]]), atol=1e-15)


@pytest.mark.parametrize(
    ("of_row", "weights"),
    [
        ([0, 0, 1], [0.6, 0.6, 1.0]),  # a person who counts 1.2 times
        ([0, 0, 1], [1.5, -0.5, 1.0]),
        ([0, 0, 1], [0.5, math.nan, 1.0]),
        ([0, 1, 0], [0.5, 1.0, 0.5]),  # not side by side
        ([0, 0, 2], [0.5, 0.5, 1.0]),  # a person too many
    ],
)
def test_units_that_count_more_than_once_are_refused(of_row, weights) -> None:
    with pytest.raises(GuaranteeError, match="sorted by unit"):
        Units(2, np.array(of_row), np.array(weights))


def test_what_rounding_may_add_counts_the_rows_that_a_person_may_have() -> None:
    """2·P·S·u·8·(n·M + 4 − n)/R more, in grid steps of γC/b."""
    data = persons_data()
    slacks = {}
    for most in (1, 1000):
        plan = TrainingPlan().with_overrides(
            {
                "privacy.unit": "person",
                "data.records_per_person": most,
                "training.algorithm": "convex-pass",
                "federation.local_steps": 6,
            }
        )
        resolved = resolve(plan, data.facts())
        assert resolved.rows_per_record == most
        slacks[most] = convex_float_slack_grid(
            resolved, learning_rate=0.5, steps=6, records=40, resolution=65536.0
        )
    unit = 0.5 * math.sqrt(2.0) / resolved.divisor
    more = 2 * 6 * 2.0**-53 * 8.0 * (40 * 1000 + 4 - 40) * 65536.0 / unit
    assert slacks[1000] - slacks[1] == pytest.approx(more, rel=1e-6)
