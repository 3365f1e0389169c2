"""One job at the server, whatever the engine: opens the plan's run folder, lets the server party
train a bounded number of rounds, and knows how far it is.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, final

from sumus.books import RunFolder
from sumus.engines.kit import SERVER_KEY
from sumus.engines.live_file import LiveFile
from sumus.errors import EngineError, StorageError, SumusError
from sumus.events import (
    JobEnded,
    JobStarted,
    RunDelivered,
    Seldom,
    SiloRefused,
    SumOpened,
    Trail,
    tell,
)
from sumus.files import Link, plain_json, read_bytes
from sumus.parties import (
    Agreement,
    Driver,
    HandedOut,
    Patience,
    SecureSum,
    ServerParty,
    agree_on,
    hand_out,
    keep_receipts,
    read_rosters,
    restore,
    server_trail,
)
from sumus.plan import TrainingPlan
from sumus.runs import (
    existing_run,
    finish,
    is_finished,
    is_over,
    open_run,
    parcel_of_run,
    release,
    start_of,
)
from sumus.secagg import Identity, RosterHistory

__all__ = ["ServerJob"]

_ALL = 1 << 62
"""More rounds than there are: none is told."""


@final
class ServerJob:
    """Trains a plan for a while.

    Args:
        plan: TOML text of the agreed plan.
        rounds: the most rounds that this job trains; 0: it hands out what there is.
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
        self._lock, self._refusals = threading.Lock(), Seldom(None)
        self._state: dict[str, Any] = {
            "phase": "starting",
            "rounds": [],
            "stage": "starting",
            "present": [],
            "refusals": {},
            "aborted": {},
            "error": None,
            "run": None,
            "void": None,
            "delivered": None,
        }
        self._awaited: Callable[[], Sequence[Any]] = tuple
        self._file: LiveFile | None = None

    def state(
        self, *, after: int = 0, most: int | None = None, about: bool = False
    ) -> dict[str, Any]:
        """How far it is, in plain JSON.

        Args:
            after: the first rounds, which are left out.
            most: rounds that are told at once; None: all.
            about: with the text of the plan.
        """
        with self._lock:
            rounds = self._state["rounds"]
            last = len(rounds) if most is None else min(len(rounds), after + most)
            state = self._state | {"rounds": rounds[after:last]}
        waiting = [asdict(silo) for silo in self._awaited()]
        return dict(plain_json(state | {"waiting": waiting})) | (
            {"plan": self._plan} if about else {}
        )

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
        with LiveFile(folder, lambda: self.state(after=_ALL, about=True)) as self._file:
            self._run(folder, connect, stopped)

    def _run(
        self,
        folder: Path,
        connect: Callable[[tuple[str, ...]], Driver],
        stopped: Callable[[], bool],
    ) -> None:
        try:
            agreement = agree_on(TrainingPlan.from_toml(self._plan))
            rosters = read_rosters(folder)
            roster = rosters.current
            identity = _own_identity(folder / SERVER_KEY)
            trail = server_trail(folder)
            self._refusals = Seldom(trail)
            tell(JobStarted(plan=agreement.plan.hash))
            driver = connect(roster.names)
            # an engine whose answers come one by one knows whose are missing
            self._awaited = getattr(driver, "awaited", tuple)
            try:
                summing = SecureSum(
                    agreement,
                    roster,
                    driver,
                    identity=identity,
                    patience=self._patience,
                    opened=_opening(trail, agreement),
                    stages=lambda stage: self._tell(stage=stage),
                )
                deliver = partial(
                    hand_out,
                    agreement=agreement,
                    roster=roster,
                    driver=driver,
                    identity=identity,
                    patience=self._patience,
                )
                self._train(summing, agreement, rosters, folder / "runs", stopped, deliver)
            finally:
                self._awaited = tuple
                driver.close()
        except SumusError as error:
            self._tell(phase="failed", error=str(error))
        finally:
            state = self.state(after=_ALL)
            tell(JobEnded(phase=state["phase"], cause=state["error"]))

    def _train(
        self,
        summing: SecureSum,
        agreement: Agreement,
        rosters: RosterHistory,
        runs: Path,
        stopped: Callable[[], bool],
        deliver: Callable[..., HandedOut],
    ) -> None:
        start = start_of(agreement, runs, self._start)
        party = ServerParty(
            agreement,
            summing,
            start=None if start is None else start.parameters,
        )
        if self._rounds == 0:
            self._hand_out_anew(party, runs, deliver)
            return
        if not is_finished(agreement, runs):
            self._greet(party)
        roster = rosters.current
        with open_run(
            agreement, roster, runs, simulated=party.simulated, start=start, rosters=rosters
        ) as run:
            lines = [_line(record) for record in run.rounds()]
            self._tell(phase="training", run=str(run.path), rounds=lines, void=run.void)
            seen = len(run.links)
            if run.summary is None:
                run.note_trail(server_trail(runs.parent).head)
                incomplete = 0
                for record in party.train(run, rounds=self._rounds):
                    aborted, seen = _aborted(run.links[seen:]), len(run.links)
                    self._tell(
                        line=_line(record),
                        aborted=aborted,
                        present=list(party.present),
                        refusals=dict(party.refusals),
                    )
                    incomplete += len(party.present) < len(roster)
                    if stopped() or incomplete == self._most_incomplete:
                        break
                if is_over(run):
                    run.note_trail(server_trail(runs.parent).head)
                    finish(run, party)
            if run.summary is not None:
                self._hand_out(run, party, deliver)
            self._tell(phase="finished" if run.summary is not None else "paused")

    def _greet(self, party: ServerParty) -> None:
        self._tell(phase="greeting")
        try:
            party.greet()
        finally:
            self._tell(refusals=dict(party.refusals), present=list(party.present))

    def _hand_out_anew(
        self, party: ServerParty, runs: Path, deliver: Callable[..., HandedOut]
    ) -> None:
        """Hand out the plan's run as it is: finished, or with the model of its last round."""
        folder = existing_run(party.agreement, runs)
        if folder is None or not (run := RunFolder.open(folder)).last_round:
            raise EngineError("this plan has released no model yet. Train it first.")
        if run.released is None or run.released.round != run.last_round:
            run = RunFolder.open(folder, resume=True)
        with run:
            lines = [_line(record) for record in run.rounds()]
            self._tell(phase="training", run=str(run.path), rounds=lines, void=run.void)
            if run.summary is None:
                restore(party.server, run)
                release(run, party)
            self._hand_out(run, party, deliver)
            self._tell(phase="finished" if run.summary is not None else "paused")

    def _hand_out(
        self, run: RunFolder, party: ServerParty, deliver: Callable[..., HandedOut]
    ) -> None:
        """Have every silo that is there keep the run; whoever is away gets it at the next request,
        and nothing that goes wrong here spoils what was trained.
        """
        self._tell(stage="delivering")
        plan = party.agreement.plan.hash
        try:
            handed = deliver(parcel_of_run(run, party), likely=party.present)
            keep_receipts(run.path, handed.parcel, handed.receipts)
        except SumusError as error:
            self._tell(delivered={"received": [], "missing": {}, "error": str(error)})
            return
        received = tuple(handed.receipts)
        tell(RunDelivered(plan=plan, received=received, missing=tuple(handed.missing)))
        self._tell(
            delivered={"received": list(received), "missing": dict(handed.missing), "error": None}
        )

    def _tell(self, *, line: Mapping[str, Any] | None = None, **news: Any) -> None:
        with self._lock:
            before = dict(self._state["refusals"])
            self._state.update(news)
            if line is not None:
                self._state["rounds"].append(line)
            after = dict(self._state["refusals"])
        for name, reason in after.items():
            if before.get(name) != reason:
                self._refusals.append(partial(_refused, name, reason))
        if self._file is not None:
            self._file.changed()
        self._changed()


