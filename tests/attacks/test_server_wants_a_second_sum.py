"""A server wants a second sum of a round, or one of fewer silos, by any schedule whatsoever: every
message that it can make, to every silo, in every order, in every small federation.

`make verify` follows the schedules that take longer.
"""

from __future__ import annotations

import pytest

from attacks.test_server_wants_a_partial_sum import sums_without_masks
from oracles.malicious_server import MaliciousServer
from oracles.schedules import Schedules, World, small_terms
from oracles.secagg_federation import federation, terms_for
from oracles.silo_table import Certify, Invite, Propose
from sumus.secagg import Terms

# all of them with up to four silos, and of five those that end within seconds
SMALL = [terms for terms in small_terms(5) if terms.silos < 5 or terms.dropouts < 2]


def shown(terms: Terms) -> str:
    return f"{terms.silos}-silos-{terms.dropouts}-dropouts-{terms.colluding}-colluders"


@pytest.mark.parametrize("terms", SMALL, ids=shown)
def test_by_every_schedule_there_is(terms: Terms) -> None:
    found = Schedules(
        terms, forms=3 if terms.silos < 4 else 2 if terms.silos == 4 else 1, lies=terms.silos < 4
    ).explore()
    assert found.violation is None, found.reason
    # not in vain: every survivor set that the terms allow is opened by some schedule
    everybody = frozenset(range(terms.silos))
    assert everybody in found.sums
    assert {len(sum_) for sum_ in found.sums} == set(
        range(terms.minimum_survivors, terms.silos + 1)
    )


THREE = terms_for(3, length=1, dropouts=1, noise_contributors=2, removable=1)


def test_a_forgetful_guard_gives_a_second_sum() -> None:
    """The control: the same search finds the schedule that a silo without memory falls for."""
    forgets = frozenset({"survivor-set", "release"})
    found = Schedules(THREE, forgets=forgets).explore()
    assert found.violation is not None
    stories = {message.dropped for _, message in found.violation if isinstance(message, Propose)}
    assert len(stories) == 2


@pytest.mark.parametrize("forgotten", ["survivor-set", "release"])
def test_either_of_the_guards_last_two_steps_suffices(forgotten: str) -> None:
    """A silo that would sign two sets still reveals once, and one that would reveal twice still
    knows one set.
    """
    found = Schedules(THREE, forgets=frozenset({forgotten})).explore()
    assert found.violation is None, found.reason


def test_a_threshold_of_half_the_silos_gives_a_second_sum() -> None:
    """The control: 2t > N + c is needed, not convenient."""
    terms = terms_for(4, length=1, dropouts=1, noise_contributors=3, removable=1)
    assert Schedules(terms, threshold=2).explore().violation is not None


def replayed(schedules: Schedules, world: World) -> list[frozenset[int]] | None:
    """The sums that real bytes of all parties give away after the schedule; None where it names a
    salt wrongly, which this server does not.
    """
    path = schedules.path_to(world)
    if any(isinstance(message, Certify) and message.false_salts for _, message in path):
        return None
    senders = {silo for silo, message in path if isinstance(message, Invite)}
    server = MaliciousServer(
        federation(schedules.terms), path, absent=set(range(schedules.terms.silos)) - senders
    )
    signatures: dict[frozenset[int], dict[int, bytes]] = {}
    for silo, message in path:
        if isinstance(message, Propose):
            signatures.setdefault(message.dropped, {}).update(
                server.collect_signatures(set(message.dropped), [silo])
            )
        elif isinstance(message, Certify):
            given = signatures[message.dropped]
            assert server.collect_shares(set(message.dropped), given, [silo]) == 1
    return sums_without_masks(server)


def test_what_the_search_says_is_what_real_messages_give_away() -> None:
    """Every schedule of three silos once more, with all parties' real bytes."""
    schedules = Schedules(THREE)
    schedules.explore()
    sums = 0
    for world in schedules.worlds():
        real = replayed(schedules, world)
        if real is not None:
            assert real == [silos for _, silos, _ in schedules.opened(world)]
            sums += bool(real)
    assert sums > 20
