"""The server's end of the engine: one request per silo in a thread of its own, sent again until it
is answered or the deadline passes.

Sending again is safe because a silo gives the same answer to the same message; it is what makes a
restarted silo process catch up. A silo that computes or hangs lets a request run out; one whose
process is away fails it at once, and is not waited for as long.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, final

from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import Shareable

from sumus.engines.nvflare.executor import BODY, TOPIC

__all__ = ["Awaited", "NvflareDriver"]

_PAUSE_SECONDS = 0.25
_FIRST_TRY_SECONDS = 10.0
_AWAY_SECONDS = 60.0
"""A killed job process is back well before; a site that was cut off cannot enter the running job
again, so nobody waits for it.
"""


@final
@dataclass(frozen=True, kw_only=True)
class Awaited:
    """A silo that has not answered yet.

    Args:
        seconds: waited so far.
        left: seconds after which the round goes on without it.
        away: its process cannot be reached; otherwise it may be computing.
    """

    silo: str
    seconds: float
    left: float
    away: bool


@final
@dataclass
class _Question:
    """A message to a silo that is not answered yet; `away_since`: of the first try that failed at
    once.
    """

    began: float
    until: float
    away_since: float | None = None

    @property
    def away_for(self) -> float:
        return 0.0 if self.away_since is None else time.monotonic() - self.away_since

    def awaited(self, silo: str, now: float, away_seconds: float) -> Awaited:
        given_up = (
            self.until
            if self.away_since is None
            else min(self.until, self.away_since + away_seconds)
        )
        left = max(0.0, given_up - now)
        return Awaited(
            silo=silo, seconds=now - self.began, left=left, away=self.away_since is not None
        )


@final
class NvflareDriver:
    """Carries messages to the job processes of the sites.

    Args:
        engine: the server engine of the running job.
        names: site of every silo number.
        stopped: whether the job was aborted.
        away_seconds: how long to look for a silo whose process is away.
    """

    def __init__(
        self,
        engine: Any,
        names: tuple[str, ...],
        *,
        stopped: Callable[[], bool],
        away_seconds: float = _AWAY_SECONDS,
    ) -> None:
        self._engine, self._names, self._stopped, self._away_seconds = (
            engine,
            names,
            stopped,
            away_seconds,
        )
        self._pool = ThreadPoolExecutor(max_workers=max(1, len(names)), thread_name_prefix="silo")
        self._open: dict[str, _Question] = {}

    def awaited(self) -> list[Awaited]:
        """The silos whose answers are missing at the moment, with how long it may still take."""
        now = time.monotonic()
        return [
            question.awaited(site, now, self._away_seconds)
            for site, question in sorted(self._open.copy().items())
        ]

    def exchange(
        self, messages: Mapping[int, bytes], *, deadline_seconds: float
    ) -> Mapping[int, bytes]:
        """See `Driver.exchange`."""
        until = time.monotonic() + deadline_seconds
        asked = {
            silo: self._pool.submit(self._ask, self._names[silo], message, until)
            for silo, message in messages.items()
        }
        answers = {silo: future.result() for silo, future in asked.items()}
        return {silo: answer for silo, answer in answers.items() if answer is not None}

    def _ask(self, site: str, message: bytes, until: float) -> bytes | None:
        self._open[site] = question = _Question(began=time.monotonic(), until=until)
        try:
            return self._ask_again(site, message, question)
        finally:
            del self._open[site]

    def _ask_again(self, site: str, message: bytes, question: _Question) -> bytes | None:
        patience, until = _FIRST_TRY_SECONDS, question.until
        while (
            not self._stopped()
            and (left := until - time.monotonic()) > 0.0
            and question.away_for < self._away_seconds
        ):
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
                question.away_since = None
            elif question.away_since is None:
                question.away_since = asked
            time.sleep(min(_PAUSE_SECONDS, max(0.0, until - time.monotonic())))
        return None

    def close(self) -> None:
        """See `Driver.close`."""
        self._pool.shutdown(wait=False, cancel_futures=True)
