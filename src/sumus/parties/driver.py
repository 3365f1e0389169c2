"""The one thing an engine has to do: carry bytes.

An engine sends each silo a message of its own and brings back the answers that arrive before a
deadline. It never looks inside. Everything that decides anything lives in `server` and `silo`,
which run unchanged over every engine, and over none (`in_process`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Protocol, final

__all__ = ["Counting", "Driver"]


class Driver(Protocol):
    """The server's end of an engine. A silo's number is its place on the roster."""

    def exchange(
        self, messages: Mapping[int, bytes], *, deadline_seconds: float
    ) -> Mapping[int, bytes]:
        """Send every silo its message; return the answers that arrived in time.

        Guarantee: an answer is attributed to the silo that the transport authenticated (over
            Flower: to the one that the node names); whether that silo signed it is checked by
            whoever reads it. A silo that is gone, hangs or sends nothing is missing from the
            result; it never raises for the sake of a single silo.

        Args:
            messages: silo number → bytes, different for each silo.
            deadline_seconds: how long to wait for the slowest silo.
        """
        ...

    def close(self) -> None:
        """Let go of threads and connections."""
        ...


@final
class Counting:
    """A driver that counts what goes through it: bytes of the silos that answered, and seconds of
    every exchange.
    """

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.reset()

    def reset(self) -> None:
        """Begin to count anew."""
        self.bytes_up = self.bytes_down = 0
        self.seconds: list[float] = []

    def exchange(
        self, messages: Mapping[int, bytes], *, deadline_seconds: float
    ) -> Mapping[int, bytes]:
        """See `Driver.exchange`."""
        begin = time.perf_counter()
        answers = self._driver.exchange(messages, deadline_seconds=deadline_seconds)
        self.seconds.append(time.perf_counter() - begin)
        self.bytes_up += sum(len(answer) for answer in answers.values())
        self.bytes_down += sum(len(messages[silo]) for silo in answers)
        return answers

    def close(self) -> None:
        """See `Driver.close`."""
        self._driver.close()
