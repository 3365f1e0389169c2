"""Every release is on the ledger before it happens, and within the silo's policy, or it does not
happen.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import final

from sumus.books.journal import RunFolder
from sumus.books.ledger import Ledger, LedgerEntry, dataset_of
from sumus.books.policy import Policy
from sumus.guarantee import Account, metrics_spent
from sumus.plan import TrainingPlan

__all__ = ["DatasetTotal", "ReleaseLog"]


@final
@dataclass(frozen=True, kw_only=True)
class DatasetTotal:
    """What all runs on a data set have spent together, by simple addition, as its ledger says."""

    dataset: str
    unit: str
    epsilon: float
    delta: float
    runs: int
    proved: bool


@final
@dataclass(frozen=True)
class ReleaseLog:
    """The ledger of the run's data set, with the policy that guards it.

    Guarantee: a crash after `enter` and before the release over-counts by that one release, never
        under-counts; a round that is repeated bit for bit keeps its identifier and is entered once.
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

    def total(self) -> DatasetTotal:
        """Of everything on the ledger, for what this run protects."""
        unit = "record" if self.account is None else self.account.unit
        total = self.ledger.total(unit)
        return DatasetTotal(
            dataset=self.ledger.dataset,
            unit=unit,
            epsilon=total.epsilon,
            delta=total.delta,
            runs=total.runs,
            proved=total.proved,
        )

    def enter(self, run: RunFolder, round_number: int, round_id: str, epsilon: float) -> None:
        """Put one round on the ledger: all that it releases, or, if the policy refuses any of it,
        nothing.

        Args:
            epsilon: what the run's models have spent with this round; a run without noise spends
                everything.
        """
        identifier = f"{run.name}/{round_id}"
        if self.ledger.has(identifier, purpose="model"):
            return
        allow = None if self.policy is None else self.policy.check_total
        metrics = metrics_spent(run.plan, round_number) if self.account is not None else None
        entries = (
            (
                LedgerEntry.without_noise(
                    run.plan, run=run.name, round=round_number, round_id=identifier
                ),
            )
            if self.account is None
            else LedgerEntry.of_round(
                self.account,
                run=run.name,
                round=round_number,
                round_id=identifier,
                epsilon=epsilon,
                metrics=metrics,
            )
        )
        self.ledger.enter(*entries, allow=allow)
