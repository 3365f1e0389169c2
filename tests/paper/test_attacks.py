"""The attacks: the steering records do what their table says, and the vectorised recursion is the
silos' code, integer for integer.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from sumus.audit import gaussian_epsilon
from sumus.gradients.parts import Outer, Rows
from sumus.guarantee import NoiseDesign, account_of
from sumus.paper.theorem.attacks import (
    Attack,
    Draws,
    LocalStepsAttack,
    forgetting_attack,
    threshold_attack,
)
from sumus.paper.theorem.convex_attack import ConvexAttack, tangent_attack
from sumus.paper.theorem.newton_attack import NewtonAttack
from sumus.paper.theorem.regression import LEAST_SQUARES, LOGISTIC, Group, Regression
from sumus.paper.theorem.silos_code import released_by_silos
from sumus.paper.theorem.theorem import attack_design
from sumus.randomness import RandomSource
from sumus.training.local import noisy_steps

BOTH = pytest.mark.parametrize("regression", [LOGISTIC, LEAST_SQUARES], ids=lambda each: each.name)
WIDTH = 6
INSIDE = np.array([True, False, True, True, False, False])


def _design(algorithm: str, *, silos: int, steps: int, width: int = WIDTH) -> NoiseDesign:
    target = "per-step" if algorithm == "dp-sgd" else "proved"
    return attack_design(
        algorithm,
        silos=silos,
        local_steps=steps,
        epsilon=1.0,
        delta=1e-5,
        calibrate_to=target,
        width=width,
    )


# -- the records


def _clipped(regression: Regression, group: Group, weight: float) -> float:
    """One record's gradient by hand, clipped to 1."""
    output = (
        max(-700.0, min(700.0, weight * group.feature))
        if regression is LOGISTIC
        else weight * group.feature
    )
    residual = (
        1.0 / (1.0 + math.exp(-output)) - group.label
        if regression is LOGISTIC
        else output - group.label
    )
    gradient = residual * group.feature
    return gradient / max(1.0, abs(gradient))


@BOTH
@pytest.mark.parametrize("weight", [-0.25, -1e-3, -(2.0**-30), 2.0**-30, 1e-3, 0.2, 3.0])
def test_steering_records_have_the_gradients_of_the_table(
    regression: Regression, weight: float
) -> None:
    resolution = 1 << 16
    for group in (regression.pusher, regression.switch, *regression.forgetful):
        found = int(regression.gradient_grid([group.times(3)], np.array([weight]), resolution)[0])
        assert found == pytest.approx(3 * resolution * _clipped(regression, group, weight), abs=3.5)
    assert _clipped(regression, regression.pusher, weight) == pytest.approx(1.0)
    assert _clipped(regression, regression.switch, weight) == pytest.approx(
        -1.0 if weight < 0.0 else regression.quiet
    )
    if abs(weight) <= 0.25:
        slope = sum(_clipped(regression, group, weight) for group in regression.forgetful) / weight
        assert slope == pytest.approx(regression.curvature, rel=0.01)


# -- recursion and code


def _bits(seed: int) -> Callable[[int, int], RandomSource]:
    return lambda number, silo: RandomSource.simulation(seed, number, silo)


def _same_noise(attack: LocalStepsAttack, rounds: int, seed: int) -> Draws:
    """What the silos of `released_by_silos` draw from `_bits(seed)`, step by step; one trial per
    round and coordinate.
    """
    built = attack.design
    silos, steps, width, unsent = (
        len(built.silos),
        built.silos[0].local_steps,
        built.plan.training.dimension or 1,
        built.state_noise,
    )
    sent = np.zeros((steps, rounds, width, silos), dtype=np.int64)
    state = np.zeros((steps - 1, *sent.shape[1:]), dtype=np.int64)
    for number in range(rounds):
        for silo in range(silos):
            source = _bits(seed)(number, silo)
            for step in range(steps):
                sent[step, number, :, silo] = built.share.sample(width, source)
                # nobody takes a gradient at the state after the last step
                if unsent is not None and step + 1 < steps:
                    state[step, number, :, silo] = unsent.sample(width, source)
    sent, state = sent.reshape(steps, -1, silos), state.reshape(steps - 1, -1, silos)
    followed = slice(0, 1) if attack.follows_attacked else slice(1, None)
    rest = sent.sum(axis=(0, 2)) - sent[:, :, followed].sum(axis=(0, 2))
    return Draws(sent[:, :, followed], None if unsent is None else state[:, :, followed], rest)


