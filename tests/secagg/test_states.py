from __future__ import annotations

import contextlib
import hashlib
import itertools
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.stats import chi2

from oracles.secagg_federation import Federation, federation, modular_sum, read, round_id, terms_for
from sumus.errors import DataError, LocalProtocolError, PeerProtocolError, RoundAborted
from sumus.randomness import RandomSource
from sumus.secagg import (
    DroppedSet,
    FileRoundGuard,
    Identity,
    InProcessFederation,
    KeyRing,
    MemoryKeyStore,
    MemoryRoundGuard,
    Roster,
    ServerSetup,
    SiloSession,
    SiloSetup,
    answer,
)
from sumus.secagg.messages import MaskedInput

ROUNDS = itertools.count()


@pytest.fixture(scope="module")
def world() -> Federation:
    return federation(terms_for(5, length=6))


def test_three_exchanges_from_invitation_to_sum(world: Federation) -> None:
    inputs = world.inputs(1)
    collecting, invitation = world.server.invite(round_id("three"), payload=b"the model")
    assert world.silos[0].receive(invitation).payload == b"the model"
    submitted, messages = world.submit_all(invitation, inputs)
    for message in messages.values():
        collecting.receive(message)
    assert not collecting.waiting_for
    certifying, proposal = collecting.close()
    signed = {}
    for silo, state in submitted.items():
        signed[silo], message = state.sign(proposal)
        certifying.receive(message)
    unmasking, certificate = certifying.close()
    for state in signed.values():
        unmasking.receive(state.reveal(certificate)[1])
    outcome = unmasking.close()
    assert outcome.total.tolist() == modular_sum(list(inputs.values()), 32)
    assert outcome.removed_seeds == {silo: {} for silo in range(5)}


def test_a_silo_that_missed_the_signing_still_helps_to_unmask(world: Federation) -> None:
    collecting, invitation = world.server.invite(round_id("missed"))
    submitted, messages = world.submit_all(invitation, world.inputs())
    for message in messages.values():
        collecting.receive(message)
    certifying, proposal = collecting.close()
    for silo in (0, 1, 2):
        certifying.receive(submitted[silo].sign(proposal)[1])
    unmasking, certificate = certifying.close()
    for silo in (2, 3, 4):
        unmasking.receive(submitted[silo].reveal(certificate)[1])
    assert unmasking.close().total.tolist() == modular_sum(list(world.inputs().values()), 32)


def masked(world: Federation, label: object, vector: np.ndarray, silo: int = 0) -> np.ndarray:
    _, invitation = world.server.invite(round_id(label))
    message = world.silos[silo].receive(invitation).submit(vector)[1]
    return np.frombuffer(read(message, MaskedInput).vector, dtype=np.uint32)


def test_masked_inputs_are_uniform_whatever_the_input() -> None:
    """Chi-square on the low and the high byte over many rounds of one constant input; false-alarm
    rate 4e-8 in all.
    """
    wide = federation(terms_for(3, length=4096))
    counts = {"low": np.zeros(256), "high": np.zeros(256)}
    for turn in range(25):
        words = masked(wide, ("uniform", turn), np.full(4096, 7, dtype=np.uint32))
        counts["low"] += np.bincount(words & 255, minlength=256)
        counts["high"] += np.bincount(words >> 24, minlength=256)
    for seen in counts.values():
        expected = seen.sum() / 256
        statistic = float(((seen - expected) ** 2 / expected).sum())
        assert chi2.ppf(1e-8, 255) < statistic < chi2.isf(1e-8, 255)


def test_two_masked_inputs_with_the_same_data_share_nothing() -> None:
    """Their difference is uniform too, and equal words are as rare as chance; false-alarm rate
    below 1e-7.
    """
    wide = federation(terms_for(3, length=65_536))
    same = np.full(65_536, 3, dtype=np.uint32)
    first, second = masked(wide, "a", same), masked(wide, "b", same)
    # Poisson with mean 2^-16: more than 3 has probability below 1e-20
    assert np.count_nonzero(first == second) <= 3
    seen = np.bincount((first - second) & 255, minlength=256)
    statistic = float(((seen - 256.0) ** 2 / 256.0).sum())
    assert chi2.ppf(1e-8, 255) < statistic < chi2.isf(1e-8, 255)


def test_a_round_takes_one_submission(world: Federation) -> None:
    _, invitation = world.server.invite(round_id("again"))
    vector = world.inputs()[0]
    world.silos[0].receive(invitation).submit(vector)
    with pytest.raises(PeerProtocolError, match="a round is answered once"):
        world.silos[0].receive(invitation)
    _, invitation = world.server.invite(round_id("again and again"))
    first, second = (world.silos[0].receive(invitation) for _ in range(2))
    first.submit(vector)
    with pytest.raises(PeerProtocolError, match="answered already"):
        second.submit(vector + np.uint64(1))
    with pytest.raises(LocalProtocolError, match="answered already"):
        first.submit(vector + np.uint64(1))


