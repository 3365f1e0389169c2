"""Plans that a silo's people approve and withdraw while their silo runs, and the policy that they
change: what counts is what stands in the vault when a message comes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from sumus.engines import Relay
from sumus.errors import StorageError
from sumus.events import Trail, read_trail
from sumus.parties import (
    ApprovedPlans,
    approvals,
    approve,
    audit_vault,
    replace_policy,
    silo_of,
    silo_trail,
    withdraw,
)
from sumus.parties.silo import _MOST_SESSIONS, _MOST_WORKS
from support.vault_federation import VaultFederation, small_plan

SILO = "silo-0"


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[VaultFederation]:
    made = VaultFederation(tmp_path)
    yield made
    made.close()


def acts(federation: VaultFederation, name: str = SILO) -> list[tuple[str, str]]:
    """What the trail says of plans: event, first characters of the hash."""
    return [
        (link.kind, link.body["plan"][:8])
        for link in read_trail(federation.vault(name)).links
        if link.kind in ("plan.approved", "plan.withdrawn", "release")
    ]


def refusals(federation: VaultFederation, name: str = SILO) -> str:
    path = federation.vault(name) / "refusals.log"
    return path.read_text() if path.exists() else ""


# -- approving


def test_plans_that_are_approved_meanwhile_run_without_a_restart(
    federation: VaultFederation,
) -> None:
    first, second = small_plan(0), small_plan(1)
    ended = federation.train(first)
    assert ended["phase"] == "failed"
    assert "is not one that silo 'silo-0' has approved" in ended["refusals"][SILO]
    federation.approve(first)
    assert federation.train(first)["phase"] == "finished"
    assert federation.train(second)["phase"] == "failed"
    federation.approve(second)
    assert federation.train(second)["phase"] == "finished"
    for name in federation.names:
        assert federation.rounds(name, first) == federation.rounds(name, second) == [1, 2]
        short = [first.hash[:8], second.hash[:8]]
        assert acts(federation, name) == [
            ("plan.approved", short[0]),
            *[("release", short[0])] * 2,
            ("plan.approved", short[1]),
            *[("release", short[1])] * 2,
        ]
        assert not audit_vault(federation.vault(name)).findings


def test_a_plan_that_somebody_copied_into_the_vault_is_on_the_trail_before_its_first_release(
    federation: VaultFederation,
) -> None:
    copied = small_plan(2)
    for name in federation.names:
        (federation.vault(name) / "plans" / "by-hand.toml").write_text(copied.to_toml())
    assert federation.train(copied)["phase"] == "finished"
    assert acts(federation)[0] == ("plan.approved", copied.hash[:8])
    assert not audit_vault(federation.vault(SILO)).findings


# -- withdrawing


def test_a_plan_that_is_withdrawn_in_the_middle_of_a_run_is_answered_no_longer(
    federation: VaultFederation,
) -> None:
    agreed = small_plan(federation__rounds=3)
    federation.approve(agreed)
    assert federation.train(agreed, rounds=1)["phase"] == "paused"
    for name in federation.names:
        withdraw(federation.vault(name), agreed.hash)
    ended = federation.train(agreed)
    assert ended["phase"] == "failed"
    assert "has approved" in ended["refusals"][SILO]
    assert federation.rounds(SILO, agreed) == [1]
    federation.approve(agreed)  # the run goes on where it was, and no round is answered twice
    assert federation.train(agreed)["phase"] == "finished"
    assert federation.rounds(SILO, agreed) == [1, 2, 3]
    assert [event for event, _ in acts(federation) if event != "release"] == [
        "plan.approved",
        "plan.withdrawn",
        "plan.approved",
    ]


def test_every_message_after_the_withdrawal_is_refused_whatever_stage_the_sum_is_at(
    federation: VaultFederation,
) -> None:
    """Asked word for word what it answered before: greeting, keys, invitation, survivors, shares."""
    agreed = small_plan()
    federation.approve(agreed)
    heard: list[bytes] = []
    path = str(federation.vaults[SILO].path)
    served = Relay.handle

    def listening(relay: Relay, message: bytes) -> bytes | None:
        if relay._path == path:
            heard.append(message)
        return served(relay, message)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Relay, "handle", listening)
        assert federation.train(agreed, rounds=1)["phase"] == "paused"
    assert len(heard) == 6  # three messages of keys, three of the round
    again = [Relay(path).handle(message) for message in heard]
    withdraw(federation.vault(SILO), agreed.hash)
    before = refusals(federation).count("\n")
    for message, answer in zip(heard, again, strict=True):
        assert Relay(path).handle(message) != answer
    told = refusals(federation).splitlines()[before:]
    assert len(told) == len(heard)
    assert all("approved" in line for line in told)
    assert federation.rounds(SILO, agreed) == [1]


def test_what_is_not_approved_cannot_be_withdrawn(federation: VaultFederation) -> None:
    with pytest.raises(StorageError, match=r"is not one that .* has approved"):
        withdraw(federation.vault(SILO), small_plan().hash)
    assert acts(federation) == []


def test_copies_of_a_plan_under_other_names_are_withdrawn_with_it(
    federation: VaultFederation,
) -> None:
    agreed = small_plan()
    federation.approve(agreed, at=[SILO])
    (federation.vault(SILO) / "plans" / "copy.toml").write_text(agreed.to_toml())
    withdraw(federation.vault(SILO), agreed.hash)
    assert list(ApprovedPlans(federation.vault(SILO))) == []


# -- kills


def killed_at(monkeypatch: pytest.MonkeyPatch, step: int) -> list[str]:
    """The process dies at its step-th durable act from now on."""
    acts: list[str] = []

    def dying(name: str, real: Any) -> Any:
        def act(*arguments: Any, **options: Any) -> Any:
            if name == "unlink" and arguments[0].suffix != ".toml":
                return real(*arguments, **options)  # inside of another act
            acts.append(name)
            if len(acts) == step:
                raise KeyboardInterrupt
            return real(*arguments, **options)

        return act

    monkeypatch.setattr(
        approvals, "replace_atomically", dying("write", approvals.replace_atomically)
    )
    monkeypatch.setattr(Path, "unlink", dying("unlink", Path.unlink))
    monkeypatch.setattr(Trail, "append", dying("trail", Trail.append))
    return acts


@pytest.mark.parametrize("step", [1, 2, 3])
@pytest.mark.parametrize("act", ["approve", "withdraw"])
def test_whoever_is_killed_while_approving_or_withdrawing_leaves_no_plan_that_the_trail_does_not_know(
    federation: VaultFederation, monkeypatch: pytest.MonkeyPatch, act: str, step: int
) -> None:
    agreed, vault = small_plan(), federation.vault(SILO)
    if act == "withdraw":
        approve(vault, [agreed])
    with monkeypatch.context() as patch:
        done = killed_at(patch, step)
        try:
            approve(vault, [agreed]) if act == "approve" else withdraw(vault, agreed.hash)
            died = False
        except KeyboardInterrupt:
            died = True
    assert died == (step < 3)
    assert done == (["trail", "write"] if act == "approve" else ["unlink", "trail"])[:step]
    there = ApprovedPlans(vault).named(agreed.hash) is not None
    known = f"plan {agreed.hash}" in silo_trail(vault).known
    assert known or not there  # a plan that can run is on the trail
    assert there == ((act == "approve") == (not died) if act == "approve" else step == 1)
    federation.stop(SILO)
    federation.start(SILO)  # which notices what is left
    assert (f"plan {agreed.hash}" in silo_trail(vault).known) == there


# -- the policy


def test_a_tighter_policy_counts_from_the_next_message_on(federation: VaultFederation) -> None:
    agreed = small_plan(federation__rounds=3)
    federation.approve(agreed)
    assert federation.train(agreed, rounds=1)["phase"] == "paused"
    for name in federation.names:
        replace_policy(federation.vault(name), federation.policy_text("max_epsilon = 0.5\n"))
    ended = federation.train(agreed)
    assert ended["phase"] == "failed"
    assert "is over the policy" in ended["refusals"][SILO]
    assert federation.rounds(SILO, agreed) == [1]
    for name in federation.names:
        replace_policy(federation.vault(name), federation.policy_text("max_epsilon = 4.0\n"))
    assert federation.train(agreed)["phase"] == "finished"
    assert federation.rounds(SILO, agreed) == [1, 2, 3]
    limits = read_trail(federation.vault(SILO)).of("limit.changed")
    assert [each["after"] for each in limits][-2:] == [0.5, 4.0]
    assert not audit_vault(federation.vault(SILO)).findings


@pytest.mark.parametrize("text", ["max_epsilon = ", "max_epsilo = 3.0", None, ""])
def test_with_a_policy_that_cannot_be_read_or_names_no_roster_nothing_is_answered(
    federation: VaultFederation, text: str | None
) -> None:
    agreed = small_plan()
    federation.approve(agreed)
    file = federation.vault(SILO) / "policy.toml"
    kept = file.read_text()
    if text is None:
        file.unlink()
    else:
        file.write_text(text if text else f'roster_fingerprint = "{"0" * 64}"\n')
    ask = Relay(str(federation.vaults[SILO].path)).handle
    assert ask(b"\xff") is None
    assert ask(b"\xff") is None  # and not the second time either
    assert "does not open with its policy" in refusals(federation)
    file.write_text(kept)
    assert ask(b"\xff")
    assert federation.train(agreed)["phase"] == "finished"
    assert federation.rounds(SILO, agreed) == [1, 2]


# -- plan after plan


def test_plan_after_plan_takes_no_more_memory_and_no_more_files(
    federation: VaultFederation,
) -> None:
    plans = [small_plan(seed, federation__rounds=1) for seed in range(2 * _MOST_SESSIONS)]
    federation.approve(*plans)
    party = federation.vaults[SILO].vault._party
    handles = []
    for agreed in plans:
        assert federation.train(agreed)["phase"] == "finished"
        assert len(party._admitted) <= _MOST_SESSIONS
        assert len(party._works) <= _MOST_WORKS
        handles.append(psutil.Process().num_fds())
    assert handles[-1] <= handles[_MOST_SESSIONS]
    for agreed in plans:  # what is forgotten is agreed to again, and refused for what it is
        assert federation.rounds(SILO, agreed) == [1]
    assert federation.train(plans[0])["phase"] == "finished"


def test_a_vaults_silo_is_known_without_a_passphrase(federation: VaultFederation) -> None:
    assert silo_of(federation.vault("silo-1")) == "silo-1"
