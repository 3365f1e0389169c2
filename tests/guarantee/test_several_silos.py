"""A person with rows in several silos: against quadrature and enumeration, for every algorithm."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from scipy.special import ndtr

from oracles import divergences, local_steps
from sumus.accounting import (
    ACCOUNTANTS,
    Queries,
    Release,
    epsilon_gaussian,
    epsilon_of,
    noisy_queries,
    renyi_values,
)
from sumus.accounting.loss_distribution import deltas_pld
from sumus.accounting.several_parts import TILTS, told_parts
from sumus.errors import PlanError
from sumus.guarantee import NoiseDesign, account, account_of, release_of
from sumus.guarantee.algorithms import applicable
from sumus.guarantee.claims import Setting
from sumus.guarantee.counts import count_release
from sumus.noise import noise_law
from sumus.plan import PublicFacts, ResolvedPlan, TrainingPlan, resolve
from sumus.tasks import LabelFacts

BINOMIALS = [(2, 0.02), (2, 0.3), (3, 0.1), (5, 0.5)]


# -- one query, against quadrature: no line of the package


def mixture_delta(sigma: float, silos: int, rate: float, epsilon: float) -> float:
    """The larger of both hockey-stick divergences between Σ_j Binomial(h, q)(j)·N(j/σ, 1) and N(0,
    1), on a fine grid.
    """
    x = np.linspace(-12.0, 12.0 + silos / sigma, 400_001)
    density = lambda at: np.exp(-np.square(at) / 2.0) / math.sqrt(2.0 * math.pi)  # noqa: E731
    mixed = sum(
        math.comb(silos, j) * rate**j * (1.0 - rate) ** (silos - j) * density(x - j / sigma)
        for j in range(silos + 1)
    )
    alpha = math.exp(epsilon)
    return max(
        float(np.trapezoid(np.maximum(p - alpha * q, 0.0), x))
        for p, q in ((mixed, density(x)), (density(x), mixed))
    )


@pytest.mark.parametrize(("silos", "rate"), BINOMIALS)
@pytest.mark.parametrize("sigma", [1.0, 3.0])
def test_the_mixture_of_gaussians_is_bounded(silos: int, rate: float, sigma: float) -> None:
    release = Release((Queries(sigma, rate, 1, parts=silos),))
    epsilons = np.array([0.0, 0.1, 0.5, 1.0, 2.0])
    bounds = deltas_pld(release, epsilons, interval=2e-3)
    exact = np.array([mixture_delta(sigma, silos, rate, float(each)) for each in epsilons])
    assert (bounds >= exact - 1e-9).all()
    seen = exact > 1e-5
    # as if the person had all its rows in one silo, it would be refuted
    alone = deltas_pld(Release((Queries(sigma, rate, 1),)), epsilons, interval=2e-3)
    assert (alone[seen] < exact[seen]).all()


@pytest.mark.long
@pytest.mark.parametrize(
    ("silos", "rate", "sigma", "count"),
    [(2, 0.05, 2.0, 300), (3, 0.1, 4.0, 60), (2, 0.01, 1.0, 100)],
)
def test_telling_how_many_join_costs_little(
    silos: int, rate: float, sigma: float, count: int
) -> None:
    """Composed, against the loss distribution of the Gaussian mixture itself, which integer noise
    has none of.
    """
    from dp_accounting.pld import privacy_loss_distribution

    exact = (
        privacy_loss_distribution.from_mixture_gaussian_mechanism(
            sigma,
            [float(j) for j in range(silos + 1)],
            [math.comb(silos, j) * rate**j * (1.0 - rate) ** (silos - j) for j in range(silos + 1)],
            value_discretization_interval=2e-3,
        )
        .self_compose(count)
        .get_epsilon_for_delta(1e-5)
    )
    bound = epsilon_of(Release((Queries(sigma, rate, count, parts=silos),)), delta=1e-5)
    assert 0.99 * exact < bound < 1.06 * exact


@pytest.mark.parametrize(("silos", "rate"), BINOMIALS)
def test_renyi_orders_lie_above_the_moments_of_the_mixture(silos: int, rate: float) -> None:
    sigma, orders = 2.0, np.array([2, 3, 5, 8])
    x = np.linspace(-20.0, 20.0 + silos / sigma, 400_001)
    log_base = -np.square(x) / 2.0 - 0.5 * math.log(2.0 * math.pi)
    log_mixed = np.logaddexp.reduce(
        [
            math.log(math.comb(silos, j) * rate**j * (1.0 - rate) ** (silos - j))
            - np.square(x - j / sigma) / 2.0
            - 0.5 * math.log(2.0 * math.pi)
            for j in range(silos + 1)
        ]
    )
    found = renyi_values(Release((Queries(sigma, rate, 1, parts=silos),)), orders)
    for order, bound in zip(orders, found, strict=True):
        for p, q in ((log_mixed, log_base), (log_base, log_mixed)):
            moment = float(np.trapezoid(np.exp(order * p + (1 - order) * q), x))
            assert bound >= math.log(moment) / (order - 1) - 1e-9


@pytest.mark.parametrize("accountant", ["pld", "renyi", "renyi-mironov"])
def test_full_sums_move_by_as_many_silos(accountant: str) -> None:
    law = noise_law("gaussian", 100.0**2)
    one = Release((noisy_queries(law, l2_grid=10.0, dimension=5, count=4, parts=3),))
    other = Release((noisy_queries(law, l2_grid=30.0, dimension=5, count=4),))
    assert one == other
    spent = ACCOUNTANTS[accountant].epsilon(one, delta=1e-5)
    assert spent >= epsilon_gaussian(3 * 2 * 0.1, 1e-5) * (1 - 1e-9)


def test_overfull_bins_of_any_of_the_silos_double_the_whole() -> None:
    law = noise_law("gaussian", 100.0**2)
    made = noisy_queries(law, l2_grid=10.0, dimension=5, parts=3, doubling_rate=1e-3)
    assert made.gaussian_multiplier == pytest.approx(100.0 / 30.0)
    assert made.doubling_rate == pytest.approx(1.0 - (1.0 - 1e-3) ** 3)
    likely = noisy_queries(law, l2_grid=10.0, dimension=5, parts=3, doubling_rate=0.3)
    assert (likely.gaussian_multiplier, likely.doubling_rate) == (pytest.approx(100 / 60), 0.0)


@pytest.mark.parametrize(
    "given",
    [
        {"parts": 0},
        {"parts": 2, "sampling_rate": 1.0},
        {"parts": 2, "sampling_rate": 0.5, "curve": lambda orders: orders * 1.0},
    ],
)
def test_parts_that_mean_nothing_are_refused(given: dict[str, object]) -> None:
    with pytest.raises(PlanError, match="parts"):
        Queries(**({"gaussian_multiplier": 1.0} | given))  # type: ignore[arg-type]


# -- integer noise, by enumeration: subsets of silos with shifts of any direction


@pytest.mark.parametrize("mechanism", ["skellam", "discrete-gaussian"])
@pytest.mark.parametrize("shifts", [((2, 0), (2, 0)), ((2, 0), (0, 2)), ((2, 0), (-2, 0))])
@pytest.mark.parametrize("rate", [0.3, 1.0])
def test_integer_noise_of_two_coordinates_is_dominated(
    mechanism: str, shifts: tuple[tuple[int, int], tuple[int, int]], rate: float
) -> None:
    variance, reach = 9.0, 40
    one = (
        divergences.skellam(variance, reach)
        if mechanism == "skellam"
        else divergences.discrete_gaussian(variance, reach)
    )
    base = divergences.product([one, one])
    mixed = np.zeros_like(base)
    for coins in product((0, 1), repeat=2):
        chance = math.prod(rate if coin else 1.0 - rate for coin in coins)
        if chance:
            moved = [
                sum(coin * shift[axis] for coin, shift in zip(coins, shifts, strict=True))
                for axis in (0, 1)
            ]
            mixed += chance * divergences.shifted(base, moved)
    law = noise_law(mechanism, variance)
    release = Release((noisy_queries(law, l2_grid=2.0, dimension=2, sampling_rate=rate, parts=2),))
    tightest = 0.0
    for accountant in ("pld", "renyi"):
        for delta in (1e-1, 1e-2, 1e-3, 1e-4):
            alpha = math.exp(epsilon_of(release, delta=delta, accountant=accountant))
            for p, q in ((mixed, base), (base, mixed)):
                leak = divergences.hockey_stick(p, q, alpha) / delta
                assert leak <= 1.0 + 1e-9
                tightest = max(tightest, leak)
    if shifts[0] == shifts[1]:
        assert tightest > 0.5  # both in one direction: nearly the worst there is


# -- several local steps, by enumeration

SETTING = Setting(
    algorithm="dp-sgd",
    mechanism="skellam",
    rounds=1,
    local_steps=2,
    sampling_rate=1.0,
    noise_multiplier=12.0 * math.sqrt(2.0),
    contributors=2,
    resolution=1,
    l2_grid=8.0,
    dimension=1,
    silos_per_unit=2,
)
STD, SHIFT = 12, 8


def _writes(kappa: float, scale: int) -> Callable[[int], int]:
    """The other records of a silo write its state into the sum, far above everything else, and take
    back what the state knows of its noise.
    """
    return lambda state: scale * STD * state - round(state / (1.0 + kappa))


@pytest.mark.long
@pytest.mark.parametrize("kappa", [0.0, 1.0])
@pytest.mark.parametrize("rate", [1.0, 0.3])
def test_two_silos_of_one_person_write_their_states_into_the_sum(kappa: float, rate: float) -> None:
    share = float(STD**2)
    sent = local_steps.as_law(divergences.skellam(share, 5 * STD))
    unsent = (
        local_steps.as_law(divergences.skellam(share * kappa, 4 * STD))
        if kappa
        else local_steps.NOTHING
    )

    def released(record: local_steps.Law) -> local_steps.Law:
        first = local_steps.first_step_and_answer(sent, unsent, record, _writes(kappa, 40))
        # silo 2 adds its state to the same place: the two meet in one number
        second = local_steps.first_step_and_answer(sent, unsent, record, _writes(kappa, 40))
        last = local_steps.added(local_steps.added(record, record), local_steps.added(sent, sent))
        return local_steps.added(local_steps.added(first, second), last)

    worlds = [
        released(record) for record in (local_steps.joining(rate, SHIFT), local_steps.NOTHING)
    ]
    algorithm, proved = ("split-noise", "split-noise") if kappa else ("dp-sgd", "last-step")
    setting = replace(SETTING, algorithm=algorithm, sampling_rate=rate, state_noise=kappa)
    exceeded = 0.0
    for delta in (1e-2, 1e-3):
        for p, q in (worlds, worlds[::-1]):
            for silos in (2, 1):
                release = release_of(proved, replace(setting, silos_per_unit=silos))
                # mass cut off at the reach
                leak = (
                    local_steps.hockey_stick(p, q, math.exp(epsilon_of(release, delta=delta)))
                    / delta
                )
                if silos == 2:
                    assert leak <= 1.0 + 1e-3
                else:
                    exceeded = max(exceeded, leak)
    assert exceeded > 1.2  # the attack works on what is claimed for one silo


@pytest.mark.parametrize("rate", [1.0, 0.4])
def test_everything_that_split_noise_shows_of_two_silos_is_dominated(rate: float) -> None:
    """Both states and the sum of step 1 and the sum of step 2, with the person in both silos."""
    share, kappa, shift, reach = 1.5, 1.0, 1, 13
    first = divergences.split_noise_joint(
        divergences.skellam(share, reach), divergences.skellam(share * kappa, reach), 2
    )
    last = divergences.summed(divergences.skellam(share, 2 * reach), 2)
    both_first, both_last = np.zeros_like(first), np.zeros_like(last)
    for coins in product((0, 1), repeat=2):
        chance = math.prod(rate if coin else 1.0 - rate for coin in coins)
        if not chance:
            continue
        moved = np.roll(first, sum(coins) * shift, axis=-1)
        for axis, coin in enumerate(coins):
            moved = np.roll(moved, coin * shift, axis=axis)
        both_first += chance * moved
        both_last += chance * divergences.shifted(last, [sum(coins) * shift])
    without = np.multiply.outer(first.ravel(), last)
    with_person = np.multiply.outer(both_first.ravel(), both_last)
    setting = replace(
        SETTING,
        algorithm="split-noise",
        sampling_rate=rate,
        noise_multiplier=math.sqrt(2.0 * share),
        l2_grid=float(shift),
        state_noise=kappa,
    )
    exceeded = 0.0
    for delta in (1e-1, 1e-2, 1e-3):
        proved, as_one = (
            math.exp(
                epsilon_of(
                    release_of("split-noise", replace(setting, silos_per_unit=silos)), delta=delta
                )
            )
            for silos in (2, 1)
        )
        for p, q in ((with_person, without), (without, with_person)):
            assert divergences.hockey_stick(p, q, proved) <= delta + 1e-6
        exceeded = max(exceeded, divergences.hockey_stick(with_person, without, as_one) / delta)
    assert exceeded > 1.2


def test_what_is_composed_for_several_silos() -> None:
    """h queries of a silo's own in the earlier steps of dp-sgd, mixtures wherever silos meet."""
    sampled = replace(SETTING, sampling_rate=0.3, rounds=5, local_steps=4, state_noise=1.0)
    alone = replace(sampled, silos_per_unit=1)
    earlier, last = release_of("last-step", sampled)
    assert (earlier.parts, earlier.count) == (1, 2 * 5 * 3)
    assert (last.parts, last.count) == (2, 5)
    split = replace(sampled, algorithm="split-noise")
    of_two, of_one = (
        release_of("split-noise", replace(split, silos_per_unit=silos)) for silos in (2, 1)
    )
    assert [(each.parts, each.count) for each in of_two] == [(2, 15), (2, 5)]
    assert [each.gaussian_multiplier for each in of_two] == [
        each.gaussian_multiplier for each in of_one
    ]
    full = [
        release_of("split-noise", replace(split, sampling_rate=1.0, silos_per_unit=silos))
        for silos in (2, 1)
    ]
    for two, one in zip(*full, strict=True):
        assert two.gaussian_multiplier == pytest.approx((one.gaussian_multiplier or 0.0) / 2.0)
    (summed,) = release_of("single-step", replace(sampled, local_steps=1))
    assert (summed.parts, summed.count) == (2, 5)
    assert [each.parts for each in release_of("last-step", alone)] == [1, 1]


