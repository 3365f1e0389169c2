"""A coordinator wants a silo of its own on the roster, or an old roster back: with enough sybils
beside one honest silo, the "sum" is that silo's own vector.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sumus.books import Policy
from sumus.cli import main
from sumus.errors import DataError
from sumus.parties import settle
from sumus.randomness import RandomSource
from sumus.secagg import Identity, Roster
from sumus.secagg.epochs import Endorsement, Epoch, RosterHistory, successor
from support.kits import bare_kit

NAMES = ("Bergen", "Graz", "Oulu", "Turku", "Vaasa")
HONEST = {name: Identity.generate(name, RandomSource()) for name in NAMES}
SERVER, SYBIL = (Identity.generate(name, RandomSource()) for name in ("server", "Sybil"))
FIRST = Roster.of(SERVER, HONEST.values())
WITH_SYBIL = successor(FIRST, admitted={"Sybil": SYBIL.public_key})
QUORUM = NAMES[:4]  # ⌊(5 + 1)/2⌋ + 1


def endorsed(roster: Roster, names: tuple[str, ...]) -> list[Endorsement]:
    return [Endorsement.sign(HONEST[name], roster) for name in names]


def forged(roster: Roster, endorsements: list[Endorsement]) -> RosterHistory:
    """What a coordinator writes into a file: nothing stops it from writing anything."""
    signatures = {each.silo: each.signature for each in endorsements}
    return RosterHistory((Epoch(FIRST, {}), Epoch(roster, signatures)))


def test_a_quorum_of_honest_signatures_is_believed() -> None:
    """The control: the same file with four true signatures changes the roster."""
    assert forged(WITH_SYBIL, endorsed(WITH_SYBIL, QUORUM)).since(FIRST.digest()) == WITH_SYBIL


def test_with_too_few_signatures() -> None:
    for count in range(4):
        history = forged(WITH_SYBIL, endorsed(WITH_SYBIL, NAMES[:count]))
        with pytest.raises(DataError, match=f"signed by {count} of the 5 silos.*and needs 4"):
            history.since(FIRST.digest())


def test_with_its_own_signatures() -> None:
    """Of silos that are not on the roster before, of the server, or in others' names."""
    three = endorsed(WITH_SYBIL, NAMES[:3])
    own = Endorsement.sign(SYBIL, WITH_SYBIL)
    for name in ("Sybil", "server", "Turku"):
        with pytest.raises(DataError, match="signed by 3 of"):
            forged(WITH_SYBIL, [*three, replace(own, silo=name)]).since(FIRST.digest())
    server = replace(Endorsement.sign(SERVER, WITH_SYBIL), silo="server")
    with pytest.raises(DataError, match="signed by 3 of"):
        forged(WITH_SYBIL, [*three, server]).since(FIRST.digest())


def test_with_signatures_under_another_proposal() -> None:
    """The silos agreed to admit Ylitornio, or to the same change of another roster."""
    other = successor(FIRST, admitted={"Ylitornio": b"y" * 32})
    elsewhere = replace(WITH_SYBIL, previous=b"p" * 32)
    for signed in (other, elsewhere, FIRST):
        with pytest.raises(DataError, match="signed by 0 of"):
            forged(WITH_SYBIL, endorsed(signed, NAMES)).since(FIRST.digest())


def test_with_a_signature_that_was_meant_for_a_message() -> None:
    """What a silo signs in the protocol, or for a survivor set, is no endorsement."""
    digest = WITH_SYBIL.digest()
    for message in (digest, b"sumus message 2" + digest, b"sumus roster 2" + digest):
        signed = [
            Endorsement(name, digest, identity.sign(message)) for name, identity in HONEST.items()
        ]
        with pytest.raises(DataError, match="signed by 0 of"):
            forged(WITH_SYBIL, signed).since(FIRST.digest())


def test_with_the_key_of_a_silo_that_has_left() -> None:
    """Oulu leaves; its key, wherever it is by then, counts for no later roster."""
    without = successor(FIRST, retired=["Oulu"])
    history = RosterHistory.of(FIRST).extended(without, endorsed(without, QUORUM))
    third = successor(without, admitted={"Sybil": SYBIL.public_key})
    # four silos are left, and three of them must sign
    signatures = {each.silo: each.signature for each in endorsed(third, ("Bergen", "Graz", "Oulu"))}
    with pytest.raises(DataError, match=r"signed by 2 of the 4 .*and needs 3"):
        RosterHistory((*history.epochs, Epoch(third, signatures))).since(FIRST.digest())
    signatures |= {each.silo: each.signature for each in endorsed(third, ("Turku",))}
    assert RosterHistory((*history.epochs, Epoch(third, signatures))).since(FIRST.digest()) == third


def test_with_the_key_that_a_silo_has_replaced() -> None:
    fresh = Identity.generate("Oulu", RandomSource())
    rotated = successor(FIRST, rotated={"Oulu": fresh.public_key})
    history = RosterHistory.of(FIRST).extended(rotated, endorsed(rotated, QUORUM))
    third = successor(rotated, admitted={"Sybil": SYBIL.public_key})
    three = endorsed(third, ("Bergen", "Graz", "Turku"))
    stolen = Endorsement.sign(HONEST["Oulu"], third)
    with pytest.raises(DataError, match="signed by 3 of the 5"):
        history.extended(third, [*three, stolen])
    assert history.extended(third, [*three, Endorsement.sign(fresh, third)]).current == third


