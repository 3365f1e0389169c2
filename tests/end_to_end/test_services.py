"""Server, vault, relay and the operator's page, started by the very command lines of their units
with a service manager that is played: they are ready when they are, alive while their loops go
round, and end as they should.
"""

from __future__ import annotations

import os
import signal
import socket
import tempfile
import time
from collections.abc import Collection, Iterator
from pathlib import Path

import psutil
import pytest

pytest.importorskip("nvflare")

from sumus.cli import main
from sumus.engines import FederationFolder
from sumus.engines.processes import free_port
from sumus.parties import vault_folder
from sumus.watching.probe import probe
from support.local_federation import plan
from support.service_manager import Service, serviced

pytestmark = [pytest.mark.network, pytest.mark.timeout(600)]
in_test_network = pytest.mark.skipif(
    os.environ.get("SUMUS_TEST_NETWORK") != "all", reason="runs in make test-network"
)
SILO = "silo-0"
WATCHDOG_SECONDS = 4.0
QUIET = {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.environ.get("PYTHONPATH", "")}


class Installed:
    """Kits and units of a federation of three silos, of which one is here."""

    def __init__(self, root: Path) -> None:
        self.root, self.port, self.page = root, free_port(), free_port()
        (root / "plan.toml").write_text(plan({"federation.silos": 3}).to_toml())
        init = ["--silos", "silo-0,silo-1,silo-2", "--server", f"localhost:{self.port}"]
        init += ["--plan", str(root / "plan.toml")]
        assert main(["federation", "init", str(root / "fed"), *init]) == 0
        self.federation = FederationFolder.open(root / "fed")
        pin = f'roster_fingerprint = "{self.federation.roster.digest().hex()}"\n'
        (root / "policy.toml").write_text(pin)
        own = ["--data", "digits", "--policy", str(root / "policy.toml")]
        own += ["--plan", str(root / "plan.toml")]
        units = ["--units", str(root / "units"), "--user", "daemon"]
        assert main(["join", str(self.kit(SILO)), *own, *units]) == 0
        assert main(["federation", "start", str(root / "fed"), *units]) == 0
        watch = ["--kit", str(self.kit("admin")), "--watch-port", str(self.page)]
        assert main(["federation", "watch", *watch, *units]) == 0

    def kit(self, party: str) -> Path:
        return self.federation.kit(party)

    def unit(self, name: str) -> Path:
        return self.root / "units" / f"sumus-{name}.service"

    @property
    def socket(self) -> Path:
        return self.root / "run" / "sumus-silo-0" / "vault"


@pytest.fixture(scope="module")
def installed() -> Iterator[Installed]:
    with tempfile.TemporaryDirectory(prefix="s-") as root, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUMUS_STATE", f"{root}/state")
        (Path(root) / "state").mkdir(mode=0o700)
        yield Installed(Path(root))


def started(installed: Installed, name: str, **more: str) -> Service:
    return Service(
        installed.unit(name),
        installed.root,
        watchdog_seconds=WATCHDOG_SECONDS,
        environment=QUIET | more,
    )


def require_alive_while_they_turn(services: Collection[Service]) -> None:
    """Signs come, none while a process stands still, and again."""
    for service in services:
        service.hear(0.3)
        service.wait_for(lambda told: told.lines.get("WATCHDOG") == "1", 60.0)
        service.signal(signal.SIGSTOP)
    for service in services:
        service.hear(0.3)  # what was on its way
    time.sleep(1.5 * WATCHDOG_SECONDS)
    for service in services:
        assert service.hear(0.3) == []
        service.signal(signal.SIGCONT)
        service.wait_for(lambda told: told.lines.get("WATCHDOG") == "1", 60.0)


def require_ended_as_asked(service: Service) -> None:
    family = psutil.Process(service.process.pid).children(recursive=True)
    assert service.stop() == 0, service.log.read_text()[-2000:]
    assert any(told.lines.get("STOPPING") == "1" for told in service.told)
    assert {told.pid for told in service.told} == {service.process.pid}  # NotifyAccess=main
    assert sum("READY" in told.lines for told in service.told) == 1
    gone, left = psutil.wait_procs(family, timeout=20.0)
    assert not left, (gone, left)


def require_children_know_no_manager(service: Service) -> None:
    for child in psutil.Process(service.process.pid).children(recursive=True):
        assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC", "SUMUS_HEALTH"} & set(child.environ())


