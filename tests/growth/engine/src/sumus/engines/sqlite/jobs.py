"""The operator's end: leaves a job in the mailbox and follows what the server says of it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, final

from sumus.engines.engine import Look, Outcome, Watch, too_many_refused
from sumus.engines.kit import Kit
from sumus.engines.sqlite.kits import mailbox_of
from sumus.errors import EngineError
from sumus.parties import Agreement

__all__ = ["SqliteOperator"]

_POLL_SECONDS = 0.2
_SILENT_SECONDS = 60.0
"""A silo that was not there for so long is away; local steps may take a while."""


@final
class SqliteOperator:
    """Submits jobs with an operator's kit; see `Operator` and `Engine.operator`."""

    PATIENCE: ClassVar[Mapping[str, float]] = {
        "set_up_seconds": 120.0,
        "update_seconds": 600.0,
        "stage_seconds": 60.0,
    }

    def __init__(self, kit: Path, *, first_contact_seconds: float = 30.0) -> None:
        Kit.open(kit, "admin")
        self._mailbox, self._first_contact_seconds = mailbox_of(kit), first_contact_seconds

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
        self._wait_for_server()
        request = {"plan": agreement.plan.to_toml(), "rounds": rounds, "start": start, **patience}
        number, told = self._mailbox.submit(request), 0
        while True:
            state, ended = next(
                (state, ended) for job, state, ended in self._mailbox.jobs() if job == number
            )
            if state is not None:
                watch({**state, "rounds": state["rounds"][told:]})
                told = len(state["rounds"])
            if ended and state is not None:
                return Outcome(
                    finished=state["phase"] == "finished",
                    reason=str(state["error"] or state["phase"]),
                    run=_copied(state["run"], out),
                    refused=too_many_refused(state, agreement),
                )
            time.sleep(_POLL_SECONDS)

    def look(self, known: str | None, after: int) -> Look:
        """See `Operator.look`."""
        if not self._mailbox.path.exists():
            raise EngineError("no server has run.")
        silos = tuple(self._connected())
        jobs = self._mailbox.jobs()
        if not jobs:
            return Look(silos=silos)
        number, state, ended = jobs[0]
        news = None if state is None else {**state, "rounds": state["rounds"][after:]}
        return Look(silos=silos, job=str(number), running=not ended, news=news)

    def system(self) -> dict[str, Any]:
        """See `Operator.system`."""
        self._wait_for_server()
        jobs = self._mailbox.jobs()
        busy = any(not ended for _, _, ended in jobs)
        return {
            "server": "up, a job runs" if busy else "up, no job runs",
            "silos": self._connected(),
            "jobs": [
                {"job_id": str(number), "job_name": "sumus", "status": (state or {}).get("phase")}
                for number, state, _ in jobs[:5]
            ],
        }

    def wait_for_sites(self, count: int, *, seconds: float) -> list[str]:
        """See `Operator.wait_for_sites`."""
        self._wait_for_server()
        until = time.monotonic() + seconds
        while len(connected := self._connected()) < count and time.monotonic() < until:
            time.sleep(_POLL_SECONDS)
        return list(connected)

    def close(self) -> None:
        """See `Operator.close`; no session stays open."""

    def _wait_for_server(self) -> None:
        until = time.monotonic() + self._first_contact_seconds
        while not self._mailbox.path.exists():
            if time.monotonic() > until:
                raise EngineError(
                    f"{self._mailbox.path} is not there: no server has run. Start it with `sumus "
                    "federation start`."
                )
            time.sleep(_POLL_SECONDS)
        self._mailbox.create()

    def _connected(self) -> dict[str, str]:
        heard = self._mailbox.heard()
        return {
            name: datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
            for name, seconds in sorted(heard.items())
            if time.time() - seconds < _SILENT_SECONDS
        }


def _copied(run: str | None, out: Path) -> Path | None:
    if run is None:
        return None
    out.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copytree(run, out / Path(run).name, dirs_exist_ok=True))
