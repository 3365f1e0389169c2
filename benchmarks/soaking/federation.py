"""A federation as its operator and its silos' people start it: by commands, in processes, each
organisation with a state folder, a small disk and a clock of its own.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from soaking.processes import Service, Services
from sumus import __version__
from sumus.engines import silo_command
from sumus.engines.processes import free_port
from sumus.parties import read_rosters, vault_folder

__all__ = ["DISK_MEBIBYTES", "Federation", "compiled_clock"]

_SOURCES = Path(__file__).resolve().parents[2] / "src"
DISK_MEBIBYTES = 96
_RECORDS = 60
_POLICY = "max_epsilon = 100000.0\nmax_delta = 0.5\nmax_epsilon_per_run = 3.0\n"


class Federation:
    """Server, silos and operator on this machine.

    Args:
        root: an empty folder.
        silos: names of those who begin.
        spare: who may be admitted later.
        seed: of the made-up records.
    """

    def __init__(self, root: Path, silos: Sequence[str], *, spare: str, seed: int) -> None:
        self.root, self.silos, self.spare = root, list(silos), spare
        self.folder, self.services = root / "federation", Services()
        self.mounted: list[Path] = []
        self.tree = self._copied("a")
        self.other_tree = self._copied("b")
        _renumber(self.other_tree / "sumus" / "__init__.py")
        generator = random.Random(seed)
        for name in (*silos, spare):
            self._make_organisation(name, generator)
        self.clocks, self.base_clock = compiled_clock(root), 0
        for party in ("server", "operator", *silos, spare):
            self.set_clock(party, 0)
        (root / "logs").mkdir()

    def _copied(self, name: str) -> Path:
        """The sources as they are now, with compiled loops: nobody's edits get into the soak."""
        tree = self.root / "trees" / name
        shutil.copytree(_SOURCES, tree, ignore=shutil.ignore_patterns("*.egg-info"))
        return tree

    def _make_organisation(self, name: str, generator: random.Random) -> None:
        state = self.state(name)
        state.mkdir(parents=True, mode=0o700)
        if _small_disk(state, DISK_MEBIBYTES):
            self.mounted.append(state)
        lines = ["age,stay,site,again"]
        for _ in range(_RECORDS):
            age, stay = generator.uniform(20, 100), generator.uniform(0, 60)
            again = "yes" if age + stay > generator.uniform(40, 140) else "no"
            lines.append(f"{age:.1f},{stay:.1f},{name},{again}")
        (self.root / "records").mkdir(exist_ok=True)
        self.records(name).write_text("\n".join(lines) + "\n")

    # -- places

    def state(self, name: str) -> Path:
        """Of a silo's organisation: ledger and vault, on a small disk of its own."""
        return self.root / "organisations" / name

    def records(self, name: str) -> Path:
        """One name for all, because a ledger is one a data set."""
        return self.root / "records" / f"visits-{name}.csv"

    def kit(self, party: str) -> Path:
        return self.folder / "kits" / party

    def vault(self, name: str) -> Path:
        return vault_folder(read_rosters(self.folder).first, name, state=self.state(name))

    def clock(self, party: str) -> Path:
        """The file with the seconds by which a party's clock is off."""
        return self.root / f"clock-{party}"

    def set_clock(self, party: str, seconds: int) -> None:
        """Have the clock of a party's processes be off by so much from what it is for everybody; the
        machine's own stays as it is.
        """
        self.clock(party).write_text(f"{self.base_clock + seconds}\n")

    @property
    def runs(self) -> Path:
        """Where the operator's copies of run folders arrive."""
        return self.root / "runs"

    # -- processes

    def environment(self, party: str) -> dict[str, str]:
        """Of a party's processes: its sources, its state folder, its clock."""
        own = {
            "PYTHONPATH": str(self.tree),
            "SUMUS_STATE": str(self.state(party)),
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
        }
        if self.clocks is not None:
            own |= {"LD_PRELOAD": str(self.clocks), "SOAK_CLOCK": str(self.clock(party))}
        kept = {key: os.environ[key] for key in ("PATH", "HOME", "LANG") if key in os.environ}
        return kept | own

    def sumus(self, *words: object, party: str = "operator", code: int | None = 0) -> str:
        """A command as somebody types it; returns what it prints.

        Args:
            party: in whose place.
            code: that it must end with; None: whatever it does.
        """
        done = subprocess.run(
            [sys.executable, "-m", "sumus", *map(str, words)],
            env=self.environment(party),
            capture_output=True,
            text=True,
            cwd=self.root,
            timeout=900.0,
        )
        if code is not None and done.returncode != code:
            raise RuntimeError(f"sumus {' '.join(map(str, words))}: {done.stderr.strip()[-500:]}")
        return done.stdout

    def json(self, *words: object, party: str = "operator") -> Any:
        """The object that a command prints last."""
        return json.loads(self.sumus(*words, "--json", party=party).splitlines()[-1])

    def begin(self, plan: Path) -> None:
        """Make the kits, start the server and have every silo join with a plan."""
        address = f"localhost:{free_port()}"
        words = ("--silos", ",".join(self.silos), "--server", address, "--plan", plan)
        self.sumus("federation", "init", self.folder, *words)
        self.serve()
        for name in self.silos:
            self.join(name, plan)
        for name in self.silos:
            self._wait_until_joined(name)

    def _wait_until_joined(self, name: str, *, seconds: float = 600.0) -> None:
        """Until the vault is there, and its silo has approved the first plan."""
        log, end = self.root / "logs" / f"{name}.log", time.monotonic() + seconds
        while "joining; " not in log.read_text():
            if time.monotonic() > end:
                raise RuntimeError(
                    f"{name} has not joined in {seconds:g} s: {log.read_text()[-500:]}"
                )
            time.sleep(0.5)

    def serve(self) -> None:
        """The server's service."""
        command = [sys.executable, "-m", "sumus", "federation", "start", str(self.kit("server"))]
        self._keep("server", command)

    def run_queue(self, patience: float, *, rounds_per_job: int) -> None:
        """The operator's service."""
        words = ["--out", str(self.runs), "--stay", "--patience", str(patience), "--json"]
        words += ["--rounds-per-job", str(rounds_per_job)]
        command = ["federation", "queue", "run", "--kit", str(self.kit("admin")), *words]
        self._keep("operator", [sys.executable, "-m", "sumus", *command])

    def join(self, name: str, plan: Path, *options: object) -> None:
        """What `sumus join` checks and writes, then the service that stays."""
        policy = self.state(name) / "policy.toml"
        roster = read_rosters(self.folder).first.digest().hex()
        policy.write_text(f'roster_fingerprint = "{roster}"\n{_POLICY}')
        own = ("--data", self.records(name), "--policy", policy, "--plan", plan)
        words = [str(word) for word in ("join", self.kit(name), *own, *options)]
        command = [sys.executable, "-m", "sumus", *words]
        environment = self.environment(name)
        log = self.root / "logs" / f"{name}.log"
        service = Service(name, command, environment=environment, log=log)
        self.services.add(service)
        kept = silo_command(self.kit(name), self.vault(name))
        service.command = kept  # whatever starts it again checks nothing anew, as a unit does

    def _keep(self, name: str, command: Sequence[str]) -> None:
        log = self.root / "logs" / f"{name}.log"
        environment = self.environment(name)
        self.services.add(Service(name, command, environment=environment, log=log))

    def close(self) -> None:
        """Everybody stops; small disks stay until they were looked at."""
        self.services.close()

    def unmount(self) -> None:
        """Give the small disks back."""
        for place in self.mounted:
            subprocess.run(["umount", "--lazy", str(place)], check=False)


def _renumber(door: Path) -> None:
    """Make another release of a copy of the sources: the same code under another number, which
    silos and server compare before every run.
    """
    text = door.read_text()
    other = text.replace(f'__version__ = "{__version__}"', f'__version__ = "{__version__}.post1"')
    if other == text:
        raise RuntimeError(f"{door} has no version to change")
    door.write_text(other)


def compiled_clock(root: Path) -> Path | None:
    """The clock that can jump, if there is a compiler."""
    source, made = Path(__file__).with_name("clock.c"), root / "clock.so"
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", str(made), str(source)], check=True)
    return made


def _small_disk(place: Path, mebibytes: int) -> bool:
    """Mount a disk of its own over a folder; returns whether that was allowed."""
    if os.getuid() != 0:
        return False
    options = f"size={mebibytes}m,mode=700"
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "none", str(place)],
        capture_output=True,
        check=False,
    )
    return done.returncode == 0
