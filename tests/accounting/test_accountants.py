"""The accountants against dp-accounting and Opacus on the Gaussian, and against closed forms and
direct integration.
"""

from __future__ import annotations

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings, strategies as st

import sumus
from oracles import divergences as oracle
from sumus.accounting import (
    ORDERS,
    Queries,
    Release,
    epsilon_gaussian,
    epsilon_of,
    loss_distribution,
)
from sumus.accounting.loss_distribution import deltas_pld, epsilon_pld, gdp_parameter
from sumus.accounting.renyi import epsilon_cks, gaussian_curve, mironov_bounds, subsampled
from sumus.errors import GuaranteeError, PlanError

RATES = st.floats(0.001, 0.9)
MULTIPLIERS = st.floats(0.6, 30.0)
STEPS = st.integers(1, 3000)


def _event(rate: float, multiplier: float, steps: int) -> dp_accounting.DpEvent:
    one = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(multiplier))
    return dp_accounting.SelfComposedDpEvent(one, steps)


@pytest.mark.deep
@given(rate=RATES, multiplier=MULTIPLIERS, steps=STEPS)
@settings(max_examples=25, deadline=None)
def test_renyi_agrees_with_dp_accounting_and_opacus(
    rate: float, multiplier: float, steps: int
) -> None:
    from opacus.accountants.analysis import rdp as opacus_rdp

    ours = sumus.epsilon(
        noise_multiplier=multiplier,
        steps=steps,
        delta=1e-5,
        sampling_rate=rate,
        mechanism="gaussian",
        accountant="renyi",
    )
    orders = [int(order) for order in ORDERS if order <= 128]
    google = RdpAccountant(orders=orders)
    google.compose(_event(rate, multiplier, steps))
    theirs = google.get_epsilon(1e-5)
    # ours may use more orders, so it may only be smaller; at their orders both are the same formula
    assert ours <= theirs * (1 + 1e-9) + 1e-9
    values = steps * subsampled(gaussian_curve(multiplier), rate, np.array(orders))
    assert epsilon_cks(np.array(orders), values, 1e-5) == pytest.approx(theirs, rel=1e-7, abs=1e-9)
    some = [2, 3, 8, 32, 64]
    peer = opacus_rdp.compute_rdp(q=rate, noise_multiplier=multiplier, steps=steps, orders=some)
    assert np.allclose(
        steps * subsampled(gaussian_curve(multiplier), rate, np.array(some)),
        peer,
        rtol=1e-8,
        atol=1e-12,
    )


@pytest.mark.deep
@given(rate=st.floats(0.005, 0.7), multiplier=st.floats(0.8, 20.0), steps=st.integers(1, 500))
@settings(max_examples=8, deadline=None)
def test_privacy_loss_agrees_with_dp_accounting(rate: float, multiplier: float, steps: int) -> None:
    ours = sumus.epsilon(
        noise_multiplier=multiplier,
        steps=steps,
        delta=1e-5,
        sampling_rate=rate,
        mechanism="gaussian",
    )
    google = PLDAccountant(value_discretization_interval=1e-4)
    google.compose(_event(rate, multiplier, steps))
    theirs = google.get_epsilon(1e-5)
    # both discretise from above; the excess of n compositions with buckets of width w is about n·w²
    assert ours == pytest.approx(theirs, rel=2e-3, abs=steps * 1e-8 + 2e-4)
    renyi = sumus.epsilon(
        noise_multiplier=multiplier,
        steps=steps,
        delta=1e-5,
        sampling_rate=rate,
        mechanism="gaussian",
        accountant="renyi",
    )
    assert ours <= renyi + 2e-4


@pytest.mark.parametrize(
    ("rate", "multiplier", "steps"), [(0.05, 1.5, 200), (512 / 5600, 5.21, 220)]
)
def test_privacy_loss_lies_between_the_bounds_of_prv_accountant(
    rate: float, multiplier: float, steps: int
) -> None:
    from prv_accountant.dpsgd import DPSGDAccountant

    peer = DPSGDAccountant(
        noise_multiplier=multiplier,
        sampling_probability=rate,
        max_steps=steps,
        eps_error=0.02,
        delta_error=1e-9,
    )
    low, _, high = peer.compute_epsilon(delta=1e-5, num_steps=steps)
    ours = sumus.epsilon(
        noise_multiplier=multiplier,
        steps=steps,
        delta=1e-5,
        sampling_rate=rate,
        mechanism="gaussian",
    )
    assert low <= ours <= high


