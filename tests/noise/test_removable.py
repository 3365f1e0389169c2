from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from oracles.removable import kept_share, overprovision_saved
from sumus.errors import PlanError
from sumus.noise import component_shares

federations = st.integers(1, 60).flatmap(
    lambda silos: st.integers(0, silos - 1).flatmap(
        lambda dropouts: st.tuples(
            st.just(silos), st.just(dropouts), st.integers(0, silos - dropouts - 1)
        )
    )
)


@given(federations, st.data())
def test_whoever_is_missing_the_honest_noise_in_the_sum_reaches_the_target(
    numbers: tuple[int, int, int], data: st.DataObject
) -> None:
    """Counted silo by silo and component by component: who is in the sum, who colludes, which
    components were opened.
    """
    silos, dropouts, colluding = numbers
    shares = component_shares(silos=silos, dropouts=dropouts, colluding=colluding)
    missing = data.draw(st.integers(0, dropouts))
    order = data.draw(st.permutations(range(silos)))
    gone, corrupt = set(order[:missing]), set(data.draw(st.permutations(range(silos)))[:colluding])
    left = Fraction(0)
    for silo in range(silos):
        for component, share in enumerate(shares):
            opened = component > missing
            if silo not in gone and silo not in corrupt and not opened:
                left += share
    assert left >= 1
    if not gone & corrupt:
        assert left == 1


@given(federations)
def test_all_components_are_real_variances_and_sum_to_the_worst_case(
    numbers: tuple[int, int, int],
) -> None:
    silos, dropouts, colluding = numbers
    shares = component_shares(silos=silos, dropouts=dropouts, colluding=colluding)
    assert len(shares) == dropouts + 1
    assert all(share > 0 for share in shares)
    assert sum(shares, Fraction(0)) == Fraction(1, silos - colluding - dropouts)


def test_what_add_then_remove_saves() -> None:
    assert kept_share(silos=10, dropouts=2, missing=0) == Fraction(1, 10)
    assert overprovision_saved(silos=10, dropouts=2, missing=0) == Fraction(10, 8)
    assert overprovision_saved(silos=10, dropouts=2, missing=2) == 1
    assert overprovision_saved(silos=51, dropouts=10, missing=0, colluding=2) == Fraction(49, 39)


def test_more_missing_than_provided_for_is_refused() -> None:
    for missing in (-1, 3):
        with pytest.raises(PlanError, match="missing"):
            kept_share(silos=10, dropouts=2, missing=missing)
    for silos, dropouts, colluding in ((3, 2, 1), (0, 0, 0), (3, -1, 0), (3, 0, -1), (2, 2, 0)):
        with pytest.raises(PlanError):
            component_shares(silos=silos, dropouts=dropouts, colluding=colluding)
