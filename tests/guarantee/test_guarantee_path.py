"""From a plan to ε: every number of the path recomputed here from the formulas of
docs/guarantees.md, and the drawn noise measured.

Statistical checks use public seeds, so they are repeatable; with fresh seeds each would fail with
probability below 1e-9.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest
from scipy.stats import binom

from sumus.data import Records
from sumus.errors import GuaranteeError
from sumus.guarantee import (
    NoiseDesign,
    account_of,
    calibrated,
    certify,
    convex_bounds,
)
from sumus.plan import PublicFacts, TrainingPlan
from sumus.randomness import RandomSource
from sumus.tasks import LabelFacts
from sumus.training import local_updater, poisson_batch
from sumus.training.models import build_model

FEATURES, CLASSES = 7, 3
CONVEX: Mapping[str, object] = {
    "privacy.epsilon": 2.0,
    "federation.colluding": 0,
    "federation.rounds": 3,
    "federation.local_steps": 10,
    "training.learning_rate": 0.5,
    "training.dimension": FEATURES * CLASSES,
}
STEPS: Mapping[str, object] = {
    **CONVEX,
    "training.algorithm": "dp-sgd",
    "federation.local_steps": 1,
    "training.sampling_rate": 0.25,
    "training.dimension": (FEATURES + 1) * CLASSES,
}


def _built(overrides: Mapping[str, object], *, silos: int = 4, records: int = 60) -> NoiseDesign:
    names = tuple(f"silo-{index}" for index in range(silos))
    facts = PublicFacts("test", names, (records,) * silos, (FEATURES,), LabelFacts(("a", "b", "c")))
    return calibrated(TrainingPlan().with_overrides(overrides), facts)


def _names(built: NoiseDesign) -> tuple[str, ...]:
    return tuple(silo.name for silo in built.silos)


def _nothing(width: int) -> Records:
    return Records(np.zeros((0, width), dtype=np.float32), np.zeros(0, dtype=np.int64))


# -- what is drawn is what is accounted


@pytest.mark.parametrize("overrides", [CONVEX, STEPS], ids=["convex-pass", "dp-sgd"])
@pytest.mark.parametrize(
    "trust",
    [{}, {"federation.dropouts": 1, "federation.colluding": 1}],
    ids=["all count", "two do not count"],
)
def test_a_silo_draws_one_kth_of_the_accounted_variance(
    overrides: Mapping[str, object], trust: Mapping[str, object]
) -> None:
    built = _built({**overrides, **trust})
    counted = 4 - len(trust)
    convex = built.plan.training.algorithm == "convex-pass"
    model = build_model("softmax", shape=(FEATURES,), outputs=CLASSES)
    updater = local_updater(built, built.silos[0], _nothing(FEATURES), model)
    dimension = built.plan.training.dimension or 0
    drawn = [
        updater(np.zeros(dimension), RandomSource.simulation(1, number)).vector
        for number in range(400)
    ]
    found = float(np.square(np.stack(drawn).astype(np.float64)).mean())
    accounted = ((built.plan.noise.noise_multiplier or 0.0) * 2.0**16) ** 2 / counted
    assert found == pytest.approx(accounted, rel=6.5 * math.sqrt(2.0 / (400 * dimension)))
    assert convex or built.queries_per_round == 1


def test_rounds_and_silos_draw_from_different_bits() -> None:
    from sumus.parties import Agreement, RunSecret
    from sumus.parties.keyed_memory import KeyedMemory

    design = _built(CONVEX)
    bits, agreement = (
        RunSecret(b"k" * 32, design.plan.hash),
        Agreement(design=design, certified=None),
    )
    memories = [KeyedMemory(agreement, place, bits) for place in range(3)]
    heads = set()
    for number in range(3):
        heads |= {
            memory.source(number, purpose, place).bytes(16)
            for place, memory in enumerate(memories)
            for purpose in ("model", "metrics")
        } | {bits.source(number, "selection").bytes(16)}
    assert len(heads) == 21


def test_records_join_with_the_accounted_probability() -> None:
    taken = sum(
        len(poisson_batch(1000, 0.2, RandomSource.simulation(3, number))) for number in range(100)
    )
    assert taken / 100_000 == pytest.approx(0.2, abs=6.5 * math.sqrt(0.16 / 100_000))
    assert len(poisson_batch(0, 0.2, RandomSource.simulation(3))) == 0
    assert len(poisson_batch(50, 1.0, RandomSource.simulation(3))) == 50


# -- sensitivity


def test_convex_pass_counts_its_shift_and_its_rounding() -> None:
    silo = _built({**CONVEX, "training.passes": 2}).silos[0]
    least = 2.0 * 2.0**16 + math.sqrt(FEATURES * CLASSES)
    assert least < silo.l2_grid < least + 4.0


@pytest.mark.parametrize("t", [None, 0.7, 0.1])
@pytest.mark.parametrize("model", ["softmax", "logistic"])
def test_the_worst_record_of_a_convex_pass_moves_it_by_one_clip_norm(
    model: str, t: float | None
) -> None:
    """A record that is certainly wrong, in a silo by itself, with hardly any noise: r grid steps,
    whatever the cap.
    """
    outputs = CLASSES if model == "softmax" else 1
    changes = {
        "privacy.epsilon": None,
        "noise.noise_multiplier": 0.001,
        "training.model": model,
        "training.residual_cap": t,
    }
    built = _built({**CONVEX, **changes, "training.dimension": FEATURES * outputs})
    x = np.zeros((1, FEATURES), dtype=np.float32)
    x[0, 2] = 1.0
    weights = np.zeros((outputs, FEATURES))
    weights[-1, 2] = 40.0
    network = build_model("softmax", shape=(FEATURES,), outputs=CLASSES)
    moved = local_updater(built, built.silos[0], Records(x, np.zeros(1, dtype=np.int64)), network)(
        weights.reshape(-1), RandomSource()
    )
    assert float(np.linalg.norm(moved.vector)) == pytest.approx(2.0**16, rel=0.02)
    assert built.silos[0].clip_norm == pytest.approx(
        (t or 1.0) * (math.sqrt(2.0) if model == "softmax" else 1.0), rel=1e-12
    )


def test_truncated_records_count_as_the_clip_norm() -> None:
    assert _built(STEPS).silos[0].l2_grid == 2.0**16


def test_float_sums_of_steps_count_their_rounding() -> None:
    silo = _built({**STEPS, "noise.rounding": "sum"}).silos[0]
    assert silo.l2_grid > 2.0**16 + math.sqrt((FEATURES + 1) * CLASSES)


@pytest.mark.parametrize(("model", "smoothness"), [("softmax", 0.5), ("logistic", 0.25)])
@pytest.mark.parametrize(("rate", "penalty"), [(0.5, 0.0), (1.3, 0.1)])
def test_a_full_bin_is_just_non_expansive(
    model: str, smoothness: float, rate: float, penalty: float
) -> None:
    """γ·(β·cap/b + λ) ≤ 2 ≤ γ·(β·(cap + 1)/b + λ), with R = 1."""
    resolved = _built(CONVEX).resolved.replace(
        "training", model=model, divisor=7.0, l2_penalty=penalty
    )
    cap = convex_bounds(resolved, rate).bin_cap
    assert rate * (smoothness * cap / 7.0 + penalty) <= 2.0 + 1e-12
    # β counts records that are a float32 too long
    assert rate * (smoothness * (cap + 1) / 7.0 + penalty) > 2.0 - 1e-5


def test_overfull_bins_are_accounted_with_their_probability() -> None:
    built = _built({**CONVEX, "training.learning_rate": 3.0})
    cap = convex_bounds(built.resolved, 3.0).bin_cap
    expected = float(binom.sf(cap - 1, 59, 1.0 / 10))
    assert 1e-4 < expected < 0.5
    assert built.silos[0].overfull_rate == pytest.approx(expected, rel=1e-9)
    calm = NoiseDesign.of(built.resolved.replace("training", learning_rate=0.5))
    assert account_of(built).epsilon > account_of(calm).epsilon


# -- trust


def test_noise_that_may_be_missing_or_known_does_not_count() -> None:
    """With drop-outs and colluders the noise of fewer silos must do, so each draws more."""
    trusting, careful = (
        _built(CONVEX),
        _built({**CONVEX, "federation.dropouts": 1, "federation.colluding": 1}),
    )
    assert careful.share.variance_grid == pytest.approx(
        2.0 * trusting.share.variance_grid, rel=1e-3
    )
    assert careful.plan.noise_contributors == 2
    assert account_of(careful).epsilon <= 2.0


# -- the ring


def test_all_silos_at_their_limit_and_the_noise_at_its_tail_fit_into_the_ring() -> None:
    built = _built(CONVEX)
    noise_std = math.sqrt(4 * built.share.variance_grid)
    most = 4 * built.clamp_grid + 8.0 * noise_std
    assert most < 2.0 ** (built.plan.aggregation.modulus_bits - 1)
    # and little of it is wasted
    assert 4 * built.clamp_grid > 2.0 ** (built.plan.aggregation.modulus_bits - 2)


# -- certificates


@pytest.mark.parametrize(
    "overrides",
    [CONVEX, STEPS, {**STEPS, "federation.local_steps": 3}],
    ids=["convex", "one step", "three steps"],
)
def test_a_calibrated_plan_meets_its_target_closely_and_is_proved(
    overrides: Mapping[str, object],
) -> None:
    made = certify(_built(overrides))
    assert made.proved
    assert 1.998 < made.epsilon <= 2.0


@pytest.mark.parametrize("factor", [0.5, 0.95, 0.99])
def test_less_noise_than_the_target_needs_is_refused(factor: float) -> None:
    built = _built(CONVEX)
    less = NoiseDesign.of(built.resolved, noise_multiplier=factor * built.noise_multiplier)
    with pytest.raises(GuaranteeError, match="not met"):
        certify(less)


def test_several_steps_are_never_certified_by_the_per_step_analysis() -> None:
    built = _built({**STEPS, "federation.local_steps": 3, "privacy.calibrate_to": "per-step"})
    made = account_of(built)
    claimed = {each.name: each for each in made.analyses}["per-step"]
    assert not claimed.proved
    assert claimed.epsilon <= 2.0
    assert made.analysis == "last-step"
    assert made.epsilon > 2.0


def test_continuous_noise_is_never_called_proved() -> None:
    made = account_of(
        _built({**CONVEX, "noise.mechanism": "gaussian", "aggregation.protocol": "trusted"})
    )
    assert not made.proved
    assert "NOT PROVED" in str(made)
