"""Where the lines of a process go: the one place that configures logging, called by entry points.

    --log FILE              SUMUS_LOG          lines into a file of this process's own
    --log-level LEVEL       SUMUS_LOG_LEVEL    debug, info, warning, error
    --log-format STYLE      SUMUS_LOG_FORMAT   json or text; by default text for people, else json
    --audit-to PLACE        SUMUS_AUDIT_TO     stderr or syslog: audited events there too, as JSON

The variables are how a command passes its options on to the processes that it starts. A file is
closed at 2 MiB and five are kept, all for their owner only, so that a process fills 10 MiB at most.
"""

from __future__ import annotations

import io
import logging
import logging.handlers
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from sumus.errors import PlanError, StorageError
from sumus.events.catalogue import LogLost
from sumus.events.declaring import tell
from sumus.events.formatting import SEAL, STYLES, LineFormatter, is_journal
from sumus.events.sifting import Sieve
from sumus.files import FileLock

__all__ = [
    "AUDIT_PLACES",
    "LEVELS",
    "BoundedFile",
    "LogChoice",
    "configure",
    "log_file",
]

LEVELS = ("debug", "info", "warning", "error")
AUDIT_PLACES = ("stderr", "syslog")
_FILE_BYTES = 2 << 20
_OLDER_FILES = 4
_SYSLOG = "/dev/log"


@final
@dataclass(frozen=True, kw_only=True)
class LogChoice:
    """What whoever starts a process wants of its log.

    Args:
        file: of this process; None: as the command does by default.
        level: the least that is written of Sumus's own events, info by default; of other packages
            warnings are.
        style: None: as fits the place.
        audit_to: where audited events go too.
    """

    file: Path | None = None
    level: str | None = None
    style: str | None = None
    audit_to: str | None = None

    def __post_init__(self) -> None:
        for option, value, known in (
            ("--log-level", self.level, LEVELS),
            ("--log-format", self.style, STYLES),
            ("--audit-to", self.audit_to, AUDIT_PLACES),
        ):
            if value is not None and value not in known:
                raise PlanError(option, value, f"must be one of {', '.join(known)}", "Correct it.")

    @classmethod
    def of_environment(cls) -> LogChoice:
        """As the variables say; a file is of the process that takes it, and of none that it starts."""
        chosen = {name: os.environ.get(f"SUMUS_{name}") or None for name in _VARIABLES}
        os.environ.pop("SUMUS_LOG", None)
        return cls(
            file=Path(chosen["LOG"]) if chosen["LOG"] else None,
            level=chosen["LOG_LEVEL"],
            style=chosen["LOG_FORMAT"],
            audit_to=chosen["AUDIT_TO"],
        )

    def over(self, other: LogChoice) -> LogChoice:
        """These choices, and those of another where there are none."""
        return LogChoice(
            file=self.file or other.file,
            level=self.level or other.level,
            style=self.style or other.style,
            audit_to=self.audit_to or other.audit_to,
        )

    def variables(self) -> dict[str, str]:
        """For processes that this one starts or turns into; a file is never shared."""
        chosen = {
            "SUMUS_LOG_LEVEL": self.level,
            "SUMUS_LOG_FORMAT": self.style,
            "SUMUS_AUDIT_TO": self.audit_to,
        }
        return {name: value for name, value in chosen.items() if value is not None}


_VARIABLES = ("LOG", "LOG_LEVEL", "LOG_FORMAT", "AUDIT_TO")


