"""From a plan to a certified ε: calibration, trust, silos that differ, what is paid for, what is
refused.
"""

from __future__ import annotations

import json
import math
import re

import pytest
from scipy.optimize import brentq
from scipy.stats import norm

import sumus
from sumus.accounting import ORDERS, epsilon_of_search
from sumus.accounting.loss_distribution import gdp_parameter
from sumus.accounting.renyi import subsampled
from sumus.errors import GuaranteeError, PlanError
from sumus.guarantee import (
    NoiseDesign,
    account_of,
    calibrated,
    certify,
    convex_bounds,
    metrics_epsilon,
    release_of,
    search_epsilon,
)
from sumus.guarantee.accounts import spent
from sumus.guarantee.algorithms.convex_pass import convex_float_slack_grid
from sumus.guarantee.exactness import Inexactness
from sumus.plan import PublicFacts, ResolvedPlan, TrainingPlan, resolve
from sumus.tasks import LabelFacts

FACTS = PublicFacts(
    name="made-up",
    silo_names=tuple(f"silo-{i}" for i in range(10)),
    records_per_silo=(5600,) * 10,
    shape=(20,),
    labels=LabelFacts(tuple(map(str, range(10)))),
)
CONVEX = """
[privacy]
epsilon = 1.0
[federation]
silos = 10
colluding = 0
rounds = 20
local_steps = 1400
[training]
algorithm = "convex-pass"
learning_rate = 0.5
"""
STEPS = """
[privacy]
epsilon = 1.0
accountant = "renyi"
[federation]
silos = 10
colluding = 0
rounds = 20
local_steps = 11
[training]
algorithm = "dp-sgd"
model = "softmax"
batch_size = 512
[aggregation]
modulus_bits = 40
"""


def _design(source: str, facts: PublicFacts = FACTS, **overrides: object) -> NoiseDesign:
    changes = {key.replace("__", "."): value for key, value in overrides.items()}
    plan = TrainingPlan.from_toml(source).with_overrides(changes)
    return calibrated(plan, facts)


# -- headline


def test_convex_pass_needs_the_noise_of_the_theory() -> None:
    """σ = √T/μ(ε, δ), 16.68 at T = 20, plus rounding and rare overfull bins."""
    built = _design(CONVEX)
    found = account_of(built)
    assert found.analysis == "convex-pass"
    assert found.proved
    assert 0.999 <= found.epsilon <= 1.0
    theory = math.sqrt(20) / gdp_parameter(1.0, 1e-5)
    assert theory <= found.noise_multiplier <= theory * 1.003
    assert found.local_noise_multiplier == pytest.approx(found.noise_multiplier / math.sqrt(10))
    assert {each.name for each in found.analyses} == {"convex-pass", "local"}


def test_several_noisy_steps_count_all_noise_in_the_last_of_them_only() -> None:
    built = _design(STEPS)
    found = account_of(built)
    assert (found.analysis, found.proved) == ("last-step", True)
    claimed, local = (
        next(each for each in found.analyses if each.name == name) for name in ("per-step", "local")
    )
    assert (claimed.proved, local.proved) == (False, True)
    assert claimed.epsilon < 0.4 < 0.999 <= found.epsilon <= 1.0 < local.epsilon
    assert "10 of 10 silos present and honest" in found.trust


def test_a_plan_may_count_on_no_other_silo() -> None:
    shared, alone = _design(STEPS), _design(STEPS, privacy__calibrate_to="local")
    found = certify(alone)
    assert (found.analysis, found.proved) == ("local", True)
    assert 0.999 <= found.epsilon <= 1.0
    assert "no other silo" in found.trust
    assert (alone.plan.noise.noise_multiplier or 0) > (shared.plan.noise.noise_multiplier or 0)
    one_step = certify(_design(STEPS, federation__local_steps=1, privacy__calibrate_to="local"))
    assert (one_step.analysis, one_step.epsilon <= 1.0) == ("local", True)


