"""A log line is one line of printable ASCII, says an event's fields, and nothing that a record could
be in.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from sumus.events import (
    LineFormatter,
    LogChoice,
    PlanApproved,
    Release,
    RoundCommitted,
    SiloRefused,
    configure,
    tell,
)
from sumus.events.formatting import is_journal
from sumus.events.sifting import Sieve
from support.loggers import loggers as loggers

ROUND = RoundCommitted(round=3, survivors=4, dropped=("Graz",), seconds=1.25)


def record_of(happened: Any = None, **more: Any) -> logging.LogRecord:
    about = {"name": "pandas.io", "levelname": "WARNING", "levelno": 30, "msg": "", "args": ()}
    event = {} if happened is None else {"happened": happened}
    return logging.makeLogRecord({**about, **event, **more})


def line_of(record: logging.LogRecord, **options: Any) -> str:
    chosen = {"party": "server", "process": "job", "style": "json"} | options
    return LineFormatter(**chosen).format(record)


def test_a_line_of_json_has_the_fields_and_who_wrote_them() -> None:
    line = json.loads(line_of(record_of(ROUND)))
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "info",
        "event": "round.committed",
        "party": "server",
        "process": "job",
        "pid": os.getpid(),
        "round": 3,
        "survivors": 4,
        "dropped": ["Graz"],
        "seconds": 1.25,
    }


def test_a_line_of_text_reads_in_one_go() -> None:
    line = line_of(record_of(ROUND), style="text")
    assert line.split(" ", 1)[1] == (
        'info round.committed round=3 survivors=4 dropped=["Graz"] seconds=1.25'
    )


def test_a_journal_gets_priorities_and_no_second_time_stamp() -> None:
    assert line_of(record_of(ROUND), style="text", journal=True).startswith("<6>info round.comm")
    refused = SiloRefused(silo="Graz", reason="no", unwritten=0)
    line = line_of(record_of(refused), journal=True)
    assert line.startswith("<4>{")
    assert "time" not in json.loads(line[3:])


def test_standard_error_is_a_journal_only_if_it_is_the_stream_that_systemd_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with (tmp_path / "stream").open("w") as stream:
        about = os.fstat(stream.fileno())
        monkeypatch.delenv("JOURNAL_STREAM", raising=False)
        assert not is_journal(stream)
        monkeypatch.setenv("JOURNAL_STREAM", f"{about.st_dev}:{about.st_ino + 1}")
        assert not is_journal(stream)
        monkeypatch.setenv("JOURNAL_STREAM", f"{about.st_dev}:{about.st_ino}")
        assert is_journal(stream)


@pytest.mark.parametrize("style", ["json", "text"])
@given(text=st.text(max_size=300))
def test_whatever_is_said_a_line_is_printable_ascii(style: str, text: str) -> None:
    refused = record_of(SiloRefused(silo=text, reason=text, unwritten=0))
    library = record_of(msg=text, name=text)
    for record in (refused, library):
        line = line_of(record, style=style)
        assert all(" " <= character <= "~" for character in line)
        if style == "json":
            assert json.loads(line)["event"] in ("silo.refused", "library.said")


def test_an_event_that_a_party_must_not_write_is_withheld() -> None:
    """Whoever emits a silo's event at a server has made a mistake, and nothing of it shows."""
    release = Release(
        plan="ab" * 32, round=1, purpose="model", round_id="cd" * 32, ledger="ef" * 32, entries=4711
    )
    line = line_of(record_of(release))
    assert json.loads(line)["event"] == "event.withheld"
    assert json.loads(line)["withheld"] == "release"
    assert "4711" not in line
    assert "4711" in line_of(record_of(release), party="silo")  # the control


def test_at_a_vault_another_package_is_named_and_not_quoted() -> None:
    said = record_of(msg="cannot parse %r in column %s", args=("Smith, 1.2.1951", "born"))
    vault = json.loads(line_of(said, party="silo"))
    assert "Smith" not in str(vault)
    assert (vault["package"], vault["level"]) == ("pandas.io", "warning")
    assert "Smith" in line_of(said, party="server")  # the control


def test_of_an_exception_class_and_place_are_written_and_never_the_words() -> None:
    try:
        int("Smith, 1.2.1951")
    except ValueError:
        record = record_of(ROUND, exc_info=sys.exc_info())
    for style in ("json", "text"):
        line = line_of(record, style=style)
        assert "Smith" not in line
        assert "ValueError" in line
        assert "test_lines.py:" in line


