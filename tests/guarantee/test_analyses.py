"""What each analysis composes: split noise by enumeration, fusing, silos that differ, and which
analysis is proved when.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from oracles import divergences as oracle
from oracles.heterogeneous import (
    SiloSetting,
    best_fusing,
    common_noise_multiplier,
    counted_variance,
    silo_noise_multiplier,
)
from sumus.accounting import (
    Queries,
    Release,
    epsilon_gaussian,
    epsilon_of,
    even_groups,
    joining_rate,
)
from sumus.errors import PlanError
from sumus.guarantee import release_of
from sumus.guarantee.algorithms import STATEMENTS, applicable
from sumus.guarantee.algorithms.split_noise import split_noise_multiplier
from sumus.guarantee.claims import Setting

BASE = Setting(
    algorithm="dp-sgd",
    mechanism="skellam",
    rounds=20,
    local_steps=11,
    sampling_rate=0.1,
    noise_multiplier=6.0,
    contributors=10,
    resolution=1 << 16,
    l2_grid=float(1 << 16),
    dimension=1000,
)


# -- split noise


@pytest.mark.parametrize(
    ("silos", "share", "kappa", "reach"),
    [(2, 1.5, 1.0, 13), (2, 1.5, 4.0, 17), (2, 3.0, 0.5, 16), (3, 0.8, 1.0, 9), (3, 0.8, 3.0, 11)],
)
@pytest.mark.parametrize("shift", [1, 2])
def test_split_noise_by_enumeration(
    silos: int, share: float, kappa: float, reach: int, shift: int
) -> None:
    """All states and the sum, shifted as a record of silo 1 shifts them: exact divergence against
    the Gaussian we account for.
    """
    joint = oracle.split_noise_joint(
        oracle.skellam(share, reach), oracle.skellam(share * kappa, reach), silos
    )
    joint /= joint.sum()
    moved = np.roll(np.roll(joint, shift, axis=0), shift, axis=-1)
    setting = replace(
        BASE,
        algorithm="split-noise",
        noise_multiplier=math.sqrt(silos * share),
        contributors=silos,
        resolution=1,
        l2_grid=float(shift),
        dimension=1,
        state_noise=kappa,
    )
    mu = 1.0 / split_noise_multiplier(setting)
    for alpha in (0.3, 1.0, 1.5, 3.0, 10.0):
        # mass cut off at the reach
        assert (
            oracle.hockey_stick(moved, joint, alpha)
            <= oracle.gaussian_hockey_stick(mu, alpha) + 1e-6
        )


@pytest.mark.parametrize("silos", [2, 3])
def test_seeing_only_the_sum_would_be_too_optimistic(silos: int) -> None:
    """With the states in view the sum's noise alone is not enough: the enumeration notices if
    states are forgotten.
    """
    share, kappa, reach = 1.5 if silos == 2 else 0.8, 1.0, 13 if silos == 2 else 9
    joint = oracle.split_noise_joint(
        oracle.skellam(share, reach), oracle.skellam(share * kappa, reach), silos
    )
    moved = np.roll(np.roll(joint, 1, axis=0), 1, axis=-1)
    claimed = 1.0 / math.sqrt(silos * share)
    assert (
        oracle.hockey_stick(moved, joint, 1.5) > oracle.gaussian_hockey_stick(claimed, 1.5) + 1e-3
    )


@given(silos=st.integers(2, 60), kappa=st.floats(0.05, 50.0))
@settings(max_examples=25, deadline=None)
def test_split_noise_tends_to_its_formula(silos: int, kappa: float) -> None:
    """σ_eff² = σ²(1+κ)/(k+κ), exactly for the continuous Gaussian and in the limit of a fine grid
    for Skellam.
    """
    continuous = replace(
        BASE, algorithm="split-noise", mechanism="gaussian", contributors=silos, state_noise=kappa
    )
    expected = 6.0 * math.sqrt((1.0 + kappa) / (silos + kappa))
    assert split_noise_multiplier(continuous) == pytest.approx(expected, rel=1e-12)
    fine = replace(
        continuous, mechanism="skellam", dimension=1, resolution=1 << 18, l2_grid=float(1 << 18)
    )
    assert expected * (1 - 1e-3) <= split_noise_multiplier(fine) <= expected
    vast = replace(fine, dimension=10**9)
    # never worse than the silo's own noise alone
    assert split_noise_multiplier(vast) >= 6.0 / math.sqrt(silos) * (1 - 1e-5)


def test_split_noise_ends() -> None:
    """κ = 0 is local noise; κ → ∞ approaches the noise of all silos; one silo has nobody to share
    with.
    """
    setting = replace(BASE, algorithm="split-noise", mechanism="gaussian")
    assert split_noise_multiplier(setting) == pytest.approx(6.0 / math.sqrt(10))
    assert split_noise_multiplier(replace(setting, state_noise=1e9)) == pytest.approx(6.0, rel=1e-6)
    assert split_noise_multiplier(
        replace(setting, contributors=1, state_noise=5.0)
    ) == pytest.approx(6.0)


# -- which analysis says what


def test_the_papers_theorem_is_proved_for_one_step_only() -> None:
    assert applicable(BASE) == {"last-step": True, "local": True, "per-step": False}
    assert applicable(replace(BASE, local_steps=1)) == {
        "single-step": True,
        "local": True,
        "per-step": True,
    }
    assert applicable(replace(BASE, algorithm="split-noise")) == {
        "split-noise": True,
        "local": True,
        "per-step": False,
    }
    assert applicable(replace(BASE, algorithm="convex-pass")) == {
        "convex-pass": True,
        "local": True,
    }
    assert applicable(replace(BASE, algorithm="silo")) == {"silo": True, "local": True}
    with pytest.raises(PlanError, match="has no privacy analysis"):
        applicable(replace(BASE, algorithm="fedavg"))


def test_what_is_composed() -> None:
    setting = replace(BASE, mechanism="gaussian")
    per_step, local = release_of("per-step", setting), release_of("local", setting)
    assert per_step == Release((Queries(6.0, 0.1, 220),))
    (own,) = local
    assert (own.gaussian_multiplier, own.count) == (pytest.approx(6.0 / math.sqrt(10)), 220)
    (single,) = release_of("single-step", replace(setting, local_steps=1))
    assert single == Queries(6.0, 0.1, 20)
    (convex,) = release_of(
        "convex-pass", replace(setting, algorithm="convex-pass", overfull_rate=1e-6)
    )
    assert convex == Queries(6.0, 1.0, 20, None, 1e-6)
    (silo,) = release_of("silo", replace(setting, algorithm="silo"))
    assert silo == Queries(6.0, 1.0, 20)
    assert set(STATEMENTS) == {
        "single-step",
        "last-step",
        "local",
        "per-step",
        "split-noise",
        "convex-pass",
        "tangent-pass",
        "normal-equations",
        "newton",
        "describe",
        "silo",
    }


def test_unequal_steps_are_fused_in_the_papers_accounting() -> None:
    """A silo of 5 steps beside one of 2: two slots of 3 and 2 steps, with the sensitivity of all of
    them and the noise of one.
    """
    setting = replace(BASE, mechanism="gaussian", local_steps=5, slots=2, sampling_rate=1.0)
    release = release_of("per-step", setting)
    assert [(round(step.gaussian_multiplier, 12), step.count) for step in release] == [
        (3.0, 20),
        (2.0, 20),
    ]


def test_no_silo_left_to_count_is_refused() -> None:
    with pytest.raises(PlanError, match="at least one silo whose noise counts"):
        replace(BASE, contributors=0)


# -- silos that differ


def test_a_small_learning_rate_scales_noise_away() -> None:
    """Two silos, the second with a quarter of the learning rate. Directly: the sum is g₁ + ξ₁ + (g₂
    + ξ₂)/4.
    """
    slow = 4.0
    silos = [SiloSetting(), SiloSetting(learning_rate=1.0 / slow)]
    variance = 1.0 + 1.0 / slow**2
    # a record of silo 1 moves the sum by 1
    exact = oracle.gaussian_hockey_stick(1.0 / math.sqrt(variance), math.e)
    # Σ (C_iσ_i/C*)² = 2: the factor l_i is missing
    paper = oracle.gaussian_hockey_stick(1.0 / math.sqrt(2.0), math.e)
    ours = oracle.gaussian_hockey_stick(1.0 / common_noise_multiplier(silos), math.e)
    assert ours == pytest.approx(exact)
    assert exact > 1.4 * paper
    # its own records move the sum by 1/4 only
    assert silo_noise_multiplier(silos, 1) == pytest.approx(math.sqrt(variance) * slow)


@given(
    rates=st.lists(st.floats(0.1, 5.0), min_size=2, max_size=6),
    clips=st.lists(st.floats(0.1, 5.0), min_size=6, max_size=6),
    noises=st.lists(st.floats(0.1, 5.0), min_size=6, max_size=6),
)
@settings(max_examples=50, deadline=None)
def test_one_multiplier_for_all_is_never_above_a_silos_own(
    rates: list[float], clips: list[float], noises: list[float]
) -> None:
    silos = [
        SiloSetting(learning_rate=r, clip_norm=c, local_noise_multiplier=n)
        for r, c, n in zip(rates, clips, noises, strict=False)
    ]
    common = common_noise_multiplier(silos)
    largest = max(rate * clip for rate, clip in zip(rates, clips, strict=False))
    formula = math.sqrt(
        sum((c * n * r / largest) ** 2 for r, c, n in zip(rates, clips, noises, strict=False))
    )
    assert common == pytest.approx(formula)
    assert all(
        common <= silo_noise_multiplier(silos, victim) * (1 + 1e-12) for victim in range(len(silos))
    )
    fewer = common_noise_multiplier(silos, not_counted=1)
    assert fewer <= common


def test_whoever_is_not_counted_is_the_noisiest_of_the_others() -> None:
    silos = [SiloSetting(local_noise_multiplier=n) for n in (1.0, 2.0, 3.0)]
    assert counted_variance(silos, victim=0, not_counted=1) == pytest.approx(1.0 + 4.0)
    assert counted_variance(silos, victim=2, not_counted=1) == pytest.approx(9.0 + 1.0)
    assert counted_variance(silos, victim=0, not_counted=2) == pytest.approx(1.0)
    with pytest.raises(PlanError, match="colluding must be at most 2"):
        counted_variance(silos, victim=0, not_counted=3)


def test_the_papers_fusing_example() -> None:
    """Twice the steps at half the clip norm count as the steps themselves."""
    even = [SiloSetting(local_noise_multiplier=5.0, local_steps=6)] * 2
    uneven = [
        SiloSetting(local_noise_multiplier=5.0, local_steps=6),
        SiloSetting(clip_norm=0.5, local_noise_multiplier=10.0, local_steps=12),
    ]
    plain, fused = (best_fusing(silos, rounds=3, delta=1e-5) for silos in (even, uneven))
    assert (plain.slots, fused.slots) == (6, 6)
    assert fused.sizes == ((1,) * 6, (2,) * 6)
    assert fused.epsilon == pytest.approx(plain.epsilon)


@given(steps=st.lists(st.integers(1, 9), min_size=1, max_size=4), rate=st.sampled_from([1.0, 0.2]))
@settings(max_examples=15, deadline=None)
def test_the_best_fusing_is_the_best(steps: list[int], rate: float) -> None:
    silos = [
        SiloSetting(local_noise_multiplier=4.0, local_steps=each, sampling_rate=rate)
        for each in steps
    ]
    found = best_fusing(silos, rounds=2, delta=1e-5)
    assert 1 <= found.slots <= min(steps)
    assert all(sum(sizes) == each for sizes, each in zip(found.sizes, steps, strict=True))
    whole = Release(
        (Queries(4.0 * math.sqrt(len(steps)) / max(steps), joining_rate(rate, max(steps)), 2),)
    )
    assert found.epsilon <= epsilon_of(whole, delta=1e-5, accountant="renyi") * (1 + 1e-9)


@given(steps=st.integers(1, 200), slots=st.integers(1, 200))
def test_groups_are_even(steps: int, slots: int) -> None:
    slots = min(slots, steps)
    sizes = even_groups(steps, slots)
    assert len(sizes) == slots
    assert sum(sizes) == steps
    assert max(sizes) - min(sizes) <= 1


def test_joining_a_fused_slot() -> None:
    assert joining_rate(0.1, 1) == 0.1
    assert joining_rate(0.1, 3) == pytest.approx(1 - 0.9**3)
    assert joining_rate(1.0, 3) == 1.0


def test_fusing_at_full_rate_is_one_gaussian() -> None:
    silos = [
        SiloSetting(local_noise_multiplier=10.0, local_steps=3),
        SiloSetting(local_noise_multiplier=10.0, local_steps=1),
    ]
    found = best_fusing(silos, rounds=1, delta=1e-5, accountant="pld")
    assert found.slots == 1
    assert found.epsilon == pytest.approx(epsilon_gaussian(3.0 / math.sqrt(200.0), 1e-5))
