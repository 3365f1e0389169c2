"""`sumus.train` watched: a callback, which is told what the journal holds and can change nothing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import final

from sumus.books import Budget, Ledger, Policy, RoundEntry, dataset_of
from sumus.guarantee import Account
from sumus.plan import TrainingPlan
from sumus.runs import Callback, TrainedRun
from sumus.watching.board import Board
from sumus.watching.books import LedgerReader
from sumus.watching.following import Following, RoundTold
from sumus.watching.state import Books, LiveState, Result, finite

__all__ = ["TrainingWatcher", "training_board"]


def training_board(name: str) -> Board:
    """A board for a run that is about to begin."""
    now = time.time()
    return Board(LiveState(watched="train", name=name, began=now, at=now, since=now))


@final
class TrainingWatcher(Callback):
    """Posts how a run goes.

    Args:
        board: where.
        void: why the guarantee does not hold for this run, if it does not.
        ledger: whether its releases are entered into the data set's ledger.
        max_epsilon: what `--max-epsilon` says.
        policy: the file of the policy that the run keeps to.
        before: rounds that are in the journal already, of a run that goes on.
    """

    def __init__(
        self,
        board: Board,
        *,
        void: str | None = None,
        ledger: bool = True,
        max_epsilon: float | None = None,
        policy: Path | None = None,
        before: Sequence[RoundEntry] = (),
    ) -> None:
        self._follow, self._void = Following(board), void
        self._ledger, self._max_epsilon, self._policy = ledger, max_epsilon, policy
        self._before = before
        self._books: LedgerReader | None = None

    def on_run_begin(self, plan: TrainingPlan, account: Account | None) -> None:
        """See `Callback.on_run_begin`."""
        planned = plan.federation.silos
        silos = 0 if planned is None else planned  # as it runs, a plan knows
        if self._ledger and self._void is None and account is not None:
            self._books = self._reader(plan, account)
        self._follow.begins(
            plan,
            account,
            silos=silos,
            needed=plan.noise_contributors + plan.colluding,
            void=self._void,
            connected=silos,
            ready=True,
        )
        for entry in self._before:
            self._follow.round_ends(RoundTold.of_entry(entry))
        self._follow.change(books=self._booked())

    def on_stage(self, stage: str) -> None:
        """See `Callback.on_stage`."""
        self._follow.stage(stage)

    def on_round_end(self, entry: RoundEntry) -> None:
        """See `Callback.on_round_end`."""
        self._follow.round_ends(RoundTold.of_entry(entry), books=self._booked())

    def on_run_end(self, run: TrainedRun) -> None:
        """See `Callback.on_run_end`."""
        self._follow.stage("finished", result=Result(run=str(run.path), model=run.model_hash))

    def reported(self, report: Path) -> None:
        """The report is written."""
        result = self._follow.state.result
        if result is not None:
            self._follow.change(result=replace(result, report=str(report)))

    def ends(self, error: BaseException) -> None:
        """The run did not reach its end."""
        interrupted = isinstance(error, KeyboardInterrupt)
        self._follow.stage("stopped" if interrupted else "failed", str(error), ready=False)

    def _booked(self) -> Books | None:
        return None if self._books is None else self._books.books()

    def _reader(self, plan: TrainingPlan, account: Account) -> LedgerReader:
        ledger = Ledger.of_dataset(dataset_of(plan))
        budget = Budget.of(plan, ledger, asked=self._max_epsilon)
        limit = None if budget is None else finite(budget.max_epsilon)
        said_by = "" if budget is None else budget.said_by
        if self._policy is not None:
            limit, said_by = Policy.load(self._policy).max_epsilon, str(self._policy)
        return LedgerReader(ledger, account, limit=limit, said_by=said_by)