@pytest.mark.parametrize("algorithm", ["dp-sgd", "split-noise"])
def test_what_is_spent_after_some_rounds_counts_the_last_step_of_each(algorithm: str) -> None:
    """After t of T rounds: t(S−1) earlier steps and t last ones, the ε of a plan of t rounds with
    the same noise.
    """
    built = _design(STEPS, training__algorithm=algorithm)
    whole = account_of(built)
    noise = {"noise__noise_multiplier": whole.noise_multiplier, "privacy__epsilon": "none"}
    for rounds in (1, 7, 20):
        shorter = _design(STEPS, training__algorithm=algorithm, federation__rounds=rounds, **noise)
        assert spent(built, rounds) == pytest.approx(account_of(shorter).epsilon, rel=1e-9)
    assert spent(built, 20) == whole.epsilon
    assert spent(built, 0) == 0.0


def test_the_papers_calibration_never_becomes_the_headline() -> None:
    built = _design(STEPS, privacy__calibrate_to="per-step", privacy__accountant="renyi-mironov")
    found = certify(built)
    assert found.noise_multiplier == pytest.approx(6.8221, rel=1e-3)
    assert (found.analysis, found.proved) == ("last-step", True)
    assert found.epsilon > 3.0
    assert next(each for each in found.analyses if each.name == "per-step").epsilon <= 1.0
    assert "not proved for several local steps" in str(found)


def test_split_noise_lies_between_local_noise_and_the_papers_claim() -> None:
    local, split = _design(STEPS), _design(STEPS, training__algorithm="split-noise")
    paper = _design(STEPS, privacy__calibrate_to="per-step")
    multipliers = [each.plan.noise.noise_multiplier or 0.0 for each in (paper, split, local)]
    assert multipliers == sorted(multipliers)
    ratio = multipliers[1] / multipliers[2]
    # √((k+κ)/(k(1+κ))) = 0.632, a little more with the last step
    assert ratio == pytest.approx(math.sqrt(12 / 3 / 10), rel=1e-2)
    assert account_of(split).analysis == "split-noise"


@pytest.mark.parametrize("mechanism", ["skellam", "discrete-gaussian"])
def test_one_step_counts_all_noise(mechanism: str) -> None:
    built = _design(STEPS, federation__local_steps=1, noise__mechanism=mechanism)
    found = account_of(built)
    assert found.analysis in ("single-step", "per-step")
    assert found.proved


def test_whole_silos() -> None:
    source = '[privacy]\nunit = "silo"\nepsilon = 8.0\n[federation]\nsilos = 10\nrounds = 5\n'
    source += '[training]\nalgorithm = "silo"\nsampling_rate = 0.5\n'
    found = account_of(_design(source))
    assert (found.analysis, found.unit) == ("silo", "silo")
    assert "all records of one silo" in found.neighbours


@pytest.mark.parametrize("source", [CONVEX, STEPS.replace("local_steps = 11", "local_steps = 1")])
def test_inviting_some_silos_at_random_does_not_amplify(source: str) -> None:
    """The server knows whom it invites and who is not invited adds no noise: ε of every round
    counts in full.
    """
    chosen = _design(
        source,
        federation__selection="poisson",
        federation__selection_rate=0.3,
        federation__selected=4,
    )
    assert chosen.plan.noise_contributors == 4
    assert chosen.plan.noise.noise_multiplier == pytest.approx(
        _design(source).plan.noise.noise_multiplier, rel=1e-5
    )


# -- trust


def test_dropouts_and_colluding_silos_raise_everybodys_noise() -> None:
    base, careful = (
        _design(CONVEX),
        _design(CONVEX, federation__dropouts=2, federation__colluding=1),
    )
    assert careful.plan.noise.noise_multiplier == pytest.approx(
        base.plan.noise.noise_multiplier, rel=1e-6
    )
    assert careful.share.variance_grid == pytest.approx(base.share.variance_grid * 10 / 7, rel=1e-5)
    assert "7 of 10 silos present and honest" in account_of(careful).trust


