"""A coordinator wants a silo of its own on the roster, or an old roster back: with enough sybils
beside one honest silo, the "sum" is that silo's own vector.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from sumus.errors import DataError
from sumus.randomness import RandomSource
from sumus.secagg import Identity, Roster
from sumus.secagg.epochs import Endorsement, Epoch, RosterHistory, successor

NAMES = ("Bergen", "Graz", "Oulu", "Turku", "Vaasa")
HONEST = {name: Identity.generate(name, RandomSource()) for name in NAMES}
SERVER, SYBIL = (Identity.generate(name, RandomSource()) for name in ("server", "Sybil"))
FIRST = Roster.of(SERVER, HONEST.values())
WITH_SYBIL = successor(FIRST, admitted={"Sybil": SYBIL.public_key})
QUORUM = NAMES[:4]  # ⌊(5 + 1)/2⌋ + 1


def endorsed(roster: Roster, names: tuple[str, ...]) -> list[Endorsement]:
    return [Endorsement.sign(HONEST[name], roster) for name in names]


def forged(roster: Roster, endorsements: list[Endorsement]) -> RosterHistory:
    """What a coordinator writes into a file: nothing stops it from writing anything."""
    signatures = {each.silo: each.signature for each in endorsements}
    return RosterHistory((Epoch(FIRST, {}), Epoch(roster, signatures)))


def test_a_quorum_of_honest_signatures_is_believed() -> None:
    """The control: the same file with four true signatures changes the roster."""
    assert forged(WITH_SYBIL, endorsed(WITH_SYBIL, QUORUM)).since(FIRST.digest()) == WITH_SYBIL


def test_with_too_few_signatures() -> None:
    for count in range(4):
        history = forged(WITH_SYBIL, endorsed(WITH_SYBIL, NAMES[:count]))
        with pytest.raises(DataError, match=f"signed by {count} of the 5 silos.*and needs 4"):
            history.since(FIRST.digest())


def test_with_its_own_signatures() -> None:
    """Of silos that are not on the roster before, of the server, or in others' names."""
    three = endorsed(WITH_SYBIL, NAMES[:3])
    own = Endorsement.sign(SYBIL, WITH_SYBIL)
    for name in ("Sybil", "server", "Turku"):
        with pytest.raises(DataError, match="signed by 3 of"):
            forged(WITH_SYBIL, [*three, replace(own, silo=name)]).since(FIRST.digest())
    server = replace(Endorsement.sign(SERVER, WITH_SYBIL), silo="server")
    with pytest.raises(DataError, match="signed by 3 of"):
        forged(WITH_SYBIL, [*three, server]).since(FIRST.digest())


def test_with_signatures_under_another_proposal() -> None:
    """The silos agreed to admit Ylitornio, or to the same change of another roster."""
    other = successor(FIRST, admitted={"Ylitornio": b"y" * 32})
    elsewhere = replace(WITH_SYBIL, previous=b"p" * 32)
    for signed in (other, elsewhere, FIRST):
        with pytest.raises(DataError, match="signed by 0 of"):
            forged(WITH_SYBIL, endorsed(signed, NAMES)).since(FIRST.digest())


def test_with_a_signature_that_was_meant_for_a_message() -> None:
    """What a silo signs in the protocol, or for a survivor set, is no endorsement."""
    digest = WITH_SYBIL.digest()
    for message in (digest, b"sumus message 2" + digest, b"sumus roster 2" + digest):
        signed = [
            Endorsement(name, digest, identity.sign(message)) for name, identity in HONEST.items()
        ]
        with pytest.raises(DataError, match="signed by 0 of"):
            forged(WITH_SYBIL, signed).since(FIRST.digest())


def test_with_the_key_of_a_silo_that_has_left() -> None:
    """Oulu leaves; its key, wherever it is by then, counts for no later roster."""
    without = successor(FIRST, retired=["Oulu"])
    history = RosterHistory.of(FIRST).extended(without, endorsed(without, QUORUM))
    third = successor(without, admitted={"Sybil": SYBIL.public_key})
    # four silos are left, and three of them must sign
    signatures = {each.silo: each.signature for each in endorsed(third, ("Bergen", "Graz", "Oulu"))}
    with pytest.raises(DataError, match=r"signed by 2 of the 4 .*and needs 3"):
        RosterHistory((*history.epochs, Epoch(third, signatures))).since(FIRST.digest())
    signatures |= {each.silo: each.signature for each in endorsed(third, ("Turku",))}
    assert RosterHistory((*history.epochs, Epoch(third, signatures))).since(FIRST.digest()) == third


def test_with_the_key_that_a_silo_has_replaced() -> None:
    fresh = Identity.generate("Oulu", RandomSource())
    rotated = successor(FIRST, rotated={"Oulu": fresh.public_key})
    history = RosterHistory.of(FIRST).extended(rotated, endorsed(rotated, QUORUM))
    third = successor(rotated, admitted={"Sybil": SYBIL.public_key})
    three = endorsed(third, ("Bergen", "Graz", "Turku"))
    stolen = Endorsement.sign(HONEST["Oulu"], third)
    with pytest.raises(DataError, match="signed by 3 of the 5"):
        history.extended(third, [*three, stolen])
    assert history.extended(third, [*three, Endorsement.sign(fresh, third)]).current == third


def test_by_bringing_an_old_roster_back() -> None:
    """A rollback: whoever has accepted roster 1 takes neither roster 0 nor another roster 1."""
    rotated = successor(FIRST, rotated={"Oulu": b"o" * 32})
    newer = RosterHistory.of(FIRST).extended(rotated, endorsed(rotated, QUORUM))
    assert newer.since(rotated.digest()) == rotated
    older = RosterHistory.of(FIRST)
    fork = forged(WITH_SYBIL, endorsed(WITH_SYBIL, QUORUM))
    for history in (older, fork):
        assert history.since(FIRST.digest())  # the control: roster 0 alone would have led there
        with pytest.raises(DataError, match="an older or another one was put in its place"):
            history.since(rotated.digest())


def test_by_leaving_a_roster_out() -> None:
    rotated = successor(FIRST, rotated={"Oulu": b"o" * 32})
    third = successor(rotated, admitted={"Sybil": SYBIL.public_key})
    with pytest.raises(DataError, match="roster 2 does not follow roster 0"):
        forged(third, endorsed(third, NAMES))
    renumbered = replace(third, epoch=1)
    with pytest.raises(DataError, match="roster 1 does not follow roster 0"):
        forged(renumbered, endorsed(renumbered, NAMES))


def test_two_next_rosters_cannot_both_be_believed_while_at_most_one_silo_signs_twice() -> None:
    """Bergen signs whatever it is shown; every division of the other four between two rosters."""
    other = successor(FIRST, retired=["Graz"])
    for division in range(2**4):
        sides: tuple[list[str], list[str]] = (["Bergen"], ["Bergen"])
        for place, name in enumerate(NAMES[1:]):
            sides[division >> place & 1].append(name)
        believed = 0
        for roster, names in zip((WITH_SYBIL, other), sides, strict=True):
            try:
                forged(roster, endorsed(roster, tuple(names))).since(FIRST.digest())
                believed += 1
            except DataError:
                pass
        assert believed <= 1