def test_by_bringing_an_old_roster_back() -> None:
    """A rollback: whoever has accepted roster 1 takes neither roster 0 nor another roster 1."""
    rotated = successor(FIRST, rotated={"Oulu": b"o" * 32})
    newer = RosterHistory.of(FIRST).extended(rotated, endorsed(rotated, QUORUM))
    assert newer.since(rotated.digest()) == rotated
    older = RosterHistory.of(FIRST)
    fork = forged(WITH_SYBIL, endorsed(WITH_SYBIL, QUORUM))
    for history in (older, fork):
        assert history.since(FIRST.digest())  # the control: roster 0 alone would have led there
        with pytest.raises(DataError, match="an older or another one was put in its place"):
            history.since(rotated.digest())


def test_by_leaving_a_roster_out() -> None:
    rotated = successor(FIRST, rotated={"Oulu": b"o" * 32})
    third = successor(rotated, admitted={"Sybil": SYBIL.public_key})
    with pytest.raises(DataError, match="roster 2 does not follow roster 0"):
        forged(third, endorsed(third, NAMES))
    renumbered = replace(third, epoch=1)
    with pytest.raises(DataError, match="roster 1 does not follow roster 0"):
        forged(renumbered, endorsed(renumbered, NAMES))


def test_two_next_rosters_cannot_both_be_believed_while_at_most_one_silo_signs_twice() -> None:
    """Bergen signs whatever it is shown; every division of the other four between two rosters."""
    other = successor(FIRST, retired=["Graz"])
    for division in range(2**4):
        sides: tuple[list[str], list[str]] = (["Bergen"], ["Bergen"])
        for place, name in enumerate(NAMES[1:]):
            sides[division >> place & 1].append(name)
        believed = 0
        for roster, names in zip((WITH_SYBIL, other), sides, strict=True):
            try:
                forged(roster, endorsed(roster, tuple(names))).since(FIRST.digest())
                believed += 1
            except DataError:
                pass
        assert believed <= 1


# -- the same by what a silo's people run

PLAN = """
[privacy]
epsilon = 2.0
delta = 1e-4
[federation]
silos = 4
rounds = 2
local_steps = 20
[data]
name = "digits"
"""


class Joining:
    """Silo-0 of four, with a policy that names the first roster, and kits that bring others."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys = folder, capsys
        names = [f"silo-{number}" for number in range(4)]
        self.people = {name: Identity.generate(name, RandomSource()) for name in names}
        self.first = Roster.of(SERVER, self.people.values())
        fresh = Identity.generate("silo-3", RandomSource())
        self.next = successor(self.first, rotated={"silo-3": fresh.public_key})
        self.vault = folder / "vault"
        for name, text in (
            ("plan.toml", PLAN),
            ("silo-0.key", self.people["silo-0"].secret_text()),
            ("policy.toml", f'roster_fingerprint = "{self.first.digest().hex()}"\n'),
        ):
            (folder / name).write_text(text)

    def signed(self, *names: str) -> RosterHistory:
        """The next roster with some signatures, enough or not."""
        made = [Endorsement.sign(self.people[name], self.next) for name in names]
        signatures = {each.silo: each.signature for each in made}
        return RosterHistory((Epoch(self.first, {}), Epoch(self.next, signatures)))

    def check(self, trusted: Roster, rosters: RosterHistory | None) -> tuple[int, str]:
        """A dry run with a kit that brings this; exit code and what was said."""
        kit = bare_kit(self.folder / "kit", "silo-0", trusted)
        if rosters is not None:
            (kit / "sumus" / "epochs.toml").write_text(rosters.to_text())
        files = {"identity": "silo-0.key", "policy": "policy.toml", "plan": "plan.toml"}
        own = [word for key, name in files.items() for word in (f"--{key}", self.folder / name)]
        words = ["join", kit, "--data", "digits", *own, "--vault", self.vault, "--check"]
        code = main([str(word) for word in words])
        return code, self._capsys.readouterr().err

    def settle(self, rosters: RosterHistory) -> None:
        policy = (self.folder / "policy.toml").read_text()
        settle(
            self.vault,
            identity=self.people["silo-0"],
            roster=rosters,
            data="digits",
            policy=Policy.from_toml(policy),
            policy_text=policy,
        )


@pytest.fixture
def joining(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Joining:
    return Joining(tmp_path, capsys)


def test_join_follows_a_chain_from_the_pinned_roster_and_nothing_else(joining: Joining) -> None:
    enough = joining.signed("silo-0", "silo-1", "silo-2")
    few = joining.signed("silo-0", "silo-1")
    assert joining.check(joining.first, None)[0] == 0
    assert joining.check(joining.first, enough)[0] == 0
    # a kit that was made later trusts the later roster itself; the policy does not take its word
    assert joining.check(joining.next, enough)[0] == 0
    for trusted in (joining.first, joining.next):
        code, said = joining.check(trusted, few)
        assert code != 0
        assert "signed by 2 of the 4 silos of roster 0" in said
    assert joining.check(joining.next, None)[0] != 0
    assert not joining.vault.exists()


def test_join_goes_back_to_no_earlier_roster(joining: Joining) -> None:
    enough = joining.signed("silo-0", "silo-1", "silo-2")
    joining.settle(RosterHistory.of(joining.first))
    assert joining.check(joining.first, None)[0] == 0  # the control
    assert joining.check(joining.first, enough)[0] == 0
    joining.settle(enough)
    assert joining.check(joining.first, enough)[0] == 0
    code, said = joining.check(joining.first, None)
    assert code != 0
    assert "an older or another one was put in its place" in said
