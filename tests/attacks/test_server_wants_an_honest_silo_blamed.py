"""A server wants others to believe that an honest silo lied: by making up, changing, mixing or leaving
out signed messages.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from attacks.test_silo_wants_to_spoil_a_sum import lying, play
from oracles.lying_silo import with_wrong_tags
from oracles.secagg_federation import Federation, federation, read, terms_for
from sumus.errors import PeerProtocolError
from sumus.secagg import Accusation, Disagreements, Roster, UnopenedError
from sumus.secagg.messages import RevealedShares

LIE = Disagreements(pairs=frozenset({(3, 0)}))


@pytest.fixture
def world() -> Federation:
    return federation(terms_for(5, length=4))


@pytest.fixture
def accusation(world: Federation) -> Accusation:
    outcome = play(world, shares={0: lying({3})})
    assert outcome.accusation is not None
    return Accusation.from_json(outcome.accusation)


def test_whoever_has_roster_and_terms_finds_what_the_server_found(
    world: Federation, accusation: Accusation
) -> None:
    assert accusation.examined(world.roster, world.terms) == LIE
    assert Accusation.from_json(accusation.as_json()) == accusation
    # the vector is not in it: its hash is under the owner's signature
    assert sum(map(len, accusation.inputs)) < 3000


def test_a_lying_owner_is_proved_as_well(world: Federation) -> None:
    with pytest.raises(UnopenedError) as lost:
        play(world, inputs={2: with_wrong_tags})
    found = Accusation.from_json(lost.value.accusation).examined(world.roster, world.terms)
    assert found == Disagreements(liars=frozenset({2}))


def test_by_changing_a_byte_of_what_a_silo_signed(
    world: Federation, accusation: Accusation
) -> None:
    for part in range(len(accusation.shares)):
        changed = list(accusation.shares)
        spoiled = bytearray(changed[part])
        spoiled[-80] ^= 1  # in its shares, before the signature
        changed[part] = bytes(spoiled)
        with pytest.raises(PeerProtocolError, match="signature"):
            replace(accusation, shares=tuple(changed)).examined(world.roster, world.terms)
    (owner,) = accusation.inputs
    for place in (80, 120, len(owner) - 70):  # transcript, corrections, the vector's hash
        spoiled = bytearray(owner)
        spoiled[place] ^= 1
        with pytest.raises(PeerProtocolError):
            replace(accusation, inputs=(bytes(spoiled),)).examined(world.roster, world.terms)


def test_by_signing_a_silos_answer_itself(world: Federation, accusation: Accusation) -> None:
    """The control is the signature: in the name of a silo whose key the server has, it works."""
    honest = read(accusation.shares[1], RevealedShares)
    shares = bytearray(honest.shares)
    shares[3 * 32] ^= 1
    wrong = replace(honest, shares=bytes(shares))

    def accused(signer) -> Accusation:
        parts = list(accusation.shares)
        parts[1] = wrong.encode(signer)
        return replace(accusation, shares=tuple(parts))

    with pytest.raises(PeerProtocolError, match="signature"):
        accused(world.server.identity).examined(world.roster, world.terms)
    framed = accused(world.identities[1]).examined(world.roster, world.terms)
    assert framed.pairs == {(3, 0), (3, 1)}


def test_by_mixing_two_rounds_or_federations(world: Federation, accusation: Accusation) -> None:
    elsewhere = federation(terms_for(5, length=4), seed=2)
    with pytest.raises(PeerProtocolError):
        accusation.examined(elsewhere.roster, world.terms)
    with pytest.raises(PeerProtocolError, match="another plan or roster"):
        accusation.examined(world.roster, terms_for(5, length=5))
    assert isinstance(world.roster, Roster)


def test_by_leaving_shares_out(world: Federation, accusation: Accusation) -> None:
    """With fewer than a threshold nothing is opened; with one to spare less, nobody is named who was
    not named before.
    """
    few = replace(accusation, shares=accusation.shares[:2])
    with pytest.raises(PeerProtocolError, match="2 shares of silo 3's secrets, 3 open them"):
        few.examined(world.roster, world.terms)
    for left in range(5):
        shares = tuple(part for place, part in enumerate(accusation.shares) if place != left)
        found = replace(accusation, shares=shares).examined(world.roster, world.terms)
        assert found.pairs <= LIE.pairs
        assert not found.liars


@pytest.mark.parametrize(
    "stored", [{}, {"certificate": "zz", "inputs": [], "shares": []}, {"certificate": 3}]
)
def test_by_bytes_that_are_no_accusation(stored: dict[str, object]) -> None:
    with pytest.raises(PeerProtocolError, match="damaged"):
        Accusation.from_json(stored)


def test_by_an_input_that_is_cut_short(world: Federation, accusation: Accusation) -> None:
    for length in (0, 50, 97, 150):
        cut = replace(accusation, inputs=(accusation.inputs[0][:length],))
        with pytest.raises(PeerProtocolError):
            cut.examined(world.roster, world.terms)
