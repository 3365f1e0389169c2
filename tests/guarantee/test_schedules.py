"""Rounds with noise and rates of their own: every account is the composition of the rounds that were
released, by an oracle that knows nothing of ours.
"""

from __future__ import annotations

import math

import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings, strategies as st
from scipy.optimize import brentq
from scipy.stats import norm

from oracles.divergences import hockey_stick, product, shifted, skellam
from sumus.accounting import Queries, Release, epsilon_of
from sumus.errors import GuaranteeError, PlanError
from sumus.guarantee import (
    LiveEpsilon,
    NoiseDesign,
    PastRun,
    account,
    account_of,
    calibrated,
    joint_epsilon,
)
from sumus.guarantee.accounts import spent
from sumus.plan import PublicFacts, ResolvedPlan, TrainingPlan, rate_factor, resolve
from sumus.tasks import LabelFacts

SILOS = ("a", "b", "c", "d", "e")
DELTA = 1e-5
RATIOS = st.lists(st.floats(0.5, 2.0), min_size=1, max_size=6)


def made_plan(ratios: tuple[float, ...] | None, **more: object) -> TrainingPlan:
    rounds = 4 if ratios is None else len(ratios)
    plan = TrainingPlan.from_toml(
        f"""
        [privacy]
        delta = {DELTA}
        [federation]
        silos = 5
        rounds = {rounds}
        local_steps = 1
        colluding = 0
        [training]
        algorithm = "single-step"
        sampling_rate = 1.0
        divisor = 10.0
        dimension = 20
        [noise]
        mechanism = "gaussian"
        noise_multiplier = 6.0
        rounding = "record"
        [aggregation]
        protocol = "trusted"
        [data]
        name = "digits"
        records_per_silo = [100, 100, 100, 100, 100]
        """
    )
    wanted = {key.replace("__", "."): value for key, value in more.items()}
    return plan.with_overrides(
        ({} if ratios is None else {"noise.schedule": list(ratios)}) | wanted
    )


SKELLAM = {"noise__mechanism": "skellam", "aggregation__protocol": "secagg"}
CONVEX = SKELLAM | {
    "training__algorithm": "convex-pass",
    "training__divisor": 2.0,
    "training__learning_rate": 0.8,
    "federation__local_steps": 50,
    "noise__rounding": "sum",
}

TANGENT = CONVEX | {"training__algorithm": "tangent-pass", "training__model": "mlp"}


def design_of(plan: TrainingPlan) -> NoiseDesign:
    return NoiseDesign.of(ResolvedPlan.of(plan, SILOS))


def closed_form(mu: float, delta: float = DELTA) -> float:
    """ε of μ-GDP, by the textbook formula."""
    return float(
        brentq(
            lambda e: norm.cdf(-e / mu + mu / 2) - math.exp(e) * norm.cdf(-e / mu - mu / 2) - delta,
            0.0,
            100.0,
        )
    )


def sensitivity(design: NoiseDesign) -> float:
    """Clip norms that one record moves a sum by, rounding included."""
    return design.silos[0].l2_grid / design.grid.resolution


@settings(max_examples=25, deadline=None)
@given(RATIOS)
def test_full_batches_compose_like_gaussians(ratios: list[float]) -> None:
    """μ² = Σ 1/σ_t²."""
    design = design_of(made_plan(tuple(ratios)))
    mu2 = math.fsum((sensitivity(design) / (6.0 * ratio)) ** 2 for ratio in ratios)
    assert account_of(design).epsilon == pytest.approx(closed_form(math.sqrt(mu2)), rel=1e-6)


def test_subsampled_rounds_compose_as_dp_accounting_says() -> None:
    compare_with_dp_accounting([0.8, 1.5])


@pytest.mark.long
@settings(max_examples=6, deadline=None)
@given(st.lists(st.floats(0.5, 2.0), min_size=2, max_size=3))
def test_whatever_the_ratios_dp_accounting_agrees(ratios: list[float]) -> None:
    compare_with_dp_accounting(ratios)


def compare_with_dp_accounting(ratios: list[float]) -> None:
    plan = made_plan(tuple(ratios), training__sampling_rate=0.1, noise__noise_multiplier=1.0)
    design, oracle = design_of(plan), PLDAccountant(value_discretization_interval=1e-3)
    for ratio in ratios:
        one = dp_event.GaussianDpEvent(ratio / sensitivity(design))
        oracle.compose(dp_event.PoissonSampledDpEvent(0.1, one))
    assert account_of(design).epsilon == pytest.approx(oracle.get_epsilon(DELTA), rel=5e-3)


