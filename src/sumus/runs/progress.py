"""A run's progress in a notebook or a terminal: a bar where there can be one, else a line a round."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from sumus.books import RoundEntry, rounded_up
from sumus.guarantee import Account
from sumus.plan import TrainingPlan
from sumus.runs.callbacks import Callback

if TYPE_CHECKING:
    from sumus.runs.trained import TrainedRun

__all__ = ["ShownProgress", "shown"]


def shown(wanted: bool | None, console: Console | None = None) -> ShownProgress | None:
    """What shows progress, where it is wanted; None: in notebooks."""
    console = console or Console()
    return ShownProgress(console) if wanted or (wanted is None and console.is_jupyter) else None


@final
class ShownProgress(Callback):
    """Rounds with the task's measure and ε so far.

    Args:
        console: where to; a pipe or a file gets plain lines.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._animated = console.is_jupyter or console.is_terminal
        self._bar = Progress(
            TextColumn("round"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            TimeRemainingColumn(),
            console=console,
            disable=not self._animated,
        )

    def on_run_begin(self, plan: TrainingPlan, account: Account | None) -> None:
        """See `Callback.on_run_begin`."""
        self._plan = plan
        self._bound = None if account is None else rounded_up(account.epsilon)
        self._bar.start()
        self._task = self._bar.add_task("round", total=plan.federation.rounds, state="")

    def on_round_end(self, entry: RoundEntry) -> None:
        """See `Callback.on_round_end`."""
        state = self._state(entry)
        self._bar.update(self._task, completed=entry.round, state=state)
        if not self._animated:
            rounds = self._plan.federation.rounds
            self._console.print(f"round {entry.round} of {rounds}  {state}", highlight=False)

    def on_run_end(self, run: TrainedRun) -> None:
        """See `Callback.on_run_end`."""
        self.close()

    def close(self) -> None:
        """Leave the bar as it is, however the run ended."""
        self._bar.stop()

    def _state(self, entry: RoundEntry) -> str:
        told = self._plan.task.headline_text(entry.metrics, entry.metrics_plus_minus)
        spent = (
            "no guarantee"
            if self._bound is None or math.isinf(entry.epsilon_spent)
            else f"ε ≤ {rounded_up(entry.epsilon_spent)} of {self._bound}"
        )
        return f"{told}  {spent}" if told else spent
