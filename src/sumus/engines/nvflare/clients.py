"""The server's list of clients, which also tells the watchers of the server who is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, final

from nvflare.private.fed.server.client_manager import ClientManager

from sumus.engines.presence import PresenceFile
from sumus.service import Signs

__all__ = ["WatchedClients"]


@final
class WatchedClients(ClientManager):  # type: ignore[misc]
    """The engine's own, read every few seconds by a thread that changes nothing."""

    kit: ClassVar[Path | None] = None
    """The server's; None: nobody is told."""

    signs: ClassVar[Signs | None] = None
    """Of the server's process."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        if self.kit is not None:
            PresenceFile(self.kit, self._heard, signs=self.signs).start()

    def _heard(self) -> dict[str, float]:
        with self.lock:
            return {
                str(client.name): float(client.last_connect_time)
                for client in self.clients.values()
            }
