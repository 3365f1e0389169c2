"""A training on this machine calls nobody; the engines' own tests check the same of federations."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.notes import Notes

pytest.importorskip("torch")


def run(notes: Notes, *arguments: str, cwd: Path) -> None:
    environment = {**os.environ, **notes.environment}
    subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        cwd=cwd,
        check=True,
        capture_output=True,
        timeout=200,
    )


def test_a_training_looks_up_and_calls_nobody(tmp_path: Path) -> None:
    notes = Notes(tmp_path / "notes")
    run(
        notes,
        "-m",
        "sumus",
        "train",
        "--set",
        "federation.rounds=1",
        "--out",
        str(tmp_path / "runs"),
        cwd=tmp_path,
    )
    assert notes.rounds, "nobody took notes"
    assert not notes.called


@pytest.mark.parametrize(
    "call",
    [
        "import socket; socket.socket().connect_ex(('127.0.0.1', 9))",
        "import socket; socket.getaddrinfo('127.0.0.1', 9)",
        "import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9))",
        "import urllib.request as u; "
        "u.build_opener(u.ProxyHandler({})).open('http://127.0.0.1:9/')",
    ],
)
def test_a_call_would_be_noticed(tmp_path: Path, call: str) -> None:
    notes = Notes(tmp_path / "notes")
    run(notes, "-c", f"try:\n    {call}\nexcept OSError:\n    pass", cwd=tmp_path)
    assert notes.called == {"127.0.0.1"}
