"""A silo watched by its own people: its processes, its connection, what its ledger says against its
own policy, and what it refused.
"""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path
from typing import final

from sumus.books import LedgerEntry, Policy, plan_words
from sumus.engines.kit import Kit
from sumus.engines.own_sockets import connects
from sumus.engines.processes import KeptProcess, NewLines
from sumus.engines.refusal_log import reason_of
from sumus.errors import SumusError
from sumus.parties import Agreement, ApprovedPlans, Site, agree_on
from sumus.plan import TrainingPlan
from sumus.watching import (
    MOST_LISTED,
    Board,
    Connection,
    Following,
    LedgerReader,
    LiveState,
    Part,
    Queued,
    RoundTold,
)

__all__ = ["SiloWatch", "silo_board"]

_LOOK_SECONDS = 0.5
_ANSWERING_SECONDS = 5.0
"""For so long after an entry on the ledger the silo is said to answer."""


def silo_board(name: str) -> Board:
    """A board for a silo; the loop that keeps its processes gives a sign of life several times a
    second.
    """
    now = time.time()
    state = LiveState(watched="silo", name=name, began=now, at=now, since=now)
    return Board(state, patience_seconds=60.0)


@final
class SiloWatch:
    """Looks at a silo's processes and books, in a thread of its own.

    Guarantee: reads plans, policy, ledger and refusals; neither a key nor a record.

    Args:
        kit: the silo's.
        vault: its folder.
        board: where it posts.
    """

    def __init__(self, kit: Kit, vault: Path, board: Board) -> None:
        self._kit, self._vault, self._board = kit, vault, board
        self._follow = Following(board, losses=False)
        self._refusals = NewLines(vault / "refusals.log")
        self._processes: dict[str, KeptProcess] = {}
        self._agreements: dict[str, Agreement] = {}
        self._books: LedgerReader | None = None
        self._read, self._answered = 0, -_ANSWERING_SECONDS
        self._approved = ApprovedPlans(vault)
        self._reached: dict[str, int] = {}

    def start(self) -> None:
        """Begin to look; the thread ends with the process."""
        threading.Thread(target=self._keep_looking, name="watch-silo", daemon=True).start()

    def tended(self, **processes: KeptProcess) -> None:
        """The loop that keeps the processes alive has gone round."""
        self._processes = processes
        self._board.beat()

    def look(self) -> None:
        """Once."""
        for line in self._refusals:
            self._follow.refused("this silo", reason_of(line))
        self._read_ledger()
        self._show_processes()

    def _keep_looking(self) -> None:
        while not self._board.closed:
            with contextlib.suppress(OSError):
                try:
                    self.look()
                except SumusError as error:
                    self._follow.remark(str(error))
            time.sleep(_LOOK_SECONDS)

    def _show_processes(self) -> None:
        parts = tuple(
            Part(name=name, up=kept.running, since=kept.since, restarts=kept.restarts)
            for name, kept in self._processes.items()
        )
        relay = self._processes.get("relay")
        pid = None if relay is None else relay.pid
        up = pid is not None and connects(pid, self._kit.address.port)
        known, now = self._follow.state.connection, time.time()
        if known is None or known.up != up:
            known = Connection(up=up, since=now, why="" if up else f"to {self._kit.address}")
        down = [part.name for part in parts if not part.up]
        ready = bool(parts) and not down and up
        unready = f"{' and '.join(down)} down" if down else "" if up else "the server is away"
        said = ""
        if down:
            stage = "starting"
        elif not up:
            stage = "connecting"
        elif time.monotonic() - self._answered < _ANSWERING_SECONDS:
            stage = "answering"
        else:
            stage, rounds = "ready", self._follow.state.rounds
            said = "every round of this plan is answered" if self._is_over(rounds) else ""
        self._follow.stage(
            stage,
            said,
            parts=parts,
            connection=known,
            ready=ready,
            unready="" if ready else unready,
        )

    def _is_over(self, rounds: int) -> bool:
        return rounds > 0 and self._follow.state.round >= rounds

    def _read_ledger(self) -> None:
        """What was entered since: the plan of the latest entry is shown."""
        if self._books is None:
            self._show_plan(self._newest())
        if self._books is None:
            return
        new = self._books.ledger.entries(after=self._read)
        first, self._read = self._read == 0, self._read + len(new)
        for entry in new:
            self._enter(entry)
        if new and not first:
            self._answered = time.monotonic()
        self._follow.change(books=self._books.books(), queue=self._approved_plans())

    def _approved_plans(self) -> tuple[Queued, ...]:
        """Every plan that this silo's people have approved, and how far it is on the ledger; the
        latest ones, if there are too many to list.
        """
        shown = self._follow.state.plan
        listed = []
        for plan in self._approved:
            done, rounds = self._reached.get(plan.hash, 0), plan.federation.rounds
            current = shown is not None and plan.hash == shown.hash and done
            state = "finished" if done >= rounds else "running" if current else "waiting"
            listed.append(
                Queued(
                    number=0,
                    hash=plan.hash,
                    words=plan_words(plan),
                    state=state,
                    done=done,
                    rounds=rounds,
                )
            )
        order = ("finished", "running", "waiting")
        return tuple(sorted(listed, key=lambda each: order.index(each.state))[-MOST_LISTED:])

    def _enter(self, entry: LedgerEntry) -> None:
        state = self._follow.state
        known = self._reached.get(entry.plan_hash, 0)
        self._reached[entry.plan_hash] = max(known, entry.round)
        shown = None if state.plan is None else state.plan.hash
        if entry.plan_hash != shown:
            path = self._vault / "plans" / f"{entry.plan_hash}.toml"
            if not path.is_file():
                return  # a run of another kind, or of another federation
            self._show_plan(path)
        if entry.purpose == "model":
            self._follow.round_ends(RoundTold(number=entry.round, epsilon=entry.epsilon))

    def _newest(self) -> Path | None:
        plans = list((self._vault / "plans").glob("*.toml"))
        return max(plans, key=lambda path: path.stat().st_mtime, default=None)

    def _show_plan(self, path: Path | None) -> None:
        if path is None:
            return
        plan = TrainingPlan.load(path)
        if plan.hash not in self._agreements:
            self._agreements[plan.hash] = agree_on(plan)
        agreement = self._agreements[plan.hash]
        needed = agreement.terms.minimum_survivors
        silos = len(agreement.names)
        self._follow.begins(agreement.plan, agreement.certified, silos=silos, needed=needed)
        if self._books is None:
            limit = Policy.load(self._vault / "policy.toml").max_epsilon
            ledger = Site.of_folder(self._vault).ledger
            self._books = LedgerReader(
                ledger, agreement.account, limit=limit, said_by="this silo's policy"
            )
