"""Calibration: safe, close to the target, and monotone."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings, strategies as st

import sumus
from sumus.accounting import Queries, Release, least_noise
from sumus.errors import GuaranteeError, PlanError

TARGETS = st.floats(0.05, 12.0)
DELTAS = st.floats(1e-9, 1e-3)
RATES = st.sampled_from([1.0, 0.5, 0.1, 0.01])
STEPS = st.integers(1, 2000)


def _calibrate(accountant: str, **arguments: object) -> float:
    return sumus.calibrate(accountant=accountant, **arguments)  # type: ignore[arg-type]


@given(
    epsilon=TARGETS,
    delta=DELTAS,
    rate=RATES,
    steps=STEPS,
    mechanism=st.sampled_from(["skellam", "discrete-gaussian", "gaussian"]),
)
@settings(max_examples=25, deadline=None)
def test_renyi_calibration_is_safe_and_tight(
    epsilon: float, delta: float, rate: float, steps: int, mechanism: str
) -> None:
    common = {
        "delta": delta,
        "steps": steps,
        "sampling_rate": rate,
        "mechanism": mechanism,
        "accountant": "renyi",
        "resolution_bits": 10,
    }
    found = sumus.calibrate(epsilon=epsilon, **common)  # type: ignore[arg-type]
    reached = sumus.epsilon(noise_multiplier=found, **common)  # type: ignore[arg-type]
    assert reached <= epsilon
    assert sumus.epsilon(noise_multiplier=found * (1 - 1e-3), **common) > epsilon * (1 - 1e-6)  # type: ignore[arg-type]


@given(epsilon=TARGETS, delta=DELTAS, steps=st.integers(1, 500))
@settings(max_examples=10, deadline=None)
def test_closed_form_calibration_is_safe_and_tight(
    epsilon: float, delta: float, steps: int
) -> None:
    # finer grids have no room for σ > 128
    common = {"delta": delta, "steps": steps, "dimension": 1000, "resolution_bits": 12}
    found = sumus.calibrate(epsilon=epsilon, **common)  # type: ignore[arg-type]
    reached = sumus.epsilon(noise_multiplier=found, **common)  # type: ignore[arg-type]
    assert epsilon * (1 - 1e-3) <= reached <= epsilon


@pytest.mark.parametrize(
    ("epsilon", "rate", "steps"), [(1.0, 0.05, 200), (5.0, 0.1, 50), (0.3, 0.02, 1000)]
)
def test_privacy_loss_calibration_is_safe_and_within_a_thousandth(
    epsilon: float, rate: float, steps: int
) -> None:
    common = {"delta": 1e-5, "steps": steps, "sampling_rate": rate}
    found = sumus.calibrate(epsilon=epsilon, **common)  # type: ignore[arg-type]
    assert epsilon * (1 - 1e-3) <= sumus.epsilon(noise_multiplier=found, **common) <= epsilon  # type: ignore[arg-type]


@pytest.mark.parametrize("accountant", ["renyi", "renyi-mironov"])
@given(
    epsilon=st.floats(0.1, 6.0),
    delta=st.floats(1e-8, 1e-4),
    rate=st.floats(0.01, 0.5),
    steps=st.integers(1, 500),
    factor=st.floats(1.1, 1.9),
)
@settings(max_examples=10, deadline=None)
def test_noise_is_monotone(
    accountant: str, epsilon: float, delta: float, rate: float, steps: int, factor: float
) -> None:
    base = {
        "epsilon": epsilon,
        "delta": delta,
        "sampling_rate": rate,
        "steps": steps,
        "mechanism": "gaussian",
    }
    found = _calibrate(accountant, **base)
    slack = 1 + 1e-6
    assert _calibrate(accountant, **(base | {"epsilon": epsilon * factor})) <= found * slack
    assert _calibrate(accountant, **(base | {"delta": delta * factor})) <= found * slack
    assert _calibrate(accountant, **(base | {"sampling_rate": rate * factor})) * slack >= found
    assert _calibrate(accountant, **(base | {"steps": math.ceil(steps * factor)})) * slack >= found


def test_noise_is_monotone_with_privacy_loss() -> None:
    base = {"epsilon": 1.0, "delta": 1e-5, "sampling_rate": 0.05, "steps": 100}
    found = _calibrate("pld", **base)
    for change, direction in (
        ({"epsilon": 1.3}, -1),
        ({"delta": 1e-4}, -1),
        ({"sampling_rate": 0.08}, 1),
        ({"steps": 150}, 1),
    ):
        assert (_calibrate("pld", **(base | change)) - found) * direction > 0


@pytest.mark.parametrize("mechanism", ["skellam", "discrete-gaussian"])
def test_fine_grids_cost_nothing_and_coarse_grids_cost_noise(mechanism: str) -> None:
    common = {"epsilon": 1.0, "delta": 1e-5, "steps": 20}
    exact = sumus.calibrate(mechanism="gaussian", **common)  # type: ignore[arg-type]
    fine = sumus.calibrate(mechanism=mechanism, **common)  # type: ignore[arg-type]
    coarse = sumus.calibrate(mechanism=mechanism, resolution_bits=0, **common)  # type: ignore[arg-type]
    assert exact * (1 - 1e-3) <= fine <= exact * (1 + 1e-3)
    assert fine < coarse < exact * 1.01


def test_the_answer_is_checked_against_the_real_release() -> None:
    """The search may use a cheaper limit, but what is returned holds for the release itself."""
    found = least_noise(
        lambda s: Release((Queries(0.9 * s, 1.0, 10),)),
        limit=lambda s: Release((Queries(s, 1.0, 10),)),
        epsilon=1.0,
        delta=1e-5,
    )
    honest = least_noise(lambda s: Release((Queries(0.9 * s, 1.0, 10),)), epsilon=1.0, delta=1e-5)
    assert found == pytest.approx(honest, rel=1e-3)
    assert found >= honest * (1 - 1e-9)


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [(0.0, 1e-5), (-1.0, 1e-5), (math.inf, 1e-5), (math.nan, 1e-5), (1.0, 0.0), (1.0, 1.0)],
)
def test_bad_targets(epsilon: float, delta: float) -> None:
    with pytest.raises(PlanError, match="must be"):
        sumus.calibrate(epsilon=epsilon, delta=delta, steps=1)


def test_a_target_beyond_reach_is_refused() -> None:
    with pytest.raises(GuaranteeError):
        sumus.calibrate(
            epsilon=1e-9,
            delta=1e-11,
            steps=10**6,
            sampling_rate=0.9,
            accountant="renyi",
            mechanism="gaussian",
        )
    with pytest.raises((GuaranteeError, PlanError)):
        sumus.calibrate(epsilon=1e-300, delta=1e-300, steps=1)