def test_what_is_claimed_for_several_silos() -> None:
    """Nothing that rests on one silo's noise alone, nothing unproved, and never nothing."""
    for algorithm, steps, expected in (
        ("dp-sgd", 3, {"last-step": True}),
        ("dp-sgd", 1, {"single-step": True, "per-step": True}),
        ("single-step", 1, {"single-step": True, "per-step": True}),
        ("split-noise", 3, {"split-noise": True}),
        ("convex-pass", 3, {"convex-pass": True}),
        ("normal-equations", 1, {"normal-equations": True}),
    ):
        for contributors in (1, 4):
            setting = replace(
                SETTING, algorithm=algorithm, local_steps=steps, contributors=contributors
            )
            assert applicable(setting) == expected


# -- plans


def plan_of(algorithm: str, silos_per_person: int, **sections: dict[str, object]) -> TrainingPlan:
    steps = {"sampling_rate": 0.05} if algorithm not in ("convex-pass", "normal-equations") else {}
    table: dict[str, dict[str, object]] = {
        "privacy": {"unit": "person", "epsilon": 1.0, "silos_per_person": silos_per_person},
        "federation": {"rounds": 3},
        "training": {"algorithm": algorithm, **steps},
        "data": {"objects": "people", "records_per_silo": [200, 300, 250, 400]},
    }
    if algorithm in ("dp-sgd", "split-noise"):
        table["federation"]["local_steps"] = 3
    if algorithm == "normal-equations":
        table["federation"]["rounds"] = 1
    for title, keys in sections.items():
        table.setdefault(title, {}).update(keys)
    return TrainingPlan.from_table(table)


