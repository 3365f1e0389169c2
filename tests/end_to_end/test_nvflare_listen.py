"""A real server over NVIDIA FLARE listens where it is told to, and nowhere else."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

pytest.importorskip("nvflare")

from sumus.cli import main
from sumus.engines import ENGINES
from sumus.engines.processes import OwnedProcess, free_port

pytestmark = [pytest.mark.network, pytest.mark.timeout(180)]
FIRST, SECOND = "127.0.0.1", "127.0.0.2"


def is_open(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(2.0)
        return probe.connect_ex((host, port)) == 0


@pytest.mark.parametrize(
    ("listen", "open_", "closed"),
    [
        (None, [FIRST], [SECOND]),  # the kits say localhost
        (SECOND, [SECOND], [FIRST]),
        ("0.0.0.0", [FIRST, SECOND], []),  # noqa: S104 - the control
    ],
)
def test_a_server_listens_on_the_given_interface_only(
    tmp_path: Path, listen: str | None, open_: list[str], closed: list[str]
) -> None:
    port = free_port()
    folder = tmp_path / "federation"
    words = ["--silos", "a,b", "--server", f"localhost:{port}", "--json"]
    assert main(["federation", "init", str(folder), *words]) == 0
    command = ENGINES["nvflare"].serve(folder / "kits" / "server", listen=listen)
    process = OwnedProcess(command, log=tmp_path / "server.log")
    try:
        until = time.monotonic() + 120.0
        while not all(is_open(host, port) for host in open_):
            assert process.running, (tmp_path / "server.log").read_text()
            assert time.monotonic() < until, "it never listened"
            time.sleep(0.2)
        assert not any(is_open(host, port) for host in closed)
    finally:
        process.kill()
