"""On the sparse graph a server chooses whom to call dropped after it has seen the ring."""

from __future__ import annotations

import itertools

import pytest

from oracles.malicious_server import MaliciousServer
from oracles.secagg_federation import Federation, federation, terms_for

SILOS, DROPOUTS = 20, 5


@pytest.fixture(scope="module")
def world() -> Federation:
    made = federation(terms_for(SILOS, dropouts=DROPOUTS, graph="sparse"))
    assert made.server.topology.ring is not None
    assert made.server.topology.degree < SILOS - 1
    return made


def arc(world: Federation, victim: int, *, before: int, after: int) -> set[int]:
    """The victim's nearest neighbours on the ring."""
    ring = world.server.topology.ring
    assert ring is not None
    place = ring.index(victim)
    return {ring[(place + step) % SILOS] for step in (*range(-before, 0), *range(1, after + 1))}


@pytest.mark.parametrize("before", range(DROPOUTS + 1))
def test_by_dropping_the_victims_nearest_neighbours(world: Federation, before: int) -> None:
    victim = 3
    server = MaliciousServer(world, ("arc", before))
    dropped = arc(world, victim, before=before, after=DROPOUTS - before)
    alive = [silo for silo in range(SILOS) if silo not in dropped]
    signatures = server.collect_signatures(dropped, world.server.topology.committee - dropped)
    assert server.collect_shares(dropped, signatures, alive) == len(alive)
    assert server.open_secret(victim, 0) is not None
    assert server.steal(victim) is None
    closed = [
        other for other in server.layout(victim).partners if server.pair_seed(victim, other) is None
    ]
    assert set(closed) == world.server.topology.circle(victim) - dropped - {victim}


def test_by_having_two_halves_of_the_committee_sign_two_sets(world: Federation) -> None:
    server = MaliciousServer(world, "two halves")
    committee = sorted(world.server.topology.committee)
    victim = committee[0]
    taken_in = []
    for dropped, group in (
        (set(), committee[: len(committee) // 2]),
        ({victim}, committee[len(committee) // 2 :]),
    ):
        signatures = server.collect_signatures(dropped, group)
        taken_in.append(
            server.collect_shares(
                dropped, signatures, [s for s in range(SILOS) if s not in dropped]
            )
        )
    assert 0 in taken_in
    assert server.steal(victim) is None


def test_by_counting_signatures_from_outside_the_committee(world: Federation) -> None:
    server = MaliciousServer(world, "outsiders")
    outsiders = sorted(set(range(SILOS)) - world.server.topology.committee)
    signatures = server.collect_signatures(set(), outsiders)
    assert len(signatures) >= world.server.topology.quorum
    assert server.collect_shares(set(), signatures, range(SILOS)) == 0


def test_by_sending_keys_of_silos_that_are_no_neighbours(world: Federation) -> None:
    """A silo masks with the neighbours it computes itself, whatever the server sends."""
    for silo, session in world.silos.items():
        assert set(session.keys.ring.sets[-1].roots) == world.server.topology.circle(silo) - {silo}
    pairs = itertools.combinations(range(SILOS), 2)
    far = next(
        (one, other) for one, other in pairs if other not in world.server.topology.circle(one)
    )
    assert far[0] not in world.silos[far[1]].keys.ring.sets[-1].roots
