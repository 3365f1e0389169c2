"""Joint account: against the closed form of composed Gaussians, between the largest run and the
sum, and never below one run's own ε.
"""

from __future__ import annotations

import math

import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from sumus.errors import GuaranteeError
from sumus.guarantee import NoiseDesign, PastRun, account_of, joint_epsilon
from sumus.plan import ResolvedPlan, TrainingPlan

SILOS = ("a", "b", "c", "d", "e")


OVERFULL = {
    "training.algorithm": "convex-pass",
    "training.divisor": 2.0,
    "training.learning_rate": 0.8,
    "federation.local_steps": 50,
    "noise.rounding": "sum",
}


def made_plan(
    mechanism: str = "gaussian",
    *,
    rounds: int = 10,
    noise: float = 8.0,
    rate: float = 1.0,
    **more: object,
) -> TrainingPlan:
    plan = TrainingPlan.from_toml(
        f"""
        [privacy]
        delta = 1e-5
        [federation]
        silos = 5
        rounds = {rounds}
        local_steps = 1
        [training]
        algorithm = "single-step"
        sampling_rate = {rate}
        divisor = 10.0
        dimension = 20
        [noise]
        mechanism = "{mechanism}"
        noise_multiplier = {noise}
        rounding = "record"
        [aggregation]
        protocol = "{"trusted" if mechanism == "gaussian" else "secagg"}"
        [data]
        name = "digits"
        records_per_silo = [100, 100, 100, 100, 100]
        """
    )
    return plan.with_overrides({key.replace("__", "."): value for key, value in more.items()})


def past(plan: TrainingPlan, rounds: int | None = None) -> PastRun:
    return PastRun(
        plan=plan, silos=SILOS, rounds=plan.federation.rounds if rounds is None else rounds
    )


def closed_form(mu: float, delta: float) -> float:
    """ε of a Gaussian mechanism with sensitivity over deviation μ (Balle and Wang 2018, theorem 8):
    shares no code with the accountant.
    """

    def excess(epsilon: float) -> float:
        return (
            float(
                norm.cdf(mu / 2 - epsilon / mu)
                - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
            )
            - delta
        )

    return float(brentq(excess, 0.0, 100.0))


def mu_of(plan: TrainingPlan, rounds: int) -> float:
    built = NoiseDesign.of(ResolvedPlan.of(plan, SILOS))
    multiplier = plan.noise.noise_multiplier or 0.0
    return math.sqrt(rounds) * built.silos[0].l2_grid / (multiplier * built.grid.resolution)


def test_composed_gaussians_meet_their_closed_form() -> None:
    one, two = made_plan(noise=8.0), made_plan(noise=20.0, rounds=40)
    mu = math.hypot(mu_of(one, 10), mu_of(two, 25))
    exact = closed_form(mu, 2e-5)
    joint = joint_epsilon([past(one), past(two, 25)], delta=2e-5)
    assert exact <= joint <= 1.002 * exact


def test_measurements_are_composed_with_the_models() -> None:
    """A record that trained one model may have measured another, so both are counted for it."""
    plan = made_plan(
        noise=8.0,
        evaluation__metrics="secure",
        evaluation__noise_multiplier=6.0,
        evaluation__classes=2,
        evaluation__every=5,
    )
    both = [past(plan), PastRun(plan=plan, silos=SILOS, rounds=0, measurements=2)]
    exact = closed_form(math.hypot(mu_of(plan, 10), math.sqrt(2) / 6.0), 2e-5)
    assert exact <= joint_epsilon(both, delta=2e-5) <= 1.002 * exact
    measured = closed_form(math.sqrt(2) / 6.0, 2e-5)
    assert measured <= joint_epsilon(both[1:], delta=2e-5) <= 1.002 * measured
    exactness = made_plan(
        "skellam",
        evaluation__metrics="secure",
        evaluation__noise_multiplier=6.0,
        evaluation__classes=2,
    )
    assert (
        joint_epsilon([PastRun(plan=exactness, silos=SILOS, rounds=0, measurements=1)], delta=1e-28)
        == math.inf
    )


@pytest.mark.parametrize("mechanism", ["skellam", "discrete-gaussian"])
@pytest.mark.parametrize("rate", [1.0, 0.1])
def test_a_joint_account_lies_between_the_largest_run_and_the_sum(
    mechanism: str, rate: float
) -> None:
    plans = [made_plan(mechanism, noise=noise, rate=rate) for noise in (2.0, 3.0, 4.0, 5.0)]
    alone = [account_of(NoiseDesign.of(ResolvedPlan.of(plan, SILOS))).epsilon for plan in plans]
    joint = joint_epsilon([past(plan) for plan in plans], delta=4e-5)
    assert joint < 0.8 * math.fsum(alone)
    assert joint_epsilon([past(plan) for plan in plans], delta=1e-5) > max(alone)


