"""A run as it goes, told in small pieces and folded into a `LiveState` by each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, final

from sumus.books import RoundEntry
from sumus.guarantee import Account
from sumus.plan import TrainingPlan
from sumus.watching.board import Board
from sumus.watching.history import Point, Rounds
from sumus.watching.state import Costs, LiveState, Lost, Presence, Refused, finite, short
from sumus.watching.words import measured_of, plan_in_words, promise_of

__all__ = ["Following", "RoundTold"]

_MOST_TOLD = 20
"""Latest refusals, lost rounds and remarks that are listed; all of them are counted."""


@final
@dataclass(frozen=True, kw_only=True)
class RoundTold:
    """What is told of a round, by whoever keeps its journal.

    Args:
        number: from 1.
        epsilon: spent up to here; None: nothing is promised.
        how: the journal's `metrics_are`.
    """

    number: int
    epsilon: float | None
    metrics: Mapping[str, float] = field(default_factory=dict)
    plus_minus: Mapping[str, float] = field(default_factory=dict)
    how: str = "none"
    seconds: Mapping[str, float] = field(default_factory=dict)
    bytes_up: int = 0
    bytes_down: int = 0
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, line: Mapping[str, Any]) -> RoundTold:
        """From a line of a journal or of a job's progress; what else it holds stays there."""
        return cls(
            number=int(line["round"]),
            epsilon=finite(_number(line.get("epsilon_spent"))),
            metrics=dict(line.get("metrics") or {}),
            plus_minus=dict(line.get("metrics_plus_minus") or {}),
            how=str(line.get("metrics_are", "none")),
            seconds={str(part): float(each) for part, each in (line.get("seconds") or {}).items()},
            bytes_up=int(line.get("bytes_up", 0)),
            bytes_down=int(line.get("bytes_down", 0)),
            notes=tuple(map(str, line.get("notes", ()))),
        )

    @classmethod
    def of_entry(cls, entry: RoundEntry) -> RoundTold:
        """From a round of a journal: what it says of single silos stays there."""
        return cls(
            number=entry.round,
            epsilon=finite(entry.epsilon_spent),
            metrics=entry.metrics,
            plus_minus=entry.metrics_plus_minus,
            how=entry.metrics_are,
            seconds=entry.seconds,
            bytes_up=entry.bytes_up,
            bytes_down=entry.bytes_down,
            notes=entry.notes,
        )