def _expected(attack: Attack, draws: Draws, rounds: int) -> np.ndarray:
    both = [
        attack.totals(draws, with_record=with_record).reshape(rounds, -1)
        for with_record in (True, False)
    ]
    return np.where(INSIDE, *both)


@BOTH
@pytest.mark.parametrize("algorithm", ["dp-sgd", "split-noise"])
@pytest.mark.parametrize(("silos", "steps"), [(4, 2), (3, 4)])
def test_threshold_recursion_gives_the_integers_of_the_silos_code(
    regression: Regression, algorithm: str, silos: int, steps: int
) -> None:
    attack = threshold_attack(_design(algorithm, silos=silos, steps=steps), regression, 0.2)
    rounds = 5
    by_code = released_by_silos(
        attack, INSIDE, rounds=rounds, source=RandomSource(), sources=_bits(5)
    )
    assert np.array_equal(by_code, _expected(attack, _same_noise(attack, rounds, 5), rounds))
    # both verdicts occur, so the switch was exercised
    assert 0 < attack.says_in(by_code).sum() < by_code.size


class _Reversed:
    """A public map that turns the order of the coordinates round."""

    def at(self, parameters: np.ndarray) -> _Reversed:
        return self

    def part(self, start: int, part: Outer | Rows) -> Outer | Rows:
        return Rows(part.as_rows().flip(1))

    def transpose(self, released: np.ndarray) -> np.ndarray:
        return released[::-1].copy()


