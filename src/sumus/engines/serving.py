"""The server's process, kept alive; it says that it serves when its port is open, and not before."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable

from sumus.engines.kit import Kit
from sumus.engines.processes import supervise
from sumus.errors import EngineError
from sumus.files import FolderLock

__all__ = ["serve_kit"]

_CONNECT_SECONDS = 1.0


def serve_kit(kit: Kit, *, listen: str | None, say: Callable[[str], None]) -> int:
    """Serve a kit until this process is asked to stop.

    Guarantee: one server a kit and one a port; a second ends at once.

    Args:
        listen: address of the interface that it listens on; None: as the engine chooses.
        say: told what whoever started it should know.
    """
    with FolderLock(kit.path):
        hosts = {"127.0.0.1", kit.address.host, *([] if listen is None else [listen])}
        if _is_open(hosts, kit.address.port):
            raise EngineError(
                f"port {kit.address.port} is taken: another process listens on it, perhaps another "
                "`sumus federation start`. Stop that one, or make kits for another port."
            )
        command, log = kit.engine.serve(kit.path, listen=listen), kit.path / "server.log"
        say(f"starting from {kit.path}; log in {log}")
        serving: list[bool] = []

        def watch() -> None:
            if not serving and _is_open(hosts, kit.address.port):
                serving.append(True)
                say(f"serving at {kit.address}")

        return supervise(command, log=log, watch=watch)


def _is_open(hosts: Iterable[str], port: int) -> bool:
    """Whether somebody listens on a port."""
    for host in hosts:
        try:
            with socket.create_connection((host, port), timeout=_CONNECT_SECONDS):
                return True
        except OSError:
            continue
    return False
