"""Kits for SuperLink, SuperNodes and operator, all on one machine.

KIT/ca.crt                       of every party: the authority of this federation
KIT/server.crt, server.key       of the server
KIT/nodes/NAME.pub               of the server: which nodes it lets in
KIT/node, node.pub               of a silo: the key of its node (not the silo's identity)
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sumus.engines.engine import Address
from sumus.engines.kit import ADMIN, SERVER, Kit
from sumus.errors import EngineError

if TYPE_CHECKING:
    from sumus.engines.federation_folder import FederationFolder

__all__ = [
    "CONNECTION",
    "NODES",
    "environment",
    "flwr",
    "installed",
    "registered",
    "server_command",
    "silo_command",
    "write_kits",
]

CONNECTION = "sumus"
"""The server's name in the configuration of Flower's command line."""
NODES = "nodes.json"
"""In the server's state: name of every node by its number."""
_START = "sumus.engines.flower.start"


def write_kits(folder: FederationFolder, address: Address) -> None:
    """Certificates for the server and a key for every silo's node."""
    from sumus.engines.flower.certificates import make_certificates

    _require_this_machine(address)
    server, admin = folder.kit(SERVER), folder.kit(ADMIN)
    for kit in (server, admin):
        kit.mkdir(parents=True, mode=0o700)
    make_certificates(server, host=address.host)
    (server / "nodes").mkdir(mode=0o700)
    for silo in folder.roster.names:
        write_silo_kit(folder, silo)
    shutil.copy(server / "ca.crt", admin / "ca.crt")


def write_silo_kit(folder: FederationFolder, silo: str) -> None:
    """A key for a silo's node, which the server's kit is told of."""
    from sumus.engines.flower.certificates import make_node_key

    kit = folder.kit(silo)
    kit.mkdir(parents=True, mode=0o700)
    make_node_key(kit / "node")
    shutil.copy(kit / "node.pub", node_file(folder, silo))
    shutil.copy(folder.kit(SERVER) / "ca.crt", kit / "ca.crt")


def node_file(folder: FederationFolder, silo: str) -> Path:
    """Where the server's kit holds the public key of a silo's node."""
    return folder.kit(SERVER) / "nodes" / f"{silo}.pub"


def server_command(kit: Path) -> list[str]:
    """The server's process: a SuperLink that lets the kit's nodes in."""
    _require_this_machine(Kit.open(kit, "server").address)
    return [sys.executable, "-u", "-m", _START, "server", str(kit.resolve())]


def silo_command(kit: Path) -> list[str]:
    """A silo's process: a SuperNode."""
    _require_this_machine(Kit.open(kit, "silo").address)
    return [sys.executable, "-u", "-m", _START, "silo", str(kit.resolve())]


def environment(kit: Path) -> dict[str, str]:
    """For every process of the engine: no telemetry, no search for updates, no file outside of the
    kit, and commands of the environment that this Python runs in, because the engine starts some of
    its own.
    """
    commands = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return {
        **os.environ,
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_HOME": str(kit.resolve() / "flwr"),
        "PATH": commands,
    }


def registered(state: Path) -> dict[int, str]:
    """The nodes whose keys the server has registered, by number; `state` is the server's."""
    path = state / NODES
    nodes = json.loads(path.read_text()) if path.is_file() else {}
    return {int(node): str(name) for node, name in nodes.items()}


def installed(command: Sequence[str]) -> list[str]:
    """A command of the environment that this Python runs in."""
    return [str(Path(sys.executable).parent / command[0]), *command[1:]]


def flwr(kit: Kit, *arguments: str, seconds: float = 120.0) -> dict[str, Any]:
    """What `flwr …` answers, asked of the server that a kit names."""
    home = kit.path.resolve() / "flwr"
    home.mkdir(exist_ok=True, mode=0o700)
    (home / "config.toml").write_text(  # anew, because the kit may have moved
        f'[superlink.{CONNECTION}]\naddress = "127.0.0.1:{kit.address.port}"\n'
        f'root-certificates = "{kit.path.resolve() / "ca.crt"}"\n'
    )
    try:
        done = subprocess.run(
            installed(["flwr", *arguments, "--format", "json", CONNECTION]),
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
            env=environment(kit.path),
            cwd=kit.path,
        )
        answer = json.loads(done.stdout)
        reason = None if answer["success"] else answer.get("error-message")
    except (subprocess.TimeoutExpired, ValueError, KeyError) as error:
        reason, answer = type(error).__name__, {"success": False}
    if not answer["success"]:
        said = " ".join(str(reason).split())[-400:]
        raise EngineError(
            f"flwr {' '.join(arguments[:2])} failed: {said}. Check that `sumus federation start` "
            "runs, and its log."
        )
    return dict(answer)


def _require_this_machine(address: Address) -> None:
    if not address.is_this_machine:
        raise EngineError(
            f"Flower's server at {address} would run the code of whoever reaches it at every silo, "
            "because its control interface has no authentication. Use --server localhost:PORT for "
            "a trial, or --engine nvflare."
        )