@pytest.mark.parametrize(
    ("mu", "epsilon"), [(0.05, 0.1), (0.2681, 1.0), (1.1212, 5.0), (3.0, 12.0), (0.9, 0.001)]
)
def test_gaussian_closed_form(mu: float, epsilon: float) -> None:
    delta = oracle.gaussian_hockey_stick(mu, math.exp(epsilon))
    found = epsilon_gaussian(mu, delta)
    assert epsilon <= found <= epsilon * (1 + 1e-7)
    assert mu * (1 - 1e-7) <= gdp_parameter(epsilon, delta) <= mu


def test_theory_constants() -> None:
    assert gdp_parameter(1.0, 1e-5) == pytest.approx(0.2681, abs=5e-5)
    assert gdp_parameter(5.0, 1e-5) == pytest.approx(1.1212, abs=5e-5)


@pytest.mark.parametrize("steps", [1, 2])
def test_surges_against_direct_integration(steps: int) -> None:
    """A Gaussian whose shift doubles with revealed probability p, once and twice, integrated
    without the mixture formula.
    """
    multiplier, rate, delta = 1.3, 0.07, 1e-3
    found = epsilon_of(Release((Queries(multiplier, 1.0, steps, None, rate),)), delta=delta)
    mu = 1.0 / multiplier

    def direct(epsilon: float) -> float:
        alpha = math.exp(epsilon)

        def single(a: float) -> float:
            once = (1 - rate) * oracle.gaussian_hockey_stick(mu, a)
            return once + rate * oracle.gaussian_hockey_stick(2 * mu, a)

        if steps == 1:
            return single(alpha)
        y = np.linspace(-10, 12, 1601)
        total = 0.0
        for weight, shift in ((1 - rate, mu), (rate, 2 * mu)):
            p = np.exp(-((y - shift) ** 2) / 2) / math.sqrt(2 * math.pi)
            inner = np.array([single(alpha * math.exp(shift**2 / 2 - shift * each)) for each in y])
            total += weight * float(np.trapezoid(p * inner, y))
        return total

    assert direct(found) == pytest.approx(delta, rel=1e-6)
    assert direct(found) <= delta * (1 + 1e-9)
    renyi = epsilon_of(
        Release((Queries(multiplier, 1.0, steps, None, rate),)), delta=delta, accountant="renyi"
    )
    assert found <= renyi


def test_a_surge_is_never_forgotten_beside_a_subsampled_query() -> None:
    surging, faint = Queries(5.0, 1.0, 10, None, 0.4), Queries(50.0, 0.01, 1)
    with pytest.raises(GuaranteeError, match="may double"):
        epsilon_of(Release((surging, faint)), delta=1e-5)
    together = epsilon_of(Release((surging, faint)), delta=1e-5, accountant="renyi")
    assert together >= epsilon_of(Release((surging,)), delta=1e-5, accountant="renyi")


def test_no_surge_is_the_limit_of_rare_surges() -> None:
    plain = epsilon_of(Release((Queries(16.7, 1.0, 20),)), delta=1e-5)
    rare = epsilon_of(Release((Queries(16.7, 1.0, 20, None, 1e-12),)), delta=1e-5)
    often = epsilon_of(Release((Queries(16.7, 1.0, 20, None, 0.4),)), delta=1e-5)
    doubled = epsilon_of(Release((Queries(16.7 / 2, 1.0, 20),)), delta=1e-5)
    assert plain <= rare <= plain * (1 + 1e-6)
    assert plain < often < doubled


def test_steps_of_different_kinds_compose() -> None:
    """Two kinds of unsubsampled steps are one Gaussian; order and grouping do not matter."""
    mixed = Release((Queries(3.0, 1.0, 4), Queries(5.0, 1.0, 10)))
    mu = math.sqrt(4 / 9 + 10 / 25)
    assert epsilon_of(mixed, delta=1e-6) == pytest.approx(epsilon_gaussian(mu, 1e-6))
    sampled = Release((Queries(1.5, 0.1, 10), Queries(1.5, 0.1, 20)))
    assert epsilon_of(sampled, delta=1e-5) == pytest.approx(
        epsilon_of(Release((Queries(1.5, 0.1, 30),)), delta=1e-5), rel=2e-3
    )
    assert epsilon_of(Release((Queries(3.0), Queries(2.0, 0.5))), delta=1e-5) >= epsilon_of(
        Release((Queries(3.0),)), delta=1e-5
    )


def test_the_best_conversion_is_never_worse_than_mironovs() -> None:
    for sigma in (0.7, 2.0, 30.0):
        values = 100 * subsampled(gaussian_curve(sigma), 0.05, ORDERS)
        assert epsilon_cks(ORDERS, values, 1e-5) <= mironov_bounds(ORDERS, values, 1e-5).min()