FACTS = PublicFacts(
    name="people",
    silo_names=("a", "b", "c", "d"),
    records_per_silo=(200, 300, 250, 400),
    shape=(5,),
    labels=LabelFacts(names=("0", "1")),
)


def design_of(plan: TrainingPlan) -> NoiseDesign:
    from sumus.guarantee import calibrated

    return calibrated(plan, FACTS)


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ["convex-pass", "single-step", "dp-sgd", "split-noise"])
def test_more_silos_of_a_person_need_more_noise_for_the_same_target(algorithm: str) -> None:
    designs = {silos: design_of(plan_of(algorithm, silos)) for silos in (1, 2, 3)}
    noise = {silos: design.noise_multiplier for silos, design in designs.items()}
    assert noise[1] < noise[2] < noise[3]
    for silos, design in designs.items():
        made = account_of(design)
        assert made.epsilon <= 1.0
        assert made.epsilon > 0.99
        assert made.unit == "person"
        assert ("up to" in made.neighbours) == (silos > 1)
        assert made.proved
    if algorithm == "convex-pass":
        assert noise[2] == pytest.approx(2.0 * noise[1], rel=1e-3)
    # the noise for persons in one silo does not do for persons in two
    short = ResolvedPlan.of(
        designs[1].plan.replace("privacy", silos_per_person=2, epsilon=None),
        designs[1].resolved.silo_names,
    )
    assert account_of(NoiseDesign.of(short)).epsilon > 1.2


