"""A silo wants the whole federation to stop: by advertising a key that every other silo must
refuse, or by taking a run that is handed out without end.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from oracles.secagg_federation import Federation, federation, modular_sum, read, round_id, terms_for
from sumus.errors import PeerProtocolError
from sumus.parties.delivery_messages import DELIVERY, Receipt
from sumus.secagg import (
    KeyDirectory,
    MemoryKeyStore,
    MemoryRoundGuard,
    ServerSetup,
    decode_any,
    head_of,
    request_digest,
)
from sumus.secagg.messages import KeyAdvert
from sumus.secagg.setup_messages import keys_digest_of
from support.delivering import DeliveringFederation, small_plan

CULPRIT = 3


@pytest.fixture
def world() -> Federation:
    return federation(terms_for(5, length=4))


def advert_of(world: Federation, key: bytes) -> bytes:
    """The culprit's advert of any key, signed with its own roster key."""
    advert = KeyAdvert(sender=CULPRIT, session=world.server.session, agreement_key=key)
    return advert.encode(world.identities[CULPRIT])


def the_rest_can_sum(world: Federation, setup: ServerSetup) -> bool:
    """Close the set-up without the culprit and run a round."""
    carrying, directories = setup.close()
    waiting = {}
    for silo, directory in directories.items():
        waiting[silo], reply = world.setups[silo].receive(directory)
        carrying.receive(reply)
    session, ciphertexts = carrying.close()
    silos = {
        silo: state.receive(ciphertexts[silo], MemoryRoundGuard(), MemoryKeyStore())[0]
        for silo, state in waiting.items()
    }
    inputs = {silo: vector for silo, vector in world.inputs(2).items() if silo in silos}
    collecting, invitation = session.invite(round_id("without the culprit"))
    states = {}
    for silo, vector in inputs.items():
        states[silo], message = silos[silo].receive(invitation).submit(vector)
        collecting.receive(message)
    certifying, proposal = collecting.close()
    for state in states.values():
        certifying.receive(state.sign(proposal)[1])
    unmasking, certificate = certifying.close()
    for state in states.values():
        unmasking.receive(state.reveal(certificate)[1])
    outcome = unmasking.close()
    return CULPRIT not in outcome.survivors and outcome.total.tolist() == modular_sum(
        list(inputs.values()), 32
    )


@pytest.mark.parametrize("culprit_first", [True, False])
def test_by_a_key_of_low_order(world: Federation, culprit_first: bool) -> None:
    setup = world.setup()
    honest = [advert for silo, advert in world.adverts.items() if silo != CULPRIT]
    hostile = advert_of(world, bytes(32))
    for advert in [hostile, *honest] if culprit_first else [*honest, hostile]:
        if advert is hostile:
            with pytest.raises(PeerProtocolError, match=r"silo 'silo-003' has low order"):
                setup.receive(advert, sender=CULPRIT)
        else:
            setup.receive(advert)
    assert setup.waiting_for == {CULPRIT}
    assert the_rest_can_sum(world, setup)


def test_by_copying_another_silos_key(world: Federation) -> None:
    setup = world.setup()
    for silo, advert in world.adverts.items():
        if silo != CULPRIT:
            setup.receive(advert)
    copied = advert_of(world, read(world.adverts[1], KeyAdvert).agreement_key)
    with pytest.raises(
        PeerProtocolError, match=r"silo 'silo-003' advertises the key of silo 'silo-001'"
    ):
        setup.receive(copied, sender=CULPRIT)
    assert the_rest_can_sum(world, setup)


def test_by_reserving_anothers_key_with_a_second_advert(world: Federation) -> None:
    """A silo has one key: what it advertises after the first cannot keep the owner of that key
    out.
    """
    setup = world.setup()
    setup.receive(world.adverts[CULPRIT])
    setup.receive(advert_of(world, read(world.adverts[1], KeyAdvert).agreement_key))
    setup.receive(world.adverts[1])
    assert setup.waiting_for == {0, 2, 4}


def test_a_silo_names_the_culprit_that_a_careless_server_lets_through(world: Federation) -> None:
    honest = read(world.directories[0], KeyDirectory)
    for key, named in (
        (bytes(32), "silo 'silo-003' has low order"),
        (read(honest.adverts[1], KeyAdvert).agreement_key, "'silo-001' and 'silo-003'"),
    ):
        hostile = advert_of(world, key)
        adverts = tuple(
            hostile if head_of(advert).sender == CULPRIT else advert for advert in honest.adverts
        )
        directory = KeyDirectory(
            sender=honest.sender,
            session=honest.session,
            keys_digest=keys_digest_of(adverts),
            adverts=adverts,
        ).encode(world.server.identity)
        with pytest.raises(PeerProtocolError, match=named):
            world.setups[0].receive(directory)


@pytest.mark.deep
def test_by_taking_a_run_that_is_handed_out_without_end(tmp_path: Path) -> None:
    """One silo says again and again that it has nothing yet, another sends receipts of something
    else; the server gives both up after a bounded number of pieces, and the third has the run.
    """
    federation = DeliveringFederation(tmp_path, small_plan(**{"evaluation.metrics": "none"}))
    sent: dict[str, int] = {}

    def heard(name: str, message: bytes) -> bytes | None:
        head = head_of(message)
        if head.kind not in DELIVERY or name == "silo-2":
            return federation.party(name).handle(message)
        sent[name] = sent.get(name, 0) + 1
        request = decode_any(message, DELIVERY)
        parcel = request.parcel if name == "silo-0" else bytes(32)
        return Receipt(
            sender=federation.roster.number(name),
            session=head.session,
            answers=request_digest(message),
            parcel=parcel,
            have=0,
            whole=name == "silo-1",
        ).encode(federation.local.identities[name])

    federation.heard = heard
    ended = federation.run()
    assert ended["phase"] == "finished"
    assert ended["delivered"]["received"] == ["silo-2"]
    assert "has 0 of" in ended["delivered"]["missing"]["silo-0"]
    assert "another message" in ended["delivered"]["missing"]["silo-1"]
    assert sent == {"silo-0": 2 + 2 * 4, "silo-1": 1}
    federation.close()
