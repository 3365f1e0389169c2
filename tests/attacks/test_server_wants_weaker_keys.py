"""A server records everything for the day on which X25519 is broken, and wants pairs of silos to
rest on it alone.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from oracles.secagg_federation import Federation, federation, read, round_id, terms_for
from sumus.errors import PeerProtocolError
from sumus.randomness import RandomSource
from sumus.secagg import (
    CipherTexts,
    Encapsulations,
    KeyDirectory,
    MemoryKeyStore,
    MemoryRoundGuard,
    SiloSession,
    SiloSetup,
)
from sumus.secagg.kem import decapsulate, encapsulate, has_kem, public_of
from sumus.secagg.messages import Encapsulation, KeyAdvert
from sumus.secagg.schedule import PublicHalf, agree, mixed
from sumus.secagg.setup_messages import keys_digest_of

pytestmark = pytest.mark.skipif(not has_kem(), reason="cryptography without ML-KEM-768")
VICTIM = 4  # everybody encapsulates to the silo with the largest number
EVERYBODY = frozenset(range(5))


@pytest.fixture
def world() -> Federation:
    return federation(terms_for(5, length=4), with_kem=EVERYBODY)


def directory_with(world: Federation, change: dict[int, bytes]) -> bytes:
    adverts = tuple(change.get(silo, world.adverts[silo]) for silo in range(5))
    return KeyDirectory(
        sender=0xFFFF,
        session=world.server.session,
        keys_digest=keys_digest_of(adverts),
        adverts=adverts,
    ).encode(world.server.identity)


def shown(world: Federation, sealed: tuple[bytes, ...]) -> SiloSession:
    """The victim's session when the server hands it these ciphertexts."""
    waiting, _ = world.setups[VICTIM].receive(world.directories[VICTIM])
    message = CipherTexts(
        sender=0xFFFF,
        session=world.server.session,
        keys_digest=world.server.keys_digest,
        sealed=sealed,
    ).encode(world.server.identity)
    return waiting.receive(message, MemoryRoundGuard(), MemoryKeyStore())[0]


def roots(session: SiloSession) -> dict[int, bytes]:
    return dict(session.keys.ring.sets[-1].roots)


def classical_roots(world: Federation, silo: int) -> dict[int, bytes]:
    """What whoever breaks X25519 knows: all roots but for the ML-KEM secret."""
    halves = {
        number: PublicHalf(number, advert.agreement_key, advert.kem_key)
        for number, advert in ((n, read(a, KeyAdvert)) for n, a in world.adverts.items())
    }
    return {
        other: agree(
            world.setups[silo]._agreement_key,
            halves[silo],
            halves[other],
            session=world.server.session,
            keys_digest=world.server.keys_digest,
            owner="the other",
        )
        for other in EVERYBODY - {silo}
    }


def test_by_breaking_x25519_later(world: Federation) -> None:
    """Both halves are needed: the recorded ciphertext and X25519's secret do not give the root."""
    known = classical_roots(world, VICTIM)
    sealed = read(world.ciphertexts[VICTIM], CipherTexts).sealed
    for silo, signed in zip(range(4), sealed, strict=True):
        ciphertext = read(signed, Encapsulation).ciphertext
        actual = roots(world.silos[VICTIM])[silo]
        assert actual == roots(world.silos[silo])[VICTIM]
        assert actual not in (known[silo], mixed(known[silo], bytes(32), ciphertext))
        # and with both it is what the documentation says
        secret = decapsulate(world.setups[VICTIM]._kem_seed, ciphertext)
        assert actual == mixed(known[silo], secret, ciphertext)


def test_that_works_on_pairs_without_ml_kem() -> None:
    """The control: whoever knows X25519's secrets of a classical pair has its root."""
    world = federation(terms_for(5, length=4), with_kem=frozenset({0, 1}))
    assert roots(world.silos[VICTIM]) == classical_roots(world, VICTIM)
    assert roots(world.silos[0])[1] != classical_roots(world, 0)[1]


def test_by_breaking_ml_kem_instead(world: Federation) -> None:
    """Nor does ML-KEM's secret without X25519's."""
    signed = read(world.ciphertexts[VICTIM], CipherTexts).sealed[0]
    ciphertext = read(signed, Encapsulation).ciphertext
    secret = decapsulate(world.setups[VICTIM]._kem_seed, ciphertext)
    assert roots(world.silos[VICTIM])[0] not in (secret, mixed(bytes(32), secret, ciphertext))


def test_by_stripping_the_ml_kem_key_from_an_advert(world: Federation) -> None:
    bare = replace(read(world.adverts[1], KeyAdvert), kem_key=b"")
    for signature in (world.adverts[1][-64:], bare.encode(world.server.identity)[-64:]):
        stripped = bare.encode(world.server.identity)[:-64] + signature
        with pytest.raises(PeerProtocolError, match="'silo-001' does not verify"):
            world.setups[VICTIM].receive(directory_with(world, {1: stripped}))
    own = replace(read(world.adverts[VICTIM], KeyAdvert), kem_key=b"")
    with pytest.raises(PeerProtocolError, match="shows other keys for silo 4 than it sent"):
        world.setups[VICTIM].receive(
            directory_with(world, {VICTIM: own.encode(world.identities[VICTIM])})
        )


