"""Starts a process of the engine: `python -m sumus.engines.flower.start server|silo KIT`.

A server also registers the nodes of its kit. A SuperNode that ends is started again: it does when
its node is not registered yet, or when the session of a node that was killed is not over yet.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path

from sumus.engines.flower.kits import NODES, environment, flwr, installed, registered
from sumus.engines.kit import Kit
from sumus.engines.processes import end_with_parent, free_port
from sumus.errors import EngineError
from sumus.files import replace_atomically
from sumus.service import Signs

__all__ = ["run_server", "run_silo"]

_PAUSE_SECONDS = 1.0


def run_server(path: Path) -> int:
    """A SuperLink that hears this machine only, until it ends."""
    kit, path = Kit.open(path, "server"), path.resolve()
    command = [
        *("flower-superlink", "--host", "127.0.0.1", "--port", str(kit.address.port)),
        *("--ssl-ca-certfile", str(path / "ca.crt"), "--ssl-certfile", str(path / "server.crt")),
        *("--ssl-keyfile", str(path / "server.key"), "--enable-supernode-auth"),
        *("--database", str(path / "state.db"), "--disable-runtime-dependency-installation"),
    ]
    signs, process = Signs.of_environment(), _started(command, path)
    nodes = registered(kit.state)
    for key in sorted((path / "nodes").glob("*.pub")):
        while key.stem not in nodes.values() and process.poll() is None:
            with contextlib.suppress(EngineError):  # it is not up yet
                node = flwr(kit, "supernode", "register", str(key))["node-id"]
                nodes[int(node)] = key.stem
                replace_atomically(kit.state / NODES, json.dumps(nodes).encode())
                break
            time.sleep(_PAUSE_SECONDS)
    return _ended(process, signs)


def run_silo(path: Path) -> int:
    """A SuperNode, started again when it ends."""
    kit, path = Kit.open(path, "silo"), path.resolve()
    command = [
        *("flower-supernode", "--superlink", f"127.0.0.1:{kit.address.port}"),
        *("--root-certificates", str(path / "ca.crt")),
        *("--auth-supernode-private-key", str(path / "node"), "--port"),
    ]
    signs = Signs.of_environment()
    while True:
        _ended(_started([*command, str(free_port())], path), signs)
        time.sleep(_PAUSE_SECONDS)


def _ended(process: subprocess.Popen[bytes], signs: Signs) -> int:
    """Wait for a process; returns its code."""
    while True:
        signs.turned(ready=True)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(timeout=_PAUSE_SECONDS)


def _started(command: list[str], kit: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        installed(command), env=environment(kit), cwd=kit, preexec_fn=end_with_parent
    )


if __name__ == "__main__":
    sys.exit({"server": run_server, "silo": run_silo}[sys.argv[1]](Path(sys.argv[2])))
