"""Parties that `sumus doctor` finds well, made once and copied for every test."""

from __future__ import annotations

import contextlib
import shutil
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sumus.books import Policy
from sumus.care import Finding
from sumus.cli import main
from sumus.engines import FederationFolder
from sumus.engines.processes import free_port
from sumus.parties import SiloState, approve, read_rosters, settle
from sumus.secagg import Identity
from support.local_federation import plan

SILO = "silo-0"


@dataclass
class Healthy:
    """Kits of a federation, and a silo's vault with its ledgers beside it."""

    root: Path

    @property
    def folder(self) -> FederationFolder:
        return FederationFolder.open(self.root / "federation")

    @property
    def kit(self) -> Path:
        return self.folder.kit(SILO)

    @property
    def server(self) -> Path:
        return self.folder.kit("server")

    @property
    def vault(self) -> Path:
        return self.root / "vault"

    @property
    def state(self) -> Path:
        return self.root / "state"

    @property
    def port(self) -> int:
        return int((self.kit / "kit.toml").read_text().rpartition(":")[2].strip(' "\n'))


def made_federation(root: Path) -> Path:
    """Kits of a federation of NVIDIA FLARE with the plan of these tests."""
    (root / "proposed.toml").write_text(plan({"federation.silos": 3}).to_toml())
    words = ["--silos", "silo-0,silo-1,silo-2", "--server", f"localhost:{free_port()}"]
    words += ["--plan", str(root / "proposed.toml"), "--engine", "nvflare"]
    assert main(["federation", "init", str(root / "federation"), *words]) == 0
    shutil.copy(root / "proposed.toml", root / "plan.toml")  # the last: all of it is there
    return root


def settled(made: Path, root: Path) -> Healthy:
    """A copy of a federation in which silo 0 has joined."""
    shutil.copytree(made, root, dirs_exist_ok=True)
    healthy = Healthy(root)
    rosters = read_rosters(healthy.kit / "sumus")
    key = healthy.kit / "sumus" / "identity.key"
    identity = Identity.parse(key.read_text())
    key.unlink()
    pin = f'roster_fingerprint = "{rosters.current.digest().hex()}"\n'
    healthy.state.mkdir(mode=0o700)
    SiloState(healthy.vault)
    healthy.vault.mkdir(mode=0o700, exist_ok=True)
    settle(
        healthy.vault,
        identity=identity,
        roster=rosters,
        data="digits",
        policy=Policy.from_toml(pin),
        policy_text=pin,
        ledgers=healthy.state,
    )
    approve(healthy.vault, [plan({"federation.silos": 3})])
    return healthy


@contextlib.contextmanager
def tls_server(kit: Path, port: int, *, authority: Path | None = None) -> Iterator[None]:
    """Somebody who speaks TLS with a server's certificate, and lets in whom `authority` has signed;
    None: the kit's own.
    """
    startup = kit / "startup"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(startup / "server.crt", startup / "server.key")
    context.load_verify_locations(authority or startup / "rootCA.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    listener = socket.create_server(("127.0.0.1", port))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with (
                connection,
                contextlib.suppress(OSError),
                context.wrap_socket(connection, server_side=True) as secured,
            ):
                secured.sendall(b"\0")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(timeout=10.0)


def of(findings: list[Finding], check: str) -> Finding:
    """The finding of one check."""
    (found,) = [finding for finding in findings if finding.check == check]
    return found
