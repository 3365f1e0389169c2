"""Another user of the same machine, or another machine, reaches for a live page and knows everything
but its token.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from sumus.engines.silo_processes import silo_command
from sumus.errors import PlanError
from sumus.watching import TOKEN_FILE, LivePage, kept_token
from support.live import TOKEN, asked, begun, made_board, told

WANTED = b'"round":7'


@pytest.fixture
def page() -> Iterator[LivePage]:
    board = made_board()
    begun(board).round_ends(told(7))
    with LivePage(board, token=TOKEN) as opened:
        yield opened


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/state",
        "/events",
        "/metrics",
        "//state",
        f"/{TOKEN[:-1]}/state",
        f"/{TOKEN[:-1]}0/state",
        f"/{TOKEN}0/state",
        f"/{TOKEN.upper()}/state",
        f"/x/../{TOKEN[:8]}/state",
        "/healthz/../state",
        "/healthz/state",
        "/%2e%2e/state",
        f"/?token={TOKEN}",
        f"/state?token={TOKEN}",
        f"http://127.0.0.1/{'0' * 64}/state",
        "/" + "0" * 64 + "/state",
    ],
)
def test_without_the_token_every_address_is_the_same_nothing(page: LivePage, path: str) -> None:
    answer = asked(page.port, path)
    assert answer[0] == 404
    assert answer[1:] == asked(page.port, "/nowhere")[1:]
    assert WANTED in asked(page.port, f"/{TOKEN}/state")[2]  # the control: whoever has it


@pytest.mark.parametrize(
    ("credentials", "status"),
    [
        (f"Bearer {TOKEN}", 200),
        (f"bearer  {TOKEN}", 200),
        ("Bearer " + "0" * 64, 404),
        ("Bearer ", 404),
        (f"Basic {TOKEN}", 404),
        (TOKEN, 404),
        (f"Bearer {TOKEN} {TOKEN}", 404),
        ("Bearer \u00e9", 404),
    ],
)
def test_a_scraper_shows_the_token_in_a_header_or_is_shown_nothing(
    page: LivePage, credentials: str, status: int
) -> None:
    answer = asked(page.port, "/metrics", {"Authorization": credentials})
    assert answer[0] == status
    assert (b"sumus_round 7.0" in answer[2]) == (status == 200)


def test_the_two_addresses_that_are_open_say_yes_or_no(page: LivePage) -> None:
    for path in ("/healthz", "/readyz"):
        assert asked(page.port, path)[2] in (b"ok\n", b"not ready\n", b"not alive\n")


def listeners() -> set[str]:
    """Addresses that this process listens on."""
    return {
        each.laddr.ip
        for each in psutil.Process().net_connections(kind="tcp")
        if each.status == psutil.CONN_LISTEN
    }


def test_nothing_listens_beyond_the_loopback(page: LivePage) -> None:
    assert listeners() == {"127.0.0.1"}
    with socket.socket() as careless:
        careless.bind(("", 0))
        careless.listen()
        assert "0.0.0.0" in listeners()  # noqa: S104 - the control: it would be seen


@pytest.mark.parametrize(
    "host",
    ["0.0.0.0", "", "::", "192.0.2.1", "localhost", "example.org", "127.0.0.1.evil.test"],  # noqa: S104
)
def test_a_page_is_not_served_to_other_machines(host: str) -> None:
    with pytest.raises(PlanError, match="loopback"):
        LivePage(made_board(), token=TOKEN, host=host)


def test_the_token_is_neither_in_a_command_line_nor_in_a_file_that_others_may_read(
    tmp_path: Path,
) -> None:
    token = kept_token(tmp_path / TOKEN_FILE)
    command = silo_command(tmp_path / "kit", tmp_path, user=None, watch_port=8765)
    assert "--watch-port=8765" in command
    assert token not in " ".join(command)
    (tmp_path / "open.txt").write_text("for everybody\n")
    files = [tmp_path / "open.txt", tmp_path / TOKEN_FILE]
    assert [bool(file.stat().st_mode & 0o004) for file in files] == [True, False]
    if os.geteuid() != 0:
        return  # only root can try as somebody else
    read = (
        "import os, sys; os.setuid(65534); print(os.read(int(sys.argv[1]), 9)); open(sys.argv[2])"
    )
    with files[0].open("rb") as held:
        tried = subprocess.run(
            [sys.executable, "-S", "-c", read, str(held.fileno()), str(files[1])],
            pass_fds=[held.fileno()],
            capture_output=True,
            text=True,
            check=False,
        )
    assert "for every" in tried.stdout  # the control: it runs, as somebody who can read
    assert "Permission denied" in tried.stderr
