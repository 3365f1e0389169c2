"""The server's process of a job: opens the run folder, lets the server party train a bounded number
of rounds, and tells how far it is.
"""

from __future__ import annotations

import json
import math
import shutil
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any, final

from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.signal import Signal

from sumus.engines.nvflare.driver import NvflareDriver
from sumus.engines.nvflare.orphans import end_with_parent
from sumus.errors import SumusError
from sumus.files import plain_json, read_bytes, replace_atomically
from sumus.parties import Agreement, Patience, SecureSum, ServerParty, agree_on
from sumus.plan import TrainingPlan
from sumus.runs import finish, is_over, open_run
from sumus.secagg import Roster

__all__ = ["PROGRESS", "SERVER_FOLDER", "ServerController"]

PROGRESS = "sumus_progress"
SERVER_FOLDER = "sumus"
"""Roster and runs of the server, below its kit."""

_ROUNDS_WITHOUT_SOMEBODY = 10
"""A site that was restarted can only enter a new job, so a job with a silo missing ends after so
many rounds.
"""


@final
class ServerController(Controller):  # type: ignore[misc]
    """What a job of ours names on the server's side.

    Args:
        plan: TOML text of the agreed plan.
        rounds: the most rounds that this job trains.
        set_up_seconds: patience with silos that join.
        update_seconds: patience with local steps.
        stage_seconds: patience with answers that need no computation.
    """

    def __init__(
        self,
        plan: str,
        rounds: int,
        set_up_seconds: float = 120.0,
        update_seconds: float = 600.0,
        stage_seconds: float = 60.0,
    ) -> None:
        super().__init__()
        self._plan, self._rounds = plan, rounds
        self._patience = Patience(set_up=set_up_seconds, update=update_seconds, stage=stage_seconds)
        self._lock = threading.Lock()
        self._driver: NvflareDriver | None = None
        self._state: dict[str, Any] = {
            "phase": "starting",
            "rounds": [],
            "present": [],
            "refusals": {},
            "error": None,
            "run": None,
        }

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Answer questions about the progress from now on."""
        end_with_parent()
        fl_ctx.get_engine().register_app_command(PROGRESS, self._progress)

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Nothing is left to stop: the rounds end with the control flow."""

    def process_result_of_unknown_task(
        self, client: Any, task_name: str, client_task_id: str, result: Any, fl_ctx: FLContext
    ) -> None:
        """Our jobs send no tasks."""

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """One job."""
        engine = fl_ctx.get_engine()
        workspace = engine.get_workspace()
        folder = Path(workspace.get_root_dir()) / SERVER_FOLDER
        result = Path(workspace.get_run_dir(fl_ctx.get_job_id())) / "sumus"
        try:
            agreement = agree_on(TrainingPlan.from_toml(self._plan))
            roster = Roster.parse(read_bytes(folder / "roster.toml").decode())
            self._driver = driver = NvflareDriver(
                engine, roster.names, stopped=lambda: bool(abort_signal.triggered)
            )
            try:
                self._train(agreement, roster, driver, folder / "runs", abort_signal)
            finally:
                driver.close()
        except SumusError as error:
            self._tell(phase="failed", error=str(error))
        finally:
            self._leave_result(result)

    def _train(
        self,
        agreement: Agreement,
        roster: Roster,
        driver: NvflareDriver,
        runs: Path,
        abort_signal: Signal,
    ) -> None:
        party = ServerParty(
            agreement, SecureSum(agreement, roster, driver, patience=self._patience)
        )
        self._tell(phase="greeting")
        try:
            party.greet()
        finally:
            self._tell(refusals=dict(party.refusals), present=list(party.present))
        with open_run(agreement, roster, runs, simulated=party.simulated) as run:
            self._tell(
                phase="training",
                run=str(run.path),
                rounds=[_line(record) for record in run.rounds()],
            )
            if run.summary is None:
                incomplete = 0
                for record in party.train(run, rounds=self._rounds):
                    with self._lock:
                        self._state["rounds"].append(_line(record))
                    self._tell(present=list(party.present), refusals=dict(party.refusals))
                    incomplete += len(party.present) < len(roster)
                    if abort_signal.triggered or incomplete >= _ROUNDS_WITHOUT_SOMEBODY:
                        break
                if is_over(run):
                    finish(run, party)
            self._tell(phase="finished" if run.summary is not None else "paused")

    def _tell(self, **news: Any) -> None:
        with self._lock:
            self._state.update(news)

    def _progress(self, topic: str, data: Any, fl_ctx: FLContext, *args: Any) -> dict[str, Any]:
        """What the operator's command asks for while the job runs: rounds after the one it
        knows.
        """
        after = int(data.get("after", 0)) if isinstance(data, dict) else 0
        with self._lock:
            state = dict(self._state)
        state["rounds"] = state["rounds"][after:]
        state["waiting"] = (
            [] if self._driver is None else [asdict(each) for each in self._driver.awaited()]
        )
        return dict(plain_json(state))

    def _leave_result(self, result: Path) -> None:
        """Copy what the operator may download: the run folder and how the job ended. The server's
        own copy stays.
        """
        result.mkdir(parents=True, exist_ok=True)
        with self._lock:
            state = dict(self._state)
        if state["run"] is not None:
            shutil.copytree(
                state["run"], result / "run" / Path(state["run"]).name, dirs_exist_ok=True
            )
        replace_atomically(result / "outcome.json", json.dumps(plain_json(state)).encode())


def _line(record: Any) -> dict[str, Any]:
    measured = ("accuracy", "accuracy_plus_minus", "loss", "loss_plus_minus")
    kept = ("round", "epsilon_spent", "delta", "survivors", "dropped", "seconds", *measured)
    promised = math.isfinite(record.epsilon_spent)
    return {key: getattr(record, key) for key in kept} | (
        {} if promised else {"epsilon_spent": None}
    )
