"""A roster that changes while a plan runs: no finished round is lost, and no silo follows a roster
that its quorum has not signed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sumus.books import Ledger, Policy, RunFolder
from sumus.errors import DataError, ProtocolError, StorageError
from sumus.parties import (
    SecureSum,
    ServerParty,
    audit_evidence,
    read_rosters,
    rosters_of,
    settle,
)
from sumus.parties.memory import stored_session
from sumus.plan import TrainingPlan
from sumus.randomness import RandomSource
from sumus.runs import Start, finish, is_over, open_run
from sumus.secagg import Endorsement, Identity, KeyRing, Roster, RosterHistory, successor
from support.local_federation import QUICK, LocalFederation, plan, refused


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[LocalFederation]:
    made = LocalFederation(tmp_path, plan({"federation.rounds": 4}))
    yield made
    made.close()


def agreed(federation: LocalFederation, after: Roster, *names: str) -> RosterHistory:
    """The rosters up to one that these silos have signed."""
    signed = [Endorsement.sign(federation.identities[name], after) for name in names]
    return RosterHistory.of(federation.roster).extended(after, signed)


def rotated(federation: LocalFederation, name: str) -> tuple[Identity, RosterHistory]:
    fresh = Identity.generate(name, RandomSource())
    after = successor(federation.roster, rotated={name: fresh.public_key})
    others = [each for each in federation.roster.names if each != name]
    return fresh, agreed(federation, after, *others)


def adopt(federation: LocalFederation, name: str, rosters: Roster | RosterHistory) -> None:
    """What `sumus join` does with a silo's folder; the silo's process is not there meanwhile."""
    settle(
        federation.folder(name),
        identity=federation.identities[name],
        roster=rosters,
        data="digits",
        policy=Policy(),
        policy_text="",
    )


def everybody_adopts(federation: LocalFederation, rosters: RosterHistory) -> None:
    for number, name in enumerate(federation.roster.names):
        federation.stop(number)
        adopt(federation, name, rosters)
        federation.start(number)
    federation.roster = rosters.current


def trained(
    federation: LocalFederation,
    *,
    rounds: int | None = None,
    rosters: RosterHistory | None = None,
) -> list[int]:
    """Numbers of the rounds that one job of the server trains."""
    server = federation.server()
    server.greet()
    with open_run(
        federation.agreement,
        federation.roster,
        federation.root / "server",
        simulated=False,
        rosters=rosters,
    ) as run:
        numbers = [entry.round for entry in server.train(run, rounds=rounds)]
        if is_over(run):
            finish(run, server)
    return numbers


def test_a_rotated_key_costs_no_finished_round_and_the_ledger_goes_on(
    federation: LocalFederation,
) -> None:
    assert trained(federation, rounds=2) == [1, 2]
    federation.identities["silo-1"], rosters = rotated(federation, "silo-1")
    everybody_adopts(federation, rosters)
    with pytest.raises(DataError):  # a server that cannot show how it came to this roster
        trained(federation)
    assert trained(federation, rosters=rosters) == [3, 4]
    run = RunFolder.open(next((federation.root / "server").glob("*/*/journal.jsonl")).parent)
    both = [epoch.roster for epoch in rosters.epochs]
    assert audit_evidence(run, federation.agreement, rosters_of(rosters.to_text())).passed
    for one in both:  # each of the two signed for some of the rounds
        assert not audit_evidence(run, federation.agreement, [one]).passed
    for name in federation.roster.names:
        entries = Ledger.of_dataset("digits", state=federation.folder(name)).entries()
        assert [entry.round for entry in entries] == [1, 2, 3, 4]
        assert len({entry.run for entry in entries}) == 1
        assert entries[-1].epsilon == pytest.approx(2.0, rel=1e-3)


def test_a_silo_with_the_old_key_or_the_old_roster_takes_no_part(
    federation: LocalFederation,
) -> None:
    old = federation.roster
    greeting = federation.greeting()
    federation.identities["silo-1"], rosters = rotated(federation, "silo-1")
    for number in (0, 2, 3):
        name = old.names[number]
        federation.stop(number)
        adopt(federation, name, rosters)
        federation.start(number)
    # the old session is over for whoever has followed, and the control: not for who has not
    assert "roster" in refused(federation.ask(0, greeting))
    assert federation.ask(1, greeting).__class__.__name__ == "Welcome"
    federation.roster = rosters.current
    server = federation.server()
    server.greet()
    assert server.present == ("silo-0", "silo-2", "silo-3")
    assert set(server.refusals) == {"silo-1"}


def test_a_silo_that_comes_goes_on_from_the_released_model(tmp_path: Path) -> None:
    """Four silos train two rounds of four; a fifth is admitted, and a new plan goes on."""
    first = LocalFederation(tmp_path / "first", plan({"federation.rounds": 4}))
    assert trained(first, rounds=2) == [1, 2]
    path = next((first.root / "server" / first.agreement.plan.hash).iterdir())
    start = Start.read(path)
    assert (start.origin.run, start.origin.round) == (path.name, 2)
    fresh = Identity.generate("silo-4", RandomSource())
    after = successor(first.roster, admitted={"silo-4": fresh.public_key})
    rosters = agreed(first, after, "silo-0", "silo-1", "silo-3")
    agreed_plan: TrainingPlan = plan(
        {"federation.silos": 5, "federation.rounds": 2, "training.start_from": start.hash}
    )
    second = LocalFederation(tmp_path / "second", agreed_plan)
    second.identity, second.identities = first.identity, {**first.identities, "silo-4": fresh}
    for number, name in enumerate(second.roster.names):
        second.stop(number)
        for file in ("identity.key", "roster.toml"):
            (second.folder(name) / file).unlink()
        if name in first.identities:
            adopt(second, name, first.roster)
        adopt(second, name, rosters)
        second.start(number)
    second.roster = rosters.current
    summing = SecureSum(
        second.agreement, second.roster, second.driver, identity=second.identity, patience=QUICK
    )
    server = ServerParty(second.agreement, summing, start=start.parameters)
    server.greet()
    assert len(server.present) == 5
    with open_run(
        second.agreement, second.roster, first.root / "server", simulated=False, start=start
    ) as run:
        assert [entry.round for entry in server.train(run)] == [1, 2]
        assert run.start == start.origin
    first.close()
    second.close()


def test_a_silo_follows_a_signed_roster_only(federation: LocalFederation) -> None:
    fresh = Identity.generate("silo-1", RandomSource())
    after = successor(federation.roster, rotated={"silo-1": fresh.public_key})
    federation.stop(0)
    for unsigned in (after, federation.roster.__class__.of(federation.identity, [fresh])):
        with pytest.raises((DataError, StorageError)):
            adopt(federation, "silo-0", unsigned)
    assert read_rosters(federation.folder("silo-0")).current == federation.roster
    adopt(federation, "silo-0", agreed(federation, after, "silo-0", "silo-2", "silo-3"))
    assert read_rosters(federation.folder("silo-0")).current == after
    federation.start(0)


def test_a_silo_goes_back_to_no_earlier_roster(federation: LocalFederation) -> None:
    _, rosters = rotated(federation, "silo-1")
    federation.stop(0)
    adopt(federation, "silo-0", rosters)
    with pytest.raises(StorageError, match="is another one already"):
        adopt(federation, "silo-0", federation.roster)
    assert read_rosters(federation.folder("silo-0")).current.epoch == 1
    federation.start(0)


def test_a_chain_that_was_changed_on_the_disk_is_not_followed(federation: LocalFederation) -> None:
    _, rosters = rotated(federation, "silo-1")
    federation.stop(0)
    folder = federation.folder("silo-0")
    adopt(federation, "silo-0", rosters)
    (folder / "roster.toml").write_text(federation.roster.to_text())
    # quorums lead on from the first roster, so whoever trusts it arrives at the same one
    assert read_rosters(folder).current == rosters.current
    text = (folder / "epochs.toml").read_text()
    start = text.index('endorsements = {"silo-0" = "') + len('endorsements = {"silo-0" = "')
    swapped = "A" if text[start] != "A" else "B"
    (folder / "epochs.toml").write_text(text[:start] + swapped + text[start + 1 :])
    with pytest.raises(DataError, match="signed by 2 of the 4"):
        read_rosters(folder)
    (folder / "epochs.toml").unlink()
    (folder / "roster.toml").write_text(rosters.current.to_text())
    with pytest.raises(DataError, match="must be roster 0 and follow none"):
        read_rosters(folder)
    (folder / "epochs.toml").write_text(rosters.to_text())
    federation.start(0)


def test_no_round_number_is_answered_again_under_a_later_roster(
    federation: LocalFederation,
) -> None:
    """A hostile server asks for round 2 once more, as if the plan began anew: it would get a second
    sum with fresh noise for a round that silos count once.
    """
    assert trained(federation, rounds=2) == [1, 2]
    federation.identities["silo-1"], rosters = rotated(federation, "silo-1")
    everybody_adopts(federation, rosters)
    server = federation.server()
    server.greet()
    with pytest.raises(ProtocolError):
        server.round(1)
    assert all("has answered round 2 already" in reason for reason in server.refusals.values())
    assert len(server.refusals) == 4
    entries = Ledger.of_dataset("digits", state=federation.folder("silo-0")).entries()
    assert [entry.round for entry in entries] == [1, 2]
    # the control: the next round is answered, by the same silos in the same session
    again = federation.server()
    again.greet()
    assert len(again.round(2).summed.survivors) == 4


def test_a_later_roster_leaves_nothing_that_opens_what_was_sent_before(
    federation: LocalFederation,
) -> None:
    def rings() -> list[KeyRing]:
        folder = federation.folder("silo-0") / "sessions"
        return [stored_session(path)[1] for path in sorted(folder.glob("*/keys"))]

    assert trained(federation, rounds=2) == [1, 2]
    (before,) = rings()
    assert before.sets
    assert before.round is not None
    assert before.round.own_key
    assert before.round.pair_keys
    _, rosters = rotated(federation, "silo-1")
    federation.stop(0)
    adopt(federation, "silo-0", rosters)
    (after,) = rings()
    assert after.round is not None
    assert after.round.sequence == before.round.sequence
    assert (after.sets, after.pending, after.round.own_key, after.round.reply) == (
        (),
        b"",
        b"",
        b"",
    )
    assert not after.round.pair_keys
    secrets = [before.round.own_key, *before.round.pair_keys.values(), before.round.reply[-64:]]
    secrets += [root for known in before.sets for root in known.roots.values()]
    for path in federation.folder("silo-0").rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        assert not any(secret in content for secret in secrets), path
    federation.start(0)