@pytest.mark.parametrize("mechanism", ["gaussian", "skellam"])
def test_one_run_composed_with_nothing_has_its_own_epsilon(mechanism: str) -> None:
    plan = made_plan(mechanism)
    assert joint_epsilon([past(plan), past(plan, 0)], delta=1e-5) == pytest.approx(
        account_of(NoiseDesign.of(ResolvedPlan.of(plan, SILOS))).epsilon, rel=2e-3
    )
    assert joint_epsilon([], delta=1e-5) == 0.0


def test_the_worst_silo_of_every_run_is_counted() -> None:
    """A record may have been in another silo in every run, so each run is taken with its worst
    one.
    """
    equal = made_plan("skellam", rate=0.1)
    worse = equal.with_overrides({"silo.c.sampling_rate": 0.4})
    also = equal.with_overrides({"silo.a.sampling_rate": 0.4})
    alone = joint_epsilon(
        [past(made_plan("skellam", rate=0.4)), past(made_plan("skellam", rate=0.4))], delta=2e-5
    )
    assert joint_epsilon([past(worse), past(also)], delta=2e-5) == pytest.approx(alone, rel=1e-9)


@pytest.mark.parametrize("wanted", ["proved", "local"])
@pytest.mark.parametrize("algorithm", ["dp-sgd", "split-noise"])
def test_a_run_of_several_steps_is_composed_by_its_own_analysis(
    algorithm: str, wanted: str
) -> None:
    """Steps before the last with their noise, the last ones with all silos'; a plan that counts on
    nobody stays with its own noise.
    """
    steps = {
        "training.algorithm": algorithm,
        "federation.local_steps": 3,
        "privacy.calibrate_to": wanted,
        "aggregation.modulus_bits": 40,
    }
    plan = made_plan("skellam", rate=0.1, noise=16.0).with_overrides(steps)
    made = account_of(NoiseDesign.of(ResolvedPlan.of(plan, SILOS)))
    assert made.analysis == (
        "local" if wanted == "local" else {"dp-sgd": "last-step"}.get(algorithm, algorithm)
    )
    alone = joint_epsilon([past(plan)], delta=1e-5)
    assert alone == pytest.approx(made.epsilon, rel=2e-3)
    assert alone < joint_epsilon([past(plan), past(plan)], delta=1e-5) < 2.0 * alone


def test_a_silo_with_more_steps_than_the_rest_decides_a_joint_account() -> None:
    plan = made_plan("skellam", rate=0.1, noise=16.0).with_overrides(
        {"training.algorithm": "dp-sgd", "silo.c.local_steps": 3}
    )
    made = account_of(NoiseDesign.of(ResolvedPlan.of(plan, SILOS)))
    assert made.epsilon == made.epsilon_per_silo["c"] > made.epsilon_per_silo["a"]
    assert made.analysis == "last-step"
    assert joint_epsilon([past(plan)], delta=1e-5) == pytest.approx(made.epsilon, rel=2e-3)


def test_convex_passes_with_overfull_bins_are_composed_too() -> None:
    """Two kinds of queries whose influence may double, with known probability: bounded by never and
    by always doubling.
    """
    plans = [made_plan("skellam", noise=noise).with_overrides(OVERFULL) for noise in (16.0, 24.0)]
    surges = [
        silo.overfull_rate
        for plan in plans
        for silo in NoiseDesign.of(ResolvedPlan.of(plan, SILOS)).silos
    ]
    assert 0.0 < min(surges) <= max(surges) < 0.5
    joint = joint_epsilon([past(plan) for plan in plans], delta=2e-5)
    never = math.hypot(*(mu_of(plan, 10) for plan in plans))
    assert closed_form(never, 2e-5) < joint < closed_form(2.0 * never, 2e-5)


def test_overfull_bins_count_beside_a_subsampled_run_too() -> None:
    """One run of each kind: the convex pass keeps its own ε, doubled influence included, however
    little the other run adds.
    """
    convex = made_plan("skellam", noise=16.0).with_overrides(OVERFULL)
    assert 0.0 < NoiseDesign.of(ResolvedPlan.of(convex, SILOS)).silos[0].overfull_rate < 0.5
    faint = made_plan("skellam", noise=50.0, rate=0.01, rounds=1)
    assert joint_epsilon([past(convex), past(faint)], delta=1e-5) >= joint_epsilon(
        [past(convex)], delta=1e-5
    )


def test_what_cannot_be_composed_is_refused() -> None:
    plan = made_plan()
    with pytest.raises(GuaranteeError, match="cannot have released 11"):
        joint_epsilon([past(plan, 11)], delta=1e-5)
    silo = plan.with_overrides({"privacy.unit": "silo", "training.algorithm": "silo"})
    with pytest.raises(GuaranteeError, match="cannot be composed"):
        joint_epsilon([past(plan), past(silo)], delta=1e-5)


def test_no_delta_left_for_inexact_samplers_gives_no_bound() -> None:
    assert joint_epsilon([past(made_plan("skellam"))], delta=1e-300) == math.inf
