"""Start-up kits for server, silos and operator: provisioned by NVIDIA FLARE, then closed down.

What a site of ours allows, whatever the server sends:

- no job that carries code (`byoc`), and of all classes one: `SiloExecutor` (`class_allow_list`),
  which takes no arguments
- no upload of logs: neither the streamer component nor streaming on demand
- its job process is started again when it is killed
- its processes log to standard error, for whoever keeps them (`quiet`), and write no log files
- its processes speak to each other with mutual TLS (local/comm_config.json), so no other user of
  the machine joins in

These files do not decide what a site does at a request of the server: the engine reads them only if
the request asks it to. Sites and server are therefore started through `start`, whose gate and agent
refuse everything that our jobs do not need. The server keeps jobs and snapshots below its own kit
and not in a folder for temporary files.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sumus.engines.engine import Address
from sumus.engines.kit import SERVER, Kit
from sumus.engines.nvflare.authority import OPERATOR, ROLE, Authority, subject_of
from sumus.engines.nvflare.certificates import put_certificate
from sumus.engines.nvflare.job_folders import tidy_jobs
from sumus.engines.nvflare.quiet import log_configuration
from sumus.engines.transport_keys import requested_key
from sumus.errors import EngineError

if TYPE_CHECKING:
    from sumus.engines.federation_folder import FederationFolder

__all__ = [
    "SERVER_CLASS",
    "SILO_CLASS",
    "client_command",
    "close_down_server",
    "close_down_silo",
    "provision",
    "provision_silo",
    "server_command",
]

_START = "sumus.engines.nvflare.start"
_EVERY_INTERFACE = "0.0.0.0"  # noqa: S104 - silos come from outside; `--listen` narrows it
_PROJECT = "sumus"
_ORGANISATION = "sumus"
_SILENCE_SECONDS = 60
"""A job ends when all its sites have ended; one that was silent for so long has (the engine's own
600 would hold up the next job).
"""
SILO_CLASS = "sumus.engines.nvflare.executor.SiloExecutor"
SERVER_CLASS = "sumus.engines.nvflare.controller.ServerController"
"""What a job of ours names, and all that it may name. (An entry of the engine's list also opens
what is *below* it: nothing.)
"""
_SILO_LAUNCHER = "sumus.engines.nvflare.launcher.RestartingLauncher"
_SERVER_LAUNCHER = "sumus.engines.nvflare.launcher.GatedServerLauncher"
_AMONG_ITSELF = {
    "internal": {"scheme": "tcp", "resources": {"host": "localhost", "connection_security": "mtls"}}
}
"""How a party's processes reach each other; the engine's default is the loopback in clear, for
whoever connects.
"""
_RIGHTS = {
    "submit_job": "any",
    "clone_job": "none",
    "manage_job": "any",
    "download_job": "any",
    "view": "any",
    "operate": "none",
    "shell_commands": "none",
    "byoc": "none",
    "server-predeployed-flwr": "none",
}


def provision(folder: FederationFolder, address: Address, requests: Mapping[str, bytes]) -> None:
    """Make and close down one kit per party.

    The certificate authority stays in `authority` below the folder, readable by its owner only.

    Args:
        requests: certificate requests, by party; whoever sent none gets a key that is made here.
    """
    keys = {party: requested_key(request, party) for party, request in requests.items()}
    with tempfile.TemporaryDirectory(prefix="sumus-provision-") as temporary:
        provisioned = _provisioned(Path(temporary), folder.roster.names, address)
        (folder.folder / "kits").mkdir(exist_ok=True)
        for party in folder.parties:
            shutil.move(str(provisioned / subject_of(party)), folder.kit(party))
    authority = Authority.make(folder.folder / "authority", _hosts(address))
    for party in folder.parties:
        put_certificate(authority, folder.kit(party), party, public_key=keys.get(party))
    for silo in folder.roster.names:
        close_down_silo(folder.kit(silo))
    close_down_server(folder.kit(SERVER))


def provision_silo(
    folder: FederationFolder, address: Address, silo: str, requests: Mapping[str, bytes]
) -> None:
    """Make and close down the kit of one silo more, certified by the authority that `provision`
    left.
    """
    key = requested_key(requests[silo], silo) if silo in requests else None
    authority = Authority.open(folder.folder / "authority")
    with tempfile.TemporaryDirectory(prefix="sumus-provision-") as temporary:
        provisioned = _provisioned(Path(temporary), [silo], address)
        shutil.move(str(provisioned / subject_of(silo)), folder.kit(silo))
    put_certificate(authority, folder.kit(silo), silo, public_key=key)
    close_down_silo(folder.kit(silo))


def _provisioned(work: Path, silos: Sequence[str], address: Address) -> Path:
    """The engine's own files for every party, without certificates."""
    project = work / "project.yml"
    project.write_text(json.dumps(_project(silos, address), indent=2))  # JSON is YAML
    command = [
        *(sys.executable, "-m", "nvflare.cli", "provision"),
        *("-p", str(project), "-w", str(work), "--force"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    provisioned = sorted((work / _PROJECT).glob("prod_*"))
    if done.returncode or not provisioned:
        raise EngineError(
            f"nvflare provision failed: {(done.stderr or done.stdout).strip()[-300:]}. Check the "
            "names and the address."
        )
    return provisioned[-1]


def _hosts(address: Address) -> list[str]:
    """Under which names the server is reached, the one of its address first."""
    if not address.is_this_machine:
        return [address.host]
    return [address.host, *sorted({"localhost", "127.0.0.1"} - {address.host})]


def _project(silos: Sequence[str], address: Address) -> dict[str, Any]:
    builders = "nvflare.lighter.impl"
    server = {
        "name": "server",
        "type": "server",
        "org": _ORGANISATION,
        "fed_learn_port": address.port,
        "admin_port": address.port,
        "host_names": _hosts(address),
        "default_host": address.host,
    }
    sites = [{"name": name, "type": "client", "org": _ORGANISATION} for name in silos]
    admin = {"name": OPERATOR, "type": "admin", "org": _ORGANISATION, "role": ROLE}
    return {
        "api_version": 3,
        "name": _PROJECT,
        "description": "Sumus federation",
        "participants": [server, *sites, admin],
        "builders": [
            {"path": f"{builders}.workspace.WorkspaceBuilder"},
            {
                "path": f"{builders}.static_file.StaticFileBuilder",
                "args": {"config_folder": "config", "scheme": "tcp"},
            },
        ],
    }


def close_down_silo(kit: Path) -> None:
    """Write what a silo's site allows; folders of old jobs go."""
    tidy_jobs(kit)
    resources = _read(kit / "local" / "resources.json.default")
    resources |= {
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": [SILO_CLASS],
        "allow_log_streaming": False,
    }
    resources["components"] = [
        _started_by(_SILO_LAUNCHER, component)
        for component in resources["components"]
        if component["id"] != "site_log_streamer"
    ]
    _write(kit / "local" / "resources.json", resources)
    _write(kit / "local" / "comm_config.json", _AMONG_ITSELF)
    _write(kit / "local" / "log_config.json", log_configuration("relay"))
    _write_rights(kit)


def _started_by(launcher: str, component: Mapping[str, Any]) -> dict[str, Any]:
    """A component of the engine, or our launcher in the place of its own."""
    if component["id"] == "process_launcher":
        return {"id": "process_launcher", "path": launcher, "args": {}}
    return dict(component)


def close_down_server(kit: Path) -> None:
    """Write what the server allows and where it keeps its jobs; called again at every start,
    because the kit may have moved.
    """
    storage = kit.resolve() / "storage"
    storage.mkdir(exist_ok=True, mode=0o700)
    tidy_jobs(storage / "jobs")
    resources = _read(kit / "local" / "resources.json.default")
    resources |= {"class_list_enforcement_mode": "enforce", "class_allow_list": [SERVER_CLASS]}
    resources["servers"][0]["heart_beat_timeout"] = _SILENCE_SECONDS
    resources["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = str(
        storage / "snapshots"
    )
    resources["components"] = [
        _started_by(_SERVER_LAUNCHER, component)
        for component in resources["components"]
        if component["id"] != "log_receiver"
    ]
    for component in resources["components"]:
        if component["id"] == "job_manager":
            component["args"]["uri_root"] = str(storage / "jobs")
    _write(kit / "local" / "resources.json", resources)
    _write(kit / "local" / "comm_config.json", _AMONG_ITSELF)
    _write(kit / "local" / "log_config.json", log_configuration("server"))
    _write_rights(kit, app_command="any")  # lets the operator ask for progress


def _write_rights(kit: Path, **more: str) -> None:
    """The operator may submit, watch and stop jobs of ours; nobody else may do anything."""
    _write(
        kit / "local" / "authorization.json",
        {"format_version": "1.0", "permissions": {ROLE: _RIGHTS | more}},
    )


def server_command(kit: Path, *, listen: str | None = None) -> list[str]:
    """The server's process.

    Args:
        listen: see `Engine.serve`.
    """
    here = Kit.open(kit, "server").address.is_this_machine
    interface = listen or ("127.0.0.1" if here else _EVERY_INTERFACE)
    command = _command("server", kit, "fed_server.json")
    place = command.index("server") + 1
    return [*command[:place], interface, *command[place:]]


def client_command(kit: Path) -> list[str]:
    """A silo's process."""
    owner = _read(kit / "startup" / "fed_client.json")["client"]["fqsn"]
    return _command("silo", kit, "fed_client.json", f"uid={owner}")


def _command(program: str, kit: Path, configuration: str, *options: str) -> list[str]:
    return [
        *(sys.executable, "-u", "-m", _START, program, "-m", str(kit.resolve())),
        *("-s", configuration, "--set", "secure_train=true", *options),
        *(f"org={_ORGANISATION}", "config_folder=config"),
    ]


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not JSON"
        raise EngineError(
            f"{path} cannot be read: {reason}. Is this a kit that `sumus federation init` made?"
        ) from None
    return dict(content)


def _write(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n")
    os.chmod(path, 0o600)
