"""What is written down and never altered: journal, checkpoint, ledger, policy.

`journal` is a run's folder and `stored_run` what it says, `header` and `round` are its lines,
`checkpoint` is the model between rounds, `ledger` what a data set has spent, `budget` the limit that
it has where nobody set one, `policy` what a silo allows, `reservation` what a run sets aside before it begins, `releases` the
entries made before noise is drawn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.files.doors import door

if TYPE_CHECKING:
    from sumus.books.budget import (
        DEFAULT_MAX_EPSILON as DEFAULT_MAX_EPSILON,
        Budget as Budget,
        BudgetFile as BudgetFile,
    )
    from sumus.books.checkpoint import RunCheckpoint as RunCheckpoint
    from sumus.books.header import StartedFrom as StartedFrom
    from sumus.books.journal import RunFolder as RunFolder
    from sumus.books.ledger import (
        Ledger as Ledger,
        dataset_of as dataset_of,
        state_directory as state_directory,
    )
    from sumus.books.ledger_entry import LedgerEntry as LedgerEntry
    from sumus.books.naming import (
        plan_words as plan_words,
        run_name as run_name,
        short_name as short_name,
    )
    from sumus.books.policy import Policy as Policy
    from sumus.books.releases import (
        DatasetTotal as DatasetTotal,
        EnteredOnce as EnteredOnce,
        LedgerReleases as LedgerReleases,
        NoLedger as NoLedger,
        Releases as Releases,
    )
    from sumus.books.reservation import (
        Ending as Ending,
        Reservation as Reservation,
        whole_run as whole_run,
    )
    from sumus.books.round import (
        Measurement as Measurement,
        RoundEntry as RoundEntry,
        rounded_up as rounded_up,
    )
    from sumus.books.spending import (
        RunningTotal as RunningTotal,
        RunSpending as RunSpending,
        Total as Total,
        without_bound as without_bound,
    )
    from sumus.books.steps import Step as Step, limit_of as limit_of, steps_of as steps_of
    from sumus.books.stored_run import (
        EVIDENCE as EVIDENCE,
        JOURNAL as JOURNAL,
        MODEL_FACTS as MODEL_FACTS,
        RELEASED as RELEASED,
        Released as Released,
        digest_of as digest_of,
        pretty as pretty,
    )

__getattr__, __dir__, __all__ = door(
    __name__,
    budget="DEFAULT_MAX_EPSILON Budget BudgetFile",
    checkpoint="RunCheckpoint",
    header="StartedFrom",
    journal="RunFolder",
    ledger="Ledger dataset_of state_directory",
    ledger_entry="LedgerEntry",
    naming="plan_words run_name short_name",
    policy="Policy",
    releases="DatasetTotal EnteredOnce LedgerReleases NoLedger Releases",
    reservation="Ending Reservation whole_run",
    round="Measurement RoundEntry rounded_up",
    spending="RunSpending RunningTotal Total without_bound",
    steps="Step limit_of steps_of",
    stored_run="EVIDENCE JOURNAL MODEL_FACTS RELEASED Released digest_of pretty",
)