def test_unlike_silos_are_all_taken_for_the_worst() -> None:
    plan = plan_of("single-step", 2)
    unlike = replace_silo(plan, "b", sampling_rate=0.2, std_factor=0.5)
    design = design_of(unlike)
    settings = [design.setting(silo) for silo in design.silos]
    assert {setting.sampling_rate for setting in settings} == {0.2}
    assert {setting.own_share for setting in settings} == {0.25}
    # k = 3 of 4 counted, the noisy ones gone: 0.25 + 1 + 1
    (total,) = {setting.total.variance_grid for setting in settings}
    assert total == pytest.approx(2.25 * settings[0].share.variance_grid)
    assert len({setting.l2_grid for setting in settings}) == 1


def replace_silo(plan: TrainingPlan, name: str, **keys: object) -> TrainingPlan:
    return plan.with_overrides({f"silo.{name}.{key}": value for key, value in keys.items()})


def test_counts_of_test_persons_move_by_as_many_silos() -> None:
    plan = design_of(plan_of("convex-pass", 1, evaluation={"metrics": "secure"})).plan
    several = plan.replace("privacy", silos_per_person=3)
    (one,), (more,) = (count_release(each, measurements=1) for each in (plan, several))
    assert one.gaussian_multiplier == pytest.approx(3 * more.gaussian_multiplier)
    calibrated = design_of(plan_of("convex-pass", 3, evaluation={"metrics": "secure"})).plan
    assert calibrated.evaluation.noise_multiplier == pytest.approx(
        3 * plan.evaluation.noise_multiplier, rel=1e-3
    )


