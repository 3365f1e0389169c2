"""The server's process of a job hears "abort" from a silo, then from the server: `python -m
support.server_job KIND NAME SILO` prints whether it obeyed each.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from nvflare.apis.fl_constant import FLContextKey, MachineStatus, ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.fuel.f3.cellnet.cell import Cell
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, MessageType
from nvflare.fuel.f3.cellnet.utils import encode_payload
from nvflare.fuel.f3.endpoint import Endpoint
from nvflare.fuel.f3.message import Message
from nvflare.private.fed.server.server_command_agent import ServerCommandAgent

from sumus.engines.nvflare.gate import GatedCell

KINDS = {kind.__name__: kind for kind in (Cell, GatedCell)}


class Runner:
    """The engine's own command agent in the server's process of a job, and a run that it can
    abort.
    """

    def __init__(self, kind: type, name: str) -> None:
        self._name = name
        self.aborted, self.engine_info = False, SimpleNamespace(status=MachineStatus.STOPPED)
        self.cell = kind(fqcn=name, root_url="tcp://localhost:1", secure=False, credentials={})
        ServerCommandAgent(self, self.cell).start()

    @contextlib.contextmanager
    def new_context(self) -> Iterator[FLContext]:
        context = FLContext()
        context.set_prop(FLContextKey.RUNNER, self)
        context.set_prop(ReservedKey.ENGINE, self)
        yield context

    def abort(self, **ignored: Any) -> None:
        self.aborted = True

    def hear(self, origin: str, topic: str) -> None:
        fields = {
            MessageHeaderKey.MSG_TYPE: MessageType.REQ,
            MessageHeaderKey.ORIGIN: origin,
            MessageHeaderKey.FROM_CELL: "server",
            MessageHeaderKey.DESTINATION: self._name,
            MessageHeaderKey.CHANNEL: "server_command",
            MessageHeaderKey.TOPIC: topic,
            MessageHeaderKey.REQ_ID: "1",
        }
        core = self.cell.core_cell
        message = Message(fields, Shareable())
        encode_payload(message, fobs_ctx=core.get_fobs_context())
        core.process_message(Endpoint("server"), None, 1, message)


if __name__ == "__main__":
    kind, name, silo = sys.argv[1:]
    runner = Runner(KINDS[kind], name)
    runner.hear(silo, "abort")
    heard = {"by a silo": runner.aborted}
    runner.aborted = False
    runner.hear("server", "abort")
    sys.stdout.write(json.dumps(heard | {"by the server": runner.aborted}) + "\n")
    sys.stdout.flush()
    os._exit(0)  # threads of the engine would keep it waiting
