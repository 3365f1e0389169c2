"""One job at the server, whatever the engine: opens the plan's run folder, lets the server party
train a bounded number of rounds, and knows how far it is.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

from sumus.engines.kit import SERVER_KEY
from sumus.errors import StorageError, SumusError
from sumus.files import plain_json, read_bytes
from sumus.parties import (
    Agreement,
    Driver,
    Patience,
    SecureSum,
    ServerParty,
    agree_on,
    read_rosters,
)
from sumus.plan import TrainingPlan
from sumus.runs import finish, is_over, open_run, start_of
from sumus.secagg import Identity, Roster

__all__ = ["ServerJob"]


@final
class ServerJob:
    """Trains a plan for a while.

    Args:
        plan: TOML text of the agreed plan.
        rounds: the most rounds that this job trains.
        most_incomplete: the job ends after so many rounds with a silo missing. None: it goes on.
        patience: with the silos.
        start: the model to begin with, as `Start.to_text` wrote it; empty: the server finds it.
        changed: called after every change of the state.
    """

    def __init__(
        self,
        plan: str,
        *,
        rounds: int,
        patience: Patience,
        start: str = "",
        most_incomplete: int | None = None,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._plan, self._rounds, self._patience = plan, rounds, patience
        self._start, self._most_incomplete, self._changed = start, most_incomplete, changed
        self._lock = threading.Lock()
        self._state: dict[str, Any] = {
            "phase": "starting",
            "rounds": [],
            "present": [],
            "refusals": {},
            "error": None,
            "run": None,
        }

    def state(self, *, after: int = 0) -> dict[str, Any]:
        """How far it is, in plain JSON, with the rounds after the first `after` ones."""
        with self._lock:
            state = self._state | {"rounds": self._state["rounds"][after:]}
        return dict(plain_json(state))

    def run(
        self,
        folder: Path,
        connect: Callable[[tuple[str, ...]], Driver],
        *,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """Train; what stops it is told as the state's error.

        Args:
            folder: the server's own, with roster, key and runs.
            connect: the engine's driver to silos of these names.
            stopped: whether the job was aborted.
        """
        try:
            agreement = agree_on(TrainingPlan.from_toml(self._plan))
            roster = read_rosters(folder).current
            identity = _own_identity(folder / SERVER_KEY)
            driver = connect(roster.names)
            try:
                summing = SecureSum(
                    agreement, roster, driver, identity=identity, patience=self._patience
                )
                self._train(summing, agreement, roster, folder / "runs", stopped)
            finally:
                driver.close()
        except SumusError as error:
            self._tell(phase="failed", error=str(error))

    def _train(
        self,
        summing: SecureSum,
        agreement: Agreement,
        roster: Roster,
        runs: Path,
        stopped: Callable[[], bool],
    ) -> None:
        start = start_of(agreement, runs, self._start)
        party = ServerParty(
            agreement,
            summing,
            start=None if start is None else start.parameters,
        )
        self._tell(phase="greeting")
        try:
            party.greet()
        finally:
            self._tell(refusals=dict(party.refusals), present=list(party.present))
        with open_run(agreement, roster, runs, simulated=party.simulated, start=start) as run:
            lines = [_line(record) for record in run.rounds()]
            self._tell(phase="training", run=str(run.path), rounds=lines)
            if run.summary is None:
                incomplete = 0
                for record in party.train(run, rounds=self._rounds):
                    lines = [*lines, _line(record)]
                    self._tell(
                        rounds=lines, present=list(party.present), refusals=dict(party.refusals)
                    )
                    incomplete += len(party.present) < len(roster)
                    if stopped() or incomplete == self._most_incomplete:
                        break
                if is_over(run):
                    finish(run, party)
            self._tell(phase="finished" if run.summary is not None else "paused")

    def _tell(self, **news: Any) -> None:
        with self._lock:
            self._state.update(news)
        self._changed()


def _own_identity(path: Path) -> Identity:
    """The server's signing key, as `init` made it or the operator brought it."""
    if not path.exists():
        raise StorageError(
            f"{path} is missing: the server cannot sign. Copy the server.key there whose server.pub "
            "is on the roster."
        )
    return Identity.parse(read_bytes(path).decode())


def _line(record: Any) -> dict[str, Any]:
    measured = ("metrics", "metrics_plus_minus")
    kept = (
        "round",
        "epsilon_spent",
        "delta",
        "survivors",
        "dropped",
        "notes",
        "seconds",
        *measured,
    )
    promised = math.isfinite(record.epsilon_spent)
    return {key: getattr(record, key) for key in kept} | (
        {} if promised else {"epsilon_spent": None}
    )