@final
class Following:
    """Folds what is told into the state of a board.

    Guarantee: every method takes constant time, however many rounds there were.

    Args:
        board: where each next state is posted.
        losses: rounds that are passed over are lost; a silo was not asked for them.
        clock: Unix time.
    """

    def __init__(
        self, board: Board, *, losses: bool = True, clock: Callable[[], float] = time.time
    ) -> None:
        self._board, self._losses, self._clock = board, losses, clock
        self._rounds, self._reasons = Rounds(), dict[int, str]()
        self._plan: TrainingPlan | None = None
        self._account: Account | None = None
        self._void: str | None = None

    @property
    def state(self) -> LiveState:
        """As it was posted last."""
        return self._board.state

    def change(self, **changes: Any) -> None:
        """Post the state with these fields changed; `at` moves with every change."""
        current = self.state
        changed = {
            name: value for name, value in changes.items() if getattr(current, name) != value
        }
        if changed:
            self._board.post(replace(current, at=self._clock(), **changed))
        else:
            self._board.beat()

    def stage(self, stage: str, said: str = "", **changes: Any) -> None:
        """What is going on now."""
        current, line = self.state, short(said)
        if (current.stage, current.said) != (stage, line):
            since = current.since if current.stage == stage else self._clock()
            changes |= {"stage": stage, "said": line, "since": since}
        self.change(**changes)

    def begins(
        self,
        plan: TrainingPlan,
        account: Account | None,
        *,
        silos: int,
        needed: int,
        void: str | None = None,
        **changes: Any,
    ) -> None:
        """A plan is run, from its first round or from where it stopped."""
        self._plan, self._account, self._void = plan, account, void
        self._rounds, self._reasons = Rounds(), {}
        fresh = LiveState(watched=self.state.watched, began=0.0, at=0.0)
        kept = ("round", "history", "costs", "measured", "lost", "lost_rounds", "result", "books")
        begun = {name: getattr(fresh, name) for name in kept} | {
            "plan": plan_in_words(plan, silos=silos, needed=needed),
            "promise": promise_of(account, void=void),
            "rounds": plan.federation.rounds,
            "silos": silos,
            "needed": needed,
        }
        self.change(**begun | changes)

    def aborted(self, number: int, reason: str) -> None:
        """An attempt at a round failed; if the round is never finished, that is why."""
        self._reasons[number] = short(reason)

    def round_ends(self, told: RoundTold, **changes: Any) -> None:
        """A round is in the journal; numbers that were passed over are lost."""
        if self._plan is None or told.number <= self.state.round:
            self.change(**changes)
            return
        state, now = self.state, self._clock()
        passed = range(state.round + 1, told.number if self._losses else 0)
        lost = tuple(
            Lost(round=number, reason=self._reasons.pop(number, ""), when=now)
            for number in passed[-_MOST_TOLD:]
        )
        self._reasons = {}
        measured = measured_of(
            self._plan.task, told.metrics, told.plus_minus, how=told.how, number=told.number
        )
        costs, seconds = state.costs, sum(told.seconds.values())
        self._rounds.add(
            Point(
                round=told.number,
                epsilon=told.epsilon,
                value=None if measured is None else measured.value,
                plus_minus=None if measured is None else measured.plus_minus,
                bytes=told.bytes_up + told.bytes_down,
                seconds=seconds,
            )
        )
        spent = float("inf") if told.epsilon is None else told.epsilon
        self.change(
            round=told.number,
            promise=promise_of(self._account, void=self._void, spent=spent),
            measured=measured or state.measured,
            history=self._rounds.history(),
            costs=Costs(
                bytes_up=told.bytes_up,
                bytes_down=told.bytes_down,
                seconds=dict(told.seconds),
                total_bytes_up=costs.total_bytes_up + told.bytes_up,
                total_bytes_down=costs.total_bytes_down + told.bytes_down,
                total_seconds=costs.total_seconds + seconds,
            ),
            lost=(*state.lost, *lost)[-_MOST_TOLD:],
            lost_rounds=state.lost_rounds + len(passed),
            remarks=self._with(f"round {told.number}: {note}" for note in told.notes),
            **changes,
        )

    def measured(self, detail: Mapping[str, Any]) -> None:
        """The model of a round was measured after the round was told; see `books.Measurement`."""
        number = int(detail["of_round"])
        if self._plan is None:
            return
        measured = measured_of(
            self._plan.task,
            dict(detail["metrics"]),
            dict(detail["metrics_plus_minus"]),
            how="secure",
            number=number,
        )
        if measured is not None:
            self._rounds.measured(number, measured.value, measured.plus_minus)
            self.change(measured=measured, history=self._rounds.history())

    def remark(self, line: str) -> None:
        """What whoever runs it should know."""
        self.change(remarks=self._with([line]))

    def _with(self, lines: Iterable[str]) -> tuple[str, ...]:
        return (*self.state.remarks, *map(short, lines))[-_MOST_TOLD:]

    def refused(self, who: str, reason: str) -> None:
        """Somebody refused; the same again is counted and not listed anew."""
        state, told, now = self.state, short(reason), self._clock()
        known = [each for each in state.refusals if (each.who, each.reason) == (who, told)]
        times = known[0].times + 1 if known else 1
        others = tuple(each for each in state.refusals if each not in known)
        entry = Refused(who=who, reason=told, when=now, times=times)
        self.change(refusals=(*others, entry)[-_MOST_TOLD:], refused=state.refused + 1)

    def presences(self, now_there: Iterable[Presence], *, most: int) -> tuple[Presence, ...]:
        """Who is there, those who are missing first; who was so before keeps its time."""
        before = {each.name: each for each in self.state.presences}
        now, listed = self._clock(), []
        for each in now_there:
            known = before.get(each.name)
            same = known is not None and known.presence == each.presence
            since = (
                each.since if each.since is not None else (known.since if known and same else now)
            )
            listed.append(replace(each, since=since, why=short(each.why)))
        order = ("refused", "away", "waited for", "connected")
        return tuple(
            sorted(listed, key=lambda each: (order.index(each.presence), each.name))[:most]
        )


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
