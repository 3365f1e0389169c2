"""Keys that go round again, rounds that are asked for again, and disks that fail between the
two.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from sumus.books import Ledger, Policy, RunFolder
from sumus.errors import EngineError
from sumus.parties import InProcess, SecureSum
from sumus.parties.round import Invited
from sumus.parties.sums import pack_model, round_identifier
from sumus.randomness import RandomSource
from sumus.secagg import (
    Greeting,
    Identity,
    Invitation,
    Refusal,
    Roster,
    SiloSetup,
    Welcome,
    decode_any,
    silo_setup,
)
from sumus.secagg.kem import has_kem
from sumus.secagg.messages import KeyAdvert, MaskedInput
from support.local_federation import QUICK, LocalFederation, plan, refused

needs_kem = pytest.mark.skipif(not has_kem(), reason="cryptography without ML-KEM-768")


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Callable[..., LocalFederation]]:
    built: list[LocalFederation] = []

    def build(overrides=None, **options) -> LocalFederation:
        made = LocalFederation(tmp_path / str(len(built)), plan(overrides), **options)
        built.append(made)
        return made

    yield build
    for each in built:
        each.close()


class Crash(BaseException):
    """The silo's process ends; nothing in it gets a chance to clean up."""


def greeted(across: LocalFederation) -> SecureSum:
    """A server process that has just started, and the keys that it passed round."""
    summing = across.server().summing
    summing.greet()
    return summing


def invitation(
    across: LocalFederation, summing: SecureSum, number: int, keys: bytes | None = None
) -> bytes:
    """The invitation of everybody to a round, under the newest keys or those named."""
    assert summing._session is not None
    parameters = np.zeros(across.agreement.plan.training.dimension)
    return summing._session.invite(
        round_identifier(across.agreement.plan, number, frozenset(range(4))),
        payload=pack_model(number, parameters),
        sequence=2 * number,
        keys_digest=keys,
    )[1]


def ring_of(across: LocalFederation, silo: int):
    (admitted,) = across.parties[silo]._admitted.values()
    return admitted.memory.keys.ring


# -- fresh keys


def test_every_greeting_is_answered_with_fresh_keys_and_a_repeated_one_with_the_same(
    federation,
) -> None:
    """A transport that delivers twice must not make a silo forget what it advertised."""
    across = federation()
    first, again = (across.parties[0].handle(across.greeting()) for _ in range(2))
    assert first == again
    other = across.ask(0, across.greeting(nonce=b"n" * 32))
    assert isinstance(other, Welcome)
    adverts = [decode_any(decode_any(first).advert), decode_any(other.advert)]
    assert all(isinstance(advert, KeyAdvert) for advert in adverts)
    assert len({advert.agreement_key for advert in adverts}) == 2
    if has_kem():
        assert len({advert.kem_key for advert in adverts}) == 2


def test_when_a_silo_comes_back_everybody_has_fresh_keys(federation) -> None:
    across = federation()
    server = across.server()
    server.greet()
    run = across.run_folder()
    training = server.train(run)
    first = next(training)
    across.stop(2)
    assert next(training).dropped == ("silo-2",)
    kept = {silo: ring_of(across, silo).sets[-1].digest for silo in (0, 1, 3)}
    across.start(2)
    last = next(training)
    assert first.survivors == last.survivors == across.roster.names
    digests = {ring_of(across, silo).sets[-1].digest for silo in range(4)}
    assert len(digests) == 1
    assert digests.isdisjoint(kept.values())
    noted = [detail["keys"] for event, detail in run.events if event == "invited"]
    assert noted[0] == noted[1] != noted[2] == digests.pop().hex()


def test_keys_that_do_not_go_round_leave_those_that_there_are_in_use(federation) -> None:
    """A silo comes back and greets; then too few answer the directory. The run goes on."""
    across = federation()
    server = across.server()
    server.greet()
    training = server.train(across.run_folder())
    across.stop(3)
    assert next(training).dropped == ("silo-3",)
    across.start(3)
    exchange = across.driver.exchange

    def losing(messages, *, deadline_seconds):
        first = next(iter(messages.values()))
        if type(decode_any(first)).__name__ == "KeyDirectory":
            return {}
        return exchange(messages, deadline_seconds=deadline_seconds)

    across.driver.exchange = losing
    assert next(training).survivors == ("silo-0", "silo-1", "silo-2")


