"""The services of the compose file as processes: its very commands, variables, users and health
checks, with folders in the places of volumes; made by its own script, they train.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

pytest.importorskip("nvflare")
pytest.importorskip("yaml")

from sumus.books import Ledger, RunFolder
from sumus.engines.processes import free_port
from support.listening import family, listeners
from support.local_federation import plan
from support.notes import IN_TEST_NETWORK
from support.played_containers import TRANSLATED, Compose

pytestmark = IN_TEST_NETWORK
DEPLOY = Path(__file__).parents[2] / "deploy"
TESTS = Path(__file__).parents[1]
SILOS = ("silo-0", "silo-1", "silo-2")


def until(what: Callable[[], bool], seconds: float = 240.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.5)


class Consortium:
    """Everything that `prepare.sh` makes and `compose up` starts."""

    def __init__(self, root: Path) -> None:
        self.root, self.home = root, root / "home"
        self.home.mkdir()
        (root / "plan.toml").write_text(plan({"federation.silos": 3}).to_toml())
        words = {"server:8002": f"localhost:{free_port()}", "8766": str(free_port())}
        python = [os.environ.get("PYTHONPATH", ""), str(TESTS)]
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, python)),
            "SUMUS_HOME": str(self.home),
            "COMPOSE": f"{sys.executable} -m support.played_containers {root}",
            TRANSLATED: json.dumps(words),
        }
        if os.getuid() != 0:  # nobody may be given a file, and every party is this user
            (root / "bin").mkdir()
            (root / "bin" / "chown").symlink_to("/bin/true")
            self.environment["PATH"] = f"{root}/bin:{os.environ['PATH']}"
        self.prepared = subprocess.run(
            [str(DEPLOY / "prepare.sh"), str(root / "plan.toml")],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert self.prepared.returncode == 0, self.prepared.stderr
        self.compose = Compose(DEPLOY / "compose.yaml", root, self.environment)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def up(self) -> None:
        """As `compose up`: whoever depends on another waits until that one is healthy."""
        left = [name for name, each in self.compose.services.items() if "profiles" not in each]
        while left:
            for name in list(left):
                needs = self.compose.services[name].get("depends_on", {})
                if all(other in self.processes for other in needs):
                    for other in needs:
                        until(lambda other=other: self.is_healthy(other))
                    with (self.root / f"{name}.log").open("wb") as log:
                        self.processes[name] = self.compose.start(
                            name, stdout=log, stderr=subprocess.STDOUT
                        )
                    left.remove(name)

    def is_healthy(self, name: str) -> bool:
        log = (self.root / f"{name}.log").read_text()
        assert self.processes[name].poll() is None, (name, log[-2000:])
        return self.compose.is_healthy(name)

    def pids(self) -> list[int]:
        return family(process.pid for process in self.processes.values())

    def down(self) -> dict[str, int]:
        """As `compose stop`; returns with which code each ended."""
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        codes = {}
        for name, process in self.processes.items():
            try:
                codes[name] = process.wait(timeout=60.0)
            except subprocess.TimeoutExpired:
                codes[name] = -9
                os.killpg(process.pid, signal.SIGKILL)
        return codes


@pytest.fixture(scope="module")
def consortium() -> Iterator[Consortium]:
    root = Path(tempfile.mkdtemp(prefix="c-"))
    root.chmod(0o711)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
        made = Consortium(root)
        patch.setenv("PYTHONPATH", made.environment["PYTHONPATH"])
        try:
            yield made
        finally:
            made.down()
            shutil.rmtree(root, ignore_errors=True)


def test_the_script_says_what_comes_next_and_leaves_nothing_open(consortium: Consortium) -> None:
    assert consortium.prepared.stdout.splitlines()[-1].startswith("next: ")
    assert consortium.prepared.stdout.count("prepared; the vault is ") == 3
    kits = consortium.home / "federation" / "kits"
    for kit in kits.iterdir():
        assert kit.stat().st_mode & 0o777 == 0o700, kit
    for silo in SILOS:
        for part in ("vault", "state", "records"):
            assert (consortium.home / silo / part).stat().st_mode & 0o777 == 0o700
        assert (consortium.home / silo / "vault" / "identity.key").is_file()
        assert not (kits / silo / "sumus" / "identity.key").exists()
    if os.getuid() == 0:
        owners = {kit.name: kit.stat().st_uid for kit in kits.iterdir()}
        relays = {silo: 10200 + number for number, silo in enumerate(SILOS)}
        assert owners == {"server": 10000, "admin": 10001, **relays}


def test_the_services_are_healthy_train_and_end_as_asked(consortium: Consortium) -> None:
    compose = consortium.compose
    consortium.up()
    for name in consortium.processes:
        until(lambda name=name: consortium.is_healthy(name))
    if os.getuid() == 0:
        for name, process in consortium.processes.items():
            users = {psutil.Process(pid).uids().real for pid in family([process.pid])}
            assert users == {compose.user(name)}, name
    kit = ["--kit", "/kit"]
    until(lambda: compose.run("operator", ["federation", "status", *kit]).returncode == 0)
    train = ["federation", "train", "/kit/sumus/plan.toml", *kit, "--out", "/runs"]
    operator = compose.start(
        "operator", train, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    open_, looks = set(), 0
    while operator.poll() is None:  # jobs have processes of their own
        open_ |= {each for each in listeners(consortium.pids()) if not each.is_loopback}
        looks += 1
        time.sleep(0.5)
    said, _ = operator.communicate()
    reasons = [path.read_text()[-1500:] for path in consortium.home.glob("*/vault/refusals.log")]
    assert operator.returncode == 0, (said[-1000:], reasons)
    assert "3 rounds, 0 lost" in said
    assert looks > 5
    assert open_ == set()
    (run,) = (consortium.home / "runs").iterdir()
    RunFolder.open(run).verify()
    for silo in SILOS:
        state = consortium.home / silo / "state"
        assert len(Ledger.of_dataset("digits", state=state).entries()) == 3
    codes = consortium.down()
    assert set(codes.values()) == {0}, codes
    assert not any(compose.is_healthy(name) for name in consortium.processes)


def test_no_secret_of_a_party_is_in_what_another_one_sees(consortium: Consortium) -> None:
    """After a run: neither a silo's key nor a TLS key is in a folder that another party mounts."""
    secrets = {}
    for silo in SILOS:
        text = (consortium.home / silo / "vault" / "identity.key").read_text()
        secrets[f"vault-{silo}"] = re.findall(r"[A-Za-z0-9+/=_-]{40,}", text)[0].encode()
    kits = consortium.home / "federation" / "kits"
    for party in (*SILOS, "server", "admin"):
        (key,) = (kits / party / "startup").glob("*.key")
        owner = f"relay-{party}" if party in SILOS else {"admin": "operator"}.get(party, party)
        secrets[owner] = key.read_bytes()
    services = [name for name in consortium.compose.services if name in consortium.processes]
    for name in services:
        for mount in consortium.compose.mounts(name):
            place = consortium.compose.folder(name, mount)
            for path in [place, *place.rglob("*")]:
                if path.is_file() and not path.is_symlink():
                    content = path.read_bytes()
                    found = [whose for whose, secret in secrets.items() if secret in content]
                    assert set(found) <= {name}, (name, path, found)
