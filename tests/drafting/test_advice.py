"""The advice for a plan follows from public facts, can be taken up, and says when it cannot be given."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from sumus.drafting import Advice, advise
from sumus.errors import PlanError
from sumus.guarantee import calibrated
from sumus.plan import PublicFacts, TrainingPlan
from sumus.tasks import LabelFacts

PLANS = Path(__file__).parent.parent.parent / "plans"
TEN = LabelFacts(tuple("abcdefghij"))
FASHION = PublicFacts("fashion", tuple("ABCDEFGHIJ"), (5_600,) * 10, (1, 28, 28), TEN)
TABLE = PublicFacts("table", ("A", "B"), (20_000, 20_000), (30,), LabelFacts(("no", "yes")))


def plan(**changes: object) -> TrainingPlan:
    given = {"data.name": "fashion-mnist", "training.features": "gabor", "federation.rounds": 20}
    return TrainingPlan().with_overrides(
        given | {key.replace("__", "."): value for key, value in changes.items()}
    )


def of_table(**changes: object) -> TrainingPlan:
    return plan(training__features="none", training__model="logistic", **changes)


@pytest.mark.parametrize(
    ("changes", "skew", "algorithm"),
    [
        ({}, None, "convex-pass"),
        ({}, "strong", "newton"),
        ({"data__partition": "shards"}, None, "newton"),
        ({"data__partition": "dirichlet", "data__dirichlet_alpha": 0.1}, None, "newton"),
        ({"data__partition": "dirichlet", "data__dirichlet_alpha": 1.0}, None, "newton"),
        ({"data__partition": "shards"}, "none", "convex-pass"),
        ({"privacy__epsilon": 0.1}, None, "single-step"),
        ({"privacy__epsilon": 0.1}, "strong", "single-step"),
        ({"training__model": "cnn"}, "strong", "split-noise"),
        (
            {"training__model": "cnn", "training__start_from": "sha256:" + "a" * 64},
            None,
            "tangent-pass",
        ),
    ],
)
def test_the_algorithm_for_pictures(
    changes: dict[str, object], skew: str | None, algorithm: str
) -> None:
    assert advise(plan(**changes), FASHION, skew).algorithm == algorithm


@pytest.mark.parametrize(
    ("changes", "facts", "skew", "algorithm"),
    [
        ({}, TABLE, "strong", "normal-equations"),
        ({"privacy__epsilon": 0.01}, TABLE, "strong", "newton"),
        ({"privacy__epsilon": 0.001}, TABLE, "strong", "single-step"),
        ({}, FASHION, "strong", "single-step"),
        ({}, FASHION, "some", "convex-pass"),
    ],
)
def test_the_algorithm_for_numbers(
    changes: dict[str, object], facts: PublicFacts, skew: str, algorithm: str
) -> None:
    """Seven hundred pixels have no public directions to leave out, and too many moments."""
    chosen = plan(training__features="none", **changes)
    assert advise(chosen, facts, skew).algorithm == algorithm


@pytest.mark.parametrize("name", sorted(path.name for path in PLANS.glob("*.toml")))
@pytest.mark.parametrize("skew", ["none", "strong"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_the_options_make_a_plan_that_is_calibrated(name: str, skew: str, epsilon: float) -> None:
    from sumus.data import public_facts

    given = TrainingPlan.load(PLANS / name).with_overrides({"privacy.epsilon": epsilon})
    advice = advise(given, public_facts(given), skew)
    words = advice.options.split()
    assert words[::2] == ["--set"] * (len(words) // 2)
    taken_up = given.with_overrides(dict(word.split("=", 1) for word in words[1::2]))
    assert taken_up.training.algorithm == advice.algorithm
    assert calibrated(taken_up).plan.noise.noise_multiplier
    assert advise(taken_up, public_facts(taken_up), skew).algorithm == advice.algorithm


@given(st.floats(0.01, 10.0), st.integers(1, 200), st.integers(1, 10**6), st.integers(1, 5_000))
def test_every_size_has_an_advice(epsilon: float, rounds: int, records: int, width: int) -> None:
    facts = PublicFacts("t", ("A", "B"), (records, 1), (width,), LabelFacts(("no", "yes")))
    chosen = of_table(privacy__epsilon=epsilon, federation__rounds=rounds)
    advice = advise(chosen, facts)
    assert isinstance(advice, Advice)
    assert advice.taken == (not advice.settings)


@pytest.mark.parametrize(
    ("changes", "skew", "word"),
    [
        ({"training__algorithm": "fedavg"}, None, "training.algorithm"),
        ({"training__algorithm": "silo"}, None, "training.algorithm"),
        ({"privacy__epsilon": None, "noise__noise_multiplier": 2.0}, None, "privacy.epsilon"),
        ({}, "much", "--skew"),
    ],
)
def test_what_cannot_be_advised(changes: dict[str, object], skew: str | None, word: str) -> None:
    with pytest.raises(PlanError, match=word):
        advise(plan(**changes), FASHION, skew)
