"""A silo's relay as a service: `python -m sumus.engines.relaying KIT`, with the vault's socket in
`SUMUS_VAULT`.

Keeps the engine's process alive and speaks for it to the service manager: what a server may bring to
run in the engine's process says nothing there, because the manager hears this process only, and this
process is closed to it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import final

from sumus.engines.kit import Kit
from sumus.engines.own_sockets import connects
from sumus.engines.processes import KeptProcess, until_stopped
from sumus.engines.relay import Relay
from sumus.engines.silo_processes import relay_command
from sumus.errors import SumusError
from sumus.events import LogChoice, Piped, ProcessFailed, ProcessRestarted, configure, tell
from sumus.service import Signs, beyond_restart, seal_process

__all__ = ["keep_relay", "relay_arguments"]

_TURN_SECONDS = 0.2
_LOOK_SECONDS = 2.0


def keep_relay(kit: Kit, *, lines: Piped, signs: Signs) -> int:
    """Run the engine until this process is asked to stop, and start it again when it dies or hangs.
    Returns 0, or the engine's exit code if starting it again cannot help.

    Args:
        lines: takes in what the engine prints.
        signs: of this process.
    """
    vault, about = Relay.of_environment(), _About(kit)
    engine = KeptProcess(
        relay_command(kit.path), log=lines, environment={"HOME": str(kit.path)}, cwd=kit.path
    )
    with until_stopped() as stopped:
        try:
            while not stopped():
                if engine.tend():
                    tell(ProcessRestarted(child="engine"))
                    if engine.code in beyond_restart():
                        sys.stderr.write(f"the engine cannot be started: {engine.why}\n")
                        return int(engine.code or 0)
                signs.turned(about.said(engine, vault), ready=engine.ready)
                time.sleep(_TURN_SECONDS)
        finally:
            signs.stopping()
            engine.stop()
    return 0


@final
class _About:
    """What a relay does, in a line that every user of the machine may read."""

    def __init__(self, kit: Kit) -> None:
        self._kit, self._due, self._connected = kit, 0.0, False

    def said(self, engine: KeptProcess, vault: Relay) -> str:
        if not engine.running or engine.pid is None:
            return "the engine ended and is started again" if engine.why else "starting"
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + _LOOK_SECONDS
            self._connected = connects(engine.pid, self._kit.address.port)
        there = "connected to" if self._connected else "waits for"
        return f"{there} {self._kit.address}" + ("" if vault.is_there else "; the vault is away")


def relay_arguments(words: Sequence[str]) -> argparse.Namespace:
    """What the relay's command line says: `kit`."""
    parser = argparse.ArgumentParser(
        prog="python -m sumus.engines.relaying", description="A silo's relay, as a service."
    )
    parser.add_argument("kit", type=Path, help="of the silo")
    return parser.parse_args(words)


def _main(words: Sequence[str]) -> int:
    path = relay_arguments(words).kit
    signs = Signs.of_environment()
    seal_process()
    choice = LogChoice.of_environment()
    handler, *_ = configure(choice, party="relay", process="relay", by_default=True)
    try:
        return keep_relay(Kit.open(path.resolve(), "silo"), lines=Piped(handler), signs=signs)
    except SumusError as error:
        tell(ProcessFailed(cause=type(error).__name__))
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
