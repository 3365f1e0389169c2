"""What a process that is kept alive prints, into the log of whoever keeps it.

A process that logs puts a seal, which it finds in its environment, before every line. Any other
line (of an engine, an interpreter that fails, a library's `print`) is wrapped as an `output` event,
so that the log is whole lines of ours, and nobody who can make a process print something can write
a line in the log's own name.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from typing import IO, final

from sumus.events.catalogue import Output
from sumus.events.formatting import SEAL, KeptLine, is_plain
from sumus.randomness import RandomSource

__all__ = ["Piped"]

_LINE_BYTES = 64 << 10
_WAITING = 1000
_NOTHING = "it said nothing"


@final
class Piped:
    """Takes in what a process prints.

    Guarantee: nothing but lines of `LineFormatter` is handed on; one that claims to be a log line is
        kept as it is if it begins with the seal and is printable ASCII.

    Args:
        into: where the lines go, with a `LineFormatter`.
    """

    def __init__(self, into: logging.Handler) -> None:
        self._handler = into
        self._seal = RandomSource().bytes(8).hex() + " "
        self._lines: deque[str] = deque(maxlen=_WAITING)
        self.last = _NOTHING

    @property
    def variables(self) -> Mapping[str, str]:
        """For the process."""
        return {SEAL: self._seal}

    def drain(self, stream: IO[bytes]) -> None:
        """Take in everything that comes, in a thread of its own."""
        self.last = _NOTHING
        threading.Thread(target=self._drain, args=(stream,), name="piped", daemon=True).start()

    def _drain(self, stream: IO[bytes]) -> None:
        with stream:
            while line := stream.readline(_LINE_BYTES):
                self.take(line)

    def take(self, line: bytes) -> None:
        """One line."""
        text = line.decode(errors="replace").rstrip("\r\n")
        kept = text.removeprefix(self._seal)
        sealed = kept != text and is_plain(kept)
        said = kept if sealed else text
        if said:
            self._lines.append(said)
            if not sealed:
                self.last = said
            happened = KeptLine(said) if sealed else Output(said=said)
            self._handler.handle(logging.makeLogRecord({"happened": happened}))

    def __iter__(self) -> Iterator[str]:
        """The lines since the last time, the latest thousand of them."""
        while self._lines:
            yield self._lines.popleft()