def restarted(world: Federation, silo: int, path: Path) -> tuple[FileRoundGuard, object]:
    """The silo's process starts again from what it keeps on disk: identity, key ring, round
    memory.
    """
    guard = FileRoundGuard(path)
    identity = Identity.parse(world.identities[silo].secret_text())
    stored = world.silos[silo].keys.ring.encode()
    world.silos[silo].keys.keep(KeyRing.decode(stored, where="the test"))
    return guard, SiloSession.open(
        identity, world.roster, terms=world.terms, guard=guard, keys=world.silos[silo].keys
    )


def test_a_round_id_serves_one_input_even_across_a_restart(
    world: Federation, tmp_path: Path
) -> None:
    _, invitation = world.server.invite(round_id("restart"))
    guard, session = restarted(world, 2, tmp_path / "memory")
    vector = world.inputs()[2]
    reply = answer(session, invitation, lambda _: vector)
    guard.close()
    guard, session = restarted(world, 2, tmp_path / "memory")
    for change in (0, 1):
        again = answer(session, invitation, lambda _, change=change: vector + np.uint64(change))
        assert again == reply
    other = world.server.invite(round_id("restart"), payload=b"another model")[1]
    with pytest.raises(PeerProtocolError, match="already has another transcript"):
        answer(session, other, lambda _: vector)
    guard.close()


def test_a_silo_that_restarts_in_every_exchange_finishes_the_round(
    world: Federation, tmp_path: Path
) -> None:
    inputs = world.inputs(9)
    state, message = world.server.invite(round_id("restless"))
    for _ in range(3):
        for silo in range(5):
            guard, session = restarted(world, silo, tmp_path / f"memory-{silo}")
            assert session.released(round_id("restless")) == (
                type(state).__name__ != "ServerCollecting"
            )
            state.receive(answer(session, message, lambda _, silo=silo: inputs[silo]))
            assert session.released(round_id("restless"))
            guard.close()
        outcome = state.close()
        if isinstance(outcome, tuple):
            state, message = outcome
    assert outcome.total.tolist() == modular_sum(list(inputs.values()), 32)


def test_removable_seeds_are_opened_from_the_end_and_by_shares() -> None:
    world = federation(terms_for(7, dropouts=3, removable=3), absent=frozenset({6}))
    collecting, invitation = world.server.invite(round_id("removable"))
    seeds, submitted = {}, {}
    for silo in (0, 1, 2, 3, 4):
        invited = world.silos[silo].receive(invitation)
        seeds[silo] = invited.removable_seeds
        submitted[silo], message = invited.submit(world.inputs()[silo])
        collecting.receive(message)
    certifying, proposal = collecting.close()
    for silo in (0, 1, 2, 3):
        certifying.receive(submitted[silo].sign(proposal)[1])
    unmasking, certificate = certifying.close()
    for silo in (0, 1, 2, 3):
        unmasking.receive(submitted[silo].reveal(certificate)[1])
    outcome = unmasking.close()
    # silo 6 never came and silo 5 dropped out: two are missing, so of seeds 0, 1, 2 only seed 2
    # (component 3) is not needed
    assert outcome.removed_seeds == {silo: {2: seeds[silo][2]} for silo in range(5)}
    assert len({seed for own in seeds.values() for seed in own}) == 15


def test_nobody_speaks_for_another_silo(world: Federation) -> None:
    collecting, invitation = world.server.invite(round_id("spoof"))
    _, messages = world.submit_all(invitation, world.inputs())
    with pytest.raises(PeerProtocolError, match="in the name of"):
        collecting.receive(messages[0], sender=1)
    with pytest.raises(PeerProtocolError, match="in the name of"):
        world.setup().receive(world.adverts[0], sender=3)


def test_no_round_is_resumed_from_a_message_that_the_server_did_not_sign(
    world: Federation,
) -> None:
    collecting, invitation = world.server.invite(round_id("resumed"))
    _, messages = world.submit_all(invitation, world.inputs())
    for message in messages.values():
        collecting.receive(message)
    _, proposal = collecting.close()
    world.silos[0].resume(proposal)
    for signer in (world.identities[0], world.identities[1]):
        with pytest.raises(PeerProtocolError, match="signature of the server does not verify"):
            world.silos[0].resume(read(proposal, DroppedSet).encode(signer))


def test_states_do_not_show_their_secrets(world: Federation) -> None:
    _, invitation = world.server.invite(round_id("repr"))
    invited = world.silos[1].receive(invitation)
    shown = repr(invited) + repr(world.setups[1]) + repr(world.silos[1])
    for secret in (
        world.setups[1].pending[-40:-8],
        invited._own_key,
        *world.silos[1].keys.ring.sets[-1].roots.values(),
    ):
        assert secret.hex() not in shown
        assert repr(secret) not in shown
    ring = repr(world.silos[1].keys.ring)
    assert "roots" not in ring
    assert "own_key" not in ring
    with pytest.raises(TypeError):
        pickle.dumps(world.identities[1])


