"""A server wants any sum but the one that was agreed: of fewer silos, or a second one in the same
round, or one with less noise.

Each schedule is random: colluders, silos that never answer, sets told to whomever, signatures and
    certificates shown to whomever. At the
end an oracle asks which sums of honest inputs are free of masks. A vector y_u = x_u + b_u ± Σ s_uv
takes part in such a sum only together with every v whose s_uv is unknown, and not at all if b_u is
unknown or the other end of an unknown mask has sent nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings, strategies as st

from oracles.malicious_server import MaliciousServer
from oracles.secagg_federation import federation, terms_for
from sumus.secagg import Terms


def sums_without_masks(server: MaliciousServer) -> list[frozenset[int]]:
    """The smallest sets of honest silos whose vectors add up to something that no unknown mask
    hides.
    """
    honest = sorted(server.header.participants - server.colluders)
    group = {silo: {silo} for silo in honest}
    hidden = {silo for silo in honest if server.open_secret(silo, 0) is None}
    for silo in honest:
        for other in set(server.layout(silo).partners) - server.colluders:
            if (
                silo < other
                and server.pair_seed(silo, other) is None
                and group[silo] is not group[other]
            ):
                group[silo] |= group[other]
                group |= dict.fromkeys(group[other], group[silo])
    return sorted(
        {frozenset(members) for members in group.values() if not members & hidden}, key=sorted
    )


def noise_left(server: MaliciousServer, silos: Iterable[int]) -> Fraction:
    """Variance of the noise in a sum that the server cannot subtract, in units of the target: v_0
    and each v_l whose seed is closed.
    """
    terms = server.world.terms
    honest, total = terms.silos - terms.colluding, Fraction(0)
    for silo in silos:
        first = len(server.layout(silo).holders)
        closed = [
            index + 1
            for index in range(terms.removable)
            if server.open_secret(silo, first + index) is None
        ]
        total += Fraction(1, honest) + sum(
            (Fraction(1, honest - lost) - Fraction(1, honest - lost + 1) for lost in closed),
            Fraction(0),
        )
    return total


def terms_of(silos: int, *, dropouts: int, colluding: int, graph: str = "complete") -> Terms:
    contributors = silos - dropouts - colluding
    return terms_for(
        silos,
        dropouts=dropouts,
        colluding=colluding,
        noise_contributors=contributors,
        removable=dropouts,
        graph=graph,
    )


def signed_by_the_committee(
    server: MaliciousServer, dropped: Iterable[int], signers: Iterable[int]
) -> dict[int, bytes]:
    signatures = server.collect_signatures(set(dropped), signers)
    return {
        silo: signatures[silo] for silo in server.world.server.topology.committee & set(signatures)
    }


def attempts(data: st.DataObject, server: MaliciousServer, present: list[int]) -> None:
    """Sets of the server's choice, each signed by some and shown to some, in several rounds of
    asking.
    """
    silos, most = server.world.terms.silos, server.world.terms.dropouts
    never_came = server.header.participants - set(present) - server.colluders
    some = st.sets(st.integers(0, silos - 1), max_size=most + 1)
    stories = [frozenset(never_came), frozenset(), *(frozenset(data.draw(some)) for _ in range(2))]
    signatures: dict[frozenset[int], dict[int, bytes]] = {story: {} for story in stories}
    for _ in range(data.draw(st.integers(1, 5))):
        story = data.draw(st.sampled_from(stories))
        signers = data.draw(st.just(present) | st.lists(st.sampled_from(present), unique=True))
        signatures[story] |= signed_by_the_committee(server, story, signers)
        readers = data.draw(st.just(present) | st.lists(st.sampled_from(present), unique=True))
        server.collect_shares(set(story), signatures[story], readers)


def check_what_was_learnt(server: MaliciousServer) -> None:
    terms, learnt = server.world.terms, sums_without_masks(server)
    assert len(learnt) <= 1, "two sums of one round"
    for silos in learnt:
        assert silos <= set(server.masked)
        assert len(silos) >= terms.noise_contributors
        assert noise_left(server, silos) >= 1


@given(data=st.data())
@settings(max_examples=80, deadline=None)
def test_by_any_schedule_of_lies(data: st.DataObject) -> None:
    silos = data.draw(st.integers(3, 7))
    dropouts = data.draw(st.integers(0, (silos - 1) // 2))
    terms = terms_of(
        silos, dropouts=dropouts, colluding=data.draw(st.integers(0, silos - 2 * dropouts - 1))
    )
    assume(terms.noise_contributors >= 1)
    everyone = list(range(silos))
    colluders = set(data.draw(st.permutations(everyone))[: terms.colluding])
    honest = [silo for silo in everyone if silo not in colluders]
    absent = data.draw(st.lists(st.sampled_from(honest), max_size=dropouts, unique=True))
    keyless = frozenset(absent[: data.draw(st.integers(0, len(absent)))])
    server = MaliciousServer(
        federation(terms, absent=keyless),
        data.draw(st.integers()),
        colluders=colluders,
        absent=absent,
    )
    attempts(data, server, [silo for silo in honest if silo not in absent])
    check_what_was_learnt(server)


@given(data=st.data())
@settings(max_examples=12, deadline=None)
def test_by_any_schedule_of_lies_on_a_sparse_graph(data: st.DataObject) -> None:
    terms = terms_of(20, dropouts=4, colluding=0, graph="sparse")
    world = federation(terms)
    assert world.server.topology.degree < 19
    absent = data.draw(st.sets(st.integers(0, 19), max_size=4))
    server = MaliciousServer(world, data.draw(st.integers()), absent=absent)
    attempts(data, server, [silo for silo in range(20) if silo not in absent])
    check_what_was_learnt(server)


@pytest.mark.parametrize("graph", ["complete", "sparse"])
def test_an_honest_round_gives_the_one_sum_with_the_planned_noise(graph: str) -> None:
    """The control: the oracle sees the sum that there is, with exactly the target's variance."""
    terms = terms_of(20, dropouts=4, colluding=0, graph=graph)
    server = MaliciousServer(federation(terms), "honest", absent={5, 11})
    alive = sorted(set(range(20)) - {5, 11})
    signatures = signed_by_the_committee(server, {5, 11}, alive)
    assert server.collect_shares({5, 11}, signatures, alive) == 18
    assert sums_without_masks(server) == [frozenset(alive)]
    assert noise_left(server, alive) == 1


def test_the_oracle_sees_what_forgetful_silos_give_away() -> None:
    """The control: silos that reveal under two sets give the server the sum of the others as
    well.
    """
    server = MaliciousServer(federation(terms_of(5, dropouts=2, colluding=0)), "forgetful")
    for dropped in ({0}, set()):
        for silo in server.world.silos.values():
            claims = silo.guard._claims  # type: ignore[attr-defined]
            for key in [key for key in claims if key[1] in ("survivor-set", "release")]:
                del claims[key]
        signatures = server.collect_signatures(dropped, range(5))
        server.collect_shares(dropped, signatures, range(5))
    assert sums_without_masks(server) == [frozenset({0}), frozenset({1, 2, 3, 4})]
