"""Live pages of a federation of real processes, opened in Chromium: operator, training, server and a
silo, through the commands that serve them; the server is killed and started again on the way.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

pytest.importorskip("nvflare")

from sumus.engines.processes import free_port
from sumus.watching.probe import probe
from support.browser import Browser, chromium
from support.live import asked, until
from support.notes import IN_TEST_NETWORK

pytestmark = [
    *IN_TEST_NETWORK,
    pytest.mark.skipif(chromium() is None, reason="Chromium is not installed"),
]
SILOS = ("silo-0", "silo-1", "silo-2")
PLAN = """
[privacy]
epsilon = 1.0
delta = 1e-5
[federation]
silos = 3
rounds = 60
dropouts = 1
[training]
algorithm = "convex-pass"
[evaluation]
metrics = "secure"
[data]
name = "digits"
"""


class Commands:
    """The commands of a federation as its people type them, each with its output in a file."""

    def __init__(self, root: Path) -> None:
        self.root, self._running = root, dict[str, subprocess.Popen[bytes]]()
        (root / "plan.toml").write_text(PLAN)

    def run(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "sumus", *arguments]
        return subprocess.run(
            command, cwd=self.root, capture_output=True, text=True, check=True, timeout=300
        ).stdout

    def start(self, name: str, *arguments: str, state: str = "operator") -> None:
        with self.log(name).open("w") as output:
            self._running[name] = subprocess.Popen(
                [sys.executable, "-m", "sumus", *arguments],
                cwd=self.root,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | {"SUMUS_STATE": str(self.root / "states" / state)},
            )

    def log(self, name: str) -> Path:
        return self.root / f"{name}.out"

    def address(self, name: str) -> str:
        """Where a command says that its page is."""
        found: list[str] = []

        def said() -> bool:
            found[:] = re.findall(r"live\s+(http:.*)", self.log(name).read_text())
            return bool(found)

        until(said, seconds=180)
        address, _, kept = found[0].partition(" with the TOKEN of ")
        return address.replace("TOKEN", (self.root / kept).read_text().strip()) if kept else address

    def family(self, name: str) -> list[psutil.Process]:
        """A command's process and all that it has started."""
        first = psutil.Process(self._running[name].pid)
        return [first, *first.children(recursive=True)]

    def close(self) -> None:
        for process in self._running.values():
            process.send_signal(signal.SIGTERM)
        for process in self._running.values():
            process.wait(timeout=60)


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[Commands]:
    made = Commands(tmp_path)
    yield made
    made.close()


def seen(browser: Browser, name: str) -> str:
    return str(browser.evaluate(f"document.getElementById('{name}').textContent"))


def test_every_page_of_a_federation_while_its_server_is_killed_and_started_again(
    commands: Commands, tmp_path: Path
) -> None:
    port, page_port = free_port(), free_port()
    told = commands.run(
        *("federation", "init", "f", "--silos", ",".join(SILOS), "--plan", "plan.toml"),
        *("--server", f"localhost:{port}"),
    )
    shown = re.search(r"roster fingerprint\s+([0-9a-f ]+)", told)
    assert shown is not None
    fingerprint = shown[1].replace(" ", "").strip()
    (tmp_path / "policy.toml").write_text(
        f'max_epsilon = 4.0\nroster_fingerprint = "{fingerprint}"\n'
    )
    commands.start("server", "federation", "start", "f", "--watch", "--watch-port", str(page_port))
    commands.start("operator", "federation", "watch", "--kit", "f/kits/admin")
    for silo in SILOS:
        commands.start(
            silo,
            *("join", f"f/kits/{silo}", "--data", "digits", "--policy", "policy.toml"),
            *("--plan", "f/kits/admin/sumus/plan.toml", "--watch"),
            state=silo,
        )
    server, silo = commands.address("server"), commands.address("silo-0")
    ready = [f"{page.rsplit('/', 2)[0]}/readyz" for page in (server, silo)]
    until(lambda: [probe(each) for each in ready] == [0, 0], seconds=180)
    for name in ("server", "operator", "silo-0"):
        assert _listening(commands.family(name)) <= {"127.0.0.1", "::1"}, name

    with Browser(tmp_path / "profile") as browser:
        browser.visit(commands.address("operator"))
        until(lambda: "3 of 3 are there" in seen(browser, "silos-note"), seconds=120)
        commands.start(
            "train",
            *("federation", "train", "f/kits/admin/sumus/plan.toml", "--kit", "f/kits/admin"),
            *("--watch", "--out", "runs"),
        )
        until(lambda: re.match(r"Round [1-9]", seen(browser, "way-words")), seconds=300)
        _kill_the_engine(commands, "server")
        until(lambda: "The server does not answer since" in seen(browser, "banner-text"))
        before = _round(browser)
        until(lambda: browser.evaluate("document.getElementById('banner').hidden"), seconds=180)
        until(lambda: _round(browser) > before, seconds=300)
        until(lambda: seen(browser, "stage-words") == "Finished", seconds=300)
        assert _round(browser) == 60
        assert "± " in seen(browser, "tiles")
        assert browser.complaints == []

        browser.visit(server)
        until(lambda: seen(browser, "stage-words") == "Finished")
        assert "ε ≤ " in seen(browser, "epsilon")
        browser.visit(silo)
        until(lambda: _round(browser) == 60)
        assert "limit 4 (this silo's policy)" in seen(browser, "terms")
        assert "a silo, for its own people" in seen(browser, "role")
        assert browser.complaints == []
    parts = urlsplit(silo)
    metrics = asked(parts.port or 0, f"{parts.path}metrics")[2].decode()
    assert re.search(r"^sumus_dataset_epsilon_limit\{.*\} 4.0$", metrics, flags=re.M)
    until(lambda: "report " in commands.log("train").read_text(), seconds=120)


def _round(browser: Browser) -> int:
    return int(browser.evaluate("document.getElementById('way').getAttribute('aria-valuenow')"))


def _kill_the_engine(commands: Commands, name: str) -> None:
    for process in commands.family(name)[1:]:
        process.kill()


def _listening(family: list[psutil.Process]) -> set[str]:
    """Addresses that any of them listens on."""
    return {
        socket.laddr.ip
        for process in family
        for socket in process.net_connections(kind="tcp")
        if socket.status == psutil.CONN_LISTEN
    }