def is_open(port: int) -> bool:
    with socket.socket() as look:
        look.settimeout(5.0)
        return look.connect_ex(("127.0.0.1", port)) == 0


@in_test_network
def test_services_of_a_server_a_silo_and_an_operator(installed: Installed) -> None:
    services = {name: started(installed, name) for name in ("server", "vault-silo-0")}
    try:
        server, vault = services["server"], services["vault-silo-0"]
        vault.wait_until_ready()
        assert installed.socket.is_socket()  # when it says so, not some time later
        with socket.socket(socket.AF_UNIX) as relay:
            relay.connect(str(installed.socket))
        ready = server.wait_until_ready()
        assert is_open(installed.port)
        assert ready.lines["STATUS"] == f"serving at localhost:{installed.port}"
        relay_ = services["relay"] = started(installed, "relay-silo-0")
        page = services["page"] = started(installed, "watch")
        relay_.wait_until_ready()
        connected = f"connected to localhost:{installed.port}"
        relay_.wait_for_status(connected)
        page.wait_until_ready()
        assert probe(f"http://127.0.0.1:{installed.page}/healthz") == 0
        token = installed.kit("admin") / "sumus" / "watch.token"
        assert token.read_text().strip() not in page.log.read_text()
        for service in services.values():
            require_children_know_no_manager(service)
        require_alive_while_they_turn(services.values())
        require_ended_as_asked(vault)
        relay_.wait_for_status(f"{connected}; the vault is away")
        require_ended_as_asked(server)
        waits = f"waits for localhost:{installed.port}; the vault is away"
        relay_.wait_for_status(waits)
        require_ended_as_asked(relay_)
        require_ended_as_asked(page)
    finally:
        for service in services.values():
            if service.process.poll() is None:
                service.stop(5.0)


@in_test_network
def test_an_engine_that_dies_is_started_again_and_the_relay_says_so(installed: Installed) -> None:
    with serviced(
        installed.unit("relay-silo-0"), installed.root, environment=QUIET, watchdog_seconds=60.0
    ) as relay:
        # without a server: it asks, waits in vain and asks again
        relay.wait_until_ready()
        (engine,) = psutil.Process(relay.process.pid).children()
        engine.send_signal(signal.SIGKILL)
        again = "the engine ended and is started again"
        relay.wait_for_status(again)
        relay.wait_for_status("waits for")
        assert psutil.Process(relay.process.pid).children()[0].pid != engine.pid


# -- how services end that cannot begin


@pytest.mark.parametrize(
    ("what", "code", "said"),
    [
        ("mode", 7, "must be closed to others"),
        pytest.param("policy", 2, "policy", marks=in_test_network),
        pytest.param("in use", 5, "is in use by another process", marks=in_test_network),
    ],
)
def test_a_vault_that_cannot_begin_says_whether_a_restart_helps(
    installed: Installed, what: str, code: int, said: str
) -> None:
    vault = vault_folder(installed.federation.roster, SILO)
    policy, locked = vault / "policy.toml", None
    before = policy.read_text()
    try:
        if what == "policy":
            policy.write_text("max_epsilon = -1\n")
        elif what == "mode":
            vault.chmod(0o755)
        else:
            locked = started(installed, "vault-silo-0")
            locked.wait_until_ready()
        service = started(installed, "vault-silo-0")
        assert service.ended() == code
        assert said in service.log.read_text().splitlines()[-1]
        assert (code in service.prevented) == (code in (2, 3, 7))
        assert not any("READY" in told.lines for told in service.told)
    finally:
        policy.write_text(before)
        vault.chmod(0o700)
        if locked is not None:
            locked.stop()


@in_test_network
def test_a_server_whose_port_is_taken_is_tried_again(installed: Installed) -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", installed.port))
        other.listen()
        service = started(installed, "server")
        assert service.ended() == 6
        assert 6 not in service.prevented
        assert f"port {installed.port} is taken" in service.log.read_text()


@in_test_network
def test_a_relay_without_a_kit_or_with_the_kit_of_another_is_no_service(
    installed: Installed,
) -> None:
    unit = installed.unit("relay-silo-0")
    wrong = unit.with_name("sumus-relay-wrong.service")
    wrong.write_text(unit.read_text().replace("kits/silo-0", "kits/admin"))
    service = Service(wrong, installed.root, environment=QUIET)
    assert service.ended() == 6
    assert "is the kit of admin" in service.log.read_text()
