"""A release is a description: what it states, who can account for it, and what others make of it."""

from __future__ import annotations

import math

import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings, strategies as st

from sumus.accounting import ACCOUNTANTS, Queries, Release, epsilon_of, noisy_queries, tightest
from sumus.accounting.renyi import gaussian_curve
from sumus.errors import GuaranteeError, PlanError
from sumus.noise import noise_law

DELTA = 1e-5
SAMPLED, FULL = Queries(2.0, 0.1, 50), Queries(9.0, 1.0, 3)
DOUBLING, OTHER_DOUBLING = Queries(20.0, 1.0, 20, None, 1e-6), Queries(30.0, 1.0, 20, None, 1e-6)
CURVE_ONLY = Queries(None, 1.0, 4, gaussian_curve(8.0))

queries = st.builds(
    Queries,
    st.floats(1.0, 30.0),
    st.one_of(st.just(1.0), st.floats(0.005, 0.7)),
    st.integers(1, 100),
)


@pytest.mark.deep
@given(kinds=st.lists(queries, min_size=1, max_size=3))
@settings(max_examples=10, deadline=None)
def test_dp_accounting_finds_the_same_epsilon(kinds: list[Queries]) -> None:
    """Loss distributions within 0.2 %, or the excess n·w² of theirs, whose buckets of width w =
    1e-4 are fixed; Rényi curves at the same orders to seven digits.
    """
    release = Release(tuple(kinds))
    pld = PLDAccountant(value_discretization_interval=1e-4)
    theirs = pld.compose(release.to_dp_event()).get_epsilon(DELTA)
    count = sum(each.count for each in kinds)
    assert epsilon_of(release, delta=DELTA) == pytest.approx(
        theirs, rel=2e-3, abs=count * 1e-8 + 2e-4
    )
    renyi = ACCOUNTANTS["renyi"]
    orders = [int(order) for order in renyi.orders if order <= 512]
    theirs = RdpAccountant(orders).compose(release.to_dp_event()).get_epsilon(DELTA)
    ours = renyi.epsilon(release, delta=DELTA)
    if all(each.sampling_rate < 1.0 for each in kinds):  # else orders above 512 count too
        assert ours == pytest.approx(theirs, rel=1e-7, abs=1e-9)
    assert ours <= theirs * (1.0 + 1e-7) + 1e-9


def test_integer_noise_is_given_away_as_the_gaussian_that_dominates_it() -> None:
    release = Release(
        (noisy_queries(noise_law("skellam", 400.0), l2_grid=8.0, dimension=3, count=5),)
    )
    (only,) = release.to_dp_event().events
    assert only.event == dp_event.GaussianDpEvent(release.queries[0].gaussian_multiplier)
    assert only.count == 5
    theirs = PLDAccountant().compose(release.to_dp_event()).get_epsilon(DELTA)
    assert epsilon_of(release, delta=DELTA) == pytest.approx(theirs, rel=2e-3)


@pytest.mark.parametrize("unknown", [DOUBLING, CURVE_ONLY], ids=["doubling", "curve"])
def test_dp_accounting_refuses_what_it_has_no_event_for(unknown: Queries) -> None:
    event = Release((FULL, unknown)).to_dp_event()
    for accountant in (PLDAccountant(), RdpAccountant([2, 3, 4])):
        assert not accountant.supports(event)


@pytest.mark.parametrize(
    ("parts", "best"),
    [
        ((SAMPLED, FULL), "pld"),
        ((DOUBLING, FULL), "pld"),
        ((DOUBLING, SAMPLED), "renyi"),
        ((DOUBLING, OTHER_DOUBLING), "pld"),
        ((CURVE_ONLY,), "renyi"),
        ((CURVE_ONLY, SAMPLED), "renyi"),
    ],
)
def test_the_tightest_accountant_that_supports_a_release_is_taken(
    parts: tuple[Queries, ...], best: str
) -> None:
    release = Release(parts)
    assert tightest(release).name == best
    for accountant in ACCOUNTANTS.values():
        if accountant.supports(release):
            assert 0.0 < accountant.epsilon(release, delta=DELTA) < math.inf
        else:
            with pytest.raises(GuaranteeError, match="renyi"):
                accountant.epsilon(release, delta=DELTA)


def test_a_bare_curve_is_accounted_as_it_is() -> None:
    gaussian = Release((Queries(8.0, 1.0, 4),))
    assert epsilon_of(Release((CURVE_ONLY,)), delta=DELTA, accountant="renyi") == epsilon_of(
        gaussian, delta=DELTA, accountant="renyi"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        (None,),
        (0.0,),
        (math.nan,),
        (1.0, 0.0),
        (1.0, 1.1),
        (1.0, 1.0, 0),
        (1.0, 1.0, 1, None, 1.0),
        (1.0, 0.5, 1, None, 0.1),
        (None, 1.0, 1, gaussian_curve(8.0), 0.1),
    ],
)
def test_an_incomplete_description_is_refused(arguments: tuple[object, ...]) -> None:
    with pytest.raises(PlanError):
        Queries(*arguments)  # type: ignore[arg-type]
