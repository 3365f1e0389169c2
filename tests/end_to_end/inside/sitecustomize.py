"""Loaded by every Python process of a federation under test: notes what it does, and ends it, as if
killed, where a test wants it to end.

In the folder SUMUS_TEST_NOTES:
    calls           a line per connection or name lookup that any process tries, written before it happens
    rounds          a line per round that the server has committed: time, round, survivors
    strike-PARTY    written by a test: "STAGE WHEN"; the silo's vault, or the server's job process, ends itself the next time it is there
    blows           a line per process that ended itself so: time, party, stage, when
    hold-SILO       written by a test: the silo's vault does not answer its next invitation while the file is there, so that a round is open
    held            a line per vault that held so: time, silo, stage
    version-PARTY   written by a test: the release that the party's process pretends to be
    order-PARTY     written by a test: a request (JSON) that the party's main process sends over the engine's control channel, whatever
                    its configuration says; what came back is in answer-PARTY
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

NOTES = Path(os.environ["SUMUS_TEST_NOTES"])
STAGES = {"Invitation": "input", "DroppedSet": "survivor-set", "SetCertificate": "release"}


def note(name: str, *words: object) -> None:
    line = " ".join(map(str, words)) + "\n"
    descriptor = os.open(NOTES / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(descriptor, line.encode())
    os.close(descriptor)


def hear(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "socket.connect" and arguments[0].type == socket.SOCK_DGRAM:
        return  # sends nothing: it is how a process asks for the address of its own machine
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg") and isinstance(
        arguments[1], tuple
    ):
        note("calls", arguments[1][0])
    elif event in ("socket.getaddrinfo", "socket.gethostbyname") and arguments[0]:
        note("calls", arguments[0])


def strike(party: str, stage: str | None, when: str) -> None:
    order = NOTES / f"strike-{party}"
    if order.exists() and order.read_text() == f"{stage} {when}":
        order.unlink()
        note("blows", time.time(), party, stage, when)
        os.kill(os.getpid(), signal.SIGKILL)


def hold(party: str, stage: str | None) -> None:
    wanted = NOTES / f"hold-{party}"
    if stage == "input" and wanted.exists():
        note("held", time.time(), party, stage)
        while wanted.exists():
            time.sleep(0.02)


def in_silo_party(module: Any) -> None:
    answer = module.SiloParty._answer

    def struck(self: Any, message: bytes) -> bytes:
        stage = STAGES.get(type(module.decode_any(message)).__name__)
        hold(self._name, stage)
        strike(self._name, stage, "before")
        reply: bytes = answer(self, message)
        strike(self._name, stage, "after")
        return reply

    module.SiloParty._answer = struck
    pretended = [
        path.read_text()
        for path in NOTES.glob("version-*")
        if path.name.removeprefix("version-") in " ".join(sys.argv)
    ]
    if pretended:
        module.build_of = lambda: pretended[0]


def in_guard(module: Any) -> None:
    claim = module.FileRoundGuard.claim

    def struck(self: Any, round_id: bytes, step: str, digest: bytes) -> None:
        claim(self, round_id, step, digest)
        for order in NOTES.glob("strike-*"):
            if order.name.removeprefix("strike-") in self._path.parts:
                strike(order.name.removeprefix("strike-"), step, "during")

    module.FileRoundGuard.claim = struck


def in_driver(module: Any) -> None:
    from sumus.secagg import decode_any

    exchange = module.NvflareDriver.exchange

    def struck(self: Any, messages: dict[int, bytes], *, deadline_seconds: float) -> Any:
        stage = STAGES.get(type(decode_any(next(iter(messages.values())))).__name__)
        strike("server", stage, "before")
        # the messages are on their way
        timer = threading.Timer(0.02, strike, ("server", stage, "during"))
        timer.start()
        replies = exchange(self, messages, deadline_seconds=deadline_seconds)
        timer.join()
        strike("server", stage, "after")
        return replies

    module.NvflareDriver.exchange = struck


def in_record(module: Any) -> None:
    commit = module.RunFolder.commit

    def noted(self: Any, *arguments: Any, **options: Any) -> Any:
        record = commit(self, *arguments, **options)
        note("rounds", time.time(), record.round, *record.survivors)
        return record

    module.RunFolder.commit = noted


def send_orders(party: str, cell: Any) -> None:
    from nvflare.fuel.f3.cellnet.defs import CellChannel
    from nvflare.private.admin_defs import Message
    from nvflare.private.defs import new_cell_message

    order = NOTES / f"order-{party}"
    while True:
        time.sleep(0.05)
        if not order.exists():
            continue
        wanted = json.loads(order.read_text())
        order.unlink()
        asked = Message(
            wanted["topic"], bytes.fromhex(wanted["hex"]) if "hex" in wanted else wanted["body"]
        )
        asked.set_headers(wanted["headers"])
        request = new_cell_message({}, asked)
        reply = cell.send_request(
            channel=CellChannel.CLIENT_MAIN,
            topic="admin",
            target=wanted["target"],
            request=request,
            timeout=5.0,
        )
        (NOTES / f"answer-{party}.part").write_text(
            str(getattr(reply.payload, "body", reply.headers))
        )
        (NOTES / f"answer-{party}.part").rename(NOTES / f"answer-{party}")


def in_server(module: Any) -> None:
    deploy = module.FederatedServer.deploy

    def hostile(self: Any, *arguments: Any, **options: Any) -> None:
        deploy(self, *arguments, **options)
        threading.Thread(target=send_orders, args=("server", self.cell), daemon=True).start()

    module.FederatedServer.deploy = hostile


def in_client(module: Any) -> None:
    set_engine = module.FederatedClientBase.set_client_engine

    def hostile(self: Any, engine: Any) -> None:
        set_engine(self, engine)
        threading.Thread(
            target=send_orders, args=(self.client_name, self.cell), daemon=True
        ).start()

    module.FederatedClientBase.set_client_engine = hostile


CHANGED: dict[str, Callable[[Any], None]] = {
    "sumus.parties.silo": in_silo_party,
    "sumus.engines.nvflare.driver": in_driver,
    "sumus.books.journal": in_record,
    "sumus.secagg.guard": in_guard,
    "nvflare.private.fed.server.fed_server": in_server,
    "nvflare.private.fed.client.fed_client_base": in_client,
}


class Changer(importlib.abc.MetaPathFinder):
    """Changes some modules right after they are loaded."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> Any:
        if name not in CHANGED:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def changed(module: ModuleType) -> None:
                load(module)
                CHANGED[name](module)

            spec.loader.exec_module = changed  # type: ignore[method-assign]
        return spec


sys.addaudithook(hear)
sys.meta_path.insert(0, Changer())
