"""`--notify` of the commands themselves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sumus.cli import main
from support.delivering import DeliveringFederation, small_plan
from support.kits import bare_kit
from support.loggers import loggers

__all__ = ["loggers"]

pytestmark = pytest.mark.deep
SMALL = [
    *("--set", "federation.rounds=2", "--set", "federation.silos=3"),
    *("--set", "federation.local_steps=2", "--set", "privacy.epsilon=2.0", "--no-compare"),
]


@pytest.fixture
def hook(tmp_path: Path) -> tuple[str, Path]:
    """A command, and the file into which it writes what it hears."""
    script, heard = tmp_path / "hook", tmp_path / "heard"
    script.write_text(f"#!/bin/sh\ncat >> '{heard}'\n")
    script.chmod(0o700)
    return str(script), heard


def said(heard: Path) -> list[dict[str, Any]]:
    lines = heard.read_text().splitlines() if heard.exists() else []
    return [json.loads(line) for line in lines]


@pytest.mark.usefixtures("loggers")
def test_a_run_that_ends_and_spends_its_budget_is_told_and_others_are_not(
    hook: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUMUS_STATE", str(tmp_path / "state"))
    command, heard = hook
    policies = {name: tmp_path / f"{name}.toml" for name in ("wide", "tight")}
    policies["wide"].write_text("max_epsilon = 100.0\n")
    policies["tight"].write_text("max_epsilon = 4.001\n")
    words = ["train", *SMALL, "--out", str(tmp_path / "runs"), "--notify", command, "--policy"]
    assert main([*words, str(policies["wide"])]) == 0
    assert [each["alert"] for each in said(heard)] == ["run-finished"]
    (only,) = said(heard)
    assert (only["party"], only["stage"], only["round"]) == ("operator", "finished", 2)
    heard.unlink()
    assert main([*words, str(policies["tight"])]) == 0
    assert {each["alert"] for each in said(heard)} == {"run-finished", "budget-low", "budget-spent"}
    heard.unlink()
    # a third run has no room: refused before it begins, and told
    assert main([*words, str(policies["tight"])]) == 3
    assert "run-failed" in {each["alert"] for each in said(heard)}


@pytest.mark.usefixtures("loggers")
def test_a_command_that_cannot_be_run_ends_before_anything_is_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SUMUS_STATE", str(tmp_path / "state"))
    for words in (["--notify", "/nowhere"], ["--notify", "/bin/true", "--alert", "budget=1"]):
        assert main(["train", *SMALL, "--out", str(tmp_path / "runs"), *words]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert error.startswith("error: --")
    assert not (tmp_path / "runs").exists()
    assert not list(tmp_path.glob("state/*.jsonl"))


STUB = """
import os, sys
from pathlib import Path
from sumus.engines import silo_processes as silo
from sumus.events import LogChoice, configure
kit, vault = map(Path, sys.argv[1:])
LISTEN = "import os, socket, sys, time; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); open(sys.argv[2], 'w').write(repr(sorted(os.environ))); time.sleep(600)"
SPEAK = "import time; time.sleep(3)"
silo.vault_command = lambda vault, path, user=None: [sys.executable, "-c", LISTEN, str(path), str(vault / "environment")]
silo.relay_command = lambda kit: [sys.executable, "-c", SPEAK]
configure(LogChoice(), party="silo", process="join", by_default=vault / "join.log")
with silo._watched(kit, vault, None) as tended:
    sys.exit(silo.keep_silo(kit, vault, say=silo._say, tended=tended))
"""


def test_a_silo_tells_its_own_people_and_the_variable_goes_no_further(
    hook: tuple[str, Path], tmp_path: Path
) -> None:
    command, heard = hook
    federation = DeliveringFederation(tmp_path / "federation", small_plan())
    vault, identity = federation.folder("silo-0"), federation.local.identities["silo-0"]
    kit = bare_kit(tmp_path / "kit", identity.name, federation.roster)
    federation.close()
    environment = {
        **os.environ,
        "SUMUS_NOTIFY": command,
        "SUMUS_ALERT": "server_away_minutes=0.02,backup_days=3",
    }
    words = [sys.executable, "-c", STUB, str(kit), str(vault)]
    wanted = {"process-restarted", "server-away", "backup-old"}
    with subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL) as process:
        try:
            until = time.monotonic() + 120.0
            while not wanted <= {each["alert"] for each in said(heard)}:
                assert time.monotonic() < until, said(heard)
                time.sleep(0.1)
        finally:
            process.terminate()
    assert {each["party"] for each in said(heard)} == {"silo"}
    assert {each["of"] for each in said(heard)} == {"silo-0"}
    assert "SUMUS_NOTIFY" not in (vault / "environment").read_text()
    logged = [json.loads(line) for line in (vault / "join.log").read_text().splitlines()]
    assert wanted <= {line.get("alert") for line in logged}
