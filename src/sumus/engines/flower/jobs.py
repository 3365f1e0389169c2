"""The operator's end: submits an app without a line of code in it, and follows the server's own
account of the run.

Flower brings no files back to an operator, so this one works next to the server's kit.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, final

from sumus.engines.engine import (
    Look,
    Outcome,
    ServerAwayError,
    Watch,
    told_outcome,
    too_many_refused,
)
from sumus.engines.flower.kits import flwr, registered
from sumus.engines.flower.server_app import PROGRESS
from sumus.engines.kit import SERVER, STATE_FOLDER, Kit
from sumus.errors import EngineError
from sumus.files import toml_value
from sumus.parties import Agreement

__all__ = ["FlowerOperator", "write_app"]

_POLL_SECONDS = 0.5
_ASK_SECONDS = 10.0
"""Between two questions whether the run still goes on: each starts a process."""
_ENDED = "finished"


def write_app(
    folder: Path,
    agreement: Agreement,
    *,
    rounds: int,
    patience: Mapping[str, float],
    start: str = "",
) -> Path:
    """A Flower app without a line of code in it: it names the installed apps of ours and carries
    the plan for the server's side.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = {"plan": agreement.plan.to_toml(), "rounds": rounds, "start": start, **patience}
    lines = [
        "[project]",
        'name = "sumus-federation"',
        'version = "1.0.0"',
        'license = "Apache-2.0"',
        "dependencies = []",
        "[tool.flwr.app]",
        'publisher = "sumus"',
        "[tool.flwr.app.components]",
        'serverapp = "sumus.engines.flower.server_app:app"',
        'clientapp = "sumus.engines.flower.client_app:app"',
        "[tool.flwr.app.config]",
        *(f"{key} = {toml_value(value)}" for key, value in config.items()),
    ]
    (folder / "pyproject.toml").write_text("\n".join(lines) + "\n")
    return folder


@final
class FlowerOperator:
    """Submits runs with an operator's kit; see `Operator` and `Engine.operator`."""

    PATIENCE: ClassVar[Mapping[str, float]] = {  # every message starts a process at the silo
        "set_up_seconds": 300.0,
        "update_seconds": 900.0,
        "stage_seconds": 300.0,
    }

    def __init__(self, kit: Path, *, first_contact_seconds: float = 30.0) -> None:
        self._kit, self._patience_seconds = Kit.open(kit, "admin"), first_contact_seconds
        self._server = kit.resolve().parent / SERVER / STATE_FOLDER
        if not self._server.is_dir():
            raise EngineError(
                f"{kit} is not next to the server's kit, and Flower brings no files back. Work in "
                "the folder of `sumus federation init`, or use --engine nvflare."
            )

    def run(
        self,
        agreement: Agreement,
        *,
        rounds: int,
        patience: Mapping[str, float],
        out: Path,
        watch: Watch,
        start: str = "",
    ) -> Outcome:
        """See `Operator.run`."""
        with tempfile.TemporaryDirectory(prefix="sumus-app-") as folder:
            app = write_app(
                Path(folder) / "app", agreement, rounds=rounds, patience=patience, start=start
            )
            run = str(self._asked("run", str(app))["run-id"])
        told, asked, status = 0, time.monotonic(), ""
        while True:
            state = self._state_of(run)
            if state is not None:
                watch({**state, "rounds": state["rounds"][told:]})
                told = len(state["rounds"])
                if state["ended"]:
                    return Outcome(
                        finished=state["phase"] == "finished",
                        reason=str(state["error"] or state["phase"]),
                        run=_copied(state["run"], out),
                        refused=too_many_refused(state, agreement),
                        delivered=state.get("delivered"),
                    )
            if status.startswith(_ENDED):
                reason = f"the run ended with {status} and left no result"
                return Outcome(finished=False, reason=reason, run=None)
            if time.monotonic() - asked > _ASK_SECONDS:
                status, asked = self._status(run), time.monotonic()
            time.sleep(_POLL_SECONDS)

    def look(self, known: str | None, after: int) -> Look:
        """See `Operator.look`."""
        nodes = flwr(self._kit, "supernode", "list")["nodes"]
        silos = tuple(self._online(nodes))
        state = _read(self._server / PROGRESS)
        if state is None:
            return Look(silos=silos)
        news = {**state, "rounds": state["rounds"][after:]}
        if str(state["job"]) == known:
            news.pop("plan", None)
        return Look(silos=silos, job=str(state["job"]), running=not state["ended"], news=news)

    def system(self) -> dict[str, Any]:
        """See `Operator.system`."""
        runs = self._asked("list", "--limit", "5")["runs"]
        jobs = [
            {
                "job_id": str(run["run-id"]),
                "job_name": str(run["fab-id"]),
                "status": str(run["status"]),
                "submit_time": str(run["pending-at"]),
                "outcome": self._outcome(str(run["run-id"])),
            }
            for run in runs
        ]
        busy = any(not str(job["status"]).startswith(_ENDED) for job in jobs)
        return {
            "server": "up, a job runs" if busy else "up, no job runs",
            "silos": self._connected(),
            "jobs": jobs,
        }

    def _outcome(self, run: str) -> str | None:
        """How the latest run ended by the server's own account; None of the others."""
        state = self._state_of(run)
        return told_outcome(state) if state is not None and state["ended"] else None

    def wait_for_sites(self, count: int, *, seconds: float) -> list[str]:
        """See `Operator.wait_for_sites`."""
        until = time.monotonic() + seconds
        while len(connected := self._connected()) < count and time.monotonic() < until:
            time.sleep(_POLL_SECONDS)
        return list(connected)

    def close(self) -> None:
        """See `Operator.close`; no session stays open."""

    def _connected(self) -> dict[str, str]:
        return self._online(self._asked("supernode", "list")["nodes"])

    def _online(self, nodes: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        """The silos whose nodes are online, with the time since when."""
        names = registered(self._server)
        return {
            names[int(node["node-id"])]: str(node["online-at"])
            for node in nodes
            if node["status"] == "online" and int(node["node-id"]) in names
        }

    def _status(self, run: str) -> str:
        try:
            return str(self._asked("list", "--run-id", run)["runs"][0]["status"])
        except EngineError:  # the server is away for a moment
            return ""

    def _asked(self, *arguments: str) -> dict[str, Any]:
        """The answer of Flower's command line, asked again while the server is away."""
        until = time.monotonic() + self._patience_seconds
        while True:
            try:
                return flwr(self._kit, *arguments)
            except EngineError as error:
                if time.monotonic() > until:
                    raise ServerAwayError(str(error)) from None
                time.sleep(_POLL_SECONDS)

    def _state_of(self, run: str) -> dict[str, Any] | None:
        """How far the server says a run is, once it has begun."""
        state = _read(self._server / PROGRESS)
        return state if state is not None and state["job"] == run else None


def _read(path: Path) -> dict[str, Any] | None:
    return dict(json.loads(path.read_text())) if path.is_file() else None


def _copied(run: str | None, out: Path) -> Path | None:
    if run is None:
        return None
    out.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copytree(run, out / Path(run).name, dirs_exist_ok=True))
