"""A server wants the sum with less noise on it than the silos accounted for."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings, strategies as st

from oracles.malicious_server import MaliciousServer
from oracles.secagg_federation import federation, round_id, terms_for
from sumus.errors import PeerProtocolError, PlanError, RoundAborted
from sumus.secagg import DroppedSet


def test_by_dropping_more_silos_than_the_noise_allows() -> None:
    """Noise of four honest silos besides two colluders needs six survivors; five are refused by
    every honest silo.
    """
    terms = terms_for(7, dropouts=1, colluding=2, noise_contributors=4)
    assert terms.minimum_survivors == 6
    world = federation(terms)
    server = MaliciousServer(world, "noise", colluders={5, 6})
    proposal = DroppedSet(**server.envelope(), dropped=frozenset({0, 1})).encode(
        world.server.identity
    )
    with pytest.raises(RoundAborted, match="fewer than the 6"):
        server.states[2].sign(proposal)
    assert set(server.collect_signatures({0}, range(1, 5))) == {1, 2, 3, 4, 5, 6}


def test_by_inviting_too_few() -> None:
    world = federation(terms_for(6, dropouts=1, colluding=1, noise_contributors=4))
    few = world.server.invite(round_id("few"), participants=frozenset({0, 1, 2, 3}))[1]
    with pytest.raises(RoundAborted, match="a sum needs 5"):
        world.silos[0].receive(few)


def test_by_having_noise_promised_that_nobody_can_keep() -> None:
    with pytest.raises(PlanError, match="noise_contributors"):
        terms_for(10, dropouts=2, colluding=2, noise_contributors=7)


def test_by_calling_absent_silos_survivors() -> None:
    """Three of five are there and sign that nobody dropped out. The masks towards the two ghosts
    stay on, so the sum is noise.
    """
    world = federation(terms_for(5, length=4, dropouts=2))
    server = MaliciousServer(world, "ghosts", absent={3, 4})
    signatures = server.collect_signatures(set(), (0, 1, 2))
    assert server.collect_shares(set(), signatures, (0, 1, 2)) == 3
    for silo in (0, 1, 2):
        assert server.open_secret(silo, 0) is not None
        assert server.pair_seed(silo, 3) is None
        assert server.pair_seed(silo, 4) is None
    assert server.collect_signatures({3, 4}, (0, 1, 2)) == {}, (
        "a second, truthful set comes too late"
    )


@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_by_opening_removable_seeds_that_are_needed(data: st.DataObject) -> None:
    """Whatever certified set the server gets, the seeds it can open are exactly those above the
    number missing.
    """
    silos = data.draw(st.integers(4, 7))
    dropouts = data.draw(st.integers(1, (silos - 1) // 2))
    terms = terms_for(silos, dropouts=dropouts, removable=dropouts)
    server = MaliciousServer(federation(terms), data.draw(st.integers()))
    dropped = set(data.draw(st.lists(st.integers(0, silos - 1), max_size=dropouts, unique=True)))
    alive = [silo for silo in range(silos) if silo not in dropped]
    signatures = server.collect_signatures(dropped, alive)
    server.collect_shares(dropped, signatures, alive)
    for other in ({0}, {1}, set()):
        more = server.collect_signatures(other, alive)
        server.collect_shares(other, more or signatures, alive)
    for owner in range(silos):
        first = len(server.layout(owner).holders)
        opened = [
            index
            for index in range(dropouts)
            if server.open_secret(owner, first + index) is not None
        ]
        assert opened == ([] if owner in dropped else list(range(len(dropped), dropouts)))


def test_by_hiding_that_silos_never_came() -> None:
    """Silos that sent no key are missing too: with two absent and two tolerated, no removable seed
    may be opened.
    """
    world = federation(terms_for(7, dropouts=2, removable=2), absent=frozenset({5, 6}))
    server = MaliciousServer(world, "absent")
    signatures = server.collect_signatures(set(), range(5))
    assert server.collect_shares(set(), signatures, range(5)) == 5
    first = len(server.layout(0).holders)
    assert server.open_secret(0, 0) is not None
    assert server.open_secret(0, first) is None
    assert server.open_secret(0, first + 1) is None


def test_by_changing_the_agreed_numbers() -> None:
    """Terms with fewer noise contributors are another session; no message of it is understood."""
    world = federation(terms_for(5, noise_contributors=3, dropouts=1))
    weaker = federation(dataclasses.replace(world.terms, noise_contributors=1))
    with pytest.raises(PeerProtocolError, match="other terms"):
        world.silos[0].receive(weaker.server.invite(round_id("weaker"))[1])
