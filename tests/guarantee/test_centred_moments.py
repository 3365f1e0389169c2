"""Moments about a silo's own mean: exact in integers, and one record or person moves them by no more
than is declared, however the silo's other records lie.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from torch import nn

from sumus import RunOptions, TrainingPlan, train
from sumus.audit.canaries import CanaryRounds
from sumus.data import Records, from_arrays
from sumus.errors import PlanError
from sumus.gradients import ONE, centred_moments
from sumus.guarantee import NoiseDesign, calibrated
from sumus.randomness import RandomSource
from sumus.runs import Simulation
from sumus.training import local_updater

FINENESS = 1 << 12
RESOLUTION = 1 << 16


def moments(
    x: np.ndarray, y: np.ndarray, weights: np.ndarray | None = None, longest: float = math.sqrt(32)
) -> np.ndarray:
    """With R = B = 1, whose diameters make C = 4·√2."""
    weights = np.full(len(x), ONE) if weights is None else weights
    return centred_moments(
        x.astype(np.float32),
        y.astype(np.float64),
        weights,
        radius=1.0,
        target_bound=1.0,
        per_unit=RESOLUTION / longest,
    )


def by_fractions(x: np.ndarray, y: np.ndarray, weights: list[int]) -> np.ndarray:
    """The same by the definition, in fractions: Σ ω·(z − z̄)·(z − z̄)ᵀ."""
    rows = [
        [Fraction(math.trunc(FINENESS * value * (1 - 2**-40))) for value in (*a, *b)]
        for a, b in zip(x.tolist(), y.tolist(), strict=True)
    ]
    total = sum(weights)
    mean = [
        sum(w * row[k] for w, row in zip(weights, rows, strict=True)) / total
        for k in range(len(rows[0]))
    ]
    per = RESOLUTION / math.sqrt(32) / (FINENESS**2 * ONE)
    features, found = x.shape[1], []
    pairs = [(a, b) for a in range(features) for b in range(a, features)]
    pairs += [(a, features + k) for k in range(y.shape[1]) for a in range(features)]
    for a, b in pairs:
        exact = sum(
            w * (row[a] - mean[a]) * (row[b] - mean[b])
            for w, row in zip(weights, rows, strict=True)
        )
        found.append(float(exact) * per * (math.sqrt(2) if a != b and b < features else 1.0))
    return np.array(found)


def test_what_is_rounded_is_the_exact_scatter() -> None:
    draw = np.random.default_rng(0)
    x = (draw.uniform(-0.5, 0.5, size=(40, 3))).astype(np.float32)
    y = draw.uniform(-1, 1, size=(40, 1))
    weights = draw.integers(0, ONE, size=40)
    exact = by_fractions(x, y, [int(w) for w in weights])
    ours = moments(x, y, weights)
    assert np.abs(ours - exact).max() <= 0.5 + 1e-6
    order = draw.permutation(40)
    np.testing.assert_array_equal(ours, moments(x[order], y[order], weights[order]))
    assert not moments(x[:0], y[:0]).any()
    assert not moments(x[:1], y[:1]).any()


def test_many_records_far_from_zero_are_as_exact() -> None:
    """Where floats would cancel: 40,000 records near the boundary that differ by little."""
    draw = np.random.default_rng(1)
    x = np.full((40_000, 1), 0.99, np.float32) - draw.integers(0, 2, size=(40_000, 1)) / 4096
    y = np.zeros((40_000, 1))
    whole = np.trunc(FINENESS * x.astype(np.float64) * (1 - 2**-40)).astype(np.int64)[:, 0]
    exact = Fraction(int((whole**2).sum())) - Fraction(int(whole.sum()) ** 2, len(whole))
    expected = float(exact) / FINENESS**2 * RESOLUTION / math.sqrt(32)
    assert abs(int(moments(x.astype(np.float32), y)[0]) - expected) <= 0.6


@pytest.mark.parametrize("others", range(4))
def test_every_record_beside_every_small_silo_stays_within_the_resolution(others: int) -> None:
    """All silos of up to three records at the ends of an interval, and all that may join them: the
    diameter is reached, and the change is n/(n + 1) of it.
    """
    ends = list(itertools.product((-1.0, 1.0), (-1.0, 1.0)))
    worst, allowed = 0.0, RESOLUTION + math.sqrt(2)
    for silo in itertools.combinations_with_replacement(ends, others):
        base = np.array(silo, float).reshape(-1, 2)
        before = moments(base[:, :1], base[:, 1:])
        for one in ends:
            more = np.vstack([base, one])
            change = moments(more[:, :1], more[:, 1:]) - before
            worst = max(worst, float(np.linalg.norm(change)))
            assert worst <= allowed
    assert worst == pytest.approx(others / (others + 1) * RESOLUTION, rel=2e-3, abs=2.0)


@pytest.mark.deep
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_no_person_beside_no_silo_moves_the_moments_by_more(data: st.DataObject) -> None:
    """Rows of any number and place, weights up to one in all, beside any others."""
    features = data.draw(st.integers(1, 3))
    numbers = st.floats(-1.5, 1.5, width=32) | st.sampled_from([1.0, -1.0, 0.0, 3e38, math.inf])

    def rows(count: int) -> np.ndarray:
        return np.array(
            [
                data.draw(st.lists(numbers, min_size=features + 1, max_size=features + 1))
                for _ in range(count)
            ]
        ).reshape(-1, features + 1)

    others, own = data.draw(st.integers(0, 5)), data.draw(st.integers(1, 4))
    silo, person = rows(others), rows(own)
    weights = np.full(others, ONE)
    share = np.full(own, ONE // data.draw(st.integers(own, 6)))
    before = moments(silo[:, :-1], silo[:, -1:], weights)
    both = np.vstack([silo, person])
    after = moments(both[:, :-1], both[:, -1:], np.append(weights, share))
    change = [int(value) ** 2 for value in after - before]
    assert math.sqrt(sum(change)) <= RESOLUTION + math.sqrt(len(change))


def _design(changes: dict[str, object]) -> NoiseDesign:
    draw = np.random.default_rng(0)
    silos = [(draw.uniform(-1, 1, size=(60, 3)), draw.uniform(0, 1, 60)) for _ in range(3)]
    plan = TrainingPlan().with_overrides(REGRESSION | changes)
    return calibrated(plan, from_arrays(silos, task=plan.task).facts())


REGRESSION: dict[str, object] = {
    "training.task": "regression",
    "training.algorithm": "normal-equations",
    "training.local_parameters": "intercept",
    "data.bounds": {"label": [0.0, 1.0]},
}


@pytest.mark.parametrize("person", [False, True])
def test_a_search_through_the_real_updater_does_not_pass_the_declared_length(person: bool) -> None:
    """Hill climbing on a unit and on the silo's other records together."""
    unit: dict[str, object] = {"privacy.unit": "person", "data.person_column": "who"}
    design = _design(unit if person else {})
    silo, draw, rows = design.silos[0], np.random.default_rng(1), 2 if person else 1

    def vector(x: np.ndarray, y: np.ndarray, own: int) -> np.ndarray:
        persons = np.append(np.arange(len(x) - own), np.full(own, len(x) - own))
        records = Records(x.astype(np.float32), y, persons if person else None)
        updater = local_updater(design, silo, records, nn.Identity())
        return updater(np.zeros(3), RandomSource.simulation(5, "noise")).vector

    def shortened(x: np.ndarray) -> np.ndarray:
        return x / np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True) / 0.968)

    x, y, worst = np.tile([-0.9, 0.0, 0.0, 0.25], (30 + rows, 1)), np.full(30 + rows, -1.0), 0.0
    x[30:, 0], y[30:] = 0.5, 0.5
    for _ in range(150):
        moved = x.copy()
        moved[:, :3] = shortened(
            x[:, :3] + 0.2 * draw.normal(size=(30 + rows, 3)) * (draw.random() < 0.5)
        )
        moved[:30] = moved[0]
        targets = np.clip(y + 0.3 * draw.normal(size=30 + rows), -1, 1).astype(np.float32)
        targets[:30] = targets[0]
        change = vector(moved, targets, rows) - vector(moved[:30], targets[:30], 0)
        length = float(np.linalg.norm(change.astype(np.float64)))
        assert length <= silo.l2_grid
        if length > worst:
            worst, x, y = length, moved, targets
    assert worst > 0.8 * silo.l2_grid