@final
class BoundedFile(logging.handlers.RotatingFileHandler):
    """A log file of one process that stays below a size.

    Guarantee: it and its older versions take at most 10 MiB, only their owner can read them, no
        second process writes to them, and a write that fails raises nothing: lines that are lost are
        counted and told when there is room again.

    Args:
        path: of the file.
        file_bytes: a longer one is closed.
        older: closed files that are kept, FILE.1 the latest.
    """

    def __init__(
        self, path: Path, *, file_bytes: int = _FILE_BYTES, older: int = _OLDER_FILES
    ) -> None:
        self._lost, self._owner = 0, FileLock(path.with_name(f".{path.name}.lock"))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._owner.acquire(wait=False)
            super().__init__(path, maxBytes=file_bytes, backupCount=older, encoding="ascii")
        except StorageError:
            raise StorageError(
                f"{path} is written by another process, or cannot be written. Give every process a "
                "log file of its own."
            ) from None
        except OSError as error:
            raise StorageError(
                f"{path} cannot be written: {error.strerror}. Check the path and its permissions."
            ) from None

    def _open(self) -> io.TextIOWrapper:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self.baseFilename, flags, 0o600)
        os.fchmod(descriptor, 0o600)
        return open(descriptor, "a", encoding="ascii", errors="backslashreplace")

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler.emit`."""
        lost = self._lost
        super().emit(record)
        if lost and self._lost == lost:
            self._lost = 0
            tell(LogLost(lines=lost))

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """See `logging.Handler.handleError`: a full disk must not end whoever logs."""
        self._lost += 1

    def close(self) -> None:
        """See `logging.Handler.close`."""
        super().close()
        self._owner.release()


def log_file(path: Path, *, party: str, process: str, style: str | None = None) -> BoundedFile:
    """A bounded file with the lines of a process."""
    handler = BoundedFile(path)
    handler.addFilter(Sieve(party))
    handler.setFormatter(LineFormatter(party=party, process=process, style=style or "json"))
    return handler


@final
class _Stream(logging.StreamHandler[Any]):
    """Standard error; whoever read it may be gone."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """See `logging.Handler.handleError`."""


def configure(
    choice: LogChoice, *, party: str, process: str, by_default: Path | bool = False
) -> list[logging.Handler]:
    """Send this process's lines where they belong. Once a process, by its entry point.

    Args:
        choice: of whoever started it.
        party: of `PARTIES`.
        process: which of its processes.
        by_default: where lines go if nothing was chosen: a file; True: standard error; False:
            nowhere but to a journal.
    """
    path = choice.file or (by_default if isinstance(by_default, Path) else None)
    handlers: list[logging.Handler] = []
    if path is not None:
        handlers.append(log_file(path, party=party, process=process, style=choice.style))
    elif by_default is True or is_journal(sys.stderr):
        handlers.append(_to_stderr(choice.style, party, process))
    audit = _audit_handler(choice.audit_to, party, process)
    if audit is not None:
        logging.getLogger("sumus.audit").addHandler(audit)
    ours = logging.getLogger("sumus")
    ours.setLevel((choice.level or "info").upper())
    root = logging.getLogger()
    for handler in handlers:
        root.addHandler(handler)
    if handlers:
        root.setLevel(logging.WARNING)
        logging.captureWarnings(True)
    return handlers


def _to_stderr(style: str | None, party: str, process: str) -> logging.Handler:
    handler, journal = _Stream(sys.stderr), is_journal(sys.stderr)
    handler.addFilter(Sieve(party))
    seal = os.environ.get(SEAL, "")
    for_people = not seal and (journal or sys.stderr.isatty())
    handler.setFormatter(
        LineFormatter(
            party=party,
            process=process,
            style=style or ("text" if for_people else "json"),
            journal=journal,
            seal=seal,
        )
    )
    return handler


def _audit_handler(place: str | None, party: str, process: str) -> logging.Handler | None:
    """Where audited events go too, as JSON."""
    if place is None:
        return None
    if place == "stderr":
        handler: logging.Handler = _to_stderr("json", party, process)
    else:
        handler = _syslog()
        handler.addFilter(Sieve(party))
        handler.setFormatter(
            LineFormatter(party=party, process=process, style="json", journal=False)
        )
    return handler


def _syslog() -> logging.Handler:
    try:
        return logging.handlers.SysLogHandler(
            address=_SYSLOG, facility=logging.handlers.SysLogHandler.LOG_AUTHPRIV
        )
    except OSError as error:
        raise StorageError(
            f"{_SYSLOG} cannot be reached: {error.strerror}. Start a syslog, or leave --audit-to out."
        ) from None