def test_by_withholding_a_ciphertext(world: Federation) -> None:
    """The pair gets no root at all, and rounds with it are refused."""
    sealed = read(world.ciphertexts[VICTIM], CipherTexts).sealed
    cut = shown(world, sealed[1:])
    assert set(roots(cut)) == {1, 2, 3}
    with pytest.raises(PeerProtocolError, match=r"participants \[0\] have no agreed key"):
        cut.receive(world.server.invite(round_id("cut"))[1])


def test_by_encapsulating_a_secret_of_its_own(world: Federation) -> None:
    """The server's ciphertext under a silo's name, one for another silo, and one of before."""
    sealed = read(world.ciphertexts[VICTIM], CipherTexts).sealed
    honest = read(sealed[0], Encapsulation)
    public = read(world.adverts[VICTIM], KeyAdvert).kem_key
    own = replace(honest, ciphertext=encapsulate(public, owner="the victim")[1])
    for forged, reason in (
        (own.encode(world.server.identity), "does not verify"),
        (own.encode(world.server.identity)[:-64] + sealed[0][-64:], "does not verify"),
        (read(world.ciphertexts[3], CipherTexts).sealed[0], "encapsulated nothing to silo 4"),
        (
            replace(honest, keys_digest=bytes(32)).encode(world.identities[0]),
            "belong to another key set",
        ),
    ):
        with pytest.raises(PeerProtocolError, match=reason):
            shown(world, (forged, *sealed[1:]))


def test_by_naming_two_directories_alike(world: Federation) -> None:
    honest = read(world.directories[VICTIM], KeyDirectory)
    renamed = replace(honest, keys_digest=bytes(32)).encode(world.server.identity)
    with pytest.raises(PeerProtocolError, match="does not hold the adverts that it is named after"):
        world.setups[VICTIM].receive(renamed)


def test_a_silo_may_refuse_pairs_without_ml_kem() -> None:
    world = federation(terms_for(5, length=4), with_kem=EVERYBODY - {2})
    world.setups[VICTIM].receive(world.directories[VICTIM])
    with pytest.raises(PeerProtocolError, match=r"silos silo-002 have no ML-KEM-768 key"):
        world.setups[VICTIM].receive(world.directories[VICTIM], require_post_quantum=True)


# -- and silos that want to stop the others with it


def test_a_silo_with_a_malformed_ml_kem_key_is_left_out(world: Federation) -> None:
    setup = world.setup()
    hostile = replace(read(world.adverts[1], KeyAdvert), kem_key=b"\xff" * 1184)
    with pytest.raises(PeerProtocolError, match="'silo-001' is malformed"):
        setup.receive(hostile.encode(world.identities[1]))
    assert 1 in setup.waiting_for
    with pytest.raises(PeerProtocolError, match="'silo-001' is malformed"):
        world.setups[0].receive(directory_with(world, {1: hostile.encode(world.identities[1])}))


def test_a_silo_that_owes_a_neighbour_its_ciphertext_is_left_out(world: Federation) -> None:
    """Otherwise everybody whom it owes one would refuse the round."""
    setup = world.setup()
    for advert in world.adverts.values():
        setup.receive(advert)
    carrying, directories = setup.close()
    _, reply = world.setups[1].receive(directories[1])
    honest = read(reply, Encapsulations)
    assert len(honest.sealed) == 3
    for sealed in (honest.sealed[1:], (*honest.sealed, honest.sealed[0]), ()):
        short = replace(honest, sealed=sealed).encode(world.identities[1])
        with pytest.raises(PeerProtocolError, match="did not encapsulate one secret to each"):
            carrying.receive(short)
    foreign = read(world.setups[0].receive(directories[0])[1], Encapsulations).sealed
    with pytest.raises(PeerProtocolError, match="in the name of"):
        carrying.receive(replace(honest, sealed=foreign).encode(world.identities[1]))
    assert carrying.waiting_for == EVERYBODY
    carrying.receive(reply)
    assert carrying.waiting_for == EVERYBODY - {1}


def test_a_library_without_ml_kem_gives_a_classical_federation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sumus.secagg.silo_setup.has_kem", lambda: False)
    world = federation(terms_for(5, length=4))
    setup, advert = SiloSetup.start(
        world.identities[0], world.roster, terms=world.terms, random=RandomSource()
    )
    assert read(advert, KeyAdvert).kem_key == setup._kem_seed == b""
    monkeypatch.undo()
    _, advert = SiloSetup.start(
        world.identities[0], world.roster, terms=world.terms, random=RandomSource()
    )
    assert read(advert, KeyAdvert).kem_key != b""
    assert public_of(bytes(64)) != public_of(b"\1" * 64)
