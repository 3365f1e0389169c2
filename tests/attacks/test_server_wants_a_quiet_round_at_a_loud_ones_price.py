"""Rounds of a plan with `noise.schedule` cost what their own noise costs. A server with the right key
wants those with little noise, charged as if they were the first ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from sumus.books import Ledger, LedgerEntry, Policy, releases
from sumus.guarantee import LiveEpsilon
from sumus.guarantee.accounts import spent
from sumus.parties import round_identifier
from sumus.parties.sums import pack_model
from sumus.secagg import Message
from sumus.secagg.messages import MaskedInput
from support.local_federation import LocalFederation, plan, refused

RATIOS = [2.0, 2.0, 1.0, 0.5, 0.5]
Ask = Callable[[int], Message]


@pytest.fixture
def across(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[LocalFederation]:
    scheduled = plan({"federation.rounds": len(RATIOS), "noise.schedule": RATIOS})
    policies = {"silo-0": getattr(request, "param", Policy())}
    made = LocalFederation(tmp_path, scheduled, policies=policies)
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


def test_by_asking_for_quiet_rounds_alone(across: LocalFederation, ask: Ask) -> None:
    """The ledger composes the rounds that were answered, and no others."""
    for number in (3, 4):
        assert isinstance(ask(number), MaskedInput)
    design = across.agreement.design
    charged = [entry.epsilon for entry in entries(across)]
    assert charged == [spent(design, [3]), spent(design, [3, 4])]
    assert charged[-1] > 2.0 * LiveEpsilon(design)(2)
    total = Ledger.of_dataset("digits", state=across.folder("silo-0")).total("record")
    assert total.epsilon == charged[-1]


def test_charged_by_count_they_would_cost_what_loud_ones_do(
    across: LocalFederation, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control."""
    exact = releases.rounds_with
    monkeypatch.setattr(
        releases, "rounds_with", lambda entry, past: range(1, len(exact(entry, past)) + 1)
    )
    for number in (3, 4):
        ask(number)
    assert entries(across)[-1].epsilon == LiveEpsilon(across.agreement.design)(2)


def test_by_asking_for_a_round_that_the_plan_does_not_have(
    across: LocalFederation, ask: Ask
) -> None:
    assert "round" in refused(ask(len(RATIOS)))
    assert not entries(across)