def test_silos_that_differ_have_their_own_epsilon() -> None:
    source = STEPS + "[silo.silo-3]\nsampling_rate = 0.2\n[silo.silo-4]\nclip_norm = 0.5\n"
    found = account_of(_design(source))
    per_silo = found.epsilon_per_silo
    assert max(per_silo, key=lambda name: per_silo[name]) == "silo-3"
    assert per_silo["silo-3"] == found.epsilon <= 1.0
    assert per_silo["silo-4"] < per_silo["silo-0"] < per_silo["silo-3"]


def test_a_silo_with_less_noise_costs_itself_and_the_others() -> None:
    equal, less = _design(STEPS), _design(STEPS + "[silo.silo-1]\nstd_factor = 0.5\n")
    setting = less.setting(less.silos[1])
    assert setting.own.variance_grid == pytest.approx(0.25 * less.share.variance_grid)
    assert setting.total.variance_grid == pytest.approx(9.25 * less.share.variance_grid)
    assert (less.plan.noise.noise_multiplier or 0) > (equal.plan.noise.noise_multiplier or 0)
    one_missing = _design(STEPS + "[silo.silo-1]\nstd_factor = 3.0\n", federation__dropouts=1)
    assert one_missing.setting(one_missing.silos[0]).total.variance_grid == pytest.approx(
        9.0 * one_missing.share.variance_grid
    )


# -- what is paid for


def test_the_samplers_distance_from_its_law_is_paid_for() -> None:
    """ε + 2nρ and (δ − (1+e^ε)·n·τ)·e^{−nρ}, n the draws of all counted silos."""
    built = _design(STEPS, training__algorithm="split-noise")
    slack, delta = built.mechanism.inexactness().budget(1.0, 1e-5)
    # the last step of a round has no unsent noise
    draws = 10 * 20 * (11 + 10) * (built.plan.training.dimension or 0)
    ratio = draws * built.share.log_ratio_slack
    assert slack == pytest.approx(2 * ratio)
    tail = draws * (built.share.tail_mass + 2 * math.exp(-70))
    assert delta == pytest.approx((1e-5 - (1 + math.e) * tail) * math.exp(-ratio), rel=1e-12)
    assert delta < 1e-5


def test_every_component_of_removable_noise_is_paid_for() -> None:
    """With j of 10 silos missing, each of the 9 − j honest ones adds j + 1 draws per coordinate: at
    most 7·3 in place of 7.
    """
    built = _design(CONVEX, federation__dropouts=2, federation__colluding=1, noise__removable=True)
    worst = max((9 - missing) * (missing + 1) for missing in (0, 1, 2))
    sums = 20 * (built.plan.training.dimension or 0)
    assert built.mechanism.inexactness().log_ratio == pytest.approx(
        worst * sums * built.share.log_ratio_slack
    )
    assert worst == 21


@pytest.mark.parametrize("algorithm", ["convex-pass", "single-step"])
def test_noise_that_can_be_taken_back_does_not_count_as_a_silos_own(algorithm: str) -> None:
    """When nobody drops out a silo keeps V/(N − c) of its share V/(N − c − D): what a silo draws
    where no drop-out is tolerated at all.
    """
    steps = {"training__algorithm": algorithm} | (
        {} if algorithm == "convex-pass" else {"training__sampling_rate": 0.1}
    )
    trust = {
        "federation__local_steps": 1400 if algorithm == "convex-pass" else 1,
        "federation__colluding": 1,
    }
    removable = _design(CONVEX, **steps, **trust, federation__dropouts=4, noise__removable=True)
    noise = {
        "noise__noise_multiplier": removable.plan.noise.noise_multiplier,
        "privacy__epsilon": "none",
    }
    fixed = _design(CONVEX, **steps, **trust, **noise, federation__dropouts=0)
    alone = [
        next(each.epsilon for each in account_of(built).analyses if each.name == "local")
        for built in (removable, fixed)
    ]
    assert alone[0] == pytest.approx(alone[1], rel=1e-6)
    assert account_of(removable).epsilon == pytest.approx(account_of(fixed).epsilon, rel=1e-6), (
        "the sum keeps all that is accounted"
    )


