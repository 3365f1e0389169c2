"""A server with the right key wants a silo to spend more than it releases, or to leave the plan
early, by the numbers that it gives to rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from sumus.books import Ledger, LedgerEntry, Policy, releases
from sumus.guarantee import LiveEpsilon
from sumus.parties import round_identifier
from sumus.parties.sums import pack_model
from sumus.secagg import Message, Refusal
from sumus.secagg.messages import MaskedInput
from support.local_federation import LocalFederation, plan, refused

ROUNDS = 20
Ask = Callable[[int], Message]


@pytest.fixture
def across(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[LocalFederation]:
    policies = {"silo-0": getattr(request, "param", Policy())}
    made = LocalFederation(tmp_path, plan({"federation.rounds": ROUNDS}), policies=policies)
    yield made
    made.close()


@pytest.fixture
def ask(across: LocalFederation) -> Ask:
    server = across.server()
    server.greet()
    session = server.summing._session
    assert session is not None

    def invite(number: int) -> Message:
        identifier = round_identifier(across.agreement.plan, number, frozenset(range(4)))
        payload = pack_model(number, np.zeros(across.agreement.plan.training.dimension or 0))
        return across.ask(0, session.invite(identifier, payload=payload, sequence=2 * number)[1])

    return invite


def entries(across: LocalFederation) -> list[LedgerEntry]:
    return Ledger.of_dataset("digits", state=across.folder("silo-0")).entries()


def test_by_asking_for_the_last_round_first(across: LocalFederation, ask: Ask) -> None:
    """One release costs what the first one does, whatever it is called."""
    spent = LiveEpsilon(across.agreement.design)
    assert isinstance(ask(ROUNDS - 1), MaskedInput)
    assert [(entry.round, entry.epsilon) for entry in entries(across)] == [(ROUNDS, spent(1))]
    assert spent(1) < spent(ROUNDS) / 2


def test_charged_by_number_it_spends_the_whole_plan(
    across: LocalFederation, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control."""
    monkeypatch.setattr(releases, "rounds_with", lambda entry, past: range(1, entry.round + 1))
    ask(ROUNDS - 1)
    spent = LiveEpsilon(across.agreement.design)
    assert [entry.epsilon for entry in entries(across)] == [spent(ROUNDS)]


def test_by_leaving_rounds_out(across: LocalFederation, ask: Ask) -> None:
    """Every release is charged, none twice, and their number is what counts."""
    spent, numbers = LiveEpsilon(across.agreement.design), (0, 3, 4, 11)
    for number in numbers:
        assert isinstance(ask(number), MaskedInput)
    assert [entry.epsilon for entry in entries(across)] == [spent(made) for made in (1, 2, 3, 4)]
    total = Ledger.of_dataset("digits", state=across.folder("silo-0")).total("record")
    assert (total.epsilon, total.releases) == (spent(4), 4)


@pytest.mark.parametrize("across", [Policy(max_round_gap=5)], indirect=True)
def test_by_leaping_over_the_rounds_that_are_left(across: LocalFederation, ask: Ask) -> None:
    """Refused before anything is written, so that the next round is answered all the same."""
    for number in (5, ROUNDS - 1):
        assert "over the policy" in refused(ask(number))
    assert not entries(across)
    assert "max_round_gap = 5" in (across.folder("silo-0") / "refusals.log").read_text()
    assert isinstance(ask(4), MaskedInput)
    assert isinstance(ask(10), Refusal)
    assert isinstance(ask(9), MaskedInput)
    assert [entry.round for entry in entries(across)] == [5, 10]


def test_without_a_bound_one_message_expels_the_silo(across: LocalFederation, ask: Ask) -> None:
    """The control: 20 rounds are within the default gap of 100."""
    assert isinstance(ask(ROUNDS - 1), MaskedInput)
    assert "answered sum 38 already" in refused(ask(0))
