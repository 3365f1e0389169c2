"""`--notify`: the options of the commands that can tell somebody, and who is told."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from sumus.errors import PlanError

if TYPE_CHECKING:
    from sumus.alerting import Lookout
    from sumus.watching import Board, Health

__all__ = [
    "Notify",
    "NotifyWhen",
    "leave_notify",
    "looked_out",
    "notify_options",
    "refuse_unheeded",
    "wants_notices",
]

Notify = Annotated[
    str | None,
    typer.Option(
        "--notify",
        metavar="COMMAND",
        help="Run this command for every alert, its JSON on standard input; no shell. Or "
        "SUMUS_NOTIFY.",
    ),
]
NotifyWhen = Annotated[
    list[str] | None,
    typer.Option(
        "--alert",
        metavar="NAME=NUMBER",
        help="When an alert is told, for example budget_percent=90; repeatable.",
    ),
]


def wants_notices(notify: str | None) -> bool:
    """Whether somebody is to be told."""
    from sumus.alerting import VARIABLE

    return bool(notify or os.environ.get(VARIABLE))


@contextlib.contextmanager
def looked_out(
    board: Board,
    notify: str | None,
    when: Sequence[str] | None,
    *,
    party: str,
    process: str,
    health: Callable[[], Health] | None,
) -> Iterator[Lookout]:
    """Alerts of a board for as long as the block lasts: in the log, and to the command where there
    is one.

    Args:
        party: whose alerts these are; `process`: which of its processes.
        health: looks at the machine.
    """
    from sumus.alerting import VARIABLE, Hook, Lookout, Thresholds, command_of

    text = notify or os.environ.get(VARIABLE)
    limits = Thresholds.parse(when or ())
    hook = None if not text else Hook(command_of(text), party=party, process=process)
    with Lookout(board, told=hook, limits=limits, health=health) as lookout:
        yield lookout


def notify_options(notify: str | None, when: Sequence[str] | None) -> list[str]:
    """The same options for a command line that is written down, checked."""
    from sumus.alerting import VARIABLE, Thresholds, command_of

    text = notify or os.environ.get(VARIABLE)
    Thresholds.parse(when or ())
    if text:
        command_of(text)
    command = ["--notify", text] if text else []
    return [*command, *(word for limit in when or () for word in ("--alert", limit))]


def refuse_unheeded(fix: str, **options: object) -> None:
    """Refuse what only a process that keeps vault and engine does, where there will be none."""
    for name, value in options.items():
        if value:
            raise PlanError(
                f"--{name.replace('_', '-')}",
                value,
                "is for a silo that this command starts, not for --units or --prepare",
                f"Leave it out; {fix}",
            )


def leave_notify(notify: str | None, when: Sequence[str] | None) -> None:
    """Check the options, and leave them for the program that this process turns into."""
    from sumus.alerting import THRESHOLDS_VARIABLE, VARIABLE, Thresholds, command_of

    text = notify or os.environ.get(VARIABLE)
    if text:
        command_of(text)
        os.environ[VARIABLE] = text
    Thresholds.parse(when or ())
    if when:
        os.environ[THRESHOLDS_VARIABLE] = ",".join(when)