def test_the_exactness_of_coins_is_paid_for_in_delta_too() -> None:
    assert Inexactness(log_ratio=0.1).budget(1.0, 1e-5) == pytest.approx(
        (0.2, 1e-5 * math.exp(-0.1))
    )
    assert Inexactness(log_ratio=0.1).paid_for(
        lambda delta: -math.log(delta), delta=1e-5
    ) == pytest.approx(0.2 + 0.1 - math.log(1e-5))
    assert Inexactness(tail_mass=1e-4).paid_for(lambda delta: 1.0, delta=1e-5) == math.inf


def test_metrics_protect_test_records_with_their_own_epsilon() -> None:
    """T measured models: a Gaussian of μ = √T/σ, with everything a sampler costs on top."""
    built = _design(
        CONVEX, evaluation__metrics="secure", evaluation__every=1, evaluation__noise_multiplier=25.0
    )
    found = certify(built).metrics_epsilon
    assert found is not None
    mu = math.sqrt(20) / 25.0
    exact = brentq(
        lambda e: norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu) - 1e-5,
        0.0,
        10.0,
        xtol=1e-13,
    )
    draws = 3 * 20 * 10
    assert exact + 2 * draws * 5e-13 <= found <= 1.0001 * exact
    assert f"  metrics      ε ≤ {found:.2f}" in str(certify(built))
    assert account_of(_design(CONVEX)).metrics_epsilon is None


def test_a_delta_that_cannot_pay_for_the_samplers_gives_no_bound_for_test_records() -> None:
    plan = resolve(TrainingPlan.from_toml(CONVEX), FACTS).plan.replace("privacy", delta=1e-29)
    plan = plan.with_overrides(
        {
            "evaluation.metrics": "secure",
            "evaluation.noise_multiplier": 20.0,
            "evaluation.classes": 2,
        }
    )
    assert metrics_epsilon(plan) == math.inf


def test_metrics_that_cost_more_than_the_target_are_not_certified() -> None:
    built = _design(CONVEX, evaluation__metrics="secure", evaluation__noise_multiplier=2.0)
    with pytest.raises(
        GuaranteeError,
        match=(
            r"evaluation\.noise_multiplier = 2 is too little for privacy\.epsilon = 1: .*Use "
            r"([0-9.]+)"
        ),
    ) as told:
        certify(built)
    needed = re.search(r"Use ([0-9.]+)", str(told.value))
    assert needed is not None
    # the named value is enough
    certify(
        _design(CONVEX, evaluation__metrics="secure", evaluation__noise_multiplier=float(needed[1]))
    )
    with pytest.raises(GuaranteeError, match="too little"):
        certify(
            _design(
                CONVEX,
                evaluation__metrics="secure",
                evaluation__noise_multiplier=0.998 * float(needed[1]),
            )
        )


@pytest.mark.parametrize(("every", "measured"), [(None, 1), (1, 20), (6, 4), (20, 1), (100, 1)])
@pytest.mark.parametrize("mechanism", ["skellam", "discrete-gaussian"])
def test_the_noise_of_metrics_is_calibrated_to_what_is_measured(
    every: int | None, measured: int, mechanism: str
) -> None:
    built = _design(
        CONVEX, evaluation__metrics="secure", evaluation__every=every, noise__mechanism=mechanism
    )
    found = certify(built).metrics_epsilon
    assert found is not None
    assert 0.999 <= found <= 1.0
    theory = math.sqrt(measured) / gdp_parameter(1.0, 1e-5)
    assert theory <= (built.plan.evaluation.noise_multiplier or 0.0) <= 1.001 * theory
    assert sum(map(built.plan.measures_after, range(25))) == measured
    again = calibrated(built.plan, FACTS)
    assert again.plan == built.plan, "a calibrated plan stays as it is, at every silo"


