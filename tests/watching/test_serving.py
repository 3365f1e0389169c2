"""The server of a live page: what it answers, that readers cannot hold up whoever is watched, and
what service managers ask.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sumus.errors import EngineError, StorageError
from sumus.watching import Board, LivePage, LiveState, kept_token, listener as listening, new_token
from sumus.watching.metrics import families_of
from sumus.watching.probe import probe
from support.live import TOKEN, asked, begun, made_board, told, until


@pytest.fixture
def board() -> Board:
    return made_board()


@pytest.fixture
def page(board: Board) -> Iterator[LivePage]:
    with LivePage(board, token=TOKEN) as opened:
        yield opened


def _stream(page: LivePage) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", page.port), timeout=30)
    host = f"Host: 127.0.0.1:{page.port}"
    connection.sendall(f"GET /{TOKEN}/events HTTP/1.1\r\n{host}\r\n\r\n".encode())
    return connection


def test_the_page_holds_nothing_of_the_run_and_loads_nothing(page: LivePage, board: Board) -> None:
    before = asked(page.port, f"/{TOKEN}/")[2]
    begun(board)
    status, headers, body = asked(page.port, f"/{TOKEN}/")
    assert status == 200
    assert headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["cache-control"] == "no-store"
    assert body == before
    assert TOKEN.encode() not in body
    for link in (b"http:", b"https:", b"//cdn", b"@import", b"url("):
        assert link not in body.replace(b"http://www.w3.org/2000/svg", b"")


def test_the_state_is_told_as_json(page: LivePage, board: Board) -> None:
    begun(board).round_ends(told(3))
    status, headers, body = asked(page.port, f"/{TOKEN}/state")
    assert (status, headers["content-type"]) == (200, "application/json")
    assert LiveState.from_json(json.loads(body)) == board.state


def test_a_stream_tells_every_reader_the_latest_state_and_the_end(
    page: LivePage, board: Board
) -> None:
    follow = begun(board)
    streams = [_stream(page) for _ in range(3)]
    readers = [stream.makefile("rb") for stream in streams]
    for reader in readers:
        while not reader.readline().startswith(b"data: {"):
            pass
    follow.round_ends(told(1))
    follow.stage("finished")
    page.close()
    for reader in readers:
        text = reader.read()
        assert b'"stage":"finished"' in text
        assert text.endswith(b"event: end\ndata: {}\n\n")
        reader.close()
    for stream in streams:
        stream.close()


def test_a_state_is_encoded_once_however_many_read_it(page: LivePage, board: Board) -> None:
    for number in range(1, 4):
        before = board.encodings
        follow = begun(board)
        follow.round_ends(told(number))
        for _ in range(5):
            asked(page.port, f"/{TOKEN}/state")
        assert board.encodings - before <= 1


@pytest.mark.deep
def test_many_states_in_a_row_are_sent_a_few_times(page: LivePage, board: Board) -> None:
    """Whoever trains a thousand rounds a second does not make a page draw a thousand times."""
    follow = begun(board, federation__rounds=2000)
    with _stream(page) as connection:
        for number in range(1, 2001):
            follow.round_ends(told(number, rounds=2000))
        page.close()
        sent = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    assert sent.count(b"\ndata: {") <= board.encodings + 1 < 1000
    assert b'"round":2000' in sent


def test_metrics_are_read_by_the_official_parser(page: LivePage, board: Board) -> None:
    follow = begun(board)
    follow.round_ends(told(2))
    status, headers, body = asked(page.port, f"/{TOKEN}/metrics")
    assert status == 200
    assert headers["content-type"].startswith("text/plain; version=0.0.4")
    families = {each.name: each for each in text_string_to_metric_families(body.decode())}
    for name, family in families.items():
        assert name.startswith("sumus_")
        assert family.documentation
        assert family.samples
    spent = families["sumus_epsilon_spent"].samples[0]
    assert spent.value == pytest.approx(told(2).epsilon)
    assert {"unit", "neighbours", "trust", "analysis", "proved", "delta"} == set(spent.labels)
    assert families["sumus_round"].samples[0].value == 2
    up = next(
        each for each in families["sumus_traffic_bytes"].samples if each.labels["direction"] == "up"
    )
    assert (up.name, up.value) == ("sumus_traffic_bytes_total", 30_000)
    stages = {each.labels["stage"]: each.value for each in families["sumus_stage"].samples}
    assert stages["starting"] == 1
    assert sum(stages.values()) == 1


def test_the_page_about_metrics_has_the_table_of_the_code() -> None:
    """`python docs/gen_metrics.py` writes it anew."""
    docs = Path(__file__).parents[2] / "docs"
    spec = importlib.util.spec_from_file_location("gen_metrics", docs / "gen_metrics.py")
    assert spec is not None
    assert spec.loader is not None
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    page = (docs / "watching.md").read_text(encoding="utf-8")
    assert page == generator.written(page)
    silos = {each.name for each in families_of(generator.everything("silo"), alive=True)}
    assert silos < {each.name for each in families_of(generator.everything("server"), alive=True)}
    assert "sumus_dataset_epsilon_limit" in silos
    units = ("_total", "_seconds", "_bytes", "_info")
    for family in families_of(generator.everything("server"), alive=True):
        assert family.type == "gauge" or family.samples[0].name.endswith(units)


def test_a_probe_ends_as_the_page_answers(page: LivePage, board: Board) -> None:
    address = f"http://127.0.0.1:{page.port}"
    assert (probe(f"{address}/healthz"), probe(f"{address}/readyz")) == (0, 1)
    begun(board)
    assert probe(f"{address}/readyz") == 0
    page.close()
    assert probe(f"{address}/healthz") == 1
    assert probe("nowhere") == 1


def test_a_void_run_has_no_epsilon_among_its_metrics(page: LivePage, board: Board) -> None:
    begun(board, void="a public seed").round_ends(told(1))
    assert b"epsilon" not in asked(page.port, f"/{TOKEN}/metrics")[2]
    assert asked(page.port, f"/{TOKEN}/metrics")[0] == 200


def test_without_the_client_library_metrics_say_how_to_get_it(
    page: LivePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "sumus.watching.metrics", raising=False)
    status, _, body = asked(page.port, f"/{TOKEN}/metrics")
    assert status == 501
    assert b"sumus[watch]" in body
    assert asked(page.port, f"/{TOKEN}/state")[0] == 200


def test_health_and_readiness_answer_without_a_token_and_say_nothing_else(
    page: LivePage, board: Board
) -> None:
    assert asked(page.port, "/healthz")[::2] == (200, b"ok\n")
    assert asked(page.port, "/readyz")[::2] == (503, b"not ready\n")
    begun(board)
    assert asked(page.port, "/readyz")[::2] == (200, b"ok\n")
    begun(board).change(ready=False, unready="two silos are missing")
    assert asked(page.port, "/readyz")[::2] == (503, b"not ready\n")


def test_a_loop_that_stands_still_is_not_alive() -> None:
    now = [0.0]
    board = Board(made_board().state, patience_seconds=30.0, clock=lambda: now[0])
    with LivePage(board, token=TOKEN) as page:
        begun(board)
        now[0] = 29.0
        assert asked(page.port, "/healthz")[0] == 200
        now[0] = 31.0
        assert asked(page.port, "/healthz")[::2] == (503, b"not alive\n")
        assert asked(page.port, "/readyz")[0] == 503
        board.beat()
        assert asked(page.port, "/healthz")[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE"])
def test_nothing_but_reading_is_answered(page: LivePage, method: str) -> None:
    status, headers, _ = asked(page.port, f"/{TOKEN}/state", method=method)
    assert (status, headers["allow"]) == (405, "GET, HEAD")


def test_a_head_has_no_body(page: LivePage) -> None:
    status, headers, body = asked(page.port, f"/{TOKEN}/state", method="HEAD")
    assert (status, body) == (200, b"")
    assert int(headers["content-length"]) > 100


@pytest.mark.parametrize(
    "raw",
    [
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/2\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon here\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n",
        b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\n\r\n",
    ],
    ids=lambda raw: repr(raw[:20]),
)
def test_what_is_no_request_gets_no_answer_and_stops_nobody(page: LivePage, raw: bytes) -> None:
    with contextlib.suppress(ConnectionResetError):
        assert asked(page.port, "/", raw=raw)[0] in (0, 403)
    assert asked(page.port, "/healthz")[0] == 200


@pytest.mark.deep
def test_silent_and_slow_clients_hold_up_neither_readers_nor_the_run(
    page: LivePage, board: Board
) -> None:
    follow = begun(board, federation__rounds=2000)
    most = listening._MOST_CONNECTIONS
    silent = [socket.create_connection(("127.0.0.1", page.port)) for _ in range(2 * most)]
    deaf = _stream(page)  # asks for events and reads none
    until(lambda: page.streams == 1)
    for number in range(1, 2001):
        follow.round_ends(told(number, rounds=2000))
    assert asked(page.port, "/healthz")[0] == 200
    assert page.connections <= most
    assert threading.active_count() < 2 * most
    for connection in (*silent, deaf):
        connection.close()


def test_more_readers_than_there_is_room_for_are_told_so(page: LivePage) -> None:
    streams = [_stream(page) for _ in range(listening._MOST_STREAMS)]
    until(lambda: page.streams == listening._MOST_STREAMS)
    assert asked(page.port, f"/{TOKEN}/events")[0] == 503
    assert asked(page.port, f"/{TOKEN}/state")[0] == 200
    for each in streams:
        each.close()


def test_whoever_posts_waits_for_no_reader(board: Board) -> None:
    """A reader that holds the encoder for ever does not delay the next state."""
    with board._encoding:
        poster = threading.Thread(target=lambda: begun(board).round_ends(told(1)))
        poster.start()
        poster.join(timeout=60)
        assert not poster.is_alive()
    assert board.state.round == 1


def test_a_port_that_is_taken_is_named(page: LivePage, board: Board) -> None:
    with pytest.raises(EngineError, match=f"port {page.port} .*--watch-port"):
        LivePage(board, token=TOKEN, port=page.port)


def test_a_kept_token_stays_the_same_and_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "watch.token"
    token = kept_token(path)
    assert kept_token(path) == token != new_token()
    assert len(bytes.fromhex(token)) == 32
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    with pytest.raises(StorageError, match="chmod 600"):
        kept_token(path)
    path.chmod(0o600)
    path.write_text("guess me\n")
    with pytest.raises(StorageError, match="64 hexadecimal digits"):
        kept_token(path)


def test_a_service_says_where_its_token_is_and_not_what_it_is(page: LivePage) -> None:
    kept = Path("vault/watch.token")
    assert page.told_address(kept, terminal=True) == page.address
    told_service = page.told_address(kept, terminal=False)
    assert TOKEN not in told_service
    assert f"http://127.0.0.1:{page.port}/TOKEN/" in told_service
    assert str(kept) in told_service


def test_closing_does_not_wait_for_a_reader_that_is_deaf(page: LivePage, board: Board) -> None:
    streams = [_stream(page) for _ in range(3)]
    until(lambda: page.streams == 3)
    page.close()
    until(lambda: page.connections == 0)
    with pytest.raises(ConnectionError):
        asked(page.port, "/healthz")
    for each in streams:
        each.close()
