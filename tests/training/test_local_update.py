"""Local updates against algorithm 2 of the paper written line by line, and their sensitivity under
neighbouring data.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from sumus.data import Records
from sumus.guarantee import NoiseDesign
from sumus.randomness import RandomSource
from sumus.training import local_updater
from support.small_data import small_data

CLASSES, FEATURES = 3, 6


def naive_noisy_steps(
    design: NoiseDesign, silo, records: Records, theta: np.ndarray, source: RandomSource
) -> np.ndarray:
    """Algorithm 2, record by record, on softmax regression; the random stream is consumed in the
    order of the algorithm.
    """
    training, r, clip = design.plan.training, silo.resolution, silo.clip_norm
    phi, velocity = theta.copy(), np.zeros_like(theta)
    released = np.zeros(len(theta), dtype=np.int64)
    for s in range(silo.local_steps):
        chosen = np.flatnonzero(source.coins(silo.sampling_rate, len(records)))
        w, b = (
            phi[: CLASSES * FEATURES].astype(np.float32).reshape(CLASSES, FEATURES),
            phi[CLASSES * FEATURES :].astype(np.float32),
        )
        total = np.zeros(len(theta))
        for j in chosen:
            z = w.astype(np.float64) @ records.x[j] + b
            p = np.exp(z - z.max())
            residual = p / p.sum() - np.eye(CLASSES)[records.y[j]]
            g = np.concatenate([np.outer(residual, records.x[j]).reshape(-1), residual])
            total += np.trunc(g * min(1.0, clip / np.linalg.norm(g)) * r / clip)
        noise = design.drawn_by(silo).sample(len(theta), source)
        y = total.astype(np.int64) + noise
        released += design.step_weights[s] * y
        if s == silo.local_steps - 1:
            break  # the state after the last step is nobody's business, and costs no noise
        if design.state_noise is not None:
            y = y + design.state_noise.sample(len(theta), source)
        velocity = training.local_momentum * velocity + y
        rate = training.learning_rates[s] if training.learning_rates else training.learning_rate
        phi = (
            phi
            - rate / training.divisor * (design.grid.clip_norm / design.grid.resolution) * velocity
        )
    return released


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"training.algorithm": "split-noise", "training.state_noise": 3.0},
        {"training.local_momentum": 0.9, "aggregation.modulus_bits": 48},
        {"training.learning_rates": [0.4, 0.3, 0.05], "aggregation.modulus_bits": 48},
        {
            "silo.silo-1.clip_norm": 0.2,
            "silo.silo-1.learning_rate": 0.1,
            "silo.silo-1.local_steps": 2,
            "silo.silo-1.sampling_rate": 0.9,
        },
    ],
)
def test_noisy_steps_are_algorithm_2_line_by_line(federation, overrides) -> None:
    data = small_data()
    run = federation(overrides, data=data)
    theta = np.random.default_rng(1).normal(size=21).astype(np.float32).astype(np.float64)
    for position, silo in enumerate(run.design.silos):
        sources = RandomSource.simulation(9, position), RandomSource.simulation(9, position)
        ours = local_updater(run.design, silo, data.silos[position].train, run.bench.model)(
            theta, sources[0]
        )
        naive = naive_noisy_steps(run.design, silo, data.silos[position].train, theta, sources[1])
        assert np.array_equal(*(source.words(4) for source in sources)), (
            "not the draws of the algorithm"
        )
        # float32 gradients against float64: a few grid steps per record out of 65,536, on noise of
        # hundreds of thousands
        assert np.abs(ours.vector - naive).max() <= 3e-4 * run.design.grid.resolution * max(
            run.design.step_weights
        )


@pytest.mark.parametrize("algorithm", ["dp-sgd", "split-noise"])
def test_state_and_velocity_begin_anew_in_every_round(federation, algorithm: str) -> None:
    """What a silo answers to a model does not depend on the rounds before: the account of the last
    step rests on it.
    """
    overrides = {
        "training.algorithm": algorithm,
        "training.local_momentum": 0.9,
        "aggregation.modulus_bits": 48,
    }
    data = small_data()
    run = federation(overrides, data=data)
    theta = np.random.default_rng(1).normal(size=21)
    fresh, used = (
        local_updater(run.design, run.design.silos[0], data.silos[0].train, run.bench.model)
        for _ in range(2)
    )
    used(theta + 1.0, RandomSource.simulation(8))
    assert np.array_equal(
        *(update(theta, RandomSource.simulation(9)).vector for update in (fresh, used))
    )


def test_momentum_weights_add_up_to_the_path_of_the_state(federation) -> None:
    """Σ_s w_s·y_s / 256 = Σ_s v_s for the momentum recursion v_s = m·v_{s−1} + y_s, up to the
    rounding of the weights.
    """
    run = federation(
        {
            "training.local_momentum": 0.9,
            "federation.local_steps": 7,
            "aggregation.modulus_bits": 48,
        }
    )
    y = np.random.default_rng(0).normal(size=7)
    velocity = moved = 0.0
    for each in y:
        velocity = 0.9 * velocity + each
        moved += velocity
    assert (
        abs(float(np.dot(run.design.step_weights, y)) / 256.0 - moved) < 7 * np.abs(y).max() / 256.0
    )


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    scale=st.sampled_from([1e-30, 1e-3, 1.0, 1e4, 1e30]),
    overrides=st.sampled_from(
        [
            {},
            {"noise.rounding": "sum"},
            {"silo.silo-0.clip_norm": 0.05},
            {"silo.silo-0.learning_rate": 1.7},
            {"silo.silo-0.clip_norm": 2.5, "silo.silo-0.learning_rate": 0.05},
            {"training.algorithm": "convex-pass", "federation.local_steps": 6},
        ]
    ),
)
def test_one_record_moves_a_query_by_at_most_what_is_accounted(
    seed: int, scale: float, overrides
) -> None:
    """Same noise, same bins, one record more: ‖difference‖₂ ≤ Δ₂ of the silo's design, for hostile
    records too.
    """
    from sumus.guarantee import calibrated
    from sumus.plan import TrainingPlan
    from sumus.training import prepare

    base = {
        "privacy.epsilon": 2.0,
        "federation.local_steps": 1,
        "training.algorithm": "dp-sgd",
        "training.sampling_rate": 1.0,
    }
    data = small_data()
    plan = TrainingPlan().with_overrides(base | overrides)
    built = calibrated(plan, data.facts())
    rng = np.random.default_rng(seed)
    hostile = (scale * rng.normal(size=(1, FEATURES))).astype(np.float32)
    if seed % 5 == 0:
        hostile[0, rng.integers(FEATURES)] = rng.choice([np.nan, np.inf, -np.inf, 0.0])
    silo = data.silos[0]
    own = silo.train
    larger = Records(
        np.concatenate([own.x[:-1], hostile]), np.append(own.y[:-1], rng.integers(CLASSES))
    )
    smaller = Records(own.x[:-1], own.y[:-1])
    theta = 0.1 * rng.normal(size=21)
    vectors = []
    for records in (larger, smaller):
        members = (replace(silo, train=records), *data.silos[1:])
        bench = prepare(built.plan, replace(data, silos=members))
        update = local_updater(built, built.silos[0], bench.data.silos[0].train, bench.model)
        source = _SameNoise(len(smaller), seed)
        vectors.append(update(theta, source).vector)  # type: ignore[arg-type]
    distance = float(np.linalg.norm((vectors[0] - vectors[1]).astype(np.float64)))
    surge = 2.0 if "training.algorithm" in overrides else 1.0
    assert distance <= surge * built.silos[0].l2_grid * (1 + 1e-12)


class _SameNoise:
    """Random bits that are the same for both neighbours: record-wise draws first, then a stream
    that ignores the batch size.
    """

    secure = False

    def __init__(self, common: int, seed: int) -> None:
        self._common, self._seed, self._calls = common, seed, 0
        self._noise = RandomSource.simulation(seed, "noise")

    def coins(self, probability: float, count: int) -> np.ndarray:
        return np.ones(count, dtype=bool)

    def below(self, bound: int, count: int) -> np.ndarray:
        self._calls += 1
        return RandomSource.simulation(self._seed, "bins", self._calls).below(
            bound, self._common + 1
        )[:count]

    def uniforms(self, count: int) -> np.ndarray:
        per_record = RandomSource.simulation(self._seed, "rounding").uniforms(count + 4096)
        return per_record[:count]

    def words(self, count: int) -> np.ndarray:
        return self._noise.words(count)

    def fill(self, out: np.ndarray) -> None:
        self._noise.fill(out)
