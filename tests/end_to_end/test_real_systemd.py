"""The units in a real systemd, installed by the very lines that `--units` prints: they are ready,
train, stay apart, and are started again by the watchdog, or not at all.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("nvflare")

from support.local_federation import plan
from support.notes import IN_TEST_NETWORK
from support.real_systemd import PrivateSystemd, why_not

WHY_NOT = why_not()
pytestmark = [*IN_TEST_NETWORK, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]
SILOS = ("silo-0", "silo-1", "silo-2")
PORT, PAGE = 18002, 18765  # in a network of its own
PYTHONPATH = os.environ.get("PYTHONPATH", "")


class Machine:
    """One machine with a server, three silos and an operator, each of their own users."""

    def __init__(self, root: Path) -> None:
        self.systemd = PrivateSystemd(root)
        (root / "srv" / "numba").mkdir()
        (root / "srv" / "numba").chmod(0o777)
        (root / "srv" / "plan.toml").write_text(plan({"federation.silos": 3}).to_toml())
        init = ["--silos", ",".join(SILOS), "--server", f"localhost:{PORT}"]
        self.sumus("federation", "init", "/srv/fed", *init, "--plan", "/srv/plan.toml")
        self.systemd.run("chmod", "711", "/srv/fed", "/srv/fed/kits")
        for name in SILOS:
            self.install_silo(name)
        start = ["--units", "/srv/units", "--user", "sumus-server"]
        self.obey(self.sumus("federation", "start", "/srv/fed", *start))
        page = ["--kit", "/srv/fed/kits/admin", "--watch-port", str(PAGE)]
        user = ["--units", "/srv/units", "--user", "sumus-watch"]
        self.obey(self.sumus("federation", "watch", *page, *user))

    @property
    def units(self) -> list[str]:
        pairs = [f"sumus-{part}-{name}" for name in SILOS for part in ("vault", "relay")]
        return ["sumus-server", *pairs, "sumus-watch"]

    def sumus(self, *words: str, user: str | None = None, **environment: str) -> str:
        change = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
        return self.systemd.run(
            *([] if user is None else change),
            *(sys.executable, "-P", "-m", "sumus", *words),
            PYTHONPATH=PYTHONPATH,
            NUMBA_CACHE_DIR="/srv/numba",
            **environment,
        )

    def install_silo(self, name: str) -> None:
        owner, state = f"own-{name}", f"/srv/state-{name}"
        run = self.systemd.run
        run("useradd", "--system", "--no-create-home", owner)
        run("install", "-d", "-o", owner, "-m", "700", state)
        run("chown", "-R", owner, f"/srv/fed/kits/{name}")
        check = self.sumus(
            *("join", f"/srv/fed/kits/{name}", "--data", "digits", "--policy", "/dev/null"),
            *("--plan", "/srv/plan.toml", "--check"),
            user=owner,
            SUMUS_STATE=state,
        )
        (pin,) = re.findall(r'^  (roster_fingerprint = ".+")$', check, re.MULTILINE)
        policy = self.systemd.root / "srv" / f"policy-{name}.toml"
        policy.write_text(f"{pin}\n")
        units = self.systemd.root / "srv" / f"units-{name}"
        units.mkdir()
        run("chown", owner, f"/srv/{units.name}")
        said = self.sumus(
            *("join", f"/srv/fed/kits/{name}", "--data", "digits", "--policy"),
            *(f"/srv/{policy.name}", "--plan", "/srv/plan.toml"),
            *("--units", f"/srv/{units.name}", "--user", f"rel-{name}"),
            user=owner,
            SUMUS_STATE=state,
        )
        self.obey(said)

    def obey(self, said: str) -> None:
        """Run what was printed for root, line by line; only where the output goes and which sources
        run are this test's own.
        """
        lines = [line.strip() for line in said.splitlines() if line.startswith("  ")]
        begin = next(number for number, line in enumerate(lines) if line.startswith("useradd"))
        for line in lines[begin:]:
            for unit in re.findall(r"sumus-[\w-]+(?=\.service)", line):
                own = f"/etc/systemd/system/{unit}.service.d"
                log = f"append:/var/log/{unit}.log"
                text = f"[Service]\\nEnvironment=PYTHONPATH={PYTHONPATH}\\n"
                text += f"StandardOutput={log}\\nStandardError={log}\\n"
                self.systemd.run("sh", "-c", f"mkdir -p {own}; printf '{text}' > {own}/test.conf")
            self.systemd.run("sh", "-c", line)

    def set(self, unit: str, **settings: str) -> None:
        """Other settings for a unit, so that nobody waits for minutes."""
        lines = "".join(f"{name}={value}\\n" for name, value in settings.items())
        place = f"/etc/systemd/system/{unit}.service.d/short.conf"
        self.systemd.run("sh", "-c", f"printf '[Service]\\n{lines}' > {place}")
        self.systemd.run("systemctl", "daemon-reload")


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    root = Path(tempfile.mkdtemp(prefix="sd-"))
    root.chmod(0o755)
    made = Machine.__new__(Machine)
    try:
        try:
            made.__init__(root)  # type: ignore[misc]
        except OSError as error:
            pytest.skip(f"no systemd of its own here: {error}")
        yield made
    finally:
        if hasattr(made, "systemd"):
            made.systemd.close()
        shutil.rmtree(root, ignore_errors=True)


def test_all_units_become_active_say_what_they_do_and_train(machine: Machine) -> None:
    systemd = machine.systemd
    for unit in machine.units:
        systemd.wait_for(unit, "ActiveState", "active")
        assert systemd.show(unit, "NRestarts") == "0"
    for name in SILOS:
        systemd.wait_for(f"sumus-relay-{name}", "StatusText", f"connected to localhost:{PORT}")
    assert systemd.show("sumus-server", "StatusText") == f"serving at localhost:{PORT}"
    kit = ["--kit", "/srv/fed/kits/admin"]
    machine.sumus("federation", "status", *kit)
    said = machine.sumus("federation", "train", "/srv/plan.toml", *kit, "--out", "/srv/runs")
    assert "3 rounds, 0 lost" in said
    for unit in machine.units:
        assert systemd.show(unit, "NRestarts") == "0"


def test_a_relay_sees_no_vault_and_a_vault_no_network(machine: Machine) -> None:
    systemd, name = machine.systemd, SILOS[0]
    vault = systemd.show(f"sumus-vault-{name}", "MainPID")
    relay = systemd.show(f"sumus-relay-{name}", "MainPID")
    look = ["find", f"/srv/state-{name}", "-name", "identity.key"]
    assert systemd.run("nsenter", "-t", vault, "-m", *look).count("identity.key") == 1
    assert systemd.run("nsenter", "-t", relay, "-m", *look, check=False) == ""  # not even for root
    links = systemd.run("nsenter", "-t", vault, "-n", "ip", "-o", "link")
    assert [line.split(":")[1].strip() for line in links.splitlines()] == ["lo"]
    assert "LISTEN" not in systemd.run("nsenter", "-t", vault, "-n", "cat", "/proc/net/tcp")
    for pid, user in ((vault, f"own-{name}"), (relay, f"rel-{name}")):
        assert systemd.run("stat", "-c", "%U", f"/proc/{pid}").strip() == user
        # what is closed to its own user belongs to root
        assert systemd.run("stat", "-c", "%U", f"/proc/{pid}/mem").strip() == "root"
    status = systemd.run("cat", f"/proc/{relay}/status")
    assert re.search(r"^CapBnd:\s+0+$", status, re.MULTILINE)
    assert re.search(r"^Seccomp:\s+2$", status, re.MULTILINE)
    assert re.search(r"^NoNewPrivs:\s+1$", status, re.MULTILINE)


@pytest.mark.parametrize("part", ["vault", "relay"])
def test_a_service_that_hangs_is_started_again(machine: Machine, part: str) -> None:
    systemd, unit = machine.systemd, f"sumus-{part}-{SILOS[0]}"
    machine.set(unit, WatchdogSec="10", RestartSec="1")
    systemd.run("systemctl", "restart", unit)
    before = systemd.show(unit, "MainPID")
    systemd.run("kill", f"-{signal.SIGSTOP:d}", before)
    systemd.wait_for(unit, "NRestarts", "1")
    systemd.wait_for(unit, "ActiveState", "active")
    assert systemd.show(unit, "MainPID") != before


def test_what_only_a_person_can_mend_is_not_tried_again(machine: Machine) -> None:
    systemd, unit = machine.systemd, f"sumus-vault-{SILOS[1]}"
    (policy,) = (systemd.root / "srv" / f"state-{SILOS[1]}").rglob("policy.toml")
    before = policy.read_text()
    machine.set(unit, RestartSec="1")
    policy.write_text("max_epsilon = -1\n")
    systemd.run("systemctl", "restart", unit, check=False)
    systemd.wait_for(unit, "ActiveState", "failed")
    assert systemd.show(unit, "ExecMainStatus") == "2"
    assert systemd.show(unit, "NRestarts") == "0"
    policy.write_text(before)
    systemd.run("systemctl", "start", unit)
    assert systemd.show(unit, "ActiveState") == "active"
    assert systemd.show(f"sumus-relay-{SILOS[1]}", "ActiveState") == "active"  # it waited