def test_metrics_without_a_target_need_a_noise_of_their_own() -> None:
    noise = {
        "privacy__epsilon": None,
        "noise__noise_multiplier": 20.0,
        "evaluation__metrics": "secure",
    }
    with pytest.raises(
        PlanError, match=r"evaluation\.noise_multiplier must be set where privacy\.epsilon is not"
    ):
        _design(CONVEX, **noise)
    assert (
        account_of(_design(CONVEX, **noise, evaluation__noise_multiplier=5.0)).metrics_epsilon < 1.0
    )


def test_counts_that_would_not_fit_into_the_ring_are_refused() -> None:
    with pytest.raises(
        PlanError,
        match=r"aggregation\.modulus_bits is too small a ring for evaluation\.metrics.*got 24.*Use 28",
    ) as told:
        _design(CONVEX, evaluation__metrics="secure", aggregation__modulus_bits=24)
    assert "28" in str(told.value)
    _design(CONVEX, evaluation__metrics="secure", aggregation__modulus_bits=32)


def test_overfull_bins_are_paid_for() -> None:
    roomy, tight = _design(CONVEX), _design(CONVEX, training__learning_rate=1.5)
    assert roomy.silos[0].overfull_rate < 1e-6 < 1e-3 < tight.silos[0].overfull_rate < 0.5
    assert (tight.plan.noise.noise_multiplier or 0) > (
        roomy.plan.noise.noise_multiplier or 0
    ) * 1.001
    crowded = _design(CONVEX, training__learning_rate=6.0)
    assert crowded.silos[0].overfull_rate == 0.0  # counted as doubled always
    assert crowded.silos[0].l2_grid > 2 * (1 << 16)


@pytest.mark.parametrize(("learning_rate", "cap"), [(0.49, 32), (0.98, 16), (3.9, 4), (15.9, 1)])
def test_the_bin_cap_keeps_steps_non_expansive(learning_rate: float, cap: int) -> None:
    plan = resolve(TrainingPlan.from_toml(CONVEX), FACTS)
    bounds = convex_bounds(plan, learning_rate)
    assert bounds.bin_cap == cap
    a_float32_too_long = (1.0 + 1e-6) ** 2
    assert learning_rate / plan.divisor * bounds.smoothness * a_float32_too_long * cap <= 2.0
    # 32 would be exactly at the limit, and float32 records may be beyond it
    assert convex_bounds(plan, 0.5).bin_cap == 31
    with pytest.raises(
        PlanError, match=r"must let a bin of 4 records on average hold one .* Use at most 15.9"
    ):
        convex_bounds(plan, 17.0)


def test_float_slack_is_small_and_grows_with_the_work() -> None:
    plan = resolve(TrainingPlan.from_toml(CONVEX), FACTS)
    little = convex_float_slack_grid(
        plan, learning_rate=0.5, steps=1400, records=5600, resolution=1 << 16
    )
    assert 0.0 < little < 3.0
    assert (
        convex_float_slack_grid(
            plan, learning_rate=0.5, steps=14000, records=5600, resolution=1 << 16
        )
        > 4 * little
    )
    crowd = convex_float_slack_grid(
        plan, learning_rate=0.5, steps=1400, records=56_000_000, resolution=1 << 16
    )
    # one bin may hold all records, and a sum of so many floats errs with their number
    assert crowd > 100 * little