@needs_kem
def test_a_policy_may_require_post_quantum_keys_of_everybody(federation, monkeypatch) -> None:
    strict = dict.fromkeys([f"silo-{n}" for n in range(4)], Policy(require_post_quantum=True))
    across = federation(policies=strict)
    server = across.server()
    server.greet()
    assert len(server.present) == 4
    across = federation(policies=strict)
    start = SiloSetup.start

    def without(identity, *args, **options):
        return start(identity, *args, **(options | {"post_quantum": identity.name != "silo-3"}))

    monkeypatch.setattr(silo_setup.SiloSetup, "start", without)
    server = across.server()
    with pytest.raises(EngineError, match="silo-3 have no ML-KEM-768 key"):
        server.greet()


# -- a round that is asked for again


def test_an_invitation_is_repeated_word_for_word_under_keys_that_went_round_since(
    federation,
) -> None:
    """Silos 0 and 1 have answered, 2 and 3 were away; then three server processes start, each of
    which passes keys round.
    """
    across = federation()
    summing = greeted(across)
    keys = summing._session.keys_digest
    asked = invitation(across, summing, 0)
    replies = {silo: across.parties[silo].handle(asked) for silo in (0, 1)}
    for turn in range(3):
        if turn == 1:
            for silo in (1, 3):  # and two silos' processes start again
                across.stop(silo)
                across.start(silo)
        summing = greeted(across)
    assert summing._session.keys_digest != keys
    assert invitation(across, summing, 0, keys) == asked
    for silo, reply in replies.items():
        assert across.parties[silo].handle(asked) == reply
    for silo in (2, 3):
        assert isinstance(across.ask(silo, asked), MaskedInput)
    summed = summing.sum(
        0, Invited(frozenset(range(4)), keys), np.zeros(across.agreement.plan.training.dimension)
    )
    assert summed.survivors == frozenset(range(4))
    # and the next round is under the newest
    newest = Invited(frozenset(range(4)), summing._session.keys_digest)
    assert len(summing.sum(1, newest, np.zeros(650)).survivors) == 4
    assert "not one that this silo has agreed on" in refused(
        across.ask(0, invitation(across, summing, 2, keys))
    )


@pytest.mark.parametrize("restarts", [1, 2])
def test_a_server_that_dies_more_than_once_repeats_the_round_under_its_first_keys(
    federation, restarts
) -> None:
    across = federation()
    run = across.run_folder()
    exchange, seen = across.driver.exchange, []

    def dying(messages, *, deadline_seconds):
        answers = exchange(messages, deadline_seconds=deadline_seconds)
        first = decode_any(next(iter(messages.values())))
        if isinstance(first, Invitation):
            seen.append((first.header, answers))
            raise Crash
        return answers

    across.driver.exchange = dying
    for _ in range(restarts):
        with RunFolder.open(run.path, resume=True) if seen else run as folder:
            server = across.server()
            server.greet()
            with pytest.raises(Crash):
                list(server.train(folder))
    across.driver.exchange = exchange
    server = across.server()
    server.greet()
    with RunFolder.open(run.path, resume=True) as resumed:
        records = list(server.train(resumed))
        assert [record.round for record in records] == [1, 2, 3]
        assert len([event for event, _ in resumed.events if event == "invited"]) == 3
    assert len({header.transcript for header, _ in seen}) == 1
    assert all(answers == seen[0][1] for _, answers in seen)
    entries = Ledger.of_dataset("digits", state=across.folder("silo-0")).entries()
    assert [entry.round for entry in entries] == [1, 2, 3]


# -- disks


def crashing_at(point: int, when: str) -> Callable[[int], None]:
    """An fsync that ends the process at its `point`-th call, before or after it."""
    real, calls = os.fsync, [0]

    def fsync(descriptor: int) -> None:
        calls[0] += 1
        if calls[0] == point and when == "before":
            raise Crash
        real(descriptor)
        if calls[0] == point:
            raise Crash

    fsync.calls = calls  # type: ignore[attr-defined]
    return fsync


