"""What is written down and never altered: journal, checkpoint, ledger, policy.

`journal` is a run's folder, `round` its lines, `checkpoint` the model between rounds, `ledger` what
a data set has spent, `policy` what a silo allows, `releases` the entries made before noise is
drawn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.books.journal import RunFolder
    from sumus.books.ledger import (
        Ledger,
        LedgerEntry,
        RunSpending,
        Total,
        dataset_of,
        state_directory,
    )
    from sumus.books.naming import run_name
    from sumus.books.policy import Policy
    from sumus.books.releases import DatasetTotal, ReleaseLog
    from sumus.books.round import Guarantee, Measurement, RoundRecord, rounded_up

__all__ = [
    "DatasetTotal",
    "Guarantee",
    "Ledger",
    "LedgerEntry",
    "Measurement",
    "Policy",
    "ReleaseLog",
    "RoundRecord",
    "RunFolder",
    "RunSpending",
    "Total",
    "dataset_of",
    "rounded_up",
    "run_name",
    "state_directory",
]

__getattr__, __dir__ = door(
    __name__,
    journal="RunFolder",
    ledger="Ledger LedgerEntry RunSpending Total dataset_of state_directory",
    naming="run_name",
    policy="Policy",
    releases="DatasetTotal ReleaseLog",
    round="Guarantee Measurement RoundRecord rounded_up",
)