def test_states_after_the_input_hold_no_secret_of_the_round(world: Federation) -> None:
    _, invitation = world.server.invite(round_id("no secret"))
    state, _ = world.silos[1].receive(invitation).submit(world.inputs()[1])
    assert set(vars(state)) == {"session", "header"}


def test_what_the_own_side_does_wrong_is_a_local_error(world: Federation) -> None:
    stranger = Identity.generate("stranger", RandomSource.simulation(5))
    with pytest.raises(DataError, match="not on the roster"):
        SiloSetup.start(
            stranger, world.roster, terms=world.terms, random=RandomSource.simulation(5)
        )
    impostor = Identity.generate("silo-001", RandomSource.simulation(5))
    with pytest.raises(LocalProtocolError, match="another key"):
        SiloSetup.start(
            impostor, world.roster, terms=world.terms, random=RandomSource.simulation(5)
        )
    own = world.server.identity
    with pytest.raises(LocalProtocolError, match="roster names"):
        ServerSetup(own, Roster({"a": bytes(32)}, own.public_key), world.terms)
    with pytest.raises(LocalProtocolError, match="another key for the server"):
        ServerSetup(world.identities[0], world.roster, world.terms)
    with pytest.raises(LocalProtocolError, match="sent no keys"):
        world.server.invite(round_id("x"), participants=frozenset({0, 9}))
    with pytest.raises(LocalProtocolError, match="round id"):
        world.server.invite(b"short")


def test_too_few_keys_end_the_set_up_cleanly(world: Federation) -> None:
    setup = world.setup()
    setup.receive(world.adverts[0])
    assert setup.waiting_for == {1, 2, 3, 4}
    with pytest.raises(RoundAborted):
        setup.close()


@pytest.mark.deep
@given(st.data())
@settings(max_examples=150, deadline=None)
def test_fuzzed_messages_never_crash_a_state(world: Federation, data: st.DataObject) -> None:
    """Real messages with changed bytes, to every state of both sides: accepted unchanged in meaning
    or refused.
    """
    label = round_id(("fuzz", next(ROUNDS)))
    collecting, invitation = world.server.invite(label)
    submitted, messages = world.submit_all(invitation, world.inputs())
    certifying_messages = list(messages.values())
    for message in certifying_messages:
        collecting.receive(message)
    certifying, proposal = collecting.close()
    signatures = [state.sign(proposal)[1] for state in submitted.values()]
    for message in signatures:
        certifying.receive(message)
    unmasking, certificate = certifying.close()
    reveal = submitted[0].reveal(certificate)[1]
    fresh, _ = world.server.invite(label)
    agreeing, _ = world.setups[0].receive(world.directories[0])
    targets = [
        (world.setups[0].receive, world.directories[0], ()),
        (agreeing.receive, world.ciphertexts[0], (MemoryRoundGuard(), MemoryKeyStore())),
        (world.setup().receive, world.adverts[0], ()),
        (world.silos[0].receive, invitation, ()),
        (world.silos[0].resume, proposal, ()),
        (fresh.receive, messages[0], ()),
        (submitted[0].sign, proposal, ()),
        (certifying.receive, signatures[0], ()),
        (submitted[0].reveal, certificate, ()),
        (unmasking.receive, reveal, ()),
    ]
    method, good, extra = data.draw(st.sampled_from(targets))
    raw = bytearray(good)
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    raw = raw[: data.draw(st.just(len(raw)) | st.integers(0, len(raw)))]
    with contextlib.suppress(PeerProtocolError, RoundAborted):
        method(bytes(raw), *extra)


def test_the_plan_hash_binds_every_message(world: Federation) -> None:
    """Sessions with another plan cannot even read each other's messages."""
    other = federation(terms_for(5, length=6, plan_hash=hashlib.sha256(b"another plan").digest()))
    assert other.roster == world.roster
    with pytest.raises(PeerProtocolError, match="other terms"):
        world.setups[0].receive(other.directories[0])
    with pytest.raises(PeerProtocolError, match="other terms"):
        world.silos[0].receive(other.server.invite(round_id("plan"))[1])
    with pytest.raises(PeerProtocolError, match="other terms"):
        world.setup().receive(other.adverts[0])


def test_what_a_silo_draws_does_not_depend_on_who_was_asked_first() -> None:
    """A round that is repeated with the same random bits opens the same removable noise, however
    many threads asked the silos.
    """
    terms = terms_for(5, dropouts=2, removable=2)

    def seeds(order: list[int]) -> dict[int, tuple[bytes, ...]]:
        parties = InProcessFederation(terms, random=RandomSource.from_key(bytes(32)))
        _, invitation = parties.server.invite(bytes([1]) * 32)
        return {silo: parties.silos[silo].receive(invitation).removable_seeds for silo in order}

    forward = seeds([0, 1, 2, 3, 4])
    assert forward == seeds([3, 1, 4, 0, 2])
    assert len({seed for own in forward.values() for seed in own}) == 10