@pytest.mark.parametrize("rate", [1.0, 0.3])
@pytest.mark.parametrize("kept", [(0, 1), (1,)], ids=["all", "the quiet round alone"])
def test_no_event_of_integers_is_likelier_than_is_said(rate: float, kept: tuple[int, ...]) -> None:
    """Two rounds with noise of their own, every pair of sums enumerated: a record moves each by the
    whole clip norm, 16 grid steps, with the probability that it joins.
    """
    ratios, sigma, delta = (2.0, 0.75), 1.5, 1e-3
    changes = {"noise__resolution_bits": 4, "training__dimension": 1, "privacy__delta": delta}
    changes |= {"training__sampling_rate": rate, "noise__noise_multiplier": sigma}
    design = design_of(made_plan(ratios, **SKELLAM | changes))
    bound = spent(design, kept)
    pairs = []
    for number in kept:
        law = skellam((16 * sigma * ratios[number]) ** 2, 600)
        pairs.append((law, (1.0 - rate) * law + rate * shifted(law, [16])))
    plain, moved = (product(laws) for laws in zip(*pairs, strict=True))

    def likelier(epsilon: float) -> float:
        alpha = math.exp(epsilon)
        return max(hockey_stick(plain, moved, alpha), hockey_stick(moved, plain, alpha))

    assert likelier(bound) <= delta
    assert likelier(0.93 * bound) > delta, "the bound is near what can be seen"


@settings(max_examples=20, deadline=None)
@given(RATIOS, st.data())
def test_what_was_released_is_composed_whatever_was_lost(
    ratios: list[float], data: st.DataObject
) -> None:
    """Live ε, the ledger's ε and the joint ε of a run in which rounds were lost."""
    plan = made_plan(tuple(ratios))
    design = design_of(plan)
    kept = data.draw(st.lists(st.sampled_from(range(len(ratios))), min_size=1, unique=True))
    mu2 = math.fsum((sensitivity(design) / (6.0 * ratios[number])) ** 2 for number in kept)
    right = pytest.approx(closed_form(math.sqrt(mu2)), rel=1e-6)
    numbers = tuple(number + 1 for number in sorted(kept))
    assert spent(design, sorted(kept)) == right
    assert LiveEpsilon(design).of_rounds(numbers) == right
    past = PastRun(plan=plan, silos=SILOS, rounds=len(kept), numbers=numbers)
    assert joint_epsilon([past], delta=DELTA) == right


def test_equal_ratios_are_no_schedule() -> None:
    """Bit for bit, for every algorithm with schedules."""
    for more in (SKELLAM, CONVEX, TANGENT, SKELLAM | {"training__algorithm": "dp-sgd"}):
        plain, ones = made_plan(None, **more), made_plan((1.0,) * 4, **more)
        assert account_of(design_of(ones)).epsilon == account_of(design_of(plain)).epsilon
        assert design_of(ones).in_round(3).share == design_of(plain).share


@pytest.mark.parametrize("more", [SKELLAM, CONVEX, TANGENT, SKELLAM | {"noise__removable": True}])
def test_what_a_round_draws_is_what_is_composed(more: dict[str, object]) -> None:
    ratios = (1.5, 1.0, 0.5)
    if "noise__removable" in more:
        more = more | {"federation__dropouts": 1}
    design = design_of(made_plan(ratios, **more))
    settings = design.setting(design.silos[0]).of_equal_rounds()
    drawn = {design.in_round(number).share for number in range(3)}
    assert {each.share for each in settings} == drawn == {law for law, _ in design.shares_of_rounds}
    assert [design.in_round(number).noise_multiplier for number in range(3)] == [9.0, 6.0, 3.0]
    parts = design.in_round(2).removable_components if more.get("noise__removable") else ()
    whole = design.in_round(2).share.variance_grid
    assert not parts or math.fsum(part.variance_grid for part in parts) == pytest.approx(whole)


def test_a_law_without_its_round_is_refused() -> None:
    design = design_of(made_plan((1.0, 2.0), **SKELLAM))
    for ask in (lambda: design.share, lambda: design.drawn_by(design.silos[0])):
        with pytest.raises(GuaranteeError, match="noise of its own"):
            ask()
    with pytest.raises(GuaranteeError, match="one by one"):
        _ = design.setting(design.silos[0]).total
    with pytest.raises(PlanError, match="must be one of the plan's 2"):
        design.in_round(2)


