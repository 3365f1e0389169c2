"""A silo whose engine runs as another Unix user, with hostile code in it: it finds no byte of key,
record or unmasked vector in any file or memory that it can read, and training goes on.

Real processes over NVIDIA FLARE, each started by the command that an administrator would use. The
control is the same search by the vault's own user, which finds all of them.
"""

from __future__ import annotations

import csv
import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

pytest.importorskip("nvflare")

from sumus.books import Ledger, RunFolder
from sumus.cli import main
from sumus.data import write_patients
from sumus.engines import FederationFolder
from sumus.engines.processes import PartyProcesses, free_port
from sumus.parties import agree_on, vault_folder
from sumus.plan import TrainingPlan
from support.other_users import NOBODY, open_to

HOSTILE = Path(__file__).parent / "hostile"
CONSORTIUM = Path(__file__).parents[2] / "examples" / "consortium" / "plan.toml"
GUARDED, *OTHERS = SILOS = ["Bergen", "Graz", "Leuven"]

pytestmark = [
    pytest.mark.network,
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.getuid() != 0, reason="only root starts processes of another user"),
]


def sumus(*words: object) -> list[str]:
    return [sys.executable, "-m", "sumus", *map(str, words)]


class Federation:
    """Three hospitals with their own files; `GUARDED` joins with --user nobody."""

    def __init__(self, root: Path) -> None:
        self.root, prefix = root, open_to()
        text = CONSORTIUM.read_text().replace('"Leuven", "Oulu", "Padova"', '"Leuven"')
        text = text.replace("[2000, 2000, 2000, 2000, 2000]", "[2000, 2000, 2000]")
        text = text.replace("silos = 5", "silos = 3").replace("rounds = 12", "rounds = 6")
        text = text.replace("dropouts = 1", "dropouts = 0").replace(
            "colluding = 1", "colluding = 0"
        )
        self.agreement = agree_on(TrainingPlan.from_toml(text))
        self.plan = root / "plan.toml"
        self.plan.write_text(self.agreement.plan.to_toml())
        self.write_tables()
        words = ["--silos", ",".join(SILOS), "--server", f"localhost:{free_port()}"]
        assert (
            main(["federation", "init", str(root / "fed"), *words, "--plan", str(self.plan)]) == 0
        )
        self.kits = FederationFolder.open(root / "fed")
        for folder in (root / "fed", root / "fed" / "kits"):
            folder.chmod(0o711)
        self.loot, self.needles = root / "loot", root / "needles"
        self.loot.mkdir()
        self.loot.chmod(0o777)
        self.needles.mkdir(mode=0o700)
        wanted = [self.table(GUARDED), self.state(GUARDED), self.kits.folder, self.needles, root]
        environment = {
            "PYTHONPATH": os.pathsep.join([str(HOSTILE), os.environ.get("PYTHONPATH", "")]),
            "SUMUS_TEST_LOOT": str(self.loot),
            "SUMUS_TEST_NEEDLES": str(self.needles),
            "SUMUS_TEST_WANTED": os.pathsep.join(map(str, wanted)),
        }
        self.processes = PartyProcesses(root, environment)
        self.processes._run("server", sumus("federation", "start", self.kits.folder))
        pin = f'roster_fingerprint = "{self.kits.roster.digest().hex()}"\n'
        (root / "policy.toml").write_text(pin)
        for name in SILOS:
            own = ("--data", self.table(name), "--policy", root / "policy.toml")
            command = sumus("join", self.kits.kit(name), *own, "--plan", self.plan)
            state = ["env", f"SUMUS_STATE={self.state(name)}"]
            if name == GUARDED:
                user = pwd.getpwuid(NOBODY).pw_name
                command = [*prefix, *command, "--user", user]
            self.processes._run(name, [*state, *command])

    def table(self, name: str) -> Path:
        return self.root / f"{name}.csv"

    def state(self, name: str) -> Path:
        return self.root / f"state-{name}"

    def vault(self, name: str) -> Path:
        return vault_folder(self.kits.roster, name, state=self.state(name))

    def write_tables(self) -> None:
        everybody = write_patients(self.root / "everybody.csv", records=2000)
        with everybody.open(newline="") as file:
            head, *rows = csv.reader(file)
        for name in SILOS:
            with self.table(name).open("w", newline="") as file:
                csv.writer(file).writerows([head, *(row for row in rows if row[0] == name)])
            self.table(name).chmod(0o600)
        everybody.unlink()

    def family(self, name: str) -> list[psutil.Process]:
        return self.processes.processes[name].descendants()

    def vault_process(self, name: str) -> psutil.Process:
        return next(each for each in self.family(name) if "sumus.parties.vault" in each.cmdline())

    def train(self) -> RunFolder:
        words = ("federation", "train", self.plan, "--kit", self.kits.kit("admin"))
        out = self.root / "runs"
        done = subprocess.run(
            sumus(*words, "--out", out, "--json"), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return RunFolder.open(json.loads(done.stdout.splitlines()[-1])["run"])


@pytest.fixture(scope="module")
def federation() -> Iterator[Federation]:
    root = Path(tempfile.mkdtemp(prefix="sumus-another-user-"))
    root.chmod(0o711)  # the way to the kit is open, and lists nothing
    made = Federation(root)
    try:
        yield made
    finally:
        made.processes.close()
        shutil.rmtree(root, ignore_errors=True)


def needles(federation: Federation) -> dict[str, bytes]:
    """Key, record and unmasked vector of the guarded silo, as they would be found."""
    secret = (federation.vault(GUARDED) / "identity.key").read_text().split()[-1]
    row = federation.table(GUARDED).read_text().splitlines()[7]
    vector = (federation.needles / f"vector-{GUARDED}").read_bytes()
    assert len(secret) > 30
    assert len(vector) > 64
    return {"key": secret.encode(), "record": row.encode(), "vector": vector[:64]}


def memory_of(pid: int) -> bytes:
    """The same search as the hostile engine's, from here."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import sitecustomize; "
        "sys.stdout.buffer.write(sitecustomize.memory_of(int(sys.argv[2])))"
    )
    command = [sys.executable, "-S", "-c", code, str(HOSTILE), str(pid)]
    environment = {**os.environ, "SUMUS_TEST_LOOT": "unused"}
    return subprocess.run(command, env=environment, capture_output=True, check=True).stdout


def test_a_hostile_engine_finds_no_byte_of_key_record_or_vector_and_training_goes_on(
    federation: Federation,
) -> None:
    run = federation.train()
    run.verify()
    assert run.void is None
    assert [record.survivors for record in run.rounds()] == [tuple(SILOS)] * 6
    assert len(Ledger.of_dataset(GUARDED, state=federation.state(GUARDED)).entries()) == 7

    attempts = json.loads((federation.loot / "attempts").read_text())
    assert attempts["uid"] == NOBODY
    loaded = [name.split(".")[:2] for name in attempts["modules"]]
    assert not [name for name in loaded if name[0] == "torch"]
    assert not [name for name in loaded if name in (["sumus", "secagg"], ["sumus", "books"])]
    assert {name for name in attempts["modules"] if name.startswith("sumus.parties")} == set()
    found = (federation.loot / "files").read_bytes() + (federation.loot / "memory").read_bytes()
    assert b"SUMUS_VAULT" in found  # the search finds what is there: its own memory
    assert b"BEGIN PRIVATE KEY" in found or b"BEGIN RSA PRIVATE KEY" in found  # of the transport
    for what, needle in needles(federation).items():
        assert needle not in found, what
    for path in (federation.table(GUARDED), federation.state(GUARDED), federation.needles):
        assert "Permission denied" in attempts["refused"][str(path)]
    vault = federation.vault_process(GUARDED)
    assert vault.uids().real == 0
    assert attempts["processes"][str(vault.pid)] == "PermissionError"
    read = {int(pid) for pid, outcome in attempts["processes"].items() if outcome == "read"}
    assert read  # its own
    for what in ("become root", "end the vault", "take the socket's place"):
        assert attempts[what] == "PermissionError", what
    assert "SUMUS_STATE" not in attempts["environment"]
    engines = [each for each in federation.family(GUARDED) if each.pid != vault.pid]
    assert engines
    assert {each.uids().real for each in engines} == {NOBODY}


def test_the_vaults_own_user_finds_all_of_them(federation: Federation) -> None:
    """The control of the test above."""
    files = [federation.table(GUARDED), *federation.state(GUARDED).rglob("*")]
    found = b"".join(path.read_bytes() for path in files if path.is_file())
    found += memory_of(federation.vault_process(GUARDED).pid)
    for what, needle in needles(federation).items():
        assert needle in found, what


def test_the_trials_key_is_in_the_vault_only(federation: Federation) -> None:
    secret = needles(federation)["key"]
    kit = federation.kits.kit(GUARDED)
    holding = [path for path in kit.rglob("*") if path.is_file() and secret in path.read_bytes()]
    assert not holding
    assert all(path.stat().st_uid == NOBODY for path in kit.rglob("*"))


@pytest.mark.long
def test_a_silo_that_dies_in_part_is_whole_again(federation: Federation) -> None:
    for wanted in ("sumus.parties.vault", "sumus.engines.nvflare.start"):
        (old,) = [each for each in federation.family(GUARDED) if wanted in each.cmdline()][:1]
        old.kill()
        until = time.monotonic() + 120.0
        while not [
            each
            for each in federation.family(GUARDED)
            if each.pid != old.pid and wanted in each.cmdline()
        ]:
            assert time.monotonic() < until
            time.sleep(0.2)
    told = federation.processes.log(GUARDED).read_text()
    assert "the vault ended" in told
    assert "the engine ended" in told
