"""The operator's end: a job is three JSON files that name installed classes of ours; jobs are
bounded and follow one another until done.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, final

from nvflare.fuel.flare_api.api_spec import JobNotRunning
from nvflare.fuel.flare_api.flare_api import Session, new_secure_session

from sumus.engines.engine import (
    Look,
    Outcome,
    ServerAwayError,
    Watch,
    told_outcome,
    too_many_refused,
)
from sumus.engines.nvflare.authority import OPERATOR
from sumus.engines.nvflare.controller import PROGRESS
from sumus.engines.nvflare.kits import SERVER_CLASS, SILO_CLASS
from sumus.errors import EngineError
from sumus.parties import Agreement

__all__ = ["NvflareOperator", "job_folder", "write_job"]

_POLL_SECONDS = 0.5
_CONNECT_SECONDS = 15.0
_SILENT_SECONDS = 60.0
_MOST_ROUNDS = 500
"""That are told to somebody who looks, at once."""
_FORGOTTEN_SECONDS = 30.0
_AWAY_SECONDS = 300.0
"""Patience with a server that was there before: it is being started again."""


def write_job(
    folder: Path,
    agreement: Agreement,
    *,
    rounds: int,
    patience: Mapping[str, float],
    start: str = "",
) -> Path:
    """A job folder without a line of code in it."""
    config = folder / "app" / "config"
    config.mkdir(parents=True)
    plan = agreement.plan
    arguments = {"plan": plan.to_toml(), "rounds": rounds, "start": start, **patience}
    files = {
        folder / "meta.json": {
            "name": f"sumus-{plan.hash[:8]}",
            "resource_spec": {},
            # a job that only hands out what there is begins with whoever is there
            "min_clients": agreement.terms.minimum_survivors if rounds else 1,
            "deploy_map": {"app": ["@ALL"]},
        },
        config / "config_fed_server.json": {
            "format_version": 2,
            "workflows": [{"id": "sumus", "path": SERVER_CLASS, "args": arguments}],
        },
        config / "config_fed_client.json": {
            "format_version": 2,
            "executors": [{"tasks": ["sumus"], "executor": {"path": SILO_CLASS, "args": {}}}],
        },
    }
    for path, content in files.items():
        path.write_text(json.dumps(content, indent=2))
    return folder


@final
class NvflareOperator:
    """Submits jobs with an operator's kit; see `Operator` and `Engine.operator`."""

    PATIENCE: ClassVar[Mapping[str, float]] = {
        "set_up_seconds": 120.0,
        "update_seconds": 600.0,
        "stage_seconds": 60.0,
    }

    def __init__(self, kit: Path, *, first_contact_seconds: float = 30.0) -> None:
        self._kit = kit.resolve()
        if not (self._kit / "startup" / "fed_admin.json").is_file():
            raise EngineError(
                f"{kit} is not an operator's kit: it has no startup/fed_admin.json. Give the "
                "folder kits/admin."
            )
        self._session: Session | None = None
        self._patience_seconds, self._heard_end = first_contact_seconds, ""
        # the engine's remarks on connections are not for a terminal
        logging.getLogger("nvflare").addHandler(logging.NullHandler())

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
        with job_folder(agreement, rounds=rounds, patience=patience, start=start) as job:
            ended = self.run_job(job, watch, silos=[silo.name for silo in agreement.design.silos])
        return Outcome(
            finished=ended["phase"] == "finished",
            reason=str(ended.get("error") or ended.get("status")),
            run=_fetched(ended, out),
            refused=too_many_refused(ended, agreement),
            delivered=ended.get("delivered"),
        )

    def run_job(self, job: Path, watch: Watch, *, silos: Sequence[str] = ()) -> dict[str, Any]:
        """Submit a job, follow it to its end, and return how it ended with the folder of its result
        (`result`).

        Args:
            job: its folder.
            watch: is told of every change, and of who is waited for before the engine begins the
                job.
            silos: whom it needs.
        """
        identifier = self._patiently(lambda session: session.submit_job(str(job)))
        told, submitted = 0, time.monotonic()
        last_seen = submitted
        while True:
            status = self._patiently(lambda session: session.get_job_status(identifier))
            if status is None or str(status).startswith("FINISHED"):
                break
            try:
                news = self._connected().do_app_command(identifier, PROGRESS, {"after": told})
                last_seen = time.monotonic()
                if isinstance(news, dict) and "phase" in news:
                    told += len(news["rounds"])
                    watch(news)
            except JobNotRunning:  # not yet, or just ended
                # a server that was restarted calls a job that it has forgotten running for ever
                if str(status) == "RUNNING" and time.monotonic() - last_seen > _FORGOTTEN_SECONDS:
                    status = "forgotten by a restarted server"
                    break
                if str(status) != "RUNNING":
                    self._tell_of_absent(silos, submitted, watch)
            except Exception:  # the server is away for a moment
                last_seen = time.monotonic()
            time.sleep(_POLL_SECONDS)
        return self._result(identifier, str(status), told, watch)

    def _tell_of_absent(self, silos: Sequence[str], since: float, watch: Watch) -> None:
        """The engine begins a job once enough sites are connected, however long that takes."""
        try:
            connected = {
                str(client.name) for client in self._connected().get_connected_client_list()
            }
        except Exception:  # the server is away for a moment
            return
        waited = time.monotonic() - since
        absent = [
            {"silo": name, "seconds": waited, "left": None, "away": True}
            for name in silos
            if name not in connected
        ]
        watch({"phase": "waiting for silos", "rounds": [], "refusals": {}, "waiting": absent})

    def _result(self, identifier: str, status: str, told: int, watch: Watch) -> dict[str, Any]:
        # the server stores it a moment after the job's end
        tries = 20 if status.startswith("FINISHED:COMPLETED") else 4
        state = self._downloaded(identifier, tries=tries)
        if state is None:
            return {
                "phase": "failed",
                "error": f"the job ended with {status} and left no result",
                "rounds": [],
                "status": status,
            }
        watch(state | {"rounds": state["rounds"][told:]})
        return state | {"status": status}

    def _downloaded(self, identifier: str, *, tries: int) -> dict[str, Any] | None:
        """How a job ended, with the folder of its result (`result`) in one to be deleted
        (`download`).
        """
        folder = Path(tempfile.mkdtemp(prefix="sumus-result-"))
        for again in range(tries):
            time.sleep(_POLL_SECONDS if again else 0.0)
            with contextlib.suppress(Exception):
                self._connected().download_job_result(identifier, str(folder))
            outcome = next(folder.rglob("outcome.json"), None)
            if outcome is not None:
                state: dict[str, Any] = json.loads(outcome.read_text())
                return state | {"result": outcome.parent, "download": folder}
        shutil.rmtree(folder, ignore_errors=True)
        return None

    def look(self, known: str | None, after: int) -> Look:
        """See `Operator.look`."""
        try:
            session = self._connected()
            silos = _alive(session.get_system_info().client_info)
            jobs = session.list_jobs(limit=1, reverse=True)
            job = str(jobs[0]["job_id"]) if jobs else None
            running = bool(jobs) and not str(jobs[0].get("status")).startswith("FINISHED")
            news = None
            if job is not None and running:
                news = self._progress_of(session, job, after, about=job != known)
            elif job is not None and (job != known or job != self._heard_end):
                news = self._ended(job, after)
        except Exception as error:  # the engine raises many kinds
            self.close()
            raise EngineError(f"the server does not answer ({error}).") from None
        return Look(silos=silos, job=job, running=running, news=news)

    def _progress_of(
        self, session: Session, job: str, after: int, *, about: bool
    ) -> Mapping[str, Any] | None:
        """How far a running job is; None before it has begun and while it ends."""
        asked = {"after": after, "most": _MOST_ROUNDS, "about": about}
        try:
            news = session.do_app_command(job, PROGRESS, asked)
        except Exception:  # of many kinds: its process is not there yet, or not any more
            return None
        return news if isinstance(news, dict) and "phase" in news else None

    def _ended(self, job: str, after: int) -> Mapping[str, Any] | None:
        """How a job ended, as soon as the server has stored it."""
        ended = self._downloaded(job, tries=1)
        if ended is None:
            return None
        self._heard_end = job
        shutil.rmtree(ended["download"], ignore_errors=True)
        return ended | {"rounds": ended["rounds"][after:]}

    def system(self) -> dict[str, Any]:
        """See `Operator.system`."""
        info = self._patiently(lambda session: session.get_system_info())
        jobs = self._patiently(lambda session: session.list_jobs(limit=5, reverse=True))
        return {
            "server": "up, no job runs"
            if str(info.server_info.status) == "stopped"
            else f"up, {info.server_info.status}",
            "silos": {
                str(client.name): _moment(client.last_connect_time) for client in info.client_info
            },
            "jobs": [
                {key: job.get(key) for key in ("job_id", "job_name", "status", "submit_time")}
                | {"outcome": self._outcome(job)}
                for job in jobs
            ],
        }

    def _outcome(self, job: Mapping[str, Any]) -> str | None:
        """How a job ended by the server's own account; None while it runs. The engine calls a job
        completed whatever became of it.
        """
        if not str(job.get("status")).startswith("FINISHED"):
            return None
        ended = self._downloaded(str(job["job_id"]), tries=1)
        if ended is None:
            return f"lost: {job['status']}, it left no result"
        shutil.rmtree(ended["download"], ignore_errors=True)
        return told_outcome(ended)

    def sites(self) -> list[str]:
        """Names of the sites that are connected."""
        return [
            str(client.name)
            for client in self._patiently(lambda session: session.get_connected_client_list())
        ]

    def wait_for_sites(self, count: int, *, seconds: float) -> list[str]:
        """See `Operator.wait_for_sites`."""
        until = time.monotonic() + seconds
        while len(connected := self.sites()) < count and time.monotonic() < until:
            time.sleep(_POLL_SECONDS)
        return connected

    def close(self) -> None:
        """End the session."""
        if self._session is not None:
            with contextlib.suppress(Exception):
                self._session.close()
            self._session = None

    def _connected(self) -> Session:
        if self._session is None:
            with contextlib.redirect_stdout(io.StringIO()):  # it prints
                self._session = new_secure_session(
                    OPERATOR, str(self._kit), timeout=_CONNECT_SECONDS
                )
        return self._session

    def _patiently(self, command: Callable[[Session], Any]) -> Any:
        """Run a command, connecting again while the server is away."""
        until = time.monotonic() + self._patience_seconds
        while True:
            try:
                answer = command(self._connected())
                self._patience_seconds = _AWAY_SECONDS
                return answer
            except Exception as error:  # the engine raises many kinds
                self.close()
                if time.monotonic() > until:
                    fix = (
                        "Check that `sumus federation start` runs, its log, and that this machine "
                        "reaches the address of the kit"
                    )
                    raise ServerAwayError(f"the server does not answer ({error}). {fix}.") from None
                time.sleep(_POLL_SECONDS)


