from __future__ import annotations

import pytest

from sumus.errors import DataError, LocalProtocolError, PeerProtocolError
from sumus.randomness import RandomSource
from sumus.secagg import SERVER, SERVER_NAME, Identity, Roster


@pytest.fixture
def identities() -> list[Identity]:
    random = RandomSource.simulation(1, "keys")
    return [Identity.generate(name, random) for name in ("north", "south", "east.1", SERVER_NAME)]


def roster_of(identities: list[Identity]) -> Roster:
    *silos, server = identities
    return Roster.of(server, silos)


def test_text_forms_come_back(identities: list[Identity]) -> None:
    for identity in identities:
        again = Identity.parse(identity.secret_text())
        assert (again.name, again.public_key) == (identity.name, identity.public_key)
    roster = Roster.from_public_texts([identity.public_text() for identity in identities])
    assert Roster.parse(roster.to_text()) == roster
    assert roster.names == ("east.1", "north", "south")
    assert [roster.number(name) for name in roster.names] == [0, 1, 2]


def test_the_digest_names_server_silos_and_keys(identities: list[Identity]) -> None:
    roster = roster_of(identities)
    keys, server = dict(roster.public_keys), roster.server_key
    swapped = keys | {"north": keys["south"], "south": keys["north"]}
    rosters = (
        roster,
        Roster(keys, Identity.generate("x", RandomSource.simulation(2)).public_key),
        Roster(swapped, server),
        Roster({"north": keys["north"]}, server),
        Roster({"north": server, "south": keys["south"], "east.1": keys["east.1"]}, keys["north"]),
    )
    assert len({each.digest() for each in rosters}) == 5


def test_only_the_named_silos_signature_verifies(identities: list[Identity]) -> None:
    roster = roster_of(identities)
    signature = identities[0].sign(b"message")
    roster.verify(roster.number("north"), signature=signature, message=b"message")
    for number, message in (
        (roster.number("south"), b"message"),
        (roster.number("north"), b"massage"),
    ):
        with pytest.raises(PeerProtocolError, match="does not verify"):
            roster.verify(number, signature=signature, message=message)
    with pytest.raises(PeerProtocolError, match="not on the roster"):
        roster.verify(3, signature=signature, message=b"message")


def test_the_server_has_a_key_of_its_own(identities: list[Identity]) -> None:
    roster, server = roster_of(identities), identities[-1]
    roster.verify(SERVER, signature=server.sign(b"message"), message=b"message")
    with pytest.raises(PeerProtocolError, match="signature of the server does not verify"):
        roster.verify(SERVER, signature=identities[0].sign(b"message"), message=b"message")
    with pytest.raises(PeerProtocolError, match="does not verify"):
        roster.verify(0, signature=server.sign(b"message"), message=b"message")
    roster.require_server(server)
    with pytest.raises(LocalProtocolError, match="another key for the server"):
        roster.require_server(identities[0])


def test_no_secret_in_a_representation(identities: list[Identity]) -> None:
    secret = identities[0].secret_text().split(":")[1].strip()
    assert secret not in repr(identities[0])
    assert "Ed25519" not in repr(identities[0])


def test_rosters_that_blur_who_is_who_are_refused(identities: list[Identity]) -> None:
    key, server = identities[0].public_key, identities[-1].public_key
    for keys in (
        {},
        {"a": key, "b": key},
        {"a": key[:31]},
        {"a b": key},
        {"": key},
        {"../x": key},
        {"server": key},
        {"a": server},
    ):
        with pytest.raises(DataError):
            Roster(keys, server)
    with pytest.raises(DataError, match="32 bytes"):
        Roster({"a": key}, b"")
    with pytest.raises(DataError, match="the server has no key"):
        Roster.from_public_texts([identities[0].public_text()])
    line = identities[0].public_text()
    with pytest.raises(DataError, match="twice"):
        Roster.from_public_texts([line, line])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "[silos]\na = 1",
        f'[silos]\na = "ed25519:{"A" * 43}="',
        f'server = "x"\n[silos]\na = "ed25519:{"A" * 43}="',
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
        Identity.parse(text)
