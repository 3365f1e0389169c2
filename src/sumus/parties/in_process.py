"""The engine without a network: silos are threads of this process. For tests, and to tell an
engine's time from the protocol's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import final

__all__ = ["InProcessDriver"]

Handler = Callable[[bytes], bytes | None]
"""A silo: message to answer; None or an exception is a silo that does not answer."""


@final
class InProcessDriver:
    """Calls every silo's handler in a thread of its own.

    Args:
        silos: silo number → its handler, normally `SiloParty.handle`. May be changed between
            exchanges: a silo leaves or comes back.
    """

    def __init__(self, silos: Mapping[int, Handler]) -> None:
        self.silos = dict(silos)
        self._pool = ThreadPoolExecutor(
            max_workers=max(1, len(self.silos)), thread_name_prefix="silo"
        )

    def exchange(
        self, messages: Mapping[int, bytes], *, deadline_seconds: float
    ) -> Mapping[int, bytes]:
        """See `Driver.exchange`."""
        until = time.monotonic() + deadline_seconds
        running: dict[Future[bytes | None], int] = {
            self._pool.submit(self.silos[silo], bytes(message)): silo
            for silo, message in messages.items()
            if silo in self.silos
        }
        done, _ = wait(running, timeout=max(0.0, until - time.monotonic()))
        answers = {
            running[future]: future.result() for future in done if future.exception() is None
        }
        return {silo: answer for silo, answer in answers.items() if answer is not None}

    def close(self) -> None:
        """See `Driver.close`."""
        self._pool.shutdown(wait=False, cancel_futures=True)
