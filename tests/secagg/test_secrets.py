from __future__ import annotations

import itertools

from oracles.secagg_federation import terms_for
from sumus.secagg.graph import topology_of
from sumus.secagg.secrets import SecretLayout, pair_sign

SILOS, REMOVABLE = 5, 2


def layout(owner: int) -> SecretLayout:
    topology = topology_of(terms_for(SILOS), bytes(32))
    return SecretLayout.of(
        topology, owner=owner, participants=frozenset(range(SILOS)), removable=REMOVABLE
    )


def test_whatever_is_dropped_nobody_is_asked_for_both_masks_of_one_input() -> None:
    """All 32 dropped sets: a dropped silo opens nothing; a survivor opens its self mask and its
    masks towards the dropped only.
    """
    for size in range(SILOS + 1):
        for dropped in map(frozenset, itertools.combinations(range(SILOS), size)):
            for owner in range(SILOS):
                opened = layout(owner).opened(dropped, missing=size)
                if owner in dropped:
                    assert opened == []
                    continue
                partners = [silo for silo in range(SILOS) if silo != owner]
                pairs = [1 + place for place, partner in enumerate(partners) if partner in dropped]
                removable = list(range(SILOS + size, SILOS + REMOVABLE))
                assert opened == [0, *pairs, *removable]


def test_one_end_of_a_pair_adds_what_the_other_subtracts() -> None:
    for one, other in itertools.permutations(range(SILOS), 2):
        assert pair_sign(one, other) == -pair_sign(other, one)
    assert layout(3).count == SILOS + REMOVABLE
    assert layout(3).partners == (0, 1, 2, 4)
