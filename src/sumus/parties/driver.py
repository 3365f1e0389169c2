"""The one thing an engine has to do: carry bytes.

An engine sends each silo a message of its own and brings back the answers that arrive before a
deadline. It never looks inside. Everything that decides anything lives in `server_party` and
`silo_party`, which run unchanged over every engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

__all__ = ["Driver"]


class Driver(Protocol):
    """The server's end of an engine. A silo's number is its place on the roster."""

    def exchange(
        self, messages: Mapping[int, bytes], *, deadline_seconds: float
    ) -> Mapping[int, bytes]:
        """Send every silo its message; return the answers that arrived in time.

        Guarantee: an answer is attributed to the silo that the transport authenticated (over
            Flower: to the one that the node names), and answers only the message of this call. A
            silo that is gone, hangs or sends nothing is missing from the result; it never raises
            for the sake of a single silo.

        Args:
            messages: silo number → bytes, different for each silo.
            deadline_seconds: how long to wait for the slowest silo.
        """
        ...

    def close(self) -> None:
        """Let go of threads and connections."""
        ...
