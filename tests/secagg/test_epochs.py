"""Rosters that follow each other: what a quorum is, what a silo signs, what leads from one roster
to the latest.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings, strategies as st

from sumus.errors import DataError
from sumus.randomness import RandomSource
from sumus.secagg import Identity, Roster
from sumus.secagg.epochs import (
    Endorsement,
    RosterHistory,
    changes_between,
    quorum_of,
    successor,
)
from sumus.secagg.terms import Terms


def identities(*names: str) -> dict[str, Identity]:
    return {name: Identity.generate(name, RandomSource()) for name in names}


PEOPLE = identities("Bergen", "Graz", "Oulu", "Turku", "server", "Vaasa")
FIRST = Roster.of(PEOPLE["server"], [PEOPLE[name] for name in ("Bergen", "Graz", "Oulu", "Turku")])


def endorsed(roster: Roster, *names: str) -> list[Endorsement]:
    return [Endorsement.sign(PEOPLE[name], roster) for name in names]


@pytest.mark.parametrize("silos", range(1, 8))
def test_two_quorums_share_more_silos_than_may_collude_and_one_less_does_not(silos: int) -> None:
    """By enumeration of all pairs of quorums."""
    keys = {f"silo-{number}": bytes([number + 1]) * 32 for number in range(silos)}
    for colluding in range(silos):
        needed = quorum_of(Roster(keys, b"s" * 32, colluding=colluding))
        assert 1 <= needed <= silos
        groups = [set(group) for group in combinations(range(silos), needed)]
        assert min(len(a & b) for a in groups for b in groups) > colluding
        if needed > 1:
            fewer = [set(group) for group in combinations(range(silos), needed - 1)]
            assert min(len(a & b) for a in fewer for b in fewer) <= colluding


def test_whoever_can_train_can_agree_on_a_roster() -> None:
    """No plan on N silos needs fewer for a round than a quorum, or a quorum more than a plan."""
    for silos in range(1, 30):
        keys = {f"silo-{number}": bytes([number + 1]) * 32 for number in range(silos)}
        for colluding in range(silos):
            for dropouts in range((silos - colluding - 1) // 2 + 1):
                terms = Terms(
                    plan_hash=bytes(32),
                    silos=silos,
                    length=1,
                    dropouts=dropouts,
                    colluding=colluding,
                )
                roster = Roster(keys, b"s" * 32, colluding=colluding)
                assert quorum_of(roster) <= terms.threshold


def test_a_roster_that_does_not_say_assumes_what_a_plan_does() -> None:
    for silos, colluding in ((1, 0), (2, 0), (3, 1), (9, 1)):
        keys = {f"silo-{number}": bytes([number + 1]) * 32 for number in range(silos)}
        assert Roster(keys, b"s" * 32).assumed_colluding == colluding
    with pytest.raises(DataError, match="colluding"):
        Roster({"a": b"a" * 32}, b"s" * 32, colluding=1)


def test_number_previous_and_assumption_are_part_of_the_fingerprint() -> None:
    digests = {
        FIRST.digest(),
        replace(FIRST, epoch=1).digest(),
        replace(FIRST, previous=b"p" * 32).digest(),
        replace(FIRST, colluding=1).digest(),
        replace(FIRST, colluding=0).digest(),
    }
    assert len(digests) == 5


def test_admission_retirement_and_rotation_make_the_next_roster() -> None:
    fresh = identities("Graz")["Graz"]
    after = successor(
        FIRST,
        admitted={"Vaasa": PEOPLE["Vaasa"].public_key},
        retired=["Oulu"],
        rotated={"Graz": fresh.public_key, "server": b"n" * 32},
    )
    assert after.names == ("Bergen", "Graz", "Turku", "Vaasa")
    assert (after.epoch, after.previous) == (1, FIRST.digest())
    assert after.public_keys["Graz"] == fresh.public_key
    assert changes_between(FIRST, after) == [
        "admits Vaasa",
        "retires Oulu",
        "new key of Graz",
        "new key of the server",
    ]
    assert Roster.parse(after.to_text()) == after
    with pytest.raises(DataError, match="on the roster already"):
        successor(FIRST, admitted={"Graz": b"k" * 32})
    with pytest.raises(DataError, match="not on the roster"):
        successor(FIRST, retired=["Vaasa"])
    with pytest.raises(DataError, match="has that key already"):
        successor(FIRST, rotated={"Graz": PEOPLE["Graz"].public_key})
    with pytest.raises(DataError, match="same key"):
        successor(FIRST, admitted={"Vaasa": PEOPLE["Oulu"].public_key})


def test_a_chain_of_quorums_leads_from_any_trusted_roster_to_the_latest() -> None:
    first = RosterHistory.of(FIRST)
    second = successor(FIRST, admitted={"Vaasa": PEOPLE["Vaasa"].public_key})
    history = first.extended(second, endorsed(second, "Bergen", "Graz", "Turku"))
    third = successor(second, retired=["Oulu"])
    # the silo that came counts from now on, and the one that leaves need not agree
    history = history.extended(third, endorsed(third, "Bergen", "Graz", "Turku", "Vaasa"))
    again = RosterHistory.parse(history.to_text())
    assert again == history
    for trusted in (FIRST, second, third):
        assert again.since(trusted.digest()) == third
    assert again.first == FIRST
    with pytest.raises(DataError, match="none of the rosters 0 to 2"):
        again.since(bytes(32))


def test_the_first_roster_is_number_0_and_follows_none() -> None:
    for changed in (replace(FIRST, epoch=1), replace(FIRST, previous=b"p" * 32)):
        with pytest.raises(DataError, match="must be roster 0 and follow none"):
            RosterHistory.of(changed)


def test_an_endorsement_is_a_line_of_text() -> None:
    made = Endorsement.sign(PEOPLE["Graz"], FIRST)
    assert Endorsement.parse(made.to_text()) == made
    line = made.to_text()
    for broken in ("", "Graz", line.replace("ed25519-signature:", ""), line + line, line[:-9]):
        with pytest.raises(DataError, match="an endorsement names"):
            Endorsement.parse(broken)


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=200))
def test_whatever_is_no_history_is_one_line_of_error(text: str) -> None:
    for parse in (RosterHistory.parse, Endorsement.parse, Roster.parse):
        with pytest.raises(DataError):
            parse(text)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_a_changed_history_is_refused_or_the_same(data: st.DataObject) -> None:
    """Any change of a byte: not parsed, not linked, not signed, or without effect."""
    second = successor(FIRST, admitted={"Vaasa": PEOPLE["Vaasa"].public_key})
    history = RosterHistory.of(FIRST).extended(second, endorsed(second, "Bergen", "Graz", "Turku"))
    raw = bytearray(history.to_text().encode())
    place = data.draw(st.integers(0, len(raw) - 1))
    raw[place] ^= data.draw(st.integers(1, 255))
    try:
        changed = RosterHistory.parse(raw.decode())
        assert changed.since(FIRST.digest()) == second
    except (DataError, UnicodeDecodeError):
        pass
