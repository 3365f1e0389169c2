from __future__ import annotations

import pytest

from sumus.errors import DataError, PeerProtocolError
from sumus.randomness import RandomSource
from sumus.secagg import Roster, SiloIdentity


@pytest.fixture
def identities() -> list[SiloIdentity]:
    random = RandomSource.simulation(1, "keys")
    return [SiloIdentity.generate(name, random) for name in ("north", "south", "east.1")]


def test_text_forms_come_back(identities: list[SiloIdentity]) -> None:
    for identity in identities:
        again = SiloIdentity.parse(identity.secret_text())
        assert (again.name, again.public_key) == (identity.name, identity.public_key)
    roster = Roster.from_public_texts([identity.public_text() for identity in identities])
    assert Roster.parse(roster.to_text()) == roster
    assert roster.names == ("east.1", "north", "south")
    assert [roster.number(name) for name in roster.names] == [0, 1, 2]


def test_the_digest_names_silos_and_keys(identities: list[SiloIdentity]) -> None:
    keys = {identity.name: identity.public_key for identity in identities}
    swapped = keys | {"north": keys["south"], "south": keys["north"]}
    assert (
        len(
            {
                Roster(keys).digest(),
                Roster(swapped).digest(),
                Roster({"north": keys["north"]}).digest(),
            }
        )
        == 3
    )


def test_only_the_named_silos_signature_verifies(identities: list[SiloIdentity]) -> None:
    roster = Roster({identity.name: identity.public_key for identity in identities})
    signature = identities[0].sign(b"message")
    roster.verify(roster.number("north"), signature=signature, message=b"message")
    for number, message in (
        (roster.number("south"), b"message"),
        (roster.number("north"), b"massage"),
    ):
        with pytest.raises(PeerProtocolError, match="does not verify"):
            roster.verify(number, signature=signature, message=message)


def test_no_secret_in_a_representation(identities: list[SiloIdentity]) -> None:
    secret = identities[0].secret_text().split(":")[1].strip()
    assert secret not in repr(identities[0])
    assert "Ed25519" not in repr(identities[0])


def test_rosters_that_blur_who_is_who_are_refused(identities: list[SiloIdentity]) -> None:
    key = identities[0].public_key
    for keys in ({}, {"a": key, "b": key}, {"a": key[:31]}, {"a b": key}, {"": key}, {"../x": key}):
        with pytest.raises(DataError):
            Roster(keys)
    line = identities[0].public_text()
    with pytest.raises(DataError, match="twice"):
        Roster.from_public_texts([line, line])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "[silos]\na = 1",
        '[silos]\na = "ed25519:AA"',
        '[other]\na = "x"',
        '[silos]\na = "rsa:AAAA"',
        "[silos",
    ],
)
def test_files_that_are_no_roster_are_refused(text: str) -> None:
    with pytest.raises(DataError):
        Roster.parse(text)


@pytest.mark.parametrize(
    "text", ["", "north", "north ed25519-secret:AA", "north ed25519:AAAA", "no rth x"]
)
def test_files_that_are_no_identity_are_refused(text: str) -> None:
    with pytest.raises(DataError):
        SiloIdentity.parse(text)
