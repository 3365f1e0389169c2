"""A node that answers under another silo's name, with old answers of that silo or with its own words:
to lock the silo out, to have it blamed, or to put a vector into the sum under its name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from oracles.secagg_federation import federation, modular_sum, read, round_id, terms_for
from sumus.errors import PeerProtocolError
from sumus.parties import SiloParty, secure_sum
from sumus.randomness import RandomSource
from sumus.secagg import (
    CipherTexts,
    Greeting,
    Identity,
    Invitation,
    Ready,
    Refusal,
    Roster,
    Welcome,
    decode_any,
)
from sumus.secagg.messages import MaskedInput
from support.local_federation import LocalFederation, plan

VICTIM, NODE = 0, 1


@pytest.fixture
def across(tmp_path: Path) -> Iterator[LocalFederation]:
    made = LocalFederation(tmp_path, plan())
    yield made
    made.close()


def old_answers(across: LocalFederation) -> dict[type, bytes]:
    """The victim's answers in an earlier set-up, as another silo or the network may have kept them."""
    kept: dict[type, bytes] = {}

    def listening(party: SiloParty, message: bytes) -> bytes:
        reply = party.handle(message)
        kept[type(decode_any(message))] = reply
        return reply

    across.stop(VICTIM)
    across.start(VICTIM, listening)
    across.server().greet()
    assert isinstance(decode_any(kept[CipherTexts]), Ready)
    return kept


def test_by_replaying_an_old_welcome(across: LocalFederation) -> None:
    kept = old_answers(across)
    across.driver.silos[VICTIM] = lambda message: kept.get(type(decode_any(message)))
    server = across.server()
    server.greet()
    assert across.roster.names[VICTIM] not in server.present
    assert "answers another greeting" in server.refusals[across.roster.names[VICTIM]]
    across.driver.silos[VICTIM] = across.parties[VICTIM].handle
    record = next(iter(server.train(across.run_folder())))
    assert record.survivors == across.roster.names


def test_with_a_server_that_repeats_itself_the_replay_works(
    across: LocalFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: the same nonce twice, and the old welcome passes for today's; without the
    private half of its keys the node comes no further.
    """
    monkeypatch.setattr(secure_sum, "RandomSource", lambda: RandomSource.simulation(1))
    kept = old_answers(across)
    across.driver.silos[VICTIM] = lambda message: kept.get(type(decode_any(message)))
    server = across.server()
    server.greet()
    assert server.summing._adverts[VICTIM] == read(kept[Greeting], Welcome).advert
    assert across.roster.names[VICTIM] not in server.present


def test_by_replaying_an_old_ready(across: LocalFederation) -> None:
    """Of a set-up with other silos, whose keys it accepted."""
    away, refusal = across.driver.silos[3], across.parties[3].handle(b"no message")
    across.driver.silos[3] = lambda message: refusal  # not waited for
    kept = old_answers(across)
    across.driver.silos[3] = away

    def node(message: bytes) -> bytes:
        keys = isinstance(decode_any(message), CipherTexts)
        return kept[CipherTexts] if keys else across.parties[VICTIM].handle(message)

    across.driver.silos[VICTIM] = node
    server = across.server()
    server.greet()
    assert server.present == across.roster.names[1:]


def test_by_replaying_an_old_refusal(across: LocalFederation) -> None:
    """It neither keeps the victim away nor tells the operator what it said of something else."""
    old = across.parties[VICTIM].handle(b"no message")
    assert isinstance(decode_any(old), Refusal)
    across.driver.silos[VICTIM] = lambda message: old
    server = across.server()
    server.greet()
    told = server.refusals[across.roster.names[VICTIM]]
    assert "refuses another message" in told
    assert "not a message of this protocol" not in told


def test_by_relabelling_its_own_input() -> None:
    """Whoever the transport says sent it: an input is the silo's that signed it."""
    world = federation(terms_for(5, length=4))
    collecting, invitation = world.server.invite(round_id("relabelled"))
    _, messages = world.submit_all(invitation, world.inputs())
    own = read(messages[NODE], MaskedInput)
    for signer in (world.identities[NODE], world.server.identity):
        forged = replace(own, sender=VICTIM).encode(signer)
        with pytest.raises(PeerProtocolError, match="signature of silo 'silo-000'"):
            collecting.receive(forged, sender=VICTIM)
    assert collecting.waiting_for == set(range(5))
    relabelled = messages[NODE][:6] + bytes(2) + messages[NODE][8:]
    with pytest.raises(PeerProtocolError, match="does not verify"):
        collecting.receive(relabelled, sender=VICTIM)


def test_without_the_check_the_relabelled_input_is_in_the_sum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The control."""
    world = federation(terms_for(5, length=4))
    collecting, invitation = world.server.invite(round_id("relabelled"))
    _, messages = world.submit_all(invitation, world.inputs())
    own = read(messages[NODE], MaskedInput)
    monkeypatch.setattr(Roster, "verify", lambda *_, **__: None)
    collecting.receive(replace(own, sender=VICTIM).encode(world.identities[NODE]), sender=VICTIM)
    assert VICTIM not in collecting.waiting_for


def test_a_wrongly_signed_input_is_a_drop_out_and_not_the_end_of_the_round(
    across: LocalFederation,
) -> None:
    stranger = Identity.generate("stranger", RandomSource())

    def node(message: bytes) -> bytes:
        reply = across.parties[VICTIM].handle(message)
        if isinstance(decode_any(message), Invitation):
            return decode_any(reply).encode(stranger)
        return reply

    across.driver.silos[VICTIM] = node
    server = across.server()
    server.greet()
    record = next(iter(server.train(across.run_folder())))
    assert record.dropped == (across.roster.names[VICTIM],)


def test_the_sum_is_of_those_who_signed() -> None:
    """One silo's place is taken by a node: the sum is that of the four others, exactly."""
    world = federation(terms_for(5, length=4))
    inputs = world.inputs(3)
    collecting, invitation = world.server.invite(round_id("taken"))
    states, messages = world.submit_all(invitation, inputs)
    stranger = Identity.generate("silo-000", RandomSource.simulation(4))
    messages[VICTIM] = read(messages[VICTIM], MaskedInput).encode(stranger)
    for silo, message in messages.items():
        if silo == VICTIM:
            with pytest.raises(PeerProtocolError):
                collecting.receive(message, sender=silo)
        else:
            collecting.receive(message, sender=silo)
    certifying, proposal = collecting.close()
    for silo in range(1, 5):
        certifying.receive(states[silo].sign(proposal)[1], sender=silo)
    unmasking, certificate = certifying.close()
    for silo in range(1, 5):
        unmasking.receive(states[silo].reveal(certificate)[1], sender=silo)
    outcome = unmasking.close()
    assert outcome.survivors == {1, 2, 3, 4}
    assert outcome.total.tolist() == modular_sum([inputs[silo] for silo in range(1, 5)], 32)


def test_a_welcome_for_another_silo_is_refused(across: LocalFederation) -> None:
    """A silo's own, rightly signed welcome, delivered under another's name."""
    own: list[bytes] = []

    def node(message: bytes) -> bytes:
        own.extend([] if own else [across.parties[NODE].handle(message)])
        return own[0]

    across.driver.silos[VICTIM] = node
    server = across.server()
    server.greet()
    assert "another silo's" in server.refusals[across.roster.names[VICTIM]]
    assert isinstance(across.ask(NODE, across.greeting()), Welcome)
