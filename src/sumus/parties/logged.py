"""Rounds as the log has them: how many silos, who was missing, how long. What they measured and what
they spent stands in the journal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

from sumus.books import RoundEntry
from sumus.events import RoundCommitted, tell

__all__ = ["Logged"]


@final
class Logged:
    """Tells the log of every round."""

    def round_entered(self, entry: RoundEntry) -> None:
        """See `Telling.round_entered`."""
        tell(
            RoundCommitted(
                round=entry.round,
                survivors=len(entry.survivors),
                dropped=entry.dropped,
                seconds=sum(entry.seconds.values()),
            )
        )

    def run_ends(self, summary: Mapping[str, Any]) -> None:
        """See `Telling.run_ends`."""
