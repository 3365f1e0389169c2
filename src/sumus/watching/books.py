"""What a data set has spent, read off its ledger as it grows."""

from __future__ import annotations

from typing import final

from sumus.books import Ledger, RunningTotal
from sumus.guarantee import Account
from sumus.watching.state import Books

__all__ = ["LedgerReader"]


@final
class LedgerReader:
    """Reads what was entered since the last time.

    Guarantee: only entries that are new are looked at, and a ledger that was changed is a
        `StorageError`, never a smaller total.

    Args:
        ledger: of the data set.
        account: of the plan that spends from it; its unit is what is counted.
        limit: the most that is allowed; None: nobody has set a limit. `said_by`: who has.
    """

    def __init__(
        self, ledger: Ledger, account: Account, *, limit: float | None, said_by: str
    ) -> None:
        self.ledger, self._account = ledger, account
        self._limit, self._said_by = limit, said_by
        self._total, self._read = RunningTotal(), 0

    def books(self) -> Books:
        """As the ledger stands now."""
        new = self.ledger.entries(after=self._read)
        self._read += len(new)
        for entry in new:
            self._total.add(entry)
        account, total = self._account, self._total.total(self._account.unit)
        return Books(
            dataset=self.ledger.dataset,
            spent=total.epsilon,
            delta=total.delta,
            unit=total.unit,
            runs=total.runs,
            proved=total.proved,
            neighbours=account.neighbours,
            trust=account.trust,
            limit=self._limit,
            said_by=self._said_by,
        )
