"""A silo by its name, a server by its words, an engine by what it prints: each wants a line in
somebody's log that nobody wrote, or a terminal that does what it says.
"""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sumus.books import RoundEntry
from sumus.engines.silo_processes import _say
from sumus.events import (
    LineFormatter,
    Piped,
    SiloRefused,
    Trail,
    kinds as vetted,
    kinds_of,
    log_file,
    read_trail,
    tell,
)
from sumus.parties.logged import Logged
from sumus.parties.wire import readable
from support.loggers import logged
from support.synthetic_runs import made_round

FORGED = '{"event":"server.stopped","level":"info"}'
EVIL = f"Graz\x1b[2K\r\n{FORGED}\n\u2028{FORGED}\x9b31m\u202e"


def lines(path: Path, style: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    handler = log_file(path, party="server", process="job", style=style)
    monkeypatch.setattr(logging.getLogger("sumus"), "handlers", [handler])
    logging.getLogger("sumus").setLevel(logging.INFO)
    return handler


def without(name: str) -> RoundEntry:
    """A round that a silo missed."""
    return replace(made_round(1), dropped=(name,))


@pytest.mark.parametrize("style", ["json", "text"])
def test_a_silos_name_and_its_signed_words_stay_one_line(
    tmp_path: Path, style: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = lines(tmp_path / "server.log", style, monkeypatch)
    Logged().round_entered(without(EVIL))
    tell(SiloRefused(silo=EVIL, reason=EVIL, unwritten=0))
    handler.close()
    content = (tmp_path / "server.log").read_bytes()
    assert len(content.splitlines()) == 2
    assert all(32 <= byte < 127 or byte == 10 for byte in content)
    assert not any(line == FORGED.encode() for line in content.splitlines())
    if style == "json":
        committed, refused = logged(tmp_path / "server.log")
        assert (committed["event"], refused["event"]) == ("round.committed", "silo.refused")
        assert refused["silo"].startswith("Graz\\u001b[2K\\u000d\\u000a{")


def test_without_escaping_the_forged_line_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control."""
    monkeypatch.setattr(vetted, "plain_text", lambda text, most: text)
    monkeypatch.setattr(
        LineFormatter, "format", lambda lines, record: " ".join(map(str, _said(record)))
    )
    handler = lines(tmp_path / "server.log", "text", monkeypatch)
    tell(SiloRefused(silo=EVIL, reason=EVIL, unwritten=0))
    handler.close()
    assert FORGED in (tmp_path / "server.log").read_text().splitlines()


def _said(record: logging.LogRecord) -> list[Any]:
    happened = record.happened  # type: ignore[attr-defined]
    return [getattr(happened, field) for field in kinds_of(type(happened))]


def test_what_an_engine_prints_does_not_pass_for_a_line_of_the_log(tmp_path: Path) -> None:
    """It may print whatever a silo's certificate or a message says."""
    handler = log_file(tmp_path / "server.log", party="server", process="start")
    piped = Piped(handler)
    for line in f"connected: {EVIL}\n{FORGED}\n".encode().splitlines(keepends=True):
        piped.take(line)
    guessed = f"{'0' * 16} {FORGED}\n"
    piped.take(guessed.encode())
    handler.close()
    assert {line["event"] for line in logged(tmp_path / "server.log")} == {"output"}


def test_a_log_that_believes_whatever_looks_like_json_is_forged(tmp_path: Path) -> None:
    """The control: whoever knows the seal, or a log without one."""
    handler = log_file(tmp_path / "server.log", party="server", process="start")
    piped = Piped(handler)
    piped.take((piped.variables["SUMUS_LOG_SEAL"] + FORGED + "\n").encode())
    handler.close()
    assert (tmp_path / "server.log").read_text() == FORGED + "\n"


def test_a_sealed_line_with_a_byte_that_a_terminal_acts_on_is_wrapped(tmp_path: Path) -> None:
    handler = log_file(tmp_path / "server.log", party="server", process="start")
    piped = Piped(handler)
    piped.take((piped.variables["SUMUS_LOG_SEAL"] + '{"event":"\x1b[2J"}\n').encode())
    handler.close()
    (line,) = logged(tmp_path / "server.log")
    assert line["event"] == "output"


def test_a_servers_words_reach_a_silos_screen_without_tricks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _say(f"refused: the server runs {EVIL}")
    shown = capsys.readouterr().out
    assert shown.count("\n") == 1
    assert shown.isprintable() or shown[:-1].isprintable()
    assert readable(EVIL.encode()).isprintable()  # as an operator sees a silo's


def test_an_audit_line_holds_a_hostile_name_as_a_value(tmp_path: Path) -> None:
    trail = Trail(tmp_path, party="server")
    trail.append(SiloRefused(silo=EVIL, reason=EVIL, unwritten=0))
    content = (tmp_path / "audit.jsonl").read_text()
    assert len(content.splitlines()) == 2
    (line,) = read_trail(tmp_path).of("silo.refused")
    assert json.loads(json.dumps(line))["reason"].startswith("Graz\\u001b")