def test_words_that_do_not_fit_their_values_cost_no_line() -> None:
    assert "%d of them" in line_of(record_of(msg="%d of them", args=("three",)))


# -- what is not worth a line


def test_a_package_that_repeats_itself_is_let_through_once_a_minute_and_counted() -> None:
    clock = [0.0]
    sieve = Sieve("server", clock=lambda: clock[0])

    def said(line: int = 10, level: int = logging.WARNING) -> bool:
        return sieve.filter(record_of(pathname="cell.py", lineno=line, levelno=level))

    assert [said() for _ in range(5)] == [True, False, False, False, False]
    assert said(line=11)
    assert said(level=logging.INFO)
    clock[0] = 61.0
    record = record_of(pathname="cell.py", lineno=10)
    assert sieve.filter(record)
    assert json.loads(line_of(record))["repeated"] == 4


def test_events_are_never_counted_as_repetitions() -> None:
    sieve = Sieve("server")
    assert [sieve.filter(record_of(ROUND)) for _ in range(3)] == [True] * 3


def test_whoever_sets_up_another_partys_trail_does_not_log_its_lines() -> None:
    approved = record_of(PlanApproved(plan="ab" * 32), trail_of="silo")
    assert Sieve("silo").filter(approved)
    assert not Sieve("operator").filter(approved)


# -- where lines go


@pytest.mark.usefixtures("loggers")
def test_a_process_that_chooses_a_file_logs_into_it(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "job.log"
    configure(LogChoice(file=path, level="warning"), party="server", process="job")
    tell(ROUND)
    tell(SiloRefused(silo="Graz", reason="no", unwritten=0))
    logging.getLogger("nvflare").warning("connection lost")
    events = [json.loads(line)["event"] for line in path.read_text().splitlines()]
    assert events == ["silo.refused", "library.said"]
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.usefixtures("loggers")
def test_without_a_choice_a_command_logs_nowhere(capfd: pytest.CaptureFixture[str]) -> None:
    assert configure(LogChoice(), party="operator", process="train") == []
    tell(ROUND)
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("loggers")
def test_a_process_that_is_kept_alive_logs_to_standard_error_under_its_seal(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUMUS_LOG_SEAL", "5ea1 ")
    configure(LogChoice(), party="server", process="job", by_default=True)
    tell(ROUND)
    seal, _, line = capfd.readouterr().err.partition(" ")
    assert (seal, json.loads(line)["event"]) == ("5ea1", "round.committed")


@pytest.mark.usefixtures("loggers")
def test_audited_events_go_to_standard_error_too_if_asked(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    choice = LogChoice(file=tmp_path / "vault.log", audit_to="stderr")
    configure(choice, party="silo", process="vault")
    tell(PlanApproved(plan="ab" * 32), trail_of="silo", line=7, hash="cd" * 32)
    tell(PlanApproved(plan="ef" * 32))
    (line,) = capfd.readouterr().err.splitlines()
    assert (json.loads(line)["line"], json.loads(line)["hash"]) == (7, "cd" * 32)
    assert len((tmp_path / "vault.log").read_text().splitlines()) == 2


@pytest.mark.usefixtures("loggers")
def test_choices_pass_through_the_environment_but_for_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    chosen = LogChoice(file=tmp_path / "x", level="debug", style="text", audit_to="syslog")
    for name, value in chosen.variables().items():
        monkeypatch.setenv(name, value)
    read = LogChoice.of_environment()
    assert (read.file, read.level, read.style, read.audit_to) == (None, "debug", "text", "syslog")
    monkeypatch.setenv("SUMUS_LOG", str(tmp_path / "own"))
    assert LogChoice.of_environment().file == tmp_path / "own"
    assert LogChoice.of_environment().file is None  # of one process, and of none that it starts
    assert LogChoice(level="error").over(read).level == "error"


@pytest.mark.parametrize(
    ("option", "choice"), [("level", "loud"), ("style", "xml"), ("audit_to", "mail")]
)
def test_a_choice_that_there_is_not_is_refused_with_those_that_there_are(
    option: str, choice: str
) -> None:
    with pytest.raises(Exception, match="must be one of"):
        LogChoice(**{option: choice})  # type: ignore[arg-type]
