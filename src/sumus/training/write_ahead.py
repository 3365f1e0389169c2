"""Every release is on the ledger before it happens, and within the silo's policy, or it does not happen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

from sumus.guarantee import Account
from sumus.ledger import Ledger, LedgerEntry, dataset_of
from sumus.plan import TrainingPlan
from sumus.policy import Policy
from sumus.record import RunFolder

__all__ = ["ReleaseLog"]


@final
@dataclass(frozen=True)
class ReleaseLog:
    """The ledger of the run's data set, with the policy that guards it.

    Guarantee: a crash after `enter` and before the release over-counts by that one release, never under-counts; a round that is
        repeated bit for bit keeps its identifier and is entered once.
    """

    ledger: Ledger
    policy: Policy | None
    account: Account | None

    @classmethod
    def open(
        cls,
        plan: TrainingPlan,
        account: Account | None,
        *,
        state: Path | None,
        policy: Path | None,
        resumed: str | None = None,
    ) -> ReleaseLog:
        """Check the plan against the policy before anything is computed."""
        ledger = Ledger.of_dataset(dataset_of(plan), state=state)
        rules = None if policy is None else Policy.load(policy)
        if rules is not None:
            rules.check(account, plan, ledger, run=resumed)
        return cls(ledger, rules, account)

    def enter(self, run: RunFolder, round_number: int, round_id: str, epsilons: Mapping[str, float]) -> None:
        """Put one round on the ledger.

        Args:
            epsilons: what the run has spent with this round, by purpose; ignored for a run without noise, which spends everything.
        """
        identifier = f"{run.name}/{round_id}"
        if self.ledger.has(identifier):
            return
        allow = None if self.policy is None else self.policy.check_total
        if self.account is None:
            self.ledger.enter(LedgerEntry.without_noise(run.plan, run=run.name, round=round_number, round_id=identifier), allow=allow)
            return
        for purpose, epsilon in sorted(epsilons.items()):  # metrics before the model, whose entry says that all are there
            name = identifier if purpose == "model" else f"{identifier}/{purpose}"
            if not self.ledger.has(name):
                entry = LedgerEntry.of(self.account, run=run.name, round=round_number, round_id=name, epsilon=epsilon, purpose=purpose)
                self.ledger.enter(entry, allow=allow)