def test_a_silo_with_a_shorter_step_moves_a_convex_pass_less() -> None:
    built = _design(CONVEX + "[silo.silo-1]\nlearning_rate = 0.25\n")
    usual, careful = built.silos[0], built.silos[1]
    rounding = math.sqrt(built.plan.training.dimension or 0)
    assert careful.l2_grid - rounding == pytest.approx((usual.l2_grid - rounding) / 2.0, rel=1e-3)
    assert certify(built).epsilon_per_silo["silo-1"] < certify(built).epsilon_per_silo["silo-0"]


def test_tuning_is_accounted_when_asked_for() -> None:
    assert account_of(_design(CONVEX)).tuning_epsilon is None
    found = account_of(_design(CONVEX, privacy__tuning_runs=10))
    assert found.tuning_epsilon is not None
    assert 2.0 < found.tuning_epsilon < 10.0
    assert "with the accounted tuning runs" in str(found)


@pytest.mark.deep
def test_a_search_is_paid_for_by_the_silo_that_it_costs_most() -> None:
    """The silo with the largest ε of one run need not be the one that a search costs most: its
    Rényi curve may fall off faster.
    """
    source = """
    [federation]
    silos = 10
    rounds = 100
    [training]
    algorithm = "single-step"
    sampling_rate = 0.01
    [noise]
    noise_multiplier = 0.7
    [privacy]
    tuning_runs = 10
    """
    alike = _design(source)
    mixed = _design(source, **{"silo.silo-0.sampling_rate": 1.0, "silo.silo-0.clip_norm": 0.041})
    made = account_of(mixed)
    assert made.epsilon_per_silo["silo-0"] > made.epsilon_per_silo["silo-1"]
    assert made.tuning_epsilon is not None
    assert made.tuning_epsilon >= search_epsilon([alike]) > 5.0
    assert search_epsilon([alike, mixed]) == pytest.approx(made.tuning_epsilon)


@pytest.mark.parametrize(
    ("algorithm", "analysis"), [("dp-sgd", "last-step"), ("split-noise", "split-noise")]
)
def test_a_search_over_several_steps_pays_for_the_last_ones_and_the_rest(
    algorithm: str, analysis: str
) -> None:
    built = _design(STEPS, training__algorithm=algorithm, privacy__tuning_runs=5)
    release = release_of(analysis, built.setting(built.silos[0]))
    assert [step.count for step in release] == [200, 20]
    curve = sum(step.count * subsampled(step.renyi, step.sampling_rate, ORDERS) for step in release)
    declared = epsilon_of_search(curve, delta=1e-5, expected_runs=5.0)
    assert declared <= search_epsilon([built]) <= 1.001 * declared


def test_a_search_of_one_run_costs_what_its_dearest_candidate_costs() -> None:
    """Nothing is selected from one run; from the first moment that a second one is possible,
    something is.
    """
    cheap, dear = (
        _design(CONVEX, privacy__tuning_runs=1, privacy__epsilon=epsilon) for epsilon in (0.5, 1.0)
    )
    assert account_of(dear).tuning_epsilon == account_of(dear).epsilon <= 1.0
    assert (
        search_epsilon([cheap, dear]) == search_epsilon([dear, cheap]) == account_of(dear).epsilon
    )
    assert search_epsilon([_design(CONVEX, privacy__tuning_runs=1.001, privacy__epsilon=1.0)]) > 1.1


# -- ring


def test_the_ring_cannot_wrap() -> None:
    """N silos at saturation plus a tail of the noise stay inside; a modulus without room is refused
    with the one that has.
    """
    built = _design(CONVEX)
    assert 10 * built.clamp_grid < 2**31
    with pytest.raises(
        PlanError,
        match=r"aggregation.modulus_bits must hold the sum of 10 silos .* Use at least \d+",
    ):
        _design(CONVEX, aggregation__modulus_bits=20)


