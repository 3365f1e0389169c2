"""What the exit codes of our commands and services mean, and whether starting again helps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import final

from sumus.errors import (
    AccessError,
    EngineError,
    GuaranteeError,
    PlanError,
    ProtocolError,
    StorageError,
    SumusError,
)

__all__ = ["EXIT_CODES", "ExitCode", "beyond_restart", "exit_code_of"]


@final
@dataclass(frozen=True, kw_only=True)
class ExitCode:
    """One row of the table.

    Args:
        means: what has happened, in words.
        again: whether the same command may succeed later although nobody mends anything.
    """

    means: str
    again: bool


EXIT_CODES: Mapping[int, ExitCode] = MappingProxyType(
    {
        0: ExitCode(means="done, or stopped as asked (SIGTERM)", again=True),
        SumusError.exit_code: ExitCode(
            means="unforeseen; of `sumus doctor`: a check fails; of the probe: not well",
            again=True,
        ),
        PlanError.exit_code: ExitCode(
            means="a plan, an option, a policy or data break their rules", again=False
        ),
        GuaranteeError.exit_code: ExitCode(
            means="a guarantee is refused, by the accountant, a policy or a budget; of `sumus "
            "audit`: it does not hold",
            again=False,
        ),
        ProtocolError.exit_code: ExitCode(
            means="the secure sum stopped: the round is lost", again=True
        ),
        StorageError.exit_code: ExitCode(
            means="a file is damaged, in use or has no room", again=True
        ),
        EngineError.exit_code: ExitCode(
            means="the engine, a kit, a certificate or a port; of `sumus federation status`: too few "
            "silos for a round",
            again=True,
        ),
        AccessError.exit_code: ExitCode(
            means="permissions: a file is closed to this user, or open to another", again=False
        ),
        130: ExitCode(means="stopped by Ctrl-C", again=True),
        141: ExitCode(means="whoever read its output is gone", again=True),
    }
)


def beyond_restart() -> tuple[int, ...]:
    """Codes after which a service manager need not start a service again: somebody has to mend
    something first.
    """
    return tuple(code for code, row in EXIT_CODES.items() if not row.again)


def exit_code_of(error: BaseException) -> int:
    """With which code a process ends that an error ends."""
    return error.exit_code if isinstance(error, SumusError) else SumusError.exit_code
