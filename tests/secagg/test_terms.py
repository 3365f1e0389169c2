from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from oracles.secagg_federation import terms_for
from sumus.errors import PlanError


@given(silos=st.integers(1, 300), dropouts=st.integers(0, 200), colluding=st.integers(0, 200))
def test_accepted_terms_leave_no_room_for_two_survivor_sets(
    silos: int, dropouts: int, colluding: int
) -> None:
    possible = silos > 2 * dropouts + colluding
    try:
        terms = terms_for(silos, dropouts=dropouts, colluding=colluding)
    except PlanError:
        assert not possible
        return
    assert possible
    assert 2 * terms.threshold > silos + colluding
    assert terms.minimum_survivors - colluding >= terms.noise_contributors
    assert terms.threshold > colluding, "colluders alone must not open anything"


@pytest.mark.parametrize(
    "change",
    [
        {"plan_hash": b"short"},
        {"length": 0},
        {"modulus_bits": 0},
        {"modulus_bits": 65},
        {"modulus_bits": True},
        {"noise_contributors": 0},
        {"noise_contributors": 8},
        {"removable": 4},
        {"graph": "star"},
        {"colluding": 4},
        {"dropouts": 5},
        {"security_bits": 0},
        {"length": 1.5},
    ],
)
def test_numbers_that_break_a_rule_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(PlanError):
        terms_for(10, **({"dropouts": 3} | change))


def test_every_field_changes_the_digest() -> None:
    changes: list[dict[str, object]] = [
        {},
        {"plan_hash": b"p" * 32},
        {"silos": 12},
        {"length": 9},
        {"modulus_bits": 31},
        {"dropouts": 2},
        {"colluding": 1},
        {"noise_contributors": 2},
        {"removable": 1},
        {"graph": "complete"},
        {"security_bits": 41},
        {"correctness_bits": 31},
    ]
    assert len(
        {terms_for(**({"silos": 10, "dropouts": 3} | change)).digest() for change in changes}
    ) == len(changes)