def test_unlike_doublings_are_bounded_by_the_mixture_of_all() -> None:
    """Kinds of queries that may double: exact over all cases, from above and closely."""
    kinds = ((4.0, 0.2), (5.0, 0.1), (7.0, 0.4))
    release = Release(tuple(Queries(sigma, 1.0, 1, None, rate) for sigma, rate in kinds))

    def exact(epsilon: float) -> float:
        total = 0.0
        for case in range(8):
            weight, mu2 = 1.0, 0.0
            for place, (sigma, rate) in enumerate(kinds):
                doubled = bool(case >> place & 1)
                weight *= rate if doubled else 1.0 - rate
                mu2 += (4.0 if doubled else 1.0) / sigma**2
            mu = math.sqrt(mu2)
            total += weight * (
                norm.cdf(-epsilon / mu + mu / 2)
                - math.exp(epsilon) * norm.cdf(-epsilon / mu - mu / 2)
            )
        return total

    right = brentq(lambda epsilon: exact(epsilon) - DELTA, 0.0, 20.0)
    assert right <= epsilon_of(release, delta=DELTA) <= right * (1.0 + 1e-3)


def test_calibration_meets_the_target_from_below() -> None:
    plan = made_plan((1.6, 1.2, 0.9, 0.6), **CONVEX, noise__noise_multiplier=None)
    made = account(plan.with_overrides({"privacy.epsilon": 1.0, "data.counts": "public"}))
    assert 0.999 <= made.epsilon <= 1.0
    assert made.proved


@pytest.mark.parametrize("more", [CONVEX, TANGENT])
def test_rates_of_all_rounds_are_in_the_sensitivity(more: dict[str, object]) -> None:
    """A slower pass is rounded more coarsely against its step: the largest of all is accounted."""
    design = design_of(made_plan(None, **more, training__rate_schedule="cosine"))
    for number in range(4):
        round_design = design.in_round(number)
        for most, each in zip(design.silos, round_design.silos, strict=True):
            assert most.l2_grid >= each.l2_grid
            assert most.overfull_rate >= each.overfull_rate
        factor = rate_factor("cosine", number, 4)
        assert round_design.silos[0].learning_rate == pytest.approx(0.8 * factor)
        assert round_design.grid.clip_norm == pytest.approx(design.grid.clip_norm * factor)


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"noise__schedule": [1.0, 1.0]}, "one ratio for each of 4 rounds"),
        (
            {"training__algorithm": "normal-equations", "federation__rounds": 1}
            | {"noise__schedule": [1.0], "training__divisor": 1.0},
            "not accounted for under normal-equations",
        ),
        (
            {"noise__mechanism": "poisson-binomial", "training__algorithm": "silo"}
            | {"privacy__unit": "silo"},
            "cannot stand beside poisson-binomial",
        ),
        ({"training__rate_schedule": "steps"}, "must be one of constant, linear, cosine"),
    ],
)
def test_what_is_not_covered_is_refused(more: dict[str, object], what: str) -> None:
    with pytest.raises(PlanError, match=what):
        made_plan((1.0,) * 4, **more)


def test_a_ring_that_the_loudest_round_could_wrap_is_refused() -> None:
    with pytest.raises(PlanError, match="without wrapping"):
        design_of(made_plan((1.0, 8.0), **SKELLAM, aggregation__modulus_bits=24))
    assert design_of(made_plan((1.0, 1.0), **SKELLAM, aggregation__modulus_bits=24))


# -- κ by calibration


def split_plan(state_noise: float | str, steps: int = 4) -> TrainingPlan:
    return made_plan(
        None,
        **SKELLAM,
        training__algorithm="split-noise",
        training__sampling_rate=0.1,
        training__state_noise=state_noise,
        federation__local_steps=steps,
        privacy__epsilon=1.0,
        privacy__accountant="renyi",
        noise__noise_multiplier=None,
        data__counts="public",
    )


FACTS = PublicFacts(
    name="digits",
    silo_names=SILOS,
    records_per_silo=(100,) * 5,
    shape=(4,),
    labels=LabelFacts(("no", "yes")),
)


def test_the_best_state_noise_is_the_best_of_those_by_hand() -> None:
    steps = 4

    def noise(design: NoiseDesign) -> float:
        shares = float(design.plan.training.state_noise)
        unsent = sum(((steps - step) / steps) ** 2 for step in range(1, steps))
        return design.noise_multiplier**2 * (steps + shares * unsent)

    chosen = calibrated(split_plan("auto"), FACTS)
    assert isinstance(chosen.plan.training.state_noise, float)
    for shares in (0.0, 2.0):
        assert noise(chosen) <= noise(calibrated(split_plan(shares), FACTS)) * (1.0 + 2e-3)
    assert account_of(chosen).epsilon <= 1.0


def test_the_best_state_noise_needs_a_target() -> None:
    plan = split_plan("auto").with_overrides({"noise.noise_multiplier": 3.0})
    with pytest.raises(PlanError, match=r"training\.state_noise needs a target"):
        calibrated(plan, FACTS)
    resolved = resolve(plan, FACTS)
    with pytest.raises(PlanError, match="must be chosen before"):
        _ = NoiseDesign.of(resolved).state_noise
