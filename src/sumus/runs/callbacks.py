"""Code of a user's own that is told how a run goes.

    class Stopwatch(sumus.Callback):
        def on_round_end(self, entry):
            print(entry.round, entry.metrics, entry.epsilon_spent)

    sumus.train(plan, callbacks=[Stopwatch()])
    sumus.train(plan, callbacks=print)              # a function is told every round

A callback is told what the journal holds already. It can change nothing of a round, and what it
raises costs no round: it is said once, the callback is not called again, and the run goes on.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias, final

from sumus.books import RoundEntry
from sumus.errors import PlanError
from sumus.guarantee import Account
from sumus.plan import TrainingPlan
from sumus.purity import first_line

if TYPE_CHECKING:
    from sumus.runs.trained import TrainedRun

__all__ = ["Callback", "Callbacks", "Told"]


class Callback:
    """Is told how a run goes; override what you want to know."""

    def on_run_begin(self, plan: TrainingPlan, account: Account | None) -> None:
        """The guarantee is certified and nothing is released yet.

        Args:
            plan: as it runs: resolved, noise calibrated.
            account: what is promised; None: nothing.
        """

    def on_stage(self, stage: str) -> None:
        """What the run is at has changed.

        Args:
            stage: "greeting" (keys go round), "local" (steps of the silos), "survivors" (who is in
                the sum is agreed on), "unmasking", "measuring" or "comparing".
        """

    def on_round_end(self, entry: RoundEntry) -> None:
        """A round is in the journal.

        Args:
            entry: with `round` (from 1), `metrics` by name, `epsilon_spent` so far, `seconds`; what
                `evaluate` returned is among the metrics.
        """

    def on_run_end(self, run: TrainedRun) -> None:
        """The run is finished and its folder is closed."""


Callbacks: TypeAlias = (
    "Callback | Callable[[RoundEntry], object] | "
    "Sequence[Callback | Callable[[RoundEntry], object]]"
)


@final
class Told:
    """All callbacks of a run.

    Guarantee: an exception of one of them ends neither the run nor the others; an interruption by
        the keyboard passes.

    Args:
        given: callbacks, or functions of a round's entry.
    """

    def __init__(self, given: Callbacks | None) -> None:
        one = given is None or isinstance(given, Callback) or callable(given)
        listed: Sequence[Any] = () if given is None else [given] if one else list(given)  # type: ignore[arg-type]
        for each in listed:
            if not isinstance(each, Callback) and not callable(each):
                rule = "must be a sumus.Callback or a function of a round's entry"
                raise PlanError("callbacks", type(each).__name__, rule, "Pass one of the two.")
        self._callbacks = list(listed)
        self.measured: Mapping[str, float] = {}

    def add(self, callback: Callback) -> None:
        """Tell another one, too."""
        self._callbacks.append(callback)

    def run_begins(self, plan: TrainingPlan, account: Account | None) -> None:
        """The guarantee is certified."""
        self._each("on_run_begin", "before round 1", plan, account)

    def stage(self, stage: str) -> None:
        """What the run is at."""
        self._each("on_stage", f'at stage "{stage}"', stage)

    def round_entered(self, entry: RoundEntry) -> None:
        """See `Telling.round_entered`; `measured` are the values of `evaluate` for this round."""
        told = replace(entry, metrics={**entry.metrics, **self.measured})
        self._each("on_round_end", f"after round {entry.round}", told)

    def run_ends(self, summary: Mapping[str, Any]) -> None:
        """See `Telling.run_ends`; callbacks are told when the folder is closed."""

    def finished(self, run: TrainedRun) -> None:
        """The run's folder is closed."""
        self._each("on_run_end", "at the end", run)

    def _each(self, method: str, when: str, *arguments: Any) -> None:
        for callback in list(self._callbacks):
            told = (
                getattr(callback, method)
                if isinstance(callback, Callback)
                else callback
                if method == "on_round_end"
                else _nothing
            )
            try:
                told(*arguments)
            except Exception as error:
                self._callbacks.remove(callback)
                name = getattr(callback, "__qualname__", type(callback).__qualname__)
                warnings.warn(
                    f"callback {name} raised {type(error).__name__} {when}: {first_line(error)}. "
                    "It is not called again, and the run goes on.",
                    RuntimeWarning,
                    stacklevel=2,
                )


def _nothing(*arguments: Any) -> None:
    """What a plain function is told of beginning and end."""
