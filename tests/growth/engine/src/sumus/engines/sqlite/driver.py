"""The server's end of the engine: leaves every silo a letter and collects answers until all are
there or the deadline passes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from sumus.engines.sqlite.mailbox import Mailbox

__all__ = ["SqliteDriver"]

_PAUSE_SECONDS = 0.05


class SqliteDriver:
    """Carries messages to the silos.

    Args:
        names: name of every silo number.
    """

    def __init__(self, mailbox: Mailbox, names: tuple[str, ...]) -> None:
        self._mailbox, self._names = mailbox, names

    def exchange(
        self, messages: Mapping[int, bytes], *, deadline_seconds: float
    ) -> Mapping[int, bytes]:
        """See `Driver.exchange`."""
        until = time.monotonic() + deadline_seconds
        letters = self._mailbox.send({self._names[key]: body for key, body in messages.items()})
        answers = self._mailbox.answers(letters)
        while len(answers) < len(letters) and time.monotonic() < until:
            time.sleep(_PAUSE_SECONDS)
            answers = self._mailbox.answers(letters)
        self._mailbox.discard(letters)
        return {self._names.index(letters[key]): answer for key, answer in answers.items()}

    def close(self) -> None:
        """See `Driver.close`; nothing stays open."""
