"""A real server over NVIDIA FLARE listens where it is told to, and nowhere else; nor does any other
process of a federation listen beyond the loopback interface.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("nvflare")

from sumus.cli import main
from sumus.engines.processes import OwnedProcess, free_port
from support.listening import Listener, family, listeners
from support.notes import IN_TEST_NETWORK

FIRST, SECOND, EVERY = "127.0.0.1", "127.0.0.2", "0.0.0.0"  # noqa: S104


def sumus(*words: object) -> list[str]:
    return [sys.executable, "-m", "sumus", *map(str, words)]


def until(what: Callable[[], bool], process: OwnedProcess, log: Path) -> None:
    end = time.monotonic() + 150.0
    while not what():
        assert process.running, log.read_text()
        assert time.monotonic() < end, "it never listened"
        time.sleep(0.2)


@pytest.mark.network
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("server", "listen", "where"),
    [
        ("localhost", None, FIRST),
        pytest.param("localhost", SECOND, SECOND),
        pytest.param("localhost", EVERY, EVERY, marks=IN_TEST_NETWORK[2]),  # told to
        pytest.param("fl.example.org", None, EVERY, marks=IN_TEST_NETWORK[2]),  # told by the kits
        pytest.param("fl.example.org", FIRST, FIRST, marks=IN_TEST_NETWORK[2]),
    ],
)
def test_a_server_listens_on_the_given_interface_only(
    tmp_path: Path, server: str, listen: str | None, where: str
) -> None:
    port, page, log = free_port(), free_port(), tmp_path / "server.log"
    folder = tmp_path / "federation"
    words = ["--silos", "a,b", "--server", f"{server}:{port}", "--json"]
    assert main(["federation", "init", str(folder), *words]) == 0
    options = [] if listen is None else ["--listen", listen]
    watch = ["--watch", "--watch-port", page]
    process = OwnedProcess(sumus("federation", "start", folder, *options, *watch), log=log)
    try:
        until(
            lambda: Listener("tcp", where, port) in listeners(family([process.pid])), process, log
        )
        found = listeners(family([process.pid]))
        assert {each for each in found if each.port == port} == {Listener("tcp", where, port)}
        assert Listener("tcp", FIRST, page) in found  # the page, whatever --listen says
        beyond = [each for each in found if not each.is_loopback]
        assert beyond == ([Listener("tcp", EVERY, port)] if where == EVERY else [])
        with socket.socket() as probe:  # as another interface of this machine sees it
            probe.settimeout(5.0)
            other = SECOND if where == FIRST else FIRST
            assert (probe.connect_ex((other, port)) == 0) == (where == EVERY)
    finally:
        process.kill()


def test_the_kernels_table_is_read_right() -> None:
    """The controls of the look itself: every kind of socket, on and beyond loopback."""
    import os

    kinds = [
        (socket.AF_INET, socket.SOCK_STREAM, FIRST, "tcp"),
        (socket.AF_INET, socket.SOCK_STREAM, EVERY, "tcp"),
        (socket.AF_INET, socket.SOCK_DGRAM, SECOND, "udp"),
        (socket.AF_INET, socket.SOCK_DGRAM, EVERY, "udp"),
    ]
    if socket.has_ipv6:
        kinds += [
            (socket.AF_INET6, socket.SOCK_STREAM, "::1", "tcp6"),
            (socket.AF_INET6, socket.SOCK_STREAM, "::", "tcp6"),
        ]
    for family_, kind, address, table in kinds:
        with socket.socket(family_, kind) as listener:
            listener.bind((address, 0))
            if kind == socket.SOCK_STREAM:
                listener.listen()
            expected = Listener(table, address, listener.getsockname()[1])
            assert expected in listeners([os.getpid()])
            assert expected.is_loopback == (address not in (EVERY, "::"))
        assert expected not in listeners([os.getpid()])
