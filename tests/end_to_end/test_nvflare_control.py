"""Real processes over NVIDIA FLARE: what a server with changed code, another silo and a stranger on
the machine make of a silo.

The server runs the engine's own program, so nothing but the silo itself stands in the way. The
control is a silo that runs the engine's own program too, with the engine's own loopback: it obeys
all three.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

pytest.importorskip("nvflare")

from sumus.engines import LocalProcesses
from sumus.engines.nvflare.jobs import NvflareOperator
from sumus.engines.nvflare.kits import client_command, server_command
from support.notes import Notes, agreed

pytestmark = [pytest.mark.network, pytest.mark.timeout(300)]

GUARDED, ATTACKER, CONTROL = "silo-0", "silo-1", "silo-2"
STOCK = {
    "server": "nvflare.private.fed.app.server.server_train",
    "silo": "nvflare.private.fed.app.client.client_train",
}


class Attacked:
    """A federation in which only `GUARDED` runs as it should."""

    def __init__(self, root: Path) -> None:
        self.notes = Notes(root / "notes")
        agreement = agreed(federation__silos=3, federation__rounds=2)
        self.processes = LocalProcesses(
            root / "federation", agreement, data="digits", environment=self.notes.environment
        )
        self.federation = self.processes.federation
        (self.federation.kit(CONTROL) / "local" / "comm_config.json").unlink()
        self._start("server", server_command(self.federation.kit("server")), STOCK["server"])
        self.processes.start(GUARDED)
        for name in (ATTACKER, CONTROL):
            self._start(name, client_command(self.federation.kit(name)), STOCK["silo"])
        self.operator = NvflareOperator(self.federation.kit("admin"), first_contact_seconds=120.0)
        assert len(self.operator.wait_for_sites(3, seconds=120.0)) == 3

    def _start(self, party: str, command: list[str], module: str) -> None:
        place = command.index("sumus.engines.nvflare.start")
        given = command.index("-m", place)  # before it stand the party and where it listens
        self.processes._run(party, [*command[:place], module, *command[given:]])

    def order(
        self, sender: str, target: str, topic: str, body: str | bytes = "", **headers: Any
    ) -> str:
        """Have a party send a request that does not ask for authorisation; returns the answer."""
        wanted = {"target": target, "topic": topic, "headers": headers}
        wanted |= {"hex": body.hex()} if isinstance(body, bytes) else {"body": body}
        answer, until = self.notes.folder / f"answer-{sender}", time.monotonic() + 60.0
        (self.notes.folder / "order").write_text(json.dumps(wanted))
        (self.notes.folder / "order").rename(self.notes.folder / f"order-{sender}")
        while not answer.exists():
            assert time.monotonic() < until, "nobody sent it"
            time.sleep(0.05)
        said = answer.read_text()
        answer.unlink()
        return said

    def listener(self, silo: str) -> str:
        """The one port on which a silo's processes listen for jobs of the same machine."""
        first = self.processes.processes[silo]
        ports = {
            str(socket.laddr.port)
            for member in (psutil.Process(first.pid), *first.descendants())
            for socket in member.net_connections(kind="tcp")
            if socket.status == psutil.CONN_LISTEN
        }
        assert len(ports) == 1
        return ports.pop()

    def stranger(self, silo: str, *, origin: str, topic: str, body: str = "", job: str = "") -> str:
        """What somebody without a certificate gets who connects to a silo's port on the
        loopback.
        """
        port = self.listener(silo)
        command = [
            sys.executable,
            str(Path(__file__).parent / "stranger.py"),
            port,
            silo,
            origin,
            topic,
            body,
            job,
        ]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=120, check=False
        ).stdout

    def secret(self, silo: str) -> Path:
        return self.processes.vault(silo) / "identity.key"

    def brought(self, silo: str) -> Path:
        """A file below the kit that a job id could name."""
        return self.federation.state(silo) / "roster.toml"

    def state(self, silo: str) -> dict[str, bytes]:
        """Everything of a silo that nobody may change, but for logs of what was refused."""
        return {
            str(path): path.read_bytes()
            for folder in (self.federation.state(silo), self.processes.state(silo))
            for path in sorted(folder.rglob("*"))
            if path.is_file() and path.suffix != ".log"
        }

    def close(self) -> None:
        self.operator.close()
        self.processes.close()


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    made = Attacked(tmp_path_factory.mktemp("control"))
    yield made
    made.close()


def attacks(secret: Path) -> list[dict[str, Any]]:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("config/config_fed_client.json", "{}")
    job = {
        "job_id": "sumus",
        "job_meta": {"job_id": "sumus", "submitter_role": "project_admin"},
        "app_name": "app",
    }
    return [
        {"topic": "sys.shell", "body": f"cat {secret}"},
        {"topic": "sys.shell", "body": "ls ."},
        {"topic": "train.delete_run", "job_id": "sumus"},
        {"topic": "train.deploy", "body": buffer.getvalue(), **job},
        {"topic": "sys.configure_site_log", "body": "DEBUG"},
        {"topic": "train.shutdown"},
    ]


@pytest.mark.parametrize("sender", ["server", ATTACKER])
def test_neither_server_nor_silo_reads_or_destroys_anything_at_another_silo(
    attacked: Attacked, sender: str
) -> None:
    before, secret = attacked.state(GUARDED), attacked.secret(GUARDED)
    for attack in attacks(secret):
        said = attacked.order(sender, GUARDED, **attack)
        assert "refused" in said
        assert "secret" not in said
    assert attacked.state(GUARDED) == before
    assert attacked.processes.processes[GUARDED].running
    assert "2.9.0" in attacked.order("server", GUARDED, "sys.report_version")  # it does listen


@pytest.mark.parametrize("sender", ["server", ATTACKER])
def test_a_silo_that_runs_the_engines_own_program_obeys_both(
    attacked: Attacked, sender: str
) -> None:
    """The control of the test above."""
    secret = attacked.secret(CONTROL)
    assert secret.read_text().strip() in attacked.order(
        sender, CONTROL, "sys.shell", f"cat {secret}"
    )
    assert "successfully configured" in attacked.order(
        sender, CONTROL, "sys.configure_site_log", "INFO"
    )


def test_a_stranger_on_the_machine_is_not_let_in_by_any_name(attacked: Attacked) -> None:
    before = attacked.state(GUARDED)
    for origin in (f"{GUARDED}.stranger", "server"):
        said = attacked.stranger(
            GUARDED, origin=origin, topic="sys.shell", body=f"cat {attacked.secret(GUARDED)}"
        )
        assert "secret" not in said
        assert "refused" not in said  # nobody has even answered
        attacked.stranger(GUARDED, origin=origin, topic="train.delete_run", job="sumus")
    assert attacked.state(GUARDED) == before


def test_the_engines_own_loopback_lets_a_stranger_in(attacked: Attacked) -> None:
    """The control of the test above; last, because the kit is without its roster afterwards."""
    secret = attacked.secret(CONTROL)
    said = attacked.stranger(
        CONTROL, origin=f"{CONTROL}.stranger", topic="sys.shell", body=f"cat {secret}"
    )
    assert secret.read_text().strip() in said
    attacked.stranger(CONTROL, origin="server", topic="train.delete_run", job="sumus")
    assert not attacked.brought(CONTROL).exists()
