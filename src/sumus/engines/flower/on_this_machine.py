"""A federation on Flower as real processes on this machine: SuperLink with TLS, a SuperNode with a
key of its own per silo.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from sumus.books import Policy
from sumus.engines.flower.certificates import make_certificates, make_node_key
from sumus.engines.processes import PartyProcesses, free_port
from sumus.errors import EngineError
from sumus.parties import Agreement, approve, settle
from sumus.randomness import RandomSource
from sumus.secagg import Roster, SiloIdentity

__all__ = ["FlowerProcesses", "write_app"]

_CONNECTION = "sumus"
_QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}


def write_app(
    folder: Path, agreement: Agreement, *, server_folder: Path, patience: Mapping[str, float]
) -> Path:
    """A Flower app without a line of code in it: it names the installed apps of ours and carries
    the plan for the server's side.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = {"plan": agreement.plan.to_toml(), "folder": str(server_folder.resolve()), **patience}
    lines = [
        "[project]",
        'name = "sumus-federation"',
        'version = "1.0.0"',
        'license = "Apache-2.0"',
        "dependencies = []",
        "[tool.flwr.app]",
        'publisher = "sumus"',
        "[tool.flwr.app.components]",
        'serverapp = "sumus.engines.flower.server_app:app"',
        'clientapp = "sumus.engines.flower.client_app:app"',
        "[tool.flwr.app.config]",
        *(f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in config.items()),
    ]
    (folder / "pyproject.toml").write_text("\n".join(lines) + "\n")
    return folder


@final
class FlowerProcesses(PartyProcesses):
    """SuperLink and SuperNodes, each silo with its own folder below `root`.

    Args:
        root: a folder that does not exist yet.
        agreement: the plan that every silo approves.
        data: silo → its own file, or one name of an embedded data set for all.
        environment: added to every process.
    """

    def __init__(
        self,
        root: Path,
        agreement: Agreement,
        *,
        data: Mapping[str, str] | str,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        # the engine starts commands of its own
        commands = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        super().__init__(
            root,
            {**_QUIET, "PATH": commands, "FLWR_HOME": str(root / "flwr"), **(environment or {})},
        )
        self.root, self._agreement, self._port = root, agreement, free_port()
        names = [silo.name for silo in agreement.design.silos]
        identities = {name: SiloIdentity.generate(name, RandomSource()) for name in names}
        self.roster = Roster.from_public_texts(
            [identity.public_text() for identity in identities.values()]
        )
        self.server_folder = root / "server"
        for folder in (root, self.server_folder, root / "flwr"):
            folder.mkdir(mode=0o700)
        make_certificates(self.server_folder, host="localhost")
        (self.server_folder / "roster.toml").write_text(self.roster.to_text())
        for name in names:
            source = data if isinstance(data, str) else data[name]
            settle(
                self.state(name),
                identity=identities[name],
                roster=self.roster,
                data=source,
                policy=Policy(),
                policy_text="",
            )
            approve(self.state(name), [agreement.plan])
            make_node_key(self.state(name) / "node")
        address = f'[superlink.{_CONNECTION}]\naddress = "127.0.0.1:{self._port}"\n'
        (root / "flwr" / "config.toml").write_text(
            f'{address}root-certificates = "{self.server_folder / "ca.crt"}"\n'
        )

    def state(self, silo: str) -> Path:
        """The silo's own folder."""
        return self.root / silo

    def start_all(self) -> None:
        """Start everybody; returns when the nodes are registered."""
        folder = self.server_folder
        certificates = [
            "--ssl-ca-certfile",
            "ca.crt",
            "--ssl-certfile",
            "server.crt",
            "--ssl-keyfile",
            "server.key",
        ]
        certificates = [str(folder / part) if "." in part else part for part in certificates]
        options = [
            "--enable-supernode-auth",
            "--database",
            str(folder / "state.db"),
            "--disable-runtime-dependency-installation",
        ]
        where = ["--host", "127.0.0.1", "--port", str(self._port)]
        self._run("server", _installed(["flower-superlink", *certificates, *options, *where]))
        for name in self.roster.names:
            self._register(self.state(name) / "node.pub")
        for name in self.roster.names:
            self.start_silo(name)

    def start_silo(self, name: str) -> None:
        """Start a silo's SuperNode."""
        state = self.state(name)
        own = [
            "--auth-supernode-private-key",
            str(state / "node"),
            "--node-config",
            f'state="{state.resolve()}"',
        ]
        trust = [
            "--root-certificates",
            str(self.server_folder / "ca.crt"),
            "--superlink",
            f"127.0.0.1:{self._port}",
        ]
        self._run(name, _installed(["flower-supernode", *trust, *own, "--port", str(free_port())]))

    def train(self, *, patience: Mapping[str, float], seconds: float) -> dict[str, Any]:
        """Submit the app, wait for the run to end and return how it ended."""
        outcome = self.server_folder / "outcome.json"
        outcome.unlink(missing_ok=True)
        app = write_app(
            self.root / "app", self._agreement, server_folder=self.server_folder, patience=patience
        )
        self._command(["flwr", "run", str(app), _CONNECTION], seconds=120.0)
        until = time.monotonic() + seconds
        while not outcome.exists():
            if time.monotonic() > until:
                raise EngineError(f"the run did not end in {seconds:g} s. See {self.root}/*.log.")
            time.sleep(0.5)
        return dict(json.loads(outcome.read_text()))

    def _register(self, key: Path) -> None:
        for attempt in range(60):  # until the SuperLink is up
            if not self.processes["server"].running:
                raise EngineError(f"the SuperLink ended. See {self.processes['server'].log}.")
            try:
                self._command(
                    ["flwr", "supernode", "register", str(key), _CONNECTION], seconds=60.0
                )
                return
            except EngineError:
                if attempt == 59:
                    raise
                time.sleep(0.5)

    def _command(self, command: list[str], *, seconds: float) -> None:
        environment = {**os.environ, **self._environment}
        done = subprocess.run(
            _installed(command),
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
            env=environment,
            cwd=self.root,
        )
        if done.returncode:
            raise EngineError(
                f"{' '.join(command[:3])} failed: {(done.stderr or done.stdout).strip()[-400:]}"
            )


def _installed(command: list[str]) -> list[str]:
    """The command from the environment that this Python runs in."""
    return [str(Path(sys.executable).parent / command[0]), *command[1:]]
