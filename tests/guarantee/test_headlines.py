"""The headline that is computed alone is the one among all analyses."""

from __future__ import annotations

import pytest

from sumus.accounting import Queries, Release
from sumus.guarantee import calibrated
from sumus.guarantee.per_silo import analyses_of, distinct_silos, headline, headline_of, is_no_worse
from sumus.plan import PublicFacts, TrainingPlan
from sumus.tasks import LabelFacts

FACTS = PublicFacts(
    "test", tuple("abcde"), (500, 900, 2000, 2000, 7000), (9,), LabelFacts(("no", "yes"))
)
PLAN = """
[privacy]
epsilon = 1.0
delta = 1e-6
calibrate_to = "{target}"
accountant = "{accountant}"
[federation]
silos = 5
rounds = 3
colluding = 1
[training]
algorithm = "{algorithm}"
model = "logistic"
batch_size = 50
"""


@pytest.mark.parametrize("accountant", ["pld", "renyi"])
@pytest.mark.parametrize(
    ("algorithm", "target"),
    [
        ("convex-pass", "proved"),
        ("convex-pass", "local"),
        ("split-noise", "proved"),
        ("split-noise", "local"),
        ("split-noise", "per-step"),
        ("single-step", "proved"),
    ],
)
def test_what_is_left_out_is_never_the_headline(
    algorithm: str, target: str, accountant: str
) -> None:
    text = PLAN.format(algorithm=algorithm, target=target, accountant=accountant)
    design = calibrated(TrainingPlan.from_toml(text), FACTS)
    for known in (0, 1):
        for silo in distinct_silos(design):
            every = headline(analyses_of(design, silo, known=known), design.plan)
            assert headline_of(design, silo, known=known) == every


def test_no_worse_is_more_noise_and_fewer_and_rarer_queries() -> None:
    one = Release((Queries(2.0, 0.1, 10), Queries(3.0, 0.05, 5)))
    assert is_no_worse(one, Release((Queries(2.0, 0.1, 15),)))
    assert not is_no_worse(one, Release((Queries(2.1, 0.1, 15),)))  # with less noise
    assert not is_no_worse(one, Release((Queries(2.0, 0.1, 14),)))  # more often
    assert not is_no_worse(one, Release((Queries(2.0, 0.09, 15),)))  # of more records
    doubled = Release((Queries(2.0, 1.0, 15, doubling_rate=1e-9),))
    plain = Release((Queries(2.0, 1.0, 15),))
    assert is_no_worse(plain, doubled)
    assert not is_no_worse(doubled, plain)


def test_what_is_not_known_of_a_query_is_not_compared() -> None:
    plain = Release((Queries(2.0),))
    curve_alone = Release((Queries(None, curve=lambda orders: 0.0 * orders),))
    parts = Release((Queries(1.0, 0.5, parts=2),))
    for other in (curve_alone, parts):
        assert not is_no_worse(plain, other)
        assert not is_no_worse(other, plain)