def test_the_account_counts_the_rounding_and_the_diameters() -> None:
    design = _design({"training.feature_bound": 1.0})
    radius = math.sqrt(15 / 16)
    assert design.grid.clip_norm == pytest.approx(4 * radius * math.hypot(radius, 1.0))
    assert design.resolved.coordinates == 3 * 4 // 2 + 3
    assert design.resolved.dimension == 3
    assert {silo.l2_grid for silo in design.silos} == {design.grid.resolution + 3.0}


@pytest.mark.deep
def test_silos_that_differ_in_level_are_learned_better_with_intercepts_of_their_own(
    tmp_path: Path,
) -> None:
    """Slopes agree, levels do not: pooled levels hide the slopes' worth."""
    draw, slopes, silos = np.random.default_rng(0), np.array([0.3, -0.2, 0.1]), []
    for level in np.linspace(0.2, 0.8, 6):
        x = draw.uniform(-1, 1, size=(3000, 3)).astype(np.float32) + np.float32(level - 0.5)
        y = level - (x - (level - 0.5)) @ slopes * 0.3 + draw.normal(0, 0.02, 3000)
        silos.append((x, np.clip(y, 0.0, 1.0)))
    found = {}
    for local in (None, "intercept"):
        plan = TrainingPlan().with_overrides(
            REGRESSION | {"training.local_parameters": local, "privacy.epsilon": 3.0}
        )
        options = RunOptions(root=tmp_path / str(local), ledger=False)
        run = train(plan, silos=silos, options=options, simulation=Simulation(1))
        found[local] = run.metrics["r2"]
    assert found["intercept"] > 0.9
    assert found["intercept"] > (found[None] or 0.0) + 0.02


def test_what_is_not_proved_is_refused() -> None:
    with pytest.raises(PlanError, match="is proved for regression under normal-equations"):
        TrainingPlan().with_overrides(
            {
                "training.algorithm": "normal-equations",
                "training.local_parameters": "intercept",
            }
        )
    with pytest.raises(PlanError, match="has no canaries under normal-equations"):
        CanaryRounds(_design({}), 4, view="sum")
    with pytest.raises(PlanError, match=r"training\.feature_bound must be at most 2"):
        _design({"training.feature_bound": 4.0})