def _fetched(ended: Mapping[str, Any], out: Path) -> Path | None:
    """Move the run folder out of a downloaded result."""
    if "download" not in ended:
        return None
    record = next((Path(ended["result"]) / "run").glob("*/journal.jsonl"), None)
    place = None
    if record is not None:
        out.mkdir(parents=True, exist_ok=True)
        place = out / record.parent.name
        shutil.copytree(record.parent, place, dirs_exist_ok=True)
    shutil.rmtree(ended["download"], ignore_errors=True)
    return place


def _alive(clients: Sequence[Any]) -> tuple[str, ...]:
    """Names of the sites that were heard of about as lately as the others, by the server's clock:
    the engine calls a site that was cut off connected for minutes.
    """
    heard = {str(client.name): float(client.last_connect_time) for client in clients}
    return tuple(name for name in heard if heard[name] > max(heard.values()) - _SILENT_SECONDS)


def _moment(seconds: Any) -> str:
    """A time of the engine, as people write it."""
    try:
        return datetime.fromtimestamp(float(seconds), UTC).isoformat(timespec="seconds")
    except (TypeError, ValueError, OverflowError):
        return str(seconds)


@contextlib.contextmanager
def job_folder(
    agreement: Agreement, *, rounds: int, patience: Mapping[str, float], start: str = ""
) -> Iterator[Path]:
    """A job folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="sumus-job-") as folder:
        yield write_job(
            Path(folder) / "job", agreement, rounds=rounds, patience=patience, start=start
        )
