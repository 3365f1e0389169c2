"""Drop-outs that a simulation plays: silos that vanish before they answer at a stage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from sumus.parties.driver import Driver
from sumus.parties.sums import unpack_model
from sumus.parties.wire import Kind, unframe
from sumus.secagg import DroppedSet, Invitation, SetCertificate, decode_any

__all__ = ["DropOuts", "Vanishing"]

DropOuts = Mapping[int, Mapping[str, frozenset[int]]]
"""Drop-outs to simulate: round number (from 0) → stage of the protocol → silos that vanish before
it."""
_STAGES = {
    Invitation: ("keys", "shares", "masked"),  # which travel in one message
    DroppedSet: ("consistency",),
    SetCertificate: ("unmask",),
}


@final
class Vanishing:
    """A driver that does not deliver to silos that are to vanish; in the next sum they are back.

    Args:
        driver: for the others.
        drop_outs: to simulate.
    """

    def __init__(self, driver: Driver, drop_outs: DropOuts) -> None:
        self._driver, self._drop_outs = driver, drop_outs
        self._number, self._gone = 0, frozenset[int]()

    def exchange(
        self, messages: Mapping[int, bytes], *, deadline_seconds: float
    ) -> Mapping[int, bytes]:
        """See `Driver.exchange`."""
        if messages:
            self._vanish(next(iter(messages.values())))
        alive = {silo: text for silo, text in messages.items() if silo not in self._gone}
        return self._driver.exchange(alive, deadline_seconds=deadline_seconds)

    def _vanish(self, message: bytes) -> None:
        """Let those go whose turn it is when this message is due."""
        kind, body = unframe(message)
        payload = b""
        if kind is Kind.PLAIN:
            stages, payload = _STAGES[Invitation], body[64:]
        elif kind is Kind.PROTOCOL:
            received = decode_any(body)
            stages = _STAGES.get(type(received), ())
            if isinstance(received, Invitation):
                payload = bytes(received.payload)
        else:
            return
        if payload:
            (self._number, *_), self._gone = unpack_model(payload), frozenset()
        due = self._drop_outs.get(self._number, {})
        for stage in stages:
            self._gone |= due.get(stage, frozenset())

    def close(self) -> None:
        """See `Driver.close`."""
        self._driver.close()
