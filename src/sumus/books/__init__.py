"""What is written down and never altered: journal, checkpoint, ledger, policy.

`journal` is a run's folder, `round` its lines, `checkpoint` the model between rounds, `ledger` what
a data set has spent, `policy` what a silo allows, `releases` the entries made before noise is
drawn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.books.journal import RunFolder as RunFolder
    from sumus.books.ledger import (
        Ledger as Ledger,
        LedgerEntry as LedgerEntry,
        RunSpending as RunSpending,
        Total as Total,
        dataset_of as dataset_of,
        state_directory as state_directory,
    )
    from sumus.books.naming import run_name as run_name
    from sumus.books.policy import Policy as Policy
    from sumus.books.releases import DatasetTotal as DatasetTotal, ReleaseLog as ReleaseLog
    from sumus.books.round import (
        Guarantee as Guarantee,
        Measurement as Measurement,
        RoundRecord as RoundRecord,
        rounded_up as rounded_up,
    )

__getattr__, __dir__, __all__ = door(
    __name__,
    journal="RunFolder",
    ledger="Ledger LedgerEntry RunSpending Total dataset_of state_directory",
    naming="run_name",
    policy="Policy",
    releases="DatasetTotal ReleaseLog",
    round="Guarantee Measurement RoundRecord rounded_up",
)