def test_what_one_silos_noise_hides_is_no_target_for_several() -> None:
    for target in ("local", "per-step"):
        with pytest.raises(PlanError, match=r'privacy\.calibrate_to must be "proved"'):
            plan_of("dp-sgd", 2, privacy={"calibrate_to": target})


def test_searches_are_accounted_for_several_silos_too() -> None:
    made = [
        account_of(
            design_of(plan_of("single-step", silos, privacy={"tuning_runs": 5.0, "epsilon": 2.0}))
        )
        for silos in (1, 2)
    ]
    assert all(math.isfinite(each.tuning_epsilon or math.inf) for each in made)
    assert made[1].noise_multiplier > made[0].noise_multiplier


def test_what_is_not_claimed_is_not_compared() -> None:
    from sumus.guarantee import compare

    settings = []
    for silos in (1, 2):
        compared = compare(design_of(plan_of("convex-pass", silos)))
        assert compared is not None
        settings.append(set(compared.settings))
    assert settings[0] - settings[1] == {"local"}


# -- words


def test_accounts_of_persons_say_so() -> None:
    alone = str(account_of(design_of(plan_of("convex-pass", 1, evaluation={"metrics": "secure"}))))
    assert "one person of one silo with all its rows there, add or remove" in alone
    assert "is protected in each by itself (privacy.silos_per_person)" in alone
    assert "one beyond its bound leaves persons out, and then two differ" in alone
    assert "of 1,150 training persons" in alone
    assert "for one test person, add or remove" in alone
    assert "counts of test persons" in alone
    assert "  persons      at most 1,150 for training, 200 to 400 in each of 4 silos" in alone
    several = str(account_of(design_of(plan_of("convex-pass", 2))))
    assert "leaves persons out, and then one other may differ in each such silo" in several
    assert "one person with all its rows in up to 2 silos, add or remove" in several
    assert "a person has one identifier in all silos" in several
    assert "a person has one identifier" not in alone


