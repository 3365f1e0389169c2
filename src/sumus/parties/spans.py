"""Rounds and their stages as spans of OpenTelemetry, for whoever has it in this process.

Sumus exports nothing by itself: spans go to the provider that the user's program has set, and there
are none unless that program has imported OpenTelemetry, or its variables (`OTEL_…`) are set. A span
says which round, how many silos were asked and how many are in the sum; its children are the stages
of `RoundOutcome.seconds`, laid end to end.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from sumus.parties.round import Invited, RoundOutcome, Watching

__all__ = ["Spans", "spans"]

_NANOSECONDS = 1_000_000_000


def spans() -> tuple[Watching, ...]:
    """The watcher that makes spans, where somebody wants them."""
    wanted = "opentelemetry" in sys.modules or any(name.startswith("OTEL_") for name in os.environ)
    if not wanted or importlib.util.find_spec("opentelemetry") is None:
        return ()
    from opentelemetry import trace

    return (Spans(trace),)


@final
class Spans:
    """A span a round.

    Args:
        trace: the interface of OpenTelemetry.
    """

    def __init__(self, trace: Any) -> None:
        self._trace, self._tracer = trace, trace.get_tracer("sumus")
        self._round: Any = None
        self._began = 0

    def round_begins(self, number: int, invited: Invited) -> None:
        """See `Watching.round_begins`; a round that is begun again has ended without a sum."""
        if self._round is not None:
            self._round.set_attribute("sumus.aborted", True)
            self._round.end()
        self._began = time.time_ns()
        numbers = {"sumus.round": number + 1, "sumus.invited": len(invited.silos)}
        self._round = self._tracer.start_span(
            "sumus.round", start_time=self._began, attributes=numbers
        )

    def round_ends(self, outcome: RoundOutcome) -> None:
        """See `Watching.round_ends`."""
        self._round.set_attribute("sumus.survivors", len(outcome.summed.survivors))
        within, moment = self._trace.set_span_in_context(self._round), self._began
        for stage, seconds in outcome.seconds.items():
            child = self._tracer.start_span(f"sumus.{stage}", context=within, start_time=moment)
            moment += round(seconds * _NANOSECONDS)
            child.end(end_time=moment)
        self._round.end(end_time=max(moment, time.time_ns()))
        self._round = None
