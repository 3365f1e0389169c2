"""A server in the middle of a run wants the rounds that are left, although a silo's people have
withdrawn the plan, or tightened their policy, while their vault runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from sumus.engines import Relay
from sumus.parties import (
    InProcess,
    SecureSum,
    ServerParty,
    SiloParty,
    Vault,
    agree_on,
    replace_policy,
    round_identifier,
    withdraw,
)
from sumus.parties.sums import pack_model
from sumus.secagg import Identity
from sumus.secagg.messages import MaskedInput, decode_any
from support.local_federation import QUICK
from support.vault_federation import VaultFederation, small_plan

SILO = "silo-0"
PLAN = small_plan(federation__rounds=3)


class Attacker:
    """A server with the right key, whose keys have gone round and whose first round is over."""

    def __init__(self, root: Path) -> None:
        self.across = VaultFederation(root)
        self.across.approve(PLAN)
        relays = {
            number: Relay(str(self.across.vaults[name].path)).handle
            for number, name in enumerate(self.across.names)
        }
        key = (self.across.server_state / "server.key").read_text()
        summing = SecureSum(
            agree_on(PLAN),
            self.across.roster,
            InProcess(relays),
            identity=Identity.parse(key),
            patience=QUICK,
        )
        self.server = ServerParty(agree_on(PLAN), summing)
        self.server.greet()
        assert self.answered(0)

    def answered(self, number: int) -> bool:
        """Whether the silo sends its input for a round."""
        session = self.server.summing._session  # type: ignore[attr-defined]
        message = session.invite(
            round_identifier(PLAN, number, self.server.summing.present),
            payload=pack_model(number, np.zeros(PLAN.training.dimension or 0)),
            sequence=2 * number,
        )[1]
        answer = Relay(str(self.across.vaults[SILO].path)).handle(message)
        return answer is not None and isinstance(decode_any(answer), MaskedInput)

    @property
    def rounds(self) -> list[int]:
        return self.across.rounds(SILO, PLAN)


@pytest.fixture
def attacker(tmp_path: Path) -> Iterator[Attacker]:
    made = Attacker(tmp_path)
    yield made
    made.across.close()


def test_by_going_on_after_the_plan_was_withdrawn(attacker: Attacker) -> None:
    withdraw(attacker.across.vault(SILO), PLAN.hash)
    assert not attacker.answered(1)
    assert attacker.rounds == [1]


def test_by_going_on_under_a_policy_that_was_tightened(attacker: Attacker) -> None:
    policy = attacker.across.policy_text("max_epsilon = 0.1\n")
    replace_policy(attacker.across.vault(SILO), policy)
    assert not attacker.answered(1)
    assert attacker.rounds == [1]


def test_a_vault_that_looks_only_once_would_answer(
    attacker: Attacker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: what was agreed to at the greeting would hold until the process ends."""
    monkeypatch.setattr(SiloParty, "_drop_withdrawn", lambda self: None)
    monkeypatch.setattr(Vault, "_follow_policy", lambda self: None)
    withdraw(attacker.across.vault(SILO), PLAN.hash)
    assert attacker.answered(1)
    replace_policy(attacker.across.vault(SILO), attacker.across.policy_text("max_epsilon = 0.1\n"))
    assert attacker.answered(2)
    assert attacker.rounds == [1, 2, 3]
