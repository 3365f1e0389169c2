"""An operator that looks, again and again, for a page that is watched; the server may come and
go.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, final

from sumus.engines.engine import Look, Operator
from sumus.errors import EngineError, SumusError
from sumus.parties import agree_on
from sumus.plan import TrainingPlan
from sumus.service import Signs

if TYPE_CHECKING:
    from sumus.watching import FederationWatcher

__all__ = ["Looking"]

_LOOK_SECONDS = 0.7
_IDLE_SECONDS = 2.0
_MOST_SECONDS = 15.0


@final
class Looking:
    """Asks the server how it goes, and tells the watcher.

    Guarantee: a server that does not answer is asked again, later and later, up to every 15
        seconds; none of its answers can end the watching.

    Args:
        operator: who asks.
        watcher: who is told.
        also: called at every look, for what the operator's own folder says.
    """

    def __init__(
        self,
        operator: Operator,
        watcher: FederationWatcher,
        *,
        also: Callable[[], None] = lambda: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._operator, self._watcher, self._sleep = operator, watcher, sleep
        self._also = also
        self._job: str | None = None
        self._told = 0
        self._pause = 1.0

    def once(self) -> float:
        """Look once; returns after how many seconds to look again."""
        self._also()
        try:
            look = self._operator.look(self._job, self._told)
        except EngineError as error:
            self._pause = min(2.0 * self._pause, _MOST_SECONDS)
            self._watcher.unanswered(str(error), next_try=time.time() + self._pause)
            return self._pause
        self._pause = 0.5
        self._watcher.answered()
        self._hear(look)
        return _LOOK_SECONDS if look.running else _IDLE_SECONDS

    def until(self, stopped: Callable[[], bool], signs: Signs | None = None) -> None:
        """Look until somebody says stop.

        Args:
            signs: of the process, given by this loop.
        """
        signs = signs or Signs()
        while not stopped():
            signs.turned()
            due = time.monotonic() + self.once()
            while not stopped() and time.monotonic() < due:
                self._sleep(0.1)
                signs.turned()

    def _hear(self, look: Look) -> None:
        news = look.news
        if news is not None and "plan" in news and self._is_new(str(news["plan"])):
            self._job, self._told = None, 0  # its rounds are asked for from the first one on
            news = None
        self._watcher.connected(dict.fromkeys(look.silos))
        if news is not None:
            self._job, self._told = look.job, self._told + len(news["rounds"])
            self._watcher.told(news)
        elif look.running:
            self._watcher.waits()
        elif look.job is None:
            self._watcher.idle("no job has run")

    def _is_new(self, text: str) -> bool:
        """Whether a job's plan is another one; it is shown from now on, with the guarantee that this
        operator's own Sumus computes.
        """
        try:
            plan = TrainingPlan.from_toml(text)
            if plan.hash == self._watcher.plan_hash:
                return False
            agreement = agree_on(plan)
        except SumusError as error:
            self._watcher.follow.remark(f"the job's plan cannot be read: {error}")
            return False
        self._watcher.agreed(
            agreement.plan,
            agreement.certified,
            names=agreement.names,
            needed=agreement.terms.minimum_survivors,
        )
        return True
