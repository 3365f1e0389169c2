"""The server's end of the engine: one request per silo in a thread of its own, sent again until it is answered or the deadline passes.

Sending again is safe because a silo gives the same answer to the same message; it is what makes a restarted silo process catch up.
A silo that computes or hangs lets a request run out; one whose process is away fails it at once, and is not waited for as long.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, final

from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import Shareable

from sumus.engines.nvflare.executor import BODY, TOPIC

__all__ = ["NvflareDriver"]

_PAUSE_SECONDS = 0.25
_FIRST_TRY_SECONDS = 10.0
_AWAY_SECONDS = 60.0
"""A killed job process is back well before; a site that was cut off cannot enter the running job again, so nobody waits for it."""


@final
class NvflareDriver:
    """Carries messages to the job processes of the sites.

    Args:
        engine: the server engine of the running job.
        names: site of every silo number.
        stopped: whether the job was aborted.
        away_seconds: how long to look for a silo whose process is away.
    """

    def __init__(self, engine: Any, names: tuple[str, ...], *, stopped: Callable[[], bool], away_seconds: float = _AWAY_SECONDS) -> None:
        self._engine, self._names, self._stopped, self._away_seconds = engine, names, stopped, away_seconds
        self._pool = ThreadPoolExecutor(max_workers=max(1, len(names)), thread_name_prefix="silo")

    def exchange(self, messages: Mapping[int, bytes], *, deadline_seconds: float) -> Mapping[int, bytes]:
        """See `Driver.exchange`."""
        until = time.monotonic() + deadline_seconds
        asked = {silo: self._pool.submit(self._ask, self._names[silo], message, until) for silo, message in messages.items()}
        answers = {silo: future.result() for silo, future in asked.items()}
        return {silo: answer for silo, answer in answers.items() if answer is not None}

    def _ask(self, site: str, message: bytes, until: float) -> bytes | None:
        patience, away_since = _FIRST_TRY_SECONDS, time.monotonic()
        while not self._stopped() and (left := until - time.monotonic()) > 0.0 and time.monotonic() - away_since < self._away_seconds:
            asked, request = time.monotonic(), Shareable()
            request[BODY] = message
            context = self._engine.new_context()
            try:
                replies = self._engine.send_aux_request(
                    targets=[site],
                    topic=TOPIC,
                    request=request,
                    timeout=min(left, patience),
                    fl_ctx=context,
                    optional=True,
                )
            except Exception:  # an unknown or vanished site is a silo that does not answer
                replies = None
            reply = (replies or {}).get(site)
            if isinstance(reply, Shareable) and reply.get_return_code() == ReturnCode.OK:
                body = reply.get(BODY)
                return bytes(body) if isinstance(body, bytes | bytearray) else None
            if time.monotonic() - asked >= patience:
                patience *= 2.0  # a silo that computes for minutes is not asked every few seconds
                away_since = time.monotonic()
            time.sleep(min(_PAUSE_SECONDS, max(0.0, until - time.monotonic())))
        return None

    def close(self) -> None:
        """See `Driver.close`."""
        self._pool.shutdown(wait=False, cancel_futures=True)
