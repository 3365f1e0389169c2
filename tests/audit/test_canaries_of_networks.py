"""Canaries of passes on linearised networks, of steps behind a public map and of rounds that differ:
as loud as they can be, they are heard as much as is accounted.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from sumus.audit import audit_run
from sumus.audit.canaries import CanaryRounds
from sumus.gradients import StoredChunk
from sumus.guarantee import NoiseDesign, calibrated
from sumus.noise import Skellam
from sumus.plan import PublicFacts, TrainingPlan
from sumus.randomness import RandomSource
from sumus.tasks import LabelFacts

FACTS = PublicFacts("test", ("a", "b", "c"), (200, 200, 200), (8,), LabelFacts(("no", "yes")))


COMMON = {
    "privacy.epsilon": 8.0,
    "privacy.delta": 1e-4,
    "federation.rounds": 2,
    "training.dimension": 128,
    "training.model": "logistic",
    "evaluation.metrics": "none",
}
TANGENT = {
    "training.algorithm": "tangent-pass",
    "federation.local_steps": 50,
    "training.residual_cap": 0.5,
}
MAPPED = {"training.preconditioner": "kronecker", "training.damping": 0.1}
QUIETER = {"noise.schedule": (1.5, 0.75)}
FULL = {"training.sampling_rate": 1.0}
PLANS = {
    "tangent-pass": TANGENT | {"federation.rounds": 1},
    "tangent-pass, twice": TANGENT,
    "tangent-pass behind a map": TANGENT | MAPPED,
    "tangent-pass, rounds differ": TANGENT | QUIETER | {"training.rate_schedule": "linear"},
    "single-step behind a map": {"training.algorithm": "single-step"} | MAPPED | FULL,
    "split-noise behind a map": {"training.algorithm": "split-noise", "federation.local_steps": 2}
    | MAPPED
    | FULL,
    "single-step, rounds differ": {"training.algorithm": "single-step"} | QUIETER | FULL,
}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=[pytest.mark.long] * (name == "tangent-pass, twice"))
        for name in PLANS
    ],
)
def design(request: pytest.FixtureRequest) -> NoiseDesign:
    return calibrated(TrainingPlan().with_overrides(COMMON | PLANS[request.param]), FACTS)


def _heard(design: NoiseDesign, runs: int) -> tuple[float, float, float]:
    """(expected, mean difference of scores, spread of silent coordinates)."""
    seeds = itertools.count(1)
    rounds = CanaryRounds(
        design, 60, view="sum", new_source=lambda: RandomSource.simulation(next(seeds))
    )
    seen = [rounds.run() for _ in range(runs)]
    within = np.concatenate([each.scores[each.included] for each in seen])
    without = np.concatenate([each.scores[~each.included] for each in seen])
    silent = np.concatenate([each.silent.reshape(-1) for each in seen])
    return rounds.separation, float(within.mean() - without.mean()), float(silent.std())


def test_a_canary_is_heard_as_much_as_is_expected(design: NoiseDesign) -> None:
    """Of 240 scores with deviation 1 the difference of means deviates by 0.13: a false alarm at
    five of them has a probability below 1e-6.
    """
    expected, heard, silent = _heard(design, 4)
    assert expected > 0.5
    assert abs(heard - expected) < 0.65
    assert silent == pytest.approx(1.0, abs=0.15)


def test_it_would_be_heard_more_if_its_jacobian_were_not_shortened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    design = calibrated(TrainingPlan().with_overrides(COMMON | TANGENT), FACTS)
    whole = StoredChunk.within

    def unbounded(outputs, parts, **bounds):
        loose = bounds | {"jacobian_norm": 1e30, "whole_norm": 1e30}
        return whole(outputs, parts, **loose)

    monkeypatch.setattr(StoredChunk, "within", unbounded)
    expected, heard, _ = _heard(design, 1)
    assert heard > 4.0 * expected


def test_quiet_rounds_are_heard_more_if_they_are_quieter_than_planned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The control of rounds that differ: a last round with a third of its noise stands out."""
    plan = COMMON | PLANS["single-step, rounds differ"]
    design = calibrated(TrainingPlan().with_overrides(plan), FACTS)
    drawn = Skellam.sample
    quiet = design.in_round(1).share
    monkeypatch.setattr(
        Skellam,
        "sample",
        lambda law, size, source: drawn(law, size, source) // (3 if law == quiet else 1),
    )
    assert _heard(design, 1)[2] < 0.8


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
def test_an_audit_finds_no_more_than_is_proved(design: NoiseDesign, seed: int) -> None:
    seeds = itertools.count(1000 * seed + 1)
    audit = audit_run(
        design,
        None,
        canaries=60,
        runs=8,
        confidence=1.0 - 1e-6,
        new_source=lambda: RandomSource.simulation(next(seeds)),
    )
    assert not audit.findings