def test_continuous_noise_is_refused_under_secure_aggregation() -> None:
    with pytest.raises(PlanError, match="must be discrete under secure aggregation"):
        _design(CONVEX, noise__mechanism="gaussian")
    simulated = account_of(
        _design(CONVEX, noise__mechanism="gaussian", aggregation__protocol="trusted")
    )
    assert "a trusted aggregator" in simulated.trust


def test_weights_of_the_steps() -> None:
    momentum = _design(
        STEPS, training__local_momentum=0.5, federation__local_steps=3, aggregation__modulus_bits=48
    )
    assert momentum.step_weights == (448, 384, 256)  # 256·(1 + ½ + ¼), 256·(1 + ½), 256
    rates = _design(
        STEPS,
        federation__local_steps="none",
        training__learning_rates="[0.5, 0.25]",
        aggregation__modulus_bits=48,
    )
    assert rates.step_weights == (256, 128)
    tiny = _design(
        STEPS,
        federation__local_steps="none",
        training__learning_rates="[0.002, 0.002]",
        aggregation__modulus_bits=48,
    )
    # the unit of the weights does not vanish with the weights
    assert tiny.update_scale == pytest.approx(-0.5 / (512 * 256) / 10)


# -- refused


def test_what_cannot_be_certified_is_refused() -> None:
    with pytest.raises(GuaranteeError, match="adds no noise"):
        account_of(_design(CONVEX, training__algorithm="fedavg", training__sampling_rate=0.1))
    with pytest.raises(
        GuaranteeError, match=r"privacy.epsilon = 1 is not met: the plan's noise gives ε ≤ "
    ):
        certify(_design(CONVEX, noise__noise_multiplier=5.0))
    # a plan that names neither ε nor noise aims at 1
    assert _design(CONVEX, privacy__epsilon=None).plan.privacy.epsilon == 1.0
    with pytest.raises(PlanError, match="must be a model whose loss is convex and smooth"):
        _design(CONVEX, training__model="mlp")
    with pytest.raises(PlanError, match="must match the 10 silos"):
        _design(CONVEX, federation__silos=11)


@pytest.mark.deep
def test_a_fresh_calibration_is_always_certified() -> None:
    for source, changes in (
        (CONVEX, {}),
        (STEPS, {}),
        (STEPS, {"privacy__accountant": "pld"}),
        (STEPS, {"noise__resolution_bits": 6}),
    ):
        built = _design(source, **changes)
        assert certify(built).epsilon <= 1.0
        again = NoiseDesign.of(
            ResolvedPlan.of(built.plan, FACTS.silo_names)
        )  # as another process reads it back
        assert account_of(again).epsilon == account_of(built).epsilon


# -- shown


def test_no_epsilon_without_its_assumptions() -> None:
    text = str(account_of(_design(CONVEX, federation__colluding=1)))
    for part in (
        "ε ≤ 1 at δ = 1e-05",
        "proved (convex-pass)",
        "one record of one silo, add or remove",
        "9 of 10 silos",
        "20 sums",
        "privacy-loss",
    ):
        assert part in text


def test_printed_bounds_are_rounded_up() -> None:
    from sumus.guarantee.accounts import _round_up

    assert _round_up(0.99991) == "1"
    assert _round_up(1.00001) == "1.001"
    assert _round_up(1.0) == "1"
    assert _round_up(math.nextafter(1.0, 2.0)) == "1.001"
    assert _round_up(0.123401) == "0.1235"
    assert _round_up(math.inf) == "inf"


def test_resolving_twice_changes_nothing() -> None:
    for source in (CONVEX, STEPS):
        once = resolve(TrainingPlan.from_toml(source), FACTS)
        assert resolve(once.plan, FACTS) == once
        assert once.plan.hash == TrainingPlan.from_toml(once.plan.to_toml()).hash


def test_the_shipped_plan_of_the_digits() -> None:
    plan = sumus.TrainingPlan.load("plans/digits.toml")
    found = sumus.account(plan)
    assert found.proved
    assert found.epsilon <= 1.0
    json.dumps(found.as_json())
