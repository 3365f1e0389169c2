"""Whoever starts several approved plans at once wants more of a silo's ε than its people allow, or
the part of it that a run which has begun still needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from sumus.books import Ledger, LedgerReleases, Policy
from sumus.parties import ServerParty, agree_on, round_identifier
from sumus.parties.sums import pack_model
from sumus.secagg.messages import MaskedInput
from support.local_federation import LocalFederation, plan

LIMIT = 3.0
"""Of one plan with ε = 2 there is room for; of two there is not."""


class Attacker:
    """A server with the right key, and two plans that every silo has approved."""

    def __init__(self, root: Path) -> None:
        first, second = plan(), plan({"training.learning_rate": 0.5})
        self.across = LocalFederation(root, first, policies={"silo-0": Policy(max_epsilon=LIMIT)})
        for name in self.across.roster.names:
            path = self.across.folder(name) / "plans" / "second.toml"
            path.write_text(second.to_toml())
        self.servers: list[ServerParty] = []
        for each in (first, second):
            self.across.agreement = agree_on(each)
            self.servers.append(self.across.server())
            self.servers[-1].greet()

    def begun(self, which: int) -> bool:
        """Whether the silo has agreed to a plan."""
        return "silo-0" in self.servers[which].present

    def answered(self, which: int, number: int) -> bool:
        """Whether the silo sends its input for a round of a plan."""
        server = self.servers[which]
        asked, session = server.agreement.plan, server.summing._session
        assert session is not None
        names = self.across.roster.names
        message = session.invite(
            round_identifier(asked, number, server.summing.present),
            payload=pack_model(number, np.zeros(asked.training.dimension or 0)),
            sequence=2 * number,
            participants=frozenset(map(names.index, server.present)),
        )[1]
        return isinstance(self.across.ask(0, message), MaskedInput)

    @property
    def spent(self) -> float:
        folder = self.across.folder("silo-0")
        return Ledger.of_dataset("digits", state=folder).total("record").epsilon


@pytest.fixture
def attacker(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Attacker]:
    for name in getattr(request, "param", ()):
        if name == "reserve":
            monkeypatch.setattr(LedgerReleases, "reserve", lambda self, again=False: None)
        else:
            monkeypatch.setattr(Policy, name, lambda *arguments, **options: None)
    made = Attacker(tmp_path)
    yield made
    made.across.close()


def test_by_beginning_both_at_once(attacker: Attacker) -> None:
    """The second is refused when it is proposed; the first can end, within the limit."""
    assert attacker.begun(0)
    assert not attacker.begun(1)
    assert [attacker.answered(0, number) for number in range(3)] == [True, True, True]
    assert attacker.spent <= 2.0 + 1e-9
    log = (attacker.across.folder("silo-0") / "refusals.log").read_text()
    assert "set aside by runs that have not ended" in log


@pytest.mark.parametrize("attacker", [("reserve",)], indirect=True)
def test_without_the_reservation_both_begin_and_none_can_end(attacker: Attacker) -> None:
    """The first control: each was checked before the other had released anything."""
    assert attacker.begun(0)
    assert attacker.begun(1)
    got = [attacker.answered(which, number) for number in range(3) for which in (0, 1)]
    assert got[:2] == [True, True]
    assert not all(got[0::2])
    assert not all(got[1::2])
    assert attacker.spent <= LIMIT


@pytest.mark.parametrize("attacker", [("reserve", "check_total")], indirect=True)
def test_without_any_check_of_what_is_entered_the_silo_spends_more_than_its_limit(
    attacker: Attacker,
) -> None:
    """The second control."""
    got = [attacker.answered(which, number) for number in range(3) for which in (0, 1)]
    assert all(got)
    assert attacker.spent > LIMIT
