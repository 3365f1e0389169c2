"""One release, as it stands on a ledger."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from sumus.plan import TrainingPlan

if TYPE_CHECKING:
    from sumus.guarantee import Account

__all__ = ["PRESUMED", "LedgerEntry"]

PRESUMED = "/presumed"
"""What the round id of a release ends with that may have happened, and nobody remembers."""


@final
@dataclass(frozen=True, kw_only=True)
class LedgerEntry:
    """One release, as entered before it left.

    Args:
        run: name of the run folder.
        round: counted from 1.
        round_id: binds the entry to the protocol messages of its round; a round that is repeated
            bit for bit keeps it.
        epsilon: of this run's releases of this purpose so far, this one included; infinite without
            noise.
        delta: at which `epsilon` holds, for the whole run.
        purpose: "model", or "metrics" for evaluation sums that are accounted apart; purposes of one
            run add up.
        analysis: of the model's guarantee; "counts" for metrics, which rest on the noise of all
            counted silos whatever the model does.
        neighbours: which data sets the guarantee compares; `trust`: whom it counts on.
    """

    run: str
    round: int
    round_id: str
    plan_hash: str
    epsilon: float
    delta: float
    proved: bool
    analysis: str
    accountant: str
    unit: str
    neighbours: str
    trust: str
    purpose: str = "model"
    time: str = ""

    @property
    def is_presumed(self) -> bool:
        """Whether it stands for a release that may have happened, and nobody remembers."""
        return self.round_id.endswith(PRESUMED)

    @classmethod
    def of(
        cls,
        account: Account,
        *,
        run: str,
        round: int,
        round_id: str,
        epsilon: float,
        purpose: str = "model",
    ) -> LedgerEntry:
        """The entry for a release of a run with this account, `epsilon` being what the run has
        spent with it.
        """
        counted = purpose == "metrics"
        return cls(
            run=run,
            round=round,
            round_id=round_id,
            plan_hash=account.plan_hash,
            epsilon=epsilon,
            delta=account.delta,
            proved=account.proved,
            analysis="counts" if counted else account.analysis,
            accountant=account.accountant,
            unit=account.unit,
            neighbours=account.neighbours,
            trust=account.metrics_trust or account.trust if counted else account.trust,
            purpose=purpose,
        )

    @classmethod
    def without_noise(
        cls, plan: TrainingPlan, *, run: str, round: int, round_id: str
    ) -> LedgerEntry:
        """The entry for a release that nothing protects: it spends everything, for good."""
        return cls(
            run=run,
            round=round,
            round_id=round_id,
            plan_hash=plan.hash,
            epsilon=math.inf,
            delta=plan.privacy.delta,
            proved=False,
            analysis="none",
            accountant="none",
            unit="record",
            neighbours="nothing: released without noise",
            trust="nobody",
        )
