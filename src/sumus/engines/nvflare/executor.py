"""The silo's end: hands every message to the silo's party and its answer back. Takes no arguments:
they would come from the server.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, final

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from sumus.engines.federation_folder import STATE_FOLDER
from sumus.engines.nvflare.orphans import end_with_parent
from sumus.errors import SumusError
from sumus.parties import SiloParty, open_party

__all__ = ["BODY", "TOPIC", "SiloExecutor"]

TOPIC = "sumus"
BODY = "bytes"


@final
class SiloExecutor(Executor):  # type: ignore[misc]
    """What a job of ours names on the silos' side."""

    def __init__(self) -> None:
        super().__init__()
        self._party: SiloParty | None = None
        self._opening = threading.Lock()
        self._folder: Path | None = None

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Listen while the job runs."""
        if event_type == EventType.START_RUN:
            end_with_parent()
            engine = fl_ctx.get_engine()
            self._folder = Path(engine.get_workspace().get_root_dir()) / STATE_FOLDER
            engine.register_aux_message_handler(topic=TOPIC, message_handle_func=self._handle)
        elif event_type == EventType.END_RUN and self._party is not None:
            self._party.close()

    def execute(
        self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal
    ) -> Shareable:
        """Our jobs send no tasks."""
        return make_reply(ReturnCode.TASK_UNKNOWN)

    def _handle(self, topic: str, request: Shareable, fl_ctx: FLContext) -> Shareable:
        message = request.get(BODY)
        if not isinstance(message, bytes | bytearray):
            return make_reply(ReturnCode.BAD_REQUEST_DATA)
        try:
            party = self._open()
        except (SumusError, OSError) as error:
            self.logger.error(f"the silo's folder {self._folder} cannot be opened: {error}")
            return make_reply(ReturnCode.SERVICE_UNAVAILABLE)
        reply: Any = Shareable()
        reply[BODY] = party.handle(bytes(message))
        return reply

    def _open(self) -> SiloParty:
        with self._opening:
            if self._party is None:
                if self._folder is None:
                    raise OSError("the job has not started")
                self._party = open_party(self._folder)
            return self._party