def test_an_infinite_curve_never_becomes_a_small_epsilon() -> None:
    """Python's max(0, nan) is 0: a curve that is not a number must not turn into perfect
    privacy.
    """
    broken = np.full(len(ORDERS), math.nan)
    assert epsilon_cks(ORDERS, broken, 1e-5) == math.inf
    assert mironov_bounds(ORDERS, broken, 1e-5).min() == math.inf
    with pytest.raises((GuaranteeError, PlanError)):
        sumus.epsilon(
            noise_multiplier=1e-160,
            steps=1,
            delta=1e-5,
            sampling_rate=0.5,
            mechanism="gaussian",
            accountant="renyi",
        )
    with pytest.raises(GuaranteeError, match="too small"):
        sumus.epsilon(
            noise_multiplier=1e-5, steps=1, delta=1e-5, sampling_rate=0.5, mechanism="gaussian"
        )


@pytest.mark.parametrize(("multiplier", "steps"), [(30.0, 1000), (3.0, 10)])
@pytest.mark.parametrize("delta", [1e-5, 1e-10])
def test_transforms_never_fall_below_the_closed_form(
    multiplier: float, steps: int, delta: float
) -> None:
    """A rate so close to 1 that it changes nothing goes through the transforms; at rate 1 there is
    a closed form.
    """
    closed = epsilon_of(Release((Queries(multiplier, 1.0, steps),)), delta=delta)
    transformed = epsilon_of(Release((Queries(multiplier, 1.0 - 1e-12, steps),)), delta=delta)
    assert closed * (1 - 1e-7) <= transformed <= closed * (1 + 1e-3)


def test_small_delta_is_refused_where_transforms_are_not_certain() -> None:
    with pytest.raises(
        PlanError, match=r"delta must be at least 1\.1e-12 for the privacy-loss accountant"
    ):
        sumus.epsilon(noise_multiplier=2.0, steps=10, delta=1e-13, sampling_rate=0.1)
    # closed form: no transform
    assert sumus.epsilon(noise_multiplier=2.0, steps=10, delta=1e-13) > 0.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"noise_multiplier": 0.0}, "noise_multiplier must be"),
        ({"noise_multiplier": math.nan}, "noise_multiplier must be"),
        ({"steps": 0}, "steps must be a whole number at least 1"),
        ({"steps": True}, "steps must be"),
        ({"delta": 0.0}, "delta must be"),
        ({"delta": 1.0}, "delta must be"),
        ({"sampling_rate": 0.0}, "sampling_rate must be"),
        ({"sampling_rate": 1.01}, "sampling_rate must be"),
        ({"mechanism": "laplace"}, "mechanism must be one of"),
        ({"accountant": "moments"}, "accountant must be one of"),
        ({"dimension": 0}, "dimension must be"),
        ({"resolution_bits": 40}, "resolution_bits must be"),
    ],
)
def test_bad_arguments(arguments: dict[str, object], message: str) -> None:
    good: dict[str, object] = {"noise_multiplier": 1.0, "steps": 1, "delta": 1e-5}
    with pytest.raises(PlanError, match=message):
        sumus.epsilon(**(good | arguments))  # type: ignore[arg-type]
    if "noise_multiplier" not in arguments:
        with pytest.raises(PlanError, match=message):
            sumus.calibrate(**({"epsilon": 1.0, "steps": 1, "delta": 1e-5} | arguments))  # type: ignore[arg-type]


def test_an_epsilon_that_is_kept_is_that_of_its_release_and_its_delta() -> None:
    """Releases that differ in their Rényi curves alone have the same loss distribution."""
    releases = [
        Release((Queries(multiplier, 0.05, count, curve),))
        for multiplier, count in ((1.5, 40), (1.5, 41), (1.6, 40))
        for curve in (None, gaussian_curve(multiplier))
    ]
    deltas = (1e-5, 1e-8, 1e-6)

    def told() -> list[list[float]]:
        return [[epsilon_pld(each, delta) for delta in deltas] for each in releases]

    loss_distribution._epsilon_sampled.cache_clear()
    first, again = told(), told()
    assert first == again
    assert first[0::2] == first[1::2]
    for loose, strict, between in first:
        assert loose < between < strict
    assert first[0] < first[2]  # one query more
    assert first[4] < first[0]  # more noise
    curve = deltas_pld(releases[0], np.array([0.5, 1.0]))
    assert (deltas_pld(releases[1], np.array([0.5, 1.0])) == curve).all()
    assert (deltas_pld(releases[4], np.array([0.5, 1.0])) < curve).all()
