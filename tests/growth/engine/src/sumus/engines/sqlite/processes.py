"""Server and silo: `python -m sumus.engines.sqlite.processes server|silo KIT`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from sumus.engines.kit import Kit
from sumus.engines.relay import Relay
from sumus.engines.sqlite import CONNECTED
from sumus.engines.sqlite.driver import SqliteDriver
from sumus.engines.sqlite.kits import mailbox_of
from sumus.engines.sqlite.mailbox import Mailbox

__all__ = ["answer_letters", "run_server", "run_silo"]

_PAUSE_SECONDS = 0.05


def run_server(path: Path) -> None:
    """Train the jobs that the operator leaves, one after the other."""
    kit, mailbox = Kit.open(path, "server"), mailbox_of(path)
    mailbox.create()
    mailbox.abandon()
    while True:
        job = mailbox.next_job()
        if job is None:
            time.sleep(_PAUSE_SECONDS)
        else:
            _train(mailbox, kit.state, *job)


def _train(mailbox: Mailbox, folder: Path, number: int, request: dict[str, float | str]) -> None:
    from sumus.engines.server_job import ServerJob  # the silo's process loads no party
    from sumus.parties import Patience

    job = ServerJob(
        str(request["plan"]),
        rounds=int(request["rounds"]),
        patience=Patience(
            set_up=float(request["set_up_seconds"]),
            update=float(request["update_seconds"]),
            stage=float(request["stage_seconds"]),
            retry=0.5,
        ),
        start=str(request["start"]),
        changed=lambda: mailbox.tell(number, job.state(), ended=False),
    )
    try:
        job.run(folder, lambda names: SqliteDriver(mailbox, names))
    finally:
        mailbox.tell(number, job.state(), ended=True)


def run_silo(path: Path) -> None:
    """Hand every letter to the silo's vault, which the environment names and no letter."""
    kit, mailbox = Kit.open(path, "silo"), mailbox_of(path)
    while not mailbox.path.exists():
        time.sleep(_PAUSE_SECONDS)
    mailbox.create()
    relay = Relay.of_environment()
    sys.stdout.write(f"{kit.party}: {CONNECTED}\n")
    while True:
        answer_letters(mailbox, kit.party, relay)
        time.sleep(_PAUSE_SECONDS)


def answer_letters(mailbox: Mailbox, silo: str, relay: Relay) -> None:
    """Answer what is there for a silo."""
    for letter, body in mailbox.waiting(silo):
        answer = relay.handle(body)
        if answer is not None:
            mailbox.answer(letter, answer)


if __name__ == "__main__":
    {"server": run_server, "silo": run_silo}[sys.argv[1]](Path(sys.argv[2]))
