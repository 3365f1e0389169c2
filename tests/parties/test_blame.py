"""A run with a liar among its silos: rounds go on, the journal says who disagreed, and a server that is
started again remembers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sumus.books import RunFolder
from sumus.parties import SiloParty, audit_evidence
from sumus.parties.blame import Blame
from sumus.secagg import Disagreements
from sumus.secagg.messages import MaskedInput, Message, RevealedShares, decode_any
from support.local_federation import LocalFederation, plan

NAMES = tuple(f"silo-{number}" for number in range(5))
Lie = Callable[[Message], Message]


@pytest.fixture
def across(tmp_path: Path):
    made = LocalFederation(tmp_path, plan({"federation.rounds": 4}))
    yield made
    made.close()


def lies(across: LocalFederation, number: int, lie: Lie) -> None:
    """From now on this silo's messages are changed before they leave it."""

    def handler(party: SiloParty, message: bytes) -> bytes:
        reply = party.handle(message)
        honest = decode_any(reply)
        changed = lie(honest)
        return reply if changed is honest else changed.encode(party._memory.identity)

    party = across.parties[number]
    across.driver.silos[number] = lambda message: handler(party, message)


def wrong_share_of_the_last(message: Message) -> Message:
    if not isinstance(message, RevealedShares):
        return message
    shares = bytearray(message.shares)
    shares[-1] ^= 1
    return replace(message, shares=bytes(shares))


def wrong_tags(message: Message) -> Message:
    if not isinstance(message, MaskedInput):
        return message
    return replace(message, tags=bytes(byte ^ 1 for byte in message.tags))


def trained(across: LocalFederation, run: RunFolder, rounds: int | None = None):
    server = across.server()
    server.greet()
    return list(server.train(run, rounds=rounds))


def test_a_wrong_share_in_every_round_loses_none(across) -> None:
    lies(across, 0, wrong_share_of_the_last)
    with across.run_folder() as run:
        entries = trained(across, run)
        names = across.roster.names
        assert [entry.round for entry in entries] == [1, 2, 3, 4]
        line = f"{names[0]} and {names[3]} disagree about a share: one of the two lied"
        assert {entry.notes for entry in entries} == {(line,)}
        # without either of them no share would be left to spare, so both stay
        assert {entry.survivors for entry in entries} == {names}


def test_where_enough_silos_are_there_the_pair_takes_turns(tmp_path: Path) -> None:
    across = LocalFederation(tmp_path, plan({"federation.silos": 6, "federation.dropouts": 2}))
    lies(across, 0, wrong_share_of_the_last)
    with across.run_folder() as run:
        first, second, third = trained(across, run)
    names = across.roster.names
    assert first.notes == (
        f"{names[0]} and {names[5]} disagree about a share: one of the two lied",
    )
    assert second.dropped == (names[5],)
    # without silo 5 the liar spoils its share of silo 4: it has disagreed with two by then
    assert second.notes == (f"{names[0]} lied about shares: it is left out from the next round on",)
    assert third.dropped == (names[0],)
    across.close()


def test_a_silo_with_tags_that_fit_nothing_costs_one_round_and_is_left_out(across) -> None:
    lies(across, 2, wrong_tags)
    with across.run_folder() as run:
        entries = trained(across, run)
        name = across.roster.names[2]
        assert [entry.round for entry in entries] == [2, 3, 4]
        assert all(entry.dropped == (name,) for entry in entries)
        assert entries[0].notes == (
            f"{name} lied about shares: it is left out from the next round on",
        )
        (reason,) = [detail["reason"] for event, detail in run.events if event == "aborted"]
        assert reason == f"round 1 is lost: {entries[0].notes[0]}."


def test_a_server_that_is_started_again_leaves_the_liar_out_at_once(across) -> None:
    lies(across, 2, wrong_tags)
    with across.run_folder() as run:
        assert [entry.round for entry in trained(across, run, rounds=1)] == [2]
        again = trained(across, run)
        assert [entry.round for entry in again] == [3, 4]
        assert [event for event, _ in run.events].count("aborted") == 1
        (told,) = [detail for event, detail in run.events if event == "disagreed"]
        assert told["liars"] == [across.roster.names[2]]
        # the evidence holds the signed messages that prove it to whoever has roster and plan
        audit = audit_evidence(run, across.agreement, [across.roster])
        assert audit.findings == ()
        assert audit.accused == (f"round 1: {across.roster.names[2]} lied",)


def test_a_journal_that_blames_a_silo_without_proof_is_contradicted(across) -> None:
    lies(across, 0, wrong_share_of_the_last)
    names = across.roster.names
    with across.run_folder() as run:
        trained(across, run, rounds=1)
        audit = audit_evidence(run, across.agreement)
        assert audit.passed
        assert audit.accused == (f"round 1: {names[3]} or {names[0]} lied",)
        run.note(
            "disagreed",
            {"round": 1, "pairs": [[names[1], names[2]]], "liars": [names[3]], "unopened": []},
        )
        audit = audit_evidence(run, across.agreement)
        assert audit.findings == (
            f"round 1: the journal blames {names[1]} and {names[2]}, which no signed message "
            "proves",
            f"round 1: the journal blames {names[3]}, which no signed message proves",
        )


def test_who_is_left_out_gives_way_to_rounds_that_need_everybody() -> None:
    blame = Blame(NAMES, colluding=1)
    blame.note(0, Disagreements(pairs=frozenset({(1, 3)}), unopened=frozenset({2})))
    everybody = frozenset(range(5))
    assert blame.invited(everybody, 1, least=4) == everybody
    assert blame.invited(everybody, 1, least=3) == everybody - {2}
    assert blame.invited(everybody, 1, least=2) == everybody - {2, 3}
    blame.note(1, Disagreements(liars=frozenset({4})))
    assert blame.invited(everybody, 2, least=5) == everybody - {4}


def test_a_silo_that_stays_closed_rests_twice_as_long_each_time() -> None:
    blame = Blame(NAMES, colluding=1)
    absent, number = [], 0
    while number < 40:
        if 2 in blame.invited(frozenset(range(5)), number, least=3):
            blame.note(number, Disagreements(unopened=frozenset({2})))
            absent.append(number)
        number += 1
    assert absent == [0, 2, 5, 10, 19, 36]


def test_what_the_journal_says_is_what_was_noted() -> None:
    blame, again = Blame(NAMES, colluding=1), Blame(NAMES, colluding=1)
    blame.note(0, Disagreements(pairs=frozenset({(1, 3), (4, 4)})))
    blame.note(1, Disagreements(unopened=frozenset({2}), liars=frozenset({0})))
    again.recall(blame.unwritten())
    assert (again.liars, again.pairs) == (blame.liars, blame.pairs) == ({0, 4}, ((1, 3),))
    for number in range(6):
        everybody = frozenset(range(5))
        assert again.invited(everybody, number, least=2) == blame.invited(
            everybody, number, least=2
        )
    assert not list(again.unwritten())