def _own_identity(path: Path) -> Identity:
    """The server's signing key, as `init` made it or the operator brought it."""
    if not path.exists():
        raise StorageError(
            f"{path} is missing: the server cannot sign. Copy the server.key there whose server.pub "
            "is on the roster."
        )
    return Identity.parse(read_bytes(path).decode())


def _aborted(links: Iterable[Link]) -> dict[str, str]:
    """Why attempts at rounds failed, by their numbers."""
    return {
        str(link.body["detail"]["round"]): str(link.body["detail"].get("reason", ""))
        for link in links
        if link.kind == "event" and link.body["event"] == "aborted"
    }


def _opening(trail: Trail, agreement: Agreement) -> Callable[[int, str, bytes, str], None]:
    """Writes every sum into the server's trail before it is used."""

    def opened(number: int, purpose: str, round_id: bytes, proof: str) -> None:
        trail.append(
            SumOpened(
                plan=agreement.plan.hash,
                round=number + 1,
                purpose=purpose,
                round_id=round_id.hex(),
                evidence=proof,
            )
        )

    return opened


def _refused(silo: str, reason: str, unwritten: int) -> SiloRefused:
    return SiloRefused(silo=silo, reason=reason, unwritten=unwritten)


def _line(record: Any) -> dict[str, Any]:
    measured = ("metrics", "metrics_plus_minus", "metrics_are")
    kept = (
        "round",
        "epsilon_spent",
        "delta",
        "survivors",
        "dropped",
        "notes",
        "seconds",
        "bytes_up",
        "bytes_down",
        *measured,
    )
    promised = math.isfinite(record.epsilon_spent)
    return {key: getattr(record, key) for key in kept} | (
        {} if promised else {"epsilon_spent": None}
    )
