"""Drop-outs that a simulation plays: silos that vanish before they answer at a stage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from sumus.parties.driver import Driver
from sumus.parties.sums import unpack_model
from sumus.parties.wire import plain_body
from sumus.secagg import DroppedSet, Invitation, SetCertificate, decode_any

__all__ = ["DropOuts", "Vanishing"]

DropOuts = Mapping[int, Mapping[str, frozenset[int]]]
"""Drop-outs to simulate: round number (from 0) → stage of the protocol → silos that vanish before
it."""
_STAGES: dict[type, tuple[str, ...]] = {
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
        """Let those go whose turn it is when this message is due; outside of a sum all are there."""
        body = plain_body(message)
        received = decode_any(message) if body is None else None
        if body is not None or isinstance(received, Invitation):
            payload = received.payload if isinstance(received, Invitation) else (body or b"")[64:]
            self._number, self._gone = unpack_model(bytes(payload))[0], frozenset()
        stages = _STAGES.get(Invitation if body is not None else type(received))
        if stages is None:
            self._gone = frozenset()
            return
        due = self._drop_outs.get(self._number, {})
        self._gone |= frozenset().union(*(due.get(stage, frozenset()) for stage in stages))

    def close(self) -> None:
        """See `Driver.close`."""
        self._driver.close()
