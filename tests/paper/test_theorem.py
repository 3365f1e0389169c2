"""The audit of the per-step claim: the claim falls with either model, also on the silos' code
alone; the proved analyses stand.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from sumus.audit import Counts, epsilon_lower_bound
from sumus.errors import PlanError
from sumus.paper import audit_theorem, draw_theorem
from sumus.paper.theorem.attacks import threshold_attack
from sumus.paper.theorem.measure import Effort, _agree, measure
from sumus.paper.theorem.regression import LEAST_SQUARES
from sumus.paper.theorem.theorem import attack_design
from sumus.randomness import RandomSource

MODELS = ["logistic", "least-squares"]


def test_the_claim_at_ten_silos_and_two_steps_is_refuted_and_the_proved_analyses_are_not() -> None:
    audit = audit_theorem(
        silos=10,
        local_steps=2,
        epsilon=1.0,
        trials=1_500_000,
        code_trials=128,
        source=RandomSource.simulation(11),
    )
    assert audit.refuted
    assert audit.claimed_epsilon == pytest.approx(1.0, abs=1e-5)
    for model in MODELS:
        by_threshold = next(
            each for each in audit.attacks if (each.attack, each.model) == ("threshold (A)", model)
        )
        assert audit.claimed_epsilon < by_threshold.lower_bound <= audit.lower_bound
    assert audit.lower_bound <= audit.exact_epsilon <= audit.worst_case_epsilon
    assert audit.exact_epsilon == pytest.approx(2.44, abs=0.01)  # attack A at N = 10, S = 2
    assert audit.worst_case_epsilon == pytest.approx(2.58, abs=0.01)
    assert [each.analysis for each in audit.proved] == [
        "last-step",
        "local",
        "split-noise",
        "convex-pass",
        "tangent-pass",
        "newton",
    ]
    assert all(each.lower_bound <= each.epsilon <= 1.0 for each in audit.proved)
    every = [*audit.attacks, *(result for each in audit.proved for result in each.attacks)]
    assert [each.model for each in every] == [*MODELS * 8, *["logistic"] * 3]
    assert all(result.code_agrees for result in every)
    found = json.loads(json.dumps(audit.as_json()))
    assert {
        "claimed_epsilon",
        "delta",
        "lower_bound",
        "code_lower_bound",
        "confidence",
        "exact_epsilon",
        "proved",
    } <= set(found)
    assert {"epsilon", "lower_bound"} <= set(found["proved"][0])


@pytest.mark.long
def test_the_silos_code_behind_the_secure_sum_refutes_the_claim_by_itself() -> None:
    """Twenty silos leak enough for eight thousand trials of the real code (seeded: the outcome is
    always the same).
    """
    built = attack_design(
        "dp-sgd",
        silos=20,
        local_steps=2,
        epsilon=1.0,
        delta=1e-5,
        calibrate_to="per-step",
        width=256,
    )
    effort = Effort(trials=1000, code_trials=8192, delta=1e-5, confidence=0.999)
    found = measure(
        partial(threshold_attack, built, LEAST_SQUARES), effort, RandomSource.simulation(4)
    )
    assert (found.code_trials, found.code_agrees) == (8192, True)
    assert found.code_lower_bound > 1.0


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.long] * (seed > 0)) for seed in range(20)]
)
def test_twenty_seeded_repetitions_never_exceed_a_proved_epsilon(seed: int) -> None:
    source = RandomSource.simulation(seed, "repetition")
    audit = audit_theorem(
        silos=10, local_steps=2, epsilon=1.0, trials=200_000, code_trials=2, source=source
    )
    assert audit.lower_bound > audit.claimed_epsilon  # the same audit finds the claim wrong
    assert [
        (each.analysis, [result.model for result in each.attacks]) for each in audit.proved
    ] == [
        ("last-step", MODELS * 2),
        ("local", MODELS * 2),
        ("split-noise", MODELS * 2),
        ("convex-pass", ["logistic"]),
        ("tangent-pass", ["logistic"]),
        ("newton", ["logistic"]),
    ]
    for each in audit.proved:
        for result in each.attacks:
            assert (
                max(result.lower_bound, result.code_lower_bound) <= each.lower_bound <= each.epsilon
            ), each


def test_bounds_hold_together_with_the_stated_confidence() -> None:
    """One model alone shares the risk among fewer bounds, so each of them is larger for the same
    counts.
    """
    counts = Counts(true_hits=500, with_record=10_000, false_hits=100, without_record=10_000)
    bounds = [
        epsilon_lower_bound(
            counts, delta=1e-5, confidence=Effort(1, 1, 1e-5, 0.99).shared_by(n).confidence
        )
        for n in (1, 4, 8)
    ]
    assert bounds[0] > bounds[1] > bounds[2]
    assert Effort(1, 1, 1e-5, 0.99).shared_by(8).confidence == pytest.approx(1.0 - 0.01 / 8)


def test_code_that_differs_from_the_recursion_is_noticed() -> None:
    counts = Counts(true_hits=300, with_record=1000, false_hits=100, without_record=1000)
    same = Counts(true_hits=1200, with_record=4000, false_hits=400, without_record=4000)
    other = Counts(true_hits=1200, with_record=4000, false_hits=900, without_record=4000)
    assert _agree(counts, same)
    assert not _agree(counts, other)


@pytest.mark.long
def test_processes_change_nothing() -> None:
    options = {
        "silos": 3,
        "local_steps": 2,
        "epsilon": 1.0,
        "trials": 10_000,
        "code_trials": 2,
        "models": ["least-squares"],
    }
    alone, shared = (
        audit_theorem(**options, workers=workers, source=RandomSource.simulation(7))
        for workers in (1, 2)
    )  # type: ignore[arg-type]
    assert alone.as_json() == shared.as_json()


@pytest.mark.parametrize(
    ("wrong", "rule"),
    [
        ({"silos": 1}, "at least 2"),
        ({"local_steps": 1}, "at least 2"),
        ({"models": ("ridge",)}, "some of"),
    ],
)
def test_what_cannot_be_attacked_is_refused(wrong: dict[str, object], rule: str) -> None:
    with pytest.raises(PlanError, match=rule):
        audit_theorem(**({"silos": 3, "local_steps": 2, "epsilon": 1.0} | wrong))  # type: ignore[arg-type]


def test_the_picture_is_written(tmp_path: Path) -> None:
    audit = audit_theorem(
        silos=3,
        local_steps=2,
        epsilon=1.0,
        trials=20_000,
        code_trials=128,
        models=["least-squares"],
    )
    assert sorted(path.name for path in draw_theorem(tmp_path, audit, trials=2000)) == [
        "roc.png",
        "roc.svg",
    ]
    assert (tmp_path / "roc.png").stat().st_size > 10_000