def test_a_stored_plan_of_persons_gives_the_same_account() -> None:
    design = design_of(plan_of("single-step", 2))
    again = TrainingPlan.from_toml(design.plan.to_toml())
    stored = NoiseDesign.of(ResolvedPlan.of(again, FACTS.silo_names))
    assert account_of(stored).epsilon == account_of(design).epsilon


def test_gaussian_pairs_keep_their_closed_form() -> None:
    """μ of a person in two silos is twice that of one in one."""
    resolved = resolve(plan_of("convex-pass", 1), FACTS)
    meanings = [
        account_of(
            NoiseDesign.of(
                resolved.replace("privacy", silos_per_person=silos), noise_multiplier=40.0
            )
        ).meaning
        for silos in (1, 2)
    ]
    assert meanings[0] is not None
    assert meanings[1] is not None
    assert meanings[1].mu == pytest.approx(2.0 * meanings[0].mu, rel=1e-6)
    assert meanings[1].advantage == pytest.approx(
        2.0 * float(ndtr(meanings[1].mu / 2.0)) - 1.0, rel=1e-3
    )


def test_account_reads_a_plan_of_persons(tmp_path) -> None:
    path = tmp_path / "own.csv"
    path.write_text(
        "clinic,patient,age,ill\n"
        + "".join(f"{'ABC'[p % 3]},p{p},{p % 90},{p % 2}\n" for p in range(300) for _ in range(2))
    )
    plan = TrainingPlan.from_table(
        {
            "privacy": {"unit": "person", "epsilon": 1.0, "delta": 1e-4},
            "federation": {"rounds": 2},
            "data": {
                "path": str(path),
                "silo_column": "clinic",
                "label_column": "ill",
                "person_column": "patient",
            },
        }
    )
    made = account(plan)
    assert sum(made.records_per_silo) < 300
    assert made.protected_kind == "training persons"


@pytest.mark.parametrize(
    ("rate", "silos"), [(0.9999, 5), (0.99, 20), (0.5, 60), (1 - 1e-15, 30), (0.5, 1000)]
)
@pytest.mark.parametrize("multiplier", [0.3, 1.0, 30.0, 1e4])
@pytest.mark.parametrize("tilt", TILTS)
def test_shares_of_near_certain_parts_are_shares(
    rate: float, silos: int, multiplier: float, tilt: float
) -> None:
    told = told_parts(rate, silos, multiplier, tilt)
    assert math.fsum(share for _, share, _ in told) == pytest.approx(1.0, abs=1e-9)
    assert all(0.0 < join <= 1.0 and share > 0.0 for _, share, join in told)
    for number, share, join in told:
        exact = Fraction(math.comb(silos, number)) * Fraction(rate) ** number
        exact *= (1 - Fraction(rate)) ** (silos - number)
        assert share * join >= float(exact) * (1.0 - 1e-9)


def test_subsampled_parts_cannot_double() -> None:
    with pytest.raises(PlanError, match="doubling_rate must be 0 for a subsampled query"):
        Queries(1.0, 0.5, 1, None, 0.1, 2)


def test_whoever_has_rows_of_the_person_is_not_who_it_is_protected_from() -> None:
    held = "no row of the person in a silo that colludes"
    for silos, colluding in ((1, 1), (2, 1), (2, 0)):
        design = design_of(plan_of("convex-pass", silos, federation={"colluding": colluding}))
        assert (held in account_of(design).trust) == (silos > 1 and colluding > 0)
    for silos in (1, 2, 4):
        design = design_of(plan_of("convex-pass", silos, federation={"colluding": 0}))
        made = account_of(design)
        assert (made.participant_epsilon is None) == (silos == len(design.silos) == 4)
        line = "against one of the silos that has no row of the person, who knows its own noise"
        assert (line in str(made)) == (silos < 4)