@BOTH
@pytest.mark.parametrize("algorithm", ["dp-sgd", "split-noise"])
def test_a_public_map_gives_the_threshold_attack_nothing_more(
    regression: Regression, algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind the map the attack has the same integers, and so the same bound, in another order:
    what is released is mapped, and states move along the map's transpose.
    """
    attack, rounds = threshold_attack(_design(algorithm, silos=4, steps=3), regression, 0.2), 5
    drawn = _same_noise(attack, rounds, 5)

    def turned(noise: np.ndarray | None, axis: int) -> np.ndarray | None:
        if noise is None:
            return None
        shape = (*noise.shape[:axis], rounds, WIDTH, *noise.shape[axis + 1 :])
        return np.flip(noise.reshape(shape), axis + 1).reshape(noise.shape)

    other = Draws(turned(drawn.sent, 1), turned(drawn.unsent, 1), turned(drawn.rest, 0))
    monkeypatch.setattr(noisy_steps.Preconditioner, "of", lambda *given, **more: _Reversed())
    by_code = released_by_silos(
        attack, INSIDE, rounds=rounds, source=RandomSource(), sources=_bits(5)
    )
    assert np.array_equal(by_code[:, ::-1], _expected(attack, other, rounds))
    assert 0 < attack.says_in(by_code).sum() < by_code.size


@BOTH
@pytest.mark.parametrize("algorithm", ["dp-sgd", "split-noise"])
def test_forgetting_recursion_gives_the_integers_of_the_silos_code(
    regression: Regression, algorithm: str
) -> None:
    attack = forgetting_attack(_design(algorithm, silos=3, steps=3), regression, 1.0)
    by_code = released_by_silos(attack, INSIDE, rounds=2, source=RandomSource(), sources=_bits(7))
    assert np.array_equal(by_code, _expected(attack, _same_noise(attack, 2, 7), 2))


@pytest.mark.parametrize("residual_cap", [None, 0.3])
@pytest.mark.parametrize(
    ("algorithm", "make"), [("convex-pass", ConvexAttack), ("tangent-pass", tangent_attack)]
)
def test_recursion_of_a_pass_gives_the_integers_of_the_silos_code(
    algorithm: str, make: Callable[[NoiseDesign, float], Attack], residual_cap: float | None
) -> None:
    resolved, rounds = _design(algorithm, silos=3, steps=2).resolved, 3
    built = NoiseDesign.of(resolved.replace("training", residual_cap=residual_cap))
    attack = make(built, 0.0)
    by_code = released_by_silos(
        attack, INSIDE, rounds=rounds, source=RandomSource(), sources=_bits(8)
    )
    noise = np.zeros((rounds, WIDTH), dtype=np.int64)
    for number in range(rounds):
        for silo in range(3):
            source = _bits(8)(number, silo)
            records = sum(
                group.copies
                for inside in INSIDE
                for group in attack.groups(silo, with_record=bool(inside))
            )
            source.below(built.silos[silo].local_steps, records)  # the bins are drawn first
            noise[number] += built.share.sample(WIDTH, source)
    draws = Draws(np.zeros((0, noise.size, 0), dtype=np.int64), None, noise.reshape(-1))
    assert np.array_equal(by_code, _expected(attack, draws, rounds))


def test_recursion_of_newton_gives_the_integers_of_the_silos_code() -> None:
    built, rounds = _design("newton", silos=3, steps=2), 3
    attack, shape = NewtonAttack(built, 0.0), built.resolved.moments
    by_code = released_by_silos(
        attack, INSIDE, rounds=rounds, source=RandomSource(), sources=_bits(8)
    )
    noise = [
        sum(built.share.sample(shape.count, _bits(8)(number, silo)) for silo in range(3))
        for number in range(rounds)
    ]
    seen = np.concatenate([attack.seen(each) for each in noise])
    draws = Draws(np.zeros((0, seen.size, 0), dtype=np.int64), None, seen)
    assert np.array_equal(by_code, _expected(attack, draws, rounds))


@pytest.mark.parametrize(
    ("algorithm", "make"), [("tangent-pass", tangent_attack), ("newton", NewtonAttack)]
)
def test_a_loud_record_is_heard_as_much_as_is_accounted(
    algorithm: str, make: Callable[[NoiseDesign, float], Attack]
) -> None:
    """An attack that was weaker than the bound would find nothing whatever was wrong."""
    built = _design(algorithm, silos=10, steps=2)
    bound = account_of(built).epsilon
    assert 0.99 * bound < gaussian_epsilon(make(built, 0.0).separation, 1e-5) <= bound


def test_trials_of_one_round_do_not_touch_each_other() -> None:
    """The record of one coordinate changes the sum of that coordinate only."""
    attack = threshold_attack(_design("dp-sgd", silos=3, steps=3), LEAST_SQUARES, 0.5)
    first = released_by_silos(attack, INSIDE, rounds=3, source=RandomSource(), sources=_bits(9))
    for coordinate in range(WIDTH):
        changed = INSIDE.copy()
        changed[coordinate] = not changed[coordinate]
        found = released_by_silos(
            attack, changed, rounds=3, source=RandomSource(), sources=_bits(9)
        )
        assert np.flatnonzero((found != first).any(axis=0)).tolist() == [coordinate]


# -- how strong they are


@BOTH
def test_the_forgetting_attack_sees_less_noise_than_is_accounted(regression: Regression) -> None:
    """(S + N − 1) shares of variance instead of S·N: a 6-standard-error interval around the former
    excludes the latter.
    """
    attack = forgetting_attack(_design("dp-sgd", silos=6, steps=4), regression, 0.0)
    totals = attack.totals(attack.draw(20_000, RandomSource.simulation(1)), with_record=False)
    shares = float(totals.var()) / attack.design.share.variance_grid
    assert shares == pytest.approx(4 + 6 - 1, rel=6 * math.sqrt(2 / 20_000))
    assert shares < 0.5 * 4 * 6


@BOTH
@pytest.mark.parametrize(
    ("silos", "steps", "threshold", "forgetting"),
    [(10, 2, 2.44, 1.39), (10, 10, 3.41, 2.51), (51, 2, 6.24, 1.45), (5, 5, 2.16, 1.76)],
)
def test_exact_figures(
    regression: Regression, silos: int, steps: int, threshold: float, forgetting: float
) -> None:
    """The Gaussian figures of both attacks, computed apart from this code with the paper's
    sensitivity and accounting.
    """
    built = _design("dp-sgd", silos=silos, steps=steps)
    for make, exact in ((threshold_attack, threshold), (forgetting_attack, forgetting)):
        assert gaussian_epsilon(make(built, regression, 0.0).separation, 1e-5) == pytest.approx(
            exact, abs=0.02
        )
