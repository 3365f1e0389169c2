"""A server watched from its own files: the latest job's account of itself, the journal of its run,
and who its process is connected with.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from sumus.books import RunFolder
from sumus.engines.kit import Kit
from sumus.engines.live_file import read_live
from sumus.engines.own_sockets import listens
from sumus.engines.processes import KeptProcess
from sumus.errors import SumusError
from sumus.files import Link
from sumus.parties import ROSTER, agree_on, read_rosters
from sumus.plan import TrainingPlan
from sumus.watching import Board, FederationWatcher, Part, RoundTold, federation_board

__all__ = ["ServerWatch", "server_board"]

_LOOK_SECONDS = 0.5
_GONE_SECONDS = 15.0
"""A job that has written nothing for so long, and was not at its end, is gone."""
_ENDED = ("finished", "paused", "failed")


def server_board(kit: Kit) -> Board:
    """A board for the server of a kit; its loop gives a sign of life several times a second."""
    return federation_board("server", str(kit.address), patience_seconds=60.0)


@final
class ServerWatch:
    """Looks into the server's files, in a thread of its own.

    Args:
        kit: the server's.
        board: where it posts.
    """

    def __init__(self, kit: Kit, board: Board) -> None:
        self._kit, self._board = kit, board
        there = (kit.state / ROSTER).is_file()
        self._names = read_rosters(kit.state).current.names if there else ()
        self._watcher = FederationWatcher(board, names=self._names)
        self._process: KeptProcess | None = None
        self._run: RunFolder | None = None
        self._read = 0

    def start(self) -> None:
        """Begin to look; the thread ends with the process."""
        threading.Thread(target=self._keep_looking, name="watch-server", daemon=True).start()

    def tended(self, process: KeptProcess) -> None:
        """The loop that keeps the server alive has gone round."""
        self._process = process
        self._board.beat()

    def look(self) -> None:
        """Once."""
        process = self._process
        up = process is not None and process.running
        port_open = up and listens(process.pid, self._kit.address.port)  # type: ignore[union-attr,arg-type]
        if process is not None:
            part = Part(name="server", up=up, since=process.since, restarts=process.restarts)
            self._watcher.follow.change(parts=(part,))
        present = self._kit.engine.present(self._kit.path) if up else {}
        if present is not None:
            self._watcher.connected(present)
        live = read_live(self._kit.state)
        if live is not None:
            self._hear(live)
        elif port_open:
            self._watcher.idle("no job has run")
        if not port_open:
            self._watcher.follow.stage(
                "starting", "the port is not open yet", ready=False, unready="the port is not open"
            )

    def _keep_looking(self) -> None:
        while not self._board.closed:
            with contextlib.suppress(OSError):
                try:
                    self.look()
                except SumusError as error:
                    self._watcher.follow.remark(str(error))
            time.sleep(_LOOK_SECONDS)

    def _hear(self, live: Mapping[str, Any]) -> None:
        plan = TrainingPlan.from_toml(str(live["plan"]))
        if plan.hash != self._watcher.plan_hash:
            agreement = agree_on(plan)
            self._run = None
            self._watcher.agreed(
                agreement.plan,
                agreement.certified,
                names=agreement.names,
                needed=agreement.terms.minimum_survivors,
                void=live.get("void"),
            )
        self._read_journal(live.get("run"))
        gone = time.time() - float(live["at"]) > _GONE_SECONDS and live["phase"] not in _ENDED
        news = {**live, "rounds": (), "waiting": () if gone else live.get("waiting", ())}
        self._watcher.told({**news, "phase": "paused"} if gone else news)

    def _read_journal(self, path: str | None) -> None:
        """Rounds that were added since, as the journal has them."""
        if path is None:
            return
        if self._run is None or self._run.path != Path(path):
            self._run = RunFolder.open(Path(path))
            new = self._run.links
        else:
            new = self._run.newer_links()
        for link in new:
            self._hear_line(link)

    def _hear_line(self, link: Link) -> None:
        follow = self._watcher.follow
        if link.kind == "round":
            follow.round_ends(RoundTold.of(link.body))
        elif link.kind == "event" and link.body["event"] == "measured":
            follow.measured(link.body["detail"])
        elif link.kind == "event" and link.body["event"] == "aborted":
            detail = link.body["detail"]
            follow.aborted(int(detail["round"]), str(detail.get("reason", "")))
