"""The attacks: the vectorised recursion is the silos' code, the claim falls, the proved analyses stand."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from sumus.audit.attacks import Attack, Draws, ForgettingAttack, ThresholdAttack
from sumus.audit.convex_attack import ConvexAttack
from sumus.audit.theorem import attack_design, audit_theorem, draw_theorem, released_by_silos, tuned
from sumus.errors import PlanError
from sumus.randomness import RandomSource


def _attack(kind: type[ThresholdAttack] | type[ForgettingAttack], algorithm: str, *, silos: int, steps: int, threshold: float) -> Attack:
    target = "per-step" if algorithm == "dp-sgd" else "proved"
    built = attack_design(algorithm, silos=silos, local_steps=steps, epsilon=1.0, delta=1e-5, calibrate_to=target)
    return kind(tuned(built, kind.learning_rate(built)), threshold)


def _same_noise(attack: Attack, trials: int, seed: int, *, tracked: slice) -> Draws:
    """The noise that the silos of `released_by_silos` draw from `RandomSource.simulation(seed, trial, silo)`, step by step."""
    built = attack.design
    steps, unsent = built.silos[0].local_steps, built.state_noise
    sent = np.zeros((steps, trials, len(built.silos)), dtype=np.int64)
    state = np.zeros_like(sent)
    for trial in range(trials):
        for silo in range(len(built.silos)):
            source = RandomSource.simulation(seed, trial, silo)
            for step in range(steps):
                sent[step, trial, silo] = built.share.sample(1, source)[0]
                if unsent is not None:
                    state[step, trial, silo] = unsent.sample(1, source)[0]
    others = [silo for silo in range(len(built.silos)) if silo not in range(*tracked.indices(len(built.silos)))]
    rest = sent[:, :, others].sum(axis=(0, 2))
    return Draws(sent[:, :, tracked], None if unsent is None else state[:, :, tracked], rest)


@pytest.mark.parametrize("algorithm", ["dp-sgd", "split-noise"])
@pytest.mark.parametrize(("silos", "steps"), [(4, 2), (3, 4)])
@pytest.mark.parametrize("with_record", [True, False])
def test_threshold_recursion_gives_the_integers_of_the_silos_code(algorithm: str, silos: int, steps: int, with_record: bool) -> None:
    attack = _attack(ThresholdAttack, algorithm, silos=silos, steps=steps, threshold=0.2)
    trials = 12
    draws = _same_noise(attack, trials, 5, tracked=slice(0, 1))
    sources = lambda trial, silo: RandomSource.simulation(5, trial, silo)  # noqa: E731
    by_code = released_by_silos(attack, trials, RandomSource(), with_record=with_record, sources=sources)
    found = attack.totals(draws, with_record=with_record)
    assert np.array_equal(by_code, found)
    assert 0 < attack.says_in(found).sum() < trials  # both verdicts occur, so the switch was exercised


@pytest.mark.parametrize("algorithm", ["dp-sgd", "split-noise"])
@pytest.mark.parametrize("with_record", [True, False])
def test_forgetting_recursion_gives_the_integers_of_the_silos_code(algorithm: str, with_record: bool) -> None:
    attack = _attack(ForgettingAttack, algorithm, silos=3, steps=3, threshold=1.0)
    trials = 4
    draws = _same_noise(attack, trials, 6, tracked=slice(1, None))
    sources = lambda trial, silo: RandomSource.simulation(6, trial, silo)  # noqa: E731
    by_code = released_by_silos(attack, trials, RandomSource(), with_record=with_record, sources=sources)
    assert np.array_equal(by_code, attack.totals(draws, with_record=with_record))


@pytest.mark.parametrize("with_record", [True, False])
def test_convex_recursion_gives_the_integers_of_the_silos_code(with_record: bool) -> None:
    built = attack_design("convex-pass", silos=3, local_steps=2, epsilon=1.0, delta=1e-5, calibrate_to="proved")
    attack = ConvexAttack(built, 0.0)
    trials = 8
    by_code = released_by_silos(
        attack, trials, RandomSource(), with_record=with_record, sources=lambda trial, silo: RandomSource.simulation(8, trial, silo)
    )
    rest = np.zeros(trials, dtype=np.int64)
    for trial in range(trials):
        for silo, records in enumerate(attack.records(with_record=with_record)):
            source = RandomSource.simulation(8, trial, silo)
            source.below(built.silos[silo].local_steps, len(records))  # the bins are drawn first
            rest[trial] += built.share.sample(1, source)[0]
    draws = Draws(np.zeros((0, trials, 0), dtype=np.int64), None, rest)
    assert np.abs(by_code - attack.totals(draws, with_record=with_record)).max() <= 1


def test_the_forgetting_attack_sees_less_noise_than_is_accounted() -> None:
    """(S + N − 1) shares of variance instead of S·N: a 6-standard-error interval around the former excludes the latter."""
    attack = _attack(ForgettingAttack, "dp-sgd", silos=6, steps=4, threshold=0.0)
    totals = attack.totals(attack.draw(20_000, RandomSource.simulation(1)), with_record=False)
    shares = float(totals.var()) / attack.design.share.variance_grid
    assert shares == pytest.approx(4 + 6 - 1, rel=6 * math.sqrt(2 / 20_000))
    assert shares < 0.5 * 4 * 6


def test_the_claim_at_ten_silos_and_two_steps_is_refuted_and_the_proved_analyses_are_not() -> None:
    audit = audit_theorem(silos=10, local_steps=2, epsilon=1.0, trials=1_500_000, code_trials=24, source=RandomSource.simulation(11))
    assert audit.lower_bound > audit.claimed_epsilon
    assert audit.refuted
    assert audit.lower_bound <= audit.exact_epsilon <= audit.worst_case_epsilon
    assert audit.exact_epsilon == pytest.approx(2.44, abs=0.01)  # THEORY: attack A at N = 10, S = 2
    assert audit.worst_case_epsilon == pytest.approx(2.58, abs=0.01)
    assert audit.attacks[1].exact_epsilon == pytest.approx(1.39, abs=0.01)
    assert [each.analysis for each in audit.proved] == ["local", "split-noise", "convex-pass"]
    assert all(each.lower_bound <= each.epsilon <= 1.0 for each in audit.proved)
    assert all(result.code_agrees for result in (*audit.attacks, *(r for each in audit.proved for r in each.attacks)))
    found = json.loads(json.dumps(audit.as_json()))
    assert {"claimed_epsilon", "delta", "lower_bound", "confidence", "exact_epsilon", "proved"} <= set(found)
    assert {"epsilon", "lower_bound"} <= set(found["proved"][0])


@pytest.mark.parametrize(("silos", "steps", "exact"), [(10, 10, 3.41), (51, 2, 6.24), (5, 5, 2.16)])
def test_exact_figures_of_the_threshold_attack(silos: int, steps: int, exact: float) -> None:
    from sumus.audit.confidence import gaussian_epsilon

    attack = _attack(ThresholdAttack, "dp-sgd", silos=silos, steps=steps, threshold=0.0)
    assert gaussian_epsilon(attack.separation, 1e-5) == pytest.approx(exact, abs=0.02)


def test_twenty_seeded_repetitions_never_exceed_a_proved_epsilon() -> None:
    for seed in range(20):
        source = RandomSource.simulation(seed, "repetition")
        audit = audit_theorem(silos=6, local_steps=3, epsilon=1.0, trials=100_000, code_trials=2, source=source)
        for each in audit.proved:
            assert each.lower_bound <= each.epsilon, (seed, each)


def test_one_silo_or_one_step_has_nothing_to_attack() -> None:
    with pytest.raises(PlanError, match="at least 2"):
        audit_theorem(silos=1, local_steps=2, epsilon=1.0)
    with pytest.raises(PlanError, match="at least 2"):
        audit_theorem(silos=2, local_steps=1, epsilon=1.0)


def test_the_picture_is_written(tmp_path) -> None:
    audit = audit_theorem(silos=3, local_steps=2, epsilon=1.0, trials=20_000, code_trials=2)
    assert sorted(path.name for path in draw_theorem(tmp_path, audit, trials=2000)) == ["roc.png", "roc.svg"]
    assert (tmp_path / "roc.png").stat().st_size > 10_000