def reborn(across: LocalFederation, silo: int) -> None:
    across.stop(silo)
    across.start(silo)


@pytest.mark.parametrize("keys_go_round", [False, True])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_between_any_two_writes_never_gives_two_answers(
    federation, monkeypatch, when, keys_go_round
) -> None:
    """Every point of the claim, the ledger, the round memory and the stored answer."""
    across = federation({"federation.rounds": 60})
    outcomes, number = [], 0
    while True:
        summing = greeted(across)
        keys = summing._session.keys_digest
        asked = invitation(across, summing, number)
        fsync = crashing_at(number + 1, when)
        monkeypatch.setattr(os, "fsync", fsync)
        try:
            left = across.parties[0].handle(asked)
        except Crash:
            left = b""
        monkeypatch.undo()
        if left:
            assert fsync.calls[0] == number
            break
        reborn(across, 0)
        if keys_go_round:
            summing = greeted(across)
            assert invitation(across, summing, number, keys) == asked
        answers = {across.parties[0].handle(asked) for _ in range(2)}
        reborn(across, 0)
        answers.add(across.parties[0].handle(asked))
        masked = {reply for reply in answers if isinstance(decode_any(reply), MaskedInput)}
        assert len(masked) <= 1
        assert not masked or len(answers) == 1
        entries = Ledger.of_dataset("digits", state=across.folder("silo-0")).entries()
        mine = [entry for entry in entries if entry.round == number + 1]
        assert len(mine) <= 1
        assert not masked or mine
        outcomes.append(bool(masked))
        number += 1
    assert number >= 8
    # an early crash leaves the round to be answered, a late one has its answer stored
    assert outcomes[0]
    assert outcomes[-1]
    assert not all(outcomes)


def test_a_crash_while_keys_go_round_costs_a_greeting(federation, monkeypatch) -> None:
    across = federation()
    summing = greeted(across)
    keys = summing._session.keys_digest
    asked = invitation(across, summing, 0)
    reply = across.parties[0].handle(asked)
    left_out = []
    for point in range(1, 20):
        fsync = crashing_at(point, "before")

        def dying(party, message: bytes, fsync=fsync) -> bytes | None:
            with monkeypatch.context() as patch:
                patch.setattr(os, "fsync", fsync)
                try:
                    return party.handle(message)
                except Crash:
                    across.driver.silos[0] = lambda message: None
                    return None

        across.driver = InProcess(across.driver.silos | {0: partial(dying, across.parties[0])}, 1)
        server = across.server(replace(QUICK, set_up=0.2))
        server.greet()
        left_out.append("silo-0" not in server.present)
        reborn(across, 0)
        assert across.parties[0].handle(asked) == reply
    assert left_out[0]
    assert not left_out[-1]
    assert invitation(across, greeted(across), 0, keys) == asked


# -- a plan under another roster


def test_no_round_of_a_plan_is_answered_again_under_another_roster(federation) -> None:
    """A silo rotates its key: the plan goes on where it was, and its earlier rounds are over."""
    across = federation()
    for number in range(2):
        asked = invitation(across, greeted(across), number)
        assert isinstance(across.ask(0, asked), MaskedInput)
    across.stop(3)
    rotated = Identity.generate("silo-3", RandomSource())
    across.roster = Roster(
        across.roster.public_keys | {"silo-3": rotated.public_key}, across.identity.public_key
    )
    (across.folder("silo-3") / "identity.key").write_text(rotated.secret_text())
    for number in range(4):
        if number in across.parties:
            across.stop(number)
        name = across.roster.names[number]
        (across.folder(name) / "roster.toml").write_text(across.roster.to_text())
        across.start(number)
    summing = greeted(across)
    for number in range(2):
        told = across.ask(0, invitation(across, summing, number))
        assert isinstance(told, Refusal)
        assert "has answered round 2 already" in refused(told)
    assert isinstance(across.ask(0, invitation(across, summing, 2)), MaskedInput)
    assert isinstance(across.ask(3, invitation(across, summing, 2)), MaskedInput)
    # and back: what was answered under the new roster is over under the old one too
    assert across.parties[0]._memory.last_answered(bytes.fromhex(across.agreement.plan.hash)) == 4
    assert isinstance(decode_any(across.greeting()), Greeting)
