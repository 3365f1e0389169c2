"""A federation watched by its operator, or by the server itself: what a job tells of its progress,
and who is connected.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

from sumus.guarantee import Account
from sumus.plan import TrainingPlan
from sumus.watching.board import Board
from sumus.watching.following import Following, RoundTold
from sumus.watching.state import MOST_LISTED, STAGES, Connection, LiveState, Presence, Result

__all__ = ["FederationWatcher", "federation_board"]

_PHASES = {
    "starting": "starting",
    "waiting for silos": "waiting",
    "greeting": "greeting",
    "paused": "paused",
    "finished": "finished",
}
_LATE_SECONDS = 2.0  # who answers before is not waited for


def federation_board(watched: str, name: str, *, patience_seconds: float | None = None) -> Board:
    """A board for a federation of which nothing is known yet.

    Args:
        watched: "operator" or "server".
        name: where the server is.
        patience_seconds: see `Board`.
    """
    now = time.time()
    state = LiveState(watched=watched, name=name, began=now, at=now, since=now, stage="connecting")
    return Board(state, patience_seconds=patience_seconds)


@final
class FederationWatcher:
    """Posts how a federation goes.

    Guarantee: of what it is told, only names on the roster, their presence, the reasons that they
        gave to the server and the round's sums reach the board.

    Args:
        board: where.
        names: of the silos, as the roster has them.
        clock: Unix time.
    """

    def __init__(
        self, board: Board, *, names: Sequence[str] = (), clock: Callable[[], float] = time.time
    ) -> None:
        self.follow, self._names, self._clock = Following(board, clock=clock), tuple(names), clock
        self._needed = 0
        self._account: Account | None = None
        self._plan: TrainingPlan | None = None
        self._void: str | None = None
        self._there: Mapping[str, float | None] | None = None
        self._engine_says = False
        self._refusals: dict[str, str] = {}
        self._waiting: Sequence[Mapping[str, Any]] = ()
        self._tries = 0

    @property
    def plan_hash(self) -> str | None:
        """Of the plan that is watched."""
        return None if self._plan is None else self._plan.hash

    def agreed(
        self,
        plan: TrainingPlan,
        account: Account | None,
        *,
        names: Sequence[str],
        needed: int,
        void: str | None = None,
    ) -> None:
        """A plan is known: what it says is shown from now on.

        Args:
            needed: silos in a round.
            void: why the guarantee does not hold for this run, if it does not.
        """
        self._plan, self._names, self._needed = plan, tuple(names), needed
        self._account, self._void = account, void
        self.follow.begins(plan, account, silos=len(names), needed=needed, void=void)
        self._show_presences()

    def told(self, news: Mapping[str, Any]) -> None:
        """How far a job is, in the words of the engines' progress."""
        void = news.get("void")
        if void != self._void and self._plan is not None and void is not None:
            self.agreed(
                self._plan, self._account, names=self._names, needed=self._needed, void=str(void)
            )
        for number, reason in (news.get("aborted") or {}).items():
            self.follow.aborted(int(number), str(reason))
        for line in news.get("rounds", ()):
            self.follow.round_ends(RoundTold.of(line))
        self._waiting = tuple(news.get("waiting", ()))
        if not self._engine_says:
            self._there = self._told_presence(news)
        self._hear_refusals(news.get("refusals") or {})
        self._show_presences()
        stage, said = self._stage_of(news)
        self.follow.stage(stage, said)

    def connected(self, silos: Mapping[str, float | None]) -> None:
        """The silos that the engine is connected with, and since when if that is known."""
        self._engine_says = True
        self._there = {
            name: silos[name] for name in silos if name in self._names or not self._names
        }
        self._show_presences()

    def answered(self) -> None:
        """The server is there."""
        connection = self.follow.state.connection
        self._tries = 0
        if connection is None or not connection.up:
            self.follow.change(connection=Connection(up=True, since=self._clock()))

    def unanswered(self, why: str, *, next_try: float) -> None:
        """The server is not there.

        Args:
            next_try: Unix time.
        """
        known, self._tries = self.follow.state.connection, self._tries + 1
        since = known.since if known is not None and not known.up else self._clock()
        connection = Connection(
            up=False, since=since, why=why, tries=self._tries, next_try=next_try
        )
        self.follow.stage(
            "connecting", connection=connection, ready=False, unready="the server does not answer"
        )

    def waits(self) -> None:
        """A job is there and has not begun."""
        self._waiting = ()
        self._show_presences()
        self.follow.stage("waiting", self.follow.state.unready)

    def idle(self, said: str) -> None:
        """No job runs."""
        self._waiting = ()
        self._show_presences()
        if not self.follow.state.ended:
            self.follow.stage("idle", said)

    def finished(self, result: Result) -> None:
        """The run is on the disk of this machine."""
        self.follow.stage("finished", result=result)

    def failed(self, why: str, *, stopped: bool = False) -> None:
        """Whoever trains has given up."""
        refused = not stopped and len(self._names) - len(self._refusals) < self._needed
        stage = "stopped" if stopped else "refused" if refused else "failed"
        self.follow.stage(stage, why, ready=False)

    def _told_presence(self, news: Mapping[str, Any]) -> Mapping[str, float | None] | None:
        """Who is there by a job's own account, where the engine is not asked."""
        if news["phase"] == "waiting for silos":
            away = {str(each["silo"]) for each in self._waiting}
            return dict.fromkeys(name for name in self._names if name not in away)
        return dict.fromkeys(map(str, news["present"])) if news.get("present") else self._there

    def _hear_refusals(self, refusals: Mapping[str, Any]) -> None:
        heard = {str(name): str(reason) for name, reason in refusals.items() if name in self._names}
        for name, reason in sorted(heard.items()):
            if self._refusals.get(name) != reason:
                self.follow.refused(name, reason)
        self._refusals = heard

    def _stage_of(self, news: Mapping[str, Any]) -> tuple[str, str]:
        """What is going on, and a line about it."""
        phase, error = str(news["phase"]), str(news.get("error") or "")
        if phase == "failed":
            few = len(self._names) - len(self._refusals) < self._needed
            return ("refused" if few else "failed"), error
        stage = _PHASES.get(phase, str(news.get("stage", "local")))
        late = [each for each in self._waiting if self._is_late(each)]
        names = ", ".join(sorted(str(each["silo"]) for each in late))
        said = f"waiting for {names}" if names else ""
        return (stage if stage in STAGES else "local"), said

    def _is_late(self, awaited: Mapping[str, Any]) -> bool:
        """Whether somebody is waited for, and not everybody computes."""
        some = len(self._waiting) < len(self._names)
        return float(awaited["seconds"]) >= _LATE_SECONDS and (some or bool(awaited["away"]))

    def _show_presences(self) -> None:
        there, now = self._there, self._clock()
        waited = {str(each["silo"]): each for each in self._waiting if self._is_late(each)}
        listed = []
        for name in self._names or sorted(there or ()):
            if name in self._refusals:
                listed.append(Presence(name=name, presence="refused", why=self._refusals[name]))
            elif name in waited:
                away, since = waited[name]["away"], now - float(waited[name]["seconds"])
                known = "away" if away else "waited for"
                listed.append(Presence(name=name, presence=known, since=round(since)))
            elif there is not None and name in there:
                listed.append(Presence(name=name, presence="connected", since=there[name]))
            elif there is not None:
                listed.append(Presence(name=name, presence="away"))
        connected = sum(each.presence in ("connected", "waited for") for each in listed)
        enough = bool(listed) and connected >= max(1, self._needed)
        few = f"{connected} silos are there, a round needs {self._needed}"
        up = self.follow.state.connection
        ready = enough and (up is None or up.up)
        self.follow.change(
            presences=self.follow.presences(listed, most=MOST_LISTED),
            silos=len(self._names) or len(listed),
            connected=connected,
            ready=ready,
            unready="" if ready else few,
        )
