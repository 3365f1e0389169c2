"""The server's process of a job: runs a `ServerJob` over this engine, and tells how far it is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, final

from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.signal import Signal

from sumus.engines.kit import STATE_FOLDER
from sumus.engines.nvflare.driver import NvflareDriver
from sumus.engines.nvflare.job_folders import tidy_server
from sumus.engines.server_job import ServerJob
from sumus.files import replace_atomically
from sumus.parties import Patience

__all__ = ["PROGRESS", "ServerController"]

PROGRESS = "sumus_progress"
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
        start: the model to begin with, as the operator sends it; empty: the server finds it.
    """

    def __init__(
        self,
        plan: str,
        rounds: int,
        set_up_seconds: float = 120.0,
        update_seconds: float = 600.0,
        stage_seconds: float = 60.0,
        start: str = "",
    ) -> None:
        super().__init__()
        self._job = ServerJob(
            plan,
            rounds=rounds,
            patience=Patience(set_up=set_up_seconds, update=update_seconds, stage=stage_seconds),
            start=start,
            most_incomplete=_ROUNDS_WITHOUT_SOMEBODY,
        )

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Answer questions about the progress from now on."""
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
        tidy_server(Path(workspace.get_root_dir()))

        def stopped() -> bool:
            return bool(abort_signal.triggered)

        def connect(names: tuple[str, ...]) -> NvflareDriver:
            return NvflareDriver(engine, names, stopped=stopped)

        try:
            self._job.run(Path(workspace.get_root_dir()) / STATE_FOLDER, connect, stopped=stopped)
        finally:
            self._leave_result(Path(workspace.get_run_dir(fl_ctx.get_job_id())) / "sumus")

    def _progress(self, topic: str, data: Any, fl_ctx: FLContext, *args: Any) -> dict[str, Any]:
        """What the operator's command asks for while the job runs: rounds after the one it
        knows.
        """
        asked = data if isinstance(data, dict) else {}
        most = asked.get("most")
        return self._job.state(
            after=int(asked.get("after", 0)),
            most=None if most is None else int(most),
            about=bool(asked.get("about")),
        )

    def _leave_result(self, result: Path) -> None:
        """Copy what the operator may download: the run folder and how the job ended. The server's
        own copy stays.
        """
        result.mkdir(parents=True, exist_ok=True)
        state = self._job.state(about=True)
        if state["run"] is not None:
            shutil.copytree(
                state["run"], result / "run" / Path(state["run"]).name, dirs_exist_ok=True
            )
        replace_atomically(result / "outcome.json", json.dumps(state).encode())
