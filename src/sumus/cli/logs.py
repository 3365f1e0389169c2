"""Options of every command that runs for long: where its log goes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import logging

__all__ = ["AuditTo", "LogFile", "LogFormat", "LogLevel", "begin_log", "leave_log"]

LogFile = Annotated[
    Path | None,
    typer.Option(
        "--log", metavar="FILE", help="Log into this file, JSON lines, at most 10 MiB of them."
    ),
]
LogLevel = Annotated[
    str | None, typer.Option("--log-level", help="debug, info, warning or error [default: info].")
]
LogFormat = Annotated[str | None, typer.Option("--log-format", help="json or text.")]
AuditTo = Annotated[
    str | None,
    typer.Option(
        "--audit-to", help="stderr or syslog: send audited events there too, as JSON lines."
    ),
]


def begin_log(
    file: Path | None,
    level: str | None,
    style: str | None,
    audit_to: str | None = None,
    *,
    party: str,
    process: str,
    by_default: Path | bool = False,
) -> list[logging.Handler]:
    """Configure this process's log as the options or the environment say, and leave the choices for
    the processes that it starts.
    """
    from sumus.events import LogChoice, configure

    given = LogChoice(file=file, level=level, style=style, audit_to=audit_to)
    chosen = given.over(LogChoice.of_environment())
    os.environ.update(chosen.variables())
    return configure(chosen, party=party, process=process, by_default=by_default)


def leave_log(
    file: Path | None, level: str | None, style: str | None, audit_to: str | None
) -> None:
    """Leave the choices for the program that this process turns into."""
    from sumus.events import LogChoice

    chosen = LogChoice(file=file, level=level, style=style, audit_to=audit_to)
    os.environ.update(chosen.variables())
    if file is not None:
        os.environ["SUMUS_LOG"] = str(file.absolute())
