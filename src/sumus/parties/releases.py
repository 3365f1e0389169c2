"""A silo's policy and ledger, asked before every release."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from sumus.books import Ledger, LedgerEntry, Policy
from sumus.guarantee import LiveEpsilon, measurements_until, metrics_epsilon
from sumus.parties.agreement import Agreement

__all__ = ["LedgerReleases"]


@final
@dataclass(frozen=True, kw_only=True)
class LedgerReleases:
    """Enters every release of one plan into the ledger of the silo's data set, if its policy allows
    it.

    Guarantee: when `enter` returns, all that the round releases is on the silo's disk and within
        the silo's policy; when the policy refuses any of it, the ledger is as it was.
    """

    agreement: Agreement
    ledger: Ledger
    policy: Policy
    spent: LiveEpsilon

    @classmethod
    def open(cls, agreement: Agreement, ledger: Ledger, policy: Policy) -> LedgerReleases:
        """Refuse a plan whose whole run, metrics included, would not fit."""
        releases = cls(
            agreement=agreement, ledger=ledger, policy=policy, spent=LiveEpsilon(agreement.design)
        )
        policy.check(agreement.account, agreement.plan, ledger, run=releases.run)
        return releases

    @property
    def run(self) -> str:
        """What the plan's releases are called on the ledger: a plan runs once in a federation."""
        return f"federation-{self.agreement.plan.hash[:16]}"

    def enter(self, number: int, round_id: bytes, purpose: str = "model") -> None:
        """See `silo_party.Releases`.

        A silo asks once for every draw of noise. A round id that is on the ledger already therefore
        stands for another draw (the plan runs again under a new roster, say), and must not pass for
        a repetition of the first.
        """
        known = [
            entry.round_id.partition("/")[0]
            for entry in self.ledger.entries()
            if entry.purpose == purpose
        ]
        draws = known.count(round_id.hex())
        name = f"{round_id.hex()}/{draws + 1}" if draws else round_id.hex()
        account, plan, measured = self.agreement.account, self.agreement.plan, purpose == "metrics"
        measurements = measurements_until(plan, number + 1) if measured else 0
        epsilon = (
            metrics_epsilon(plan, measurements=measurements) if measured else self.spent(number + 1)
        )
        entry = LedgerEntry.of(
            account, run=self.run, round=number + 1, round_id=name, epsilon=epsilon, purpose=purpose
        )
        self.ledger.enter(entry, allow=self.policy.check_total)
