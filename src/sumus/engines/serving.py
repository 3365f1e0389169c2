"""The server's process, kept alive; it says that it serves when its port is open, and not before."""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Callable, Iterable, Iterator

from sumus.engines.kit import SERVER_KEY, Kit, certificates_in
from sumus.engines.processes import KeptProcess, supervise
from sumus.errors import EngineError
from sumus.events import Piped, ServerServing, ServerStarted, ServerStopped, tell
from sumus.files import FolderLock, build_of, read_bytes
from sumus.parties import notice_server, server_trail
from sumus.secagg import Identity
from sumus.service import Signs

__all__ = ["serve_kit"]

_CONNECT_SECONDS = 1.0


def serve_kit(
    kit: Kit,
    *,
    listen: str | None,
    log: Callable[[], logging.Handler],
    say: Callable[[str], None],
    tended: Callable[[KeptProcess], None] = lambda process: None,
) -> int:
    """Serve a kit until this process is asked to stop.

    Guarantee: one server a kit and one a port; a second ends at once.

    Args:
        listen: address of the interface that it listens on; None: as the engine chooses.
        log: opens where the lines of this process go, and those of the engine's processes.
        say: told what whoever started it should know.
        tended: told several times a second that the server's process is looked after.
    """
    signs = Signs.of_environment()
    with FolderLock(kit.path):
        hosts = {"127.0.0.1", kit.address.host, *([] if listen is None else [listen])}
        if _is_open(hosts, kit.address.port):
            raise EngineError(
                f"port {kit.address.port} is taken: another process listens on it, perhaps another "
                "`sumus federation start`. Stop that one, or make kits for another port."
            )
        command = kit.engine.serve(kit.path, listen=listen)
        say(f"starting from {kit.path}")
        serving: list[bool] = []

        def watch(process: KeptProcess) -> None:
            tended(process)
            if not serving and _is_open(hosts, kit.address.port):
                serving.append(True)
                tell(ServerServing())
                say(f"serving at {kit.address}")
            if not process.running and process.why:
                signs.turned("the engine ended and is started again", ready=False)
            elif serving:
                signs.turned(f"serving at {kit.address}", ready=True)
            else:
                signs.turned()

        lines = log()
        with _in_the_trail(kit):
            return supervise(command, log=Piped(lines), watch=watch, signs=signs)


@contextlib.contextmanager
def _in_the_trail(kit: Kit) -> Iterator[None]:
    """Start and stop in the server's audit trail, and what has changed in its kit since."""
    trail, key = server_trail(kit.state), kit.state / SERVER_KEY
    notice_server(
        trail,
        identity=Identity.parse(read_bytes(key).decode()) if key.exists() else None,
        certificates=certificates_in(kit.path),
    )
    trail.append(ServerStarted(build=build_of()))
    yield
    trail.append(ServerStopped())


def _is_open(hosts: Iterable[str], port: int) -> bool:
    """Whether somebody listens on a port."""
    for host in hosts:
        try:
            with socket.create_connection((host, port), timeout=_CONNECT_SECONDS):
                return True
        except OSError:
            continue
    return False
