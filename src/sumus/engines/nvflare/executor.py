"""The silo's end: hands every message to the silo's vault and its answer back. Takes no arguments:
they would come from the server.
"""

from __future__ import annotations

from typing import Any, final

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from sumus.engines.relay import Relay

__all__ = ["BODY", "TOPIC", "SiloExecutor"]

TOPIC = "sumus"
BODY = "bytes"


@final
class SiloExecutor(Executor):  # type: ignore[misc]
    """What a job of ours names on the silos' side."""

    def __init__(self) -> None:
        super().__init__()
        self._relay = Relay.of_environment()

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Listen while the job runs."""
        if event_type == EventType.START_RUN:
            fl_ctx.get_engine().register_aux_message_handler(
                topic=TOPIC, message_handle_func=self._handle
            )
        elif event_type == EventType.END_RUN:
            self._relay.close()

    def execute(
        self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal
    ) -> Shareable:
        """Our jobs send no tasks."""
        return make_reply(ReturnCode.TASK_UNKNOWN)

    def _handle(self, topic: str, request: Shareable, fl_ctx: FLContext) -> Shareable:
        message = request.get(BODY)
        if not isinstance(message, bytes | bytearray):
            return make_reply(ReturnCode.BAD_REQUEST_DATA)
        answer = self._relay.handle(bytes(message))
        if answer is None:
            return make_reply(ReturnCode.SERVICE_UNAVAILABLE)
        reply: Any = Shareable()
        reply[BODY] = answer
        return reply
