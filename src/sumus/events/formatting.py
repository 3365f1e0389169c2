"""A log record as one line: an event with its fields, for machines (JSON) or for people.

    {"event":"round.committed","level":"info","party":"server","pid":71,"process":"job", …}
    2026-03-02T09:14:07.311+00:00 info round.committed round=3 survivors=5 dropped=[] seconds=1.2

A record that is no event was written by another package; its words are escaped, and at a silo's
vault left out, because a parser's complaint may quote a record. Of an exception the class and the
place are written and never the words. Whatever was put into a value, a line is printable ASCII.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import traceback
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import IO, Any, final

from sumus.events.catalogue import EventWithheld, LibrarySaid
from sumus.events.declaring import Event
from sumus.files import plain_json

__all__ = [
    "PROCESS",
    "SEAL",
    "STYLES",
    "KeptLine",
    "LineFormatter",
    "engine_formatter",
    "is_journal",
    "is_plain",
]

STYLES = ("json", "text")
SEAL = "SUMUS_LOG_SEAL"
"""Variable with the random word by which whoever keeps a process alive knows its log lines from
whatever else it prints.
"""
PROCESS = "SUMUS_PROCESS"
"""Variable with the name of an engine's process, for its lines."""
_PRIORITY = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}
_PLAIN = re.compile(r"[ -~]*")


def is_plain(text: str) -> bool:
    """Whether text is printable ASCII on one line."""
    return _PLAIN.fullmatch(text) is not None


@final
@dataclass(frozen=True)
class KeptLine:
    """A line that another process of ours has formatted."""

    line: str


@final
class LineFormatter(logging.Formatter):
    """Lines of one process.

    Guarantee: a line has no line feed but its end and no byte that a terminal acts on; what it says
        of an event are the event's fields, and an event that the party must not write is replaced
        by one that names it.

    Args:
        party: of `PARTIES`.
        process: which of its processes.
        style: "json" or "text".
        journal: for a journal that has its own time stamps: lines begin with their priority.
        seal: put before every line.
    """

    def __init__(
        self, *, party: str, process: str, style: str, journal: bool = False, seal: str = ""
    ) -> None:
        super().__init__()
        self._party, self._process, self._shape = party, process, style
        self._journal, self._seal = journal, seal

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter.format`."""
        kept = getattr(record, "happened", None)
        if isinstance(kept, KeptLine):
            return kept.line
        happened = self._event(record)
        level = getattr(happened, "severity", None) or logging.getLevelName(happened.level).lower()
        words: dict[str, Any] = {
            **({} if self._journal else {"time": _time(record)}),
            "level": level,
            "event": happened.name,
            "party": self._party,
            "process": self._process,
            "pid": record.process,
            **happened.values,
            **getattr(record, "place", {}),
            **_raised(record),
        }
        line = self._json(words) if self._shape == "json" else self._text(words, happened)
        priority = f"<{_PRIORITY[level]}>" if self._journal else ""
        return f"{self._seal}{priority}{line}"

    def _event(self, record: logging.LogRecord) -> Event:
        happened = getattr(record, "happened", None)
        if isinstance(happened, Event):
            allowed = self._party in happened.at
            return happened if allowed else EventWithheld(withheld=happened.name)
        severity = record.levelname.lower()
        return LibrarySaid(
            package=record.name,
            said=None if self._party == "silo" else _message(record),
            severity=severity if severity in _PRIORITY else "info",
            repeated=getattr(record, "repeated", 0) or None,
        )

    def _json(self, words: dict[str, Any]) -> str:
        return json.dumps(plain_json(words), separators=(",", ":")).replace("\x7f", "\\u007f")

    def _text(self, words: dict[str, Any], happened: Event) -> str:
        more = {**_of(words, "line", "hash", "error", "where")}
        stamp = f"{words['time']} " if "time" in words else ""
        said = [f"{stamp}{words['level']} {happened}", *(f"{k}={v}" for k, v in more.items())]
        return " ".join(said).encode("ascii", "backslashreplace").decode()


def _of(words: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: words[name] for name in names if name in words}


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # words that do not fit their values are the other package's fault
        return str(record.msg)


def _raised(record: logging.LogRecord) -> dict[str, str]:
    """Class and place of an exception, without its words."""
    if not record.exc_info or record.exc_info[0] is None:
        return {}
    frames = traceback.extract_tb(record.exc_info[2])
    place = f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else "?"
    return {"error": record.exc_info[0].__name__, "where": place}


def is_journal(stream: IO[str]) -> bool:
    """Whether a stream is connected to the journal of systemd."""
    try:
        about = os.fstat(stream.fileno())
    except (OSError, ValueError, AttributeError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{about.st_dev}:{about.st_ino}"


def engine_formatter(party: str) -> LineFormatter:
    """What an engine's own processes are told to format with, on standard error."""
    journal = is_journal(sys.stderr)
    return LineFormatter(
        party=party,
        process=os.environ.get(PROCESS, "engine"),
        style=os.environ.get("SUMUS_LOG_FORMAT") or ("text" if journal else "json"),
        journal=journal,
        seal=os.environ.get(SEAL, ""),
    )
