"""One record moves a convex pass by at most γC/b per pass, whatever the other records are."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.special import entr, expit

from sumus.errors import DataError, GuaranteeError
from sumus.gradients.kernels import to_capped_residual
from sumus.guarantee import LARGEST_WEIGHT_NORM
from sumus.randomness import RandomSource
from sumus.tasks import TASKS, Link
from sumus.training.local.convex_pass import convex_pass


class FixedBins:
    """A source whose bins the test chooses, so that neighbours can be coupled record by record."""

    def __init__(self, *assignments: np.ndarray) -> None:
        self._assignments = list(assignments)

    def below(self, bound: int, count: int) -> np.ndarray:
        chosen = self._assignments.pop(0)[:count]
        assert chosen.max(initial=0) < bound
        return chosen


def unit_records(rng: np.random.Generator, count: int, features: int) -> np.ndarray:
    x = rng.normal(size=(count, features)) * rng.choice([0.01, 1.0], size=(count, 1))
    return (x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1.0) * (1 - 1e-6)).astype(
        np.float32
    )


def capped_softmax(z: np.ndarray, label: int, t: float) -> np.ndarray:
    """Softmax, or the nearest thing to it that is right with probability 1 − t: the other classes
    share t.
    """
    p = np.exp(z - z.max())
    p /= p.sum()
    if p[label] < 1.0 - t:
        rest = np.delete(z, label)
        share = np.exp(rest - rest.max())
        p = np.insert(t * share / share.sum(), label, 1.0 - t)
    return p


def naive_pass(weights, x, y, assigned, *, bins, step, decay, cap, t=1.0):
    """The formula in plain numpy, bin by bin."""
    w = weights.copy()
    for s in range(bins):
        mine = np.flatnonzero(assigned == s)
        if len(w) == 1:
            residual = np.clip(expit(x[mine] @ w[0]) - y[mine], -t, t)[:, None]
        else:
            p = [capped_softmax(w @ x[j].astype(np.float64), y[j], t) for j in mine]
            residual = np.array(p).reshape(len(mine), len(w)) - np.eye(len(w))[y[mine]]
        gradient = residual.T @ x[mine].astype(np.float64)
        w = (1 - decay) * w - step * min(1.0, cap / max(len(mine), 1)) * gradient
        w *= min(1.0, 1000.0 / max(np.linalg.norm(w), 1e-300))
    return w


@pytest.mark.parametrize("outputs", [1, 3, 10])
@pytest.mark.parametrize("decay", [0.0, 0.01])
@pytest.mark.parametrize("t", [1.0, 0.6, 0.2])
def test_the_compiled_pass_is_the_formula(outputs: int, decay: float, t: float) -> None:
    rng = np.random.default_rng(outputs)
    x, y = unit_records(rng, 60, 7), rng.integers(0, max(outputs, 2), 60)
    weights = rng.normal(size=(outputs, 7))
    assigned = rng.integers(0, 9, 60)
    options = {"bins": 9, "step": 0.3, "decay": decay}
    ours = convex_pass(
        weights,
        x,
        y,
        task=TASKS["classification"],
        passes=1,
        bin_cap=5,
        feature_bound=1.0,
        residual_cap=t,
        source=FixedBins(assigned),
        **options,
    )
    np.testing.assert_allclose(
        ours, naive_pass(weights, x, y, assigned, cap=5, t=t, **options), rtol=0, atol=1e-12
    )


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    outputs=st.sampled_from([1, 2, 3, 6]),
    bins=st.integers(1, 8),
    passes=st.integers(1, 3),
    room=st.floats(0.3, 1.0),
    spread=st.floats(0.0, 20.0),
    t=st.sampled_from([1.0, 0.5, 0.1, 0.01]),
)
def test_a_record_moves_the_result_by_at_most_gamma_c_over_b(
    seed, outputs, bins, passes, room, spread, t
) -> None:
    """Neighbours coupled on all bins; (γ/b)·cap·β ≤ 2 with cap = the fullest bin of the larger data
    set.
    """
    rng = np.random.default_rng(seed)
    count, features = 24, 4
    x, y = unit_records(rng, count, features), rng.integers(0, max(outputs, 2), count)
    assigned = [rng.integers(0, bins, count) for _ in range(passes)]
    cap = max(int(np.bincount(each, minlength=bins).max()) for each in assigned)
    smoothness, gradient_norm = (0.25, 1.0) if outputs == 1 else (0.5, math.sqrt(2.0))
    step = room * 2.0 / (smoothness * cap)
    weights = spread * rng.normal(size=(outputs, features))
    options = {
        "task": TASKS["classification"],
        "bins": bins,
        "passes": passes,
        "step": step,
        "decay": 0.0,
        "bin_cap": cap,
        "feature_bound": 1.0,
        "residual_cap": t,
    }
    with_record = convex_pass(weights, x, y, source=FixedBins(*assigned), **options)
    without = convex_pass(weights, x[:-1], y[:-1], source=FixedBins(*assigned), **options)
    assert np.linalg.norm(with_record - without) <= passes * step * t * gradient_norm * (1 + 1e-9)


@settings(max_examples=300, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    classes=st.integers(2, 7),
    t=st.floats(0.01, 1.0),
    spread=st.floats(0.01, 30.0),
)
def test_a_capped_residual_is_a_gradient_of_a_convex_loss_of_the_same_smoothness(
    seed, classes, t, spread
) -> None:
    """At the compiled residuals: the maximum of the dual problem, co-coercive with modulus 2 = 1/β,
    and no longer than √2·t.
    """
    rng = np.random.default_rng(seed)
    label = int(rng.integers(classes))
    points = spread * rng.normal(size=(2, classes))
    residuals = []
    for z in points:
        residual = z.copy()
        to_capped_residual(residual, np.array([label]), Link.SOFTMAX, t)
        residuals.append(residual)
        p = residual + np.eye(classes)[label]
        assert p.min() >= 0.0
        assert p.sum() == pytest.approx(1.0, abs=1e-14)
        assert p[label] >= 1.0 - t - 1e-15
        assert np.linalg.norm(residual) <= math.sqrt(2.0) * t * (1 + 1e-14)
        value = p @ z + entr(p).sum()
        for _ in range(20):  # any other feasible p is worse
            other = rng.dirichlet(np.full(classes, rng.choice([0.2, 1.0])))
            other *= min(1.0, t / max(1.0 - other[label], 1e-300))
            other[label] += 1.0 - other.sum()
            assert other @ z + entr(other).sum() <= value + 1e-12 * (1 + np.abs(z).max())
    apart, moved = points[0] - points[1], residuals[0] - residuals[1]
    assert apart @ moved >= 2.0 * (moved @ moved) - 1e-12 * (1 + np.abs(apart).max())


def test_clipping_the_norm_instead_would_not_be_monotone() -> None:
    """Why residuals are capped and not clipped: with three classes the clipped field turns against
    the step.
    """
    rng = np.random.default_rng(1)
    worst = 0.0
    for _ in range(4000):
        z = 3.0 * rng.normal(size=3)
        near = z + 1e-4 * rng.normal(size=3)

        def clipped(point: np.ndarray) -> np.ndarray:
            residual = np.exp(point - point.max())
            residual = residual / residual.sum() - np.eye(3)[0]
            return residual * min(1.0, 0.3 / np.linalg.norm(residual))

        worst = min(
            worst, float((clipped(z) - clipped(near)) @ (z - near)) / float((z - near) @ (z - near))
        )
    assert worst < -1e-4


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    outputs=st.sampled_from([1, 3]),
    bins=st.integers(1, 8),
    t=st.sampled_from([1.0, 0.2]),
)
def test_a_record_that_pushes_the_weights_over_the_edge_stops_nobody(
    seed, outputs, bins, t
) -> None:
    """On the edge of the ball the pass goes on, stays inside, is the formula, and its sensitivity
    holds.
    """
    rng = np.random.default_rng(seed)
    x, y = unit_records(rng, 16, 3), rng.integers(0, max(outputs, 2), 16)
    assigned = rng.integers(0, bins, 16)
    cap = int(np.bincount(assigned, minlength=bins).max())
    smoothness, gradient_norm = (0.25, 1.0) if outputs == 1 else (0.5, math.sqrt(2.0))
    step = 2.0 / (smoothness * cap)
    weights = rng.normal(size=(outputs, 3))
    weights *= LARGEST_WEIGHT_NORM * (1.0 - 1e-12) / np.linalg.norm(weights)
    options = {
        "task": TASKS["classification"],
        "bins": bins,
        "passes": 1,
        "step": step,
        "decay": 0.0,
        "bin_cap": cap,
        "feature_bound": 1.0,
        "residual_cap": t,
    }
    with_record = convex_pass(weights, x, y, source=FixedBins(assigned), **options)
    without = convex_pass(weights, x[:-1], y[:-1], source=FixedBins(assigned), **options)
    assert np.linalg.norm(with_record - without) <= step * t * gradient_norm * (1.0 + 1e-6)
    assert np.linalg.norm(with_record) <= LARGEST_WEIGHT_NORM * (1.0 + 1e-9)
    plain = naive_pass(weights, x, y, assigned, bins=bins, step=step, decay=0.0, cap=cap, t=t)
    np.testing.assert_allclose(with_record, plain, rtol=0, atol=1e-9)


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    outputs=st.sampled_from([1, 3]),
    cap=st.integers(1, 6),
    t=st.sampled_from([1.0, 0.2]),
)
def test_an_overfull_bin_at_most_doubles_the_influence(seed, outputs, cap, t) -> None:
    rng = np.random.default_rng(seed)
    x, y = unit_records(rng, 12, 3), rng.integers(0, max(outputs, 2), 12)
    assigned = np.zeros(12, dtype=np.int64)  # one bin, always over the cap
    smoothness, gradient_norm = (0.25, 1.0) if outputs == 1 else (0.5, math.sqrt(2.0))
    step = 2.0 / (smoothness * cap)
    weights = rng.normal(size=(outputs, 3))
    options = {
        "task": TASKS["classification"],
        "bins": 1,
        "passes": 1,
        "step": step,
        "decay": 0.0,
        "bin_cap": cap,
        "feature_bound": 1.0,
        "residual_cap": t,
    }
    with_record = convex_pass(weights, x, y, source=FixedBins(assigned), **options)
    without = convex_pass(weights, x[:-1], y[:-1], source=FixedBins(assigned), **options)
    assert np.linalg.norm(with_record - without) <= 2.0 * step * t * gradient_norm


def test_without_the_cap_the_bound_would_fail() -> None:
    """The check above can fail: steps three times too long amplify a record bin after bin (why the
    cap is there).
    """
    per_bin, bins = 24, 8
    step = 3.0 * 2.0 / (0.25 * per_bin)
    x = np.ones((per_bin * (bins - 1) + 1, 1), np.float32)
    y = np.arange(len(x)) % 2
    # the last record is alone in the first bin
    assigned = np.append(np.repeat(np.arange(1, bins), per_bin), 0)
    options = {
        "task": TASKS["classification"],
        "bins": bins,
        "passes": 1,
        "step": step,
        "decay": 0.0,
        "feature_bound": 1.0,
        "residual_cap": 1.0,
    }
    moved = {}
    for cap in (per_bin // 3, 10**6):
        a = convex_pass(np.zeros((1, 1)), x, y, source=FixedBins(assigned), bin_cap=cap, **options)
        b = convex_pass(
            np.zeros((1, 1)), x[:-1], y[:-1], source=FixedBins(assigned), bin_cap=cap, **options
        )
        moved[cap] = float(np.linalg.norm(a - b)) / step
    assert moved[per_bin // 3] <= 1.0
    assert moved[10**6] > 1.5


def test_records_over_the_bound_and_bad_labels_are_refused() -> None:
    weights, source = np.zeros((3, 2)), RandomSource()
    options = {
        "task": TASKS["classification"],
        "bins": 2,
        "passes": 1,
        "step": 0.1,
        "decay": 0.0,
        "bin_cap": 4,
        "feature_bound": 1.0,
        "residual_cap": 1.0,
        "source": source,
    }
    # speaks of a record, so it must not be told to the server
    with pytest.raises(DataError, match="norm at most"):
        convex_pass(weights, np.array([[3.0, 0.0]], np.float32), np.array([0]), **options)
    with pytest.raises(DataError, match="norm at most"):
        convex_pass(weights, np.array([[np.nan, 0.0]], np.float32), np.array([0]), **options)
    with pytest.raises(GuaranteeError, match="model that arrived"):  # speaks of the model alone
        convex_pass(
            np.full((3, 2), LARGEST_WEIGHT_NORM),
            np.array([[0.5, 0.0]], np.float32),
            np.array([0]),
            **options,
        )
    with pytest.raises(DataError, match="labels must lie in"):
        convex_pass(weights, np.array([[0.5, 0.0]], np.float32), np.array([3]), **options)
    empty = convex_pass(weights, np.zeros((0, 2), np.float32), np.zeros(0, np.int64), **options)
    assert np.array_equal(empty, weights)
