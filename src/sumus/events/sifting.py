"""What is not worth a line: a warning that another package repeats, and trail lines of a party that
this process only set up.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import final

__all__ = ["Sieve"]

_SECONDS = 60.0
_MOST_PLACES = 1000


@final
class Sieve(logging.Filter):
    """Lets through what belongs into the log of a party.

    Guarantee: of every line of code of another package one warning a minute is let through; the
        next says how many were not (`repeated`).

    Args:
        party: whose log it is.
    """

    def __init__(self, party: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._party, self._clock = party, clock
        self._places: dict[tuple[str, int], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """See `logging.Filter.filter`."""
        if hasattr(record, "happened"):
            return getattr(record, "trail_of", None) in (None, self._party)
        if record.levelno < logging.WARNING:
            return True
        place, now = (record.pathname, record.lineno), self._clock()
        when, left_out = self._places.get(place, (-_SECONDS, 0))
        if now - when < _SECONDS:
            self._places[place] = when, left_out + 1
            return False
        if len(self._places) >= _MOST_PLACES:
            self._places.clear()
        self._places[place] = now, 0
        record.repeated = left_out
        return True
