"""What one look of `sumus doctor` found: well, worth a thought, or broken, and what mends it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, final

from sumus.errors import SumusError

__all__ = ["Finding", "State", "fail", "looked", "ok", "warn"]

State = Literal["ok", "warn", "fail"]


@final
@dataclass(frozen=True, kw_only=True)
class Finding:
    """One line of a diagnosis.

    Args:
        check: what was looked at.
        said: what is so.
        fix: what mends it; empty where nothing is broken, or where `said` names it already.
    """

    check: str
    state: State
    said: str
    fix: str = ""

    @property
    def line(self) -> str:
        """What is so and what mends it."""
        return " ".join(f"{self.said} {self.fix}".split())


def ok(check: str, said: str) -> Finding:
    """Nothing to do."""
    return Finding(check=check, state="ok", said=said)


def warn(check: str, said: str, fix: str) -> Finding:
    """It works, and somebody should know."""
    return Finding(check=check, state="warn", said=said, fix=fix)


def fail(check: str, said: str, fix: str) -> Finding:
    """It does not work, or a promise does not hold."""
    return Finding(check=check, state="fail", said=said, fix=fix)


def looked(check: str, look: Callable[[], Finding]) -> Finding:
    """What a look found; one that cannot be finished has found something broken."""
    try:
        return look()
    except SumusError as error:  # says what mends it
        return Finding(check=check, state="fail", said=str(error))
    except OSError as error:
        said = f"{error.filename or check} cannot be looked at: {error.strerror or error}."
        return fail(check, said, "Run it as the user who owns it, and check the path.")
    except Exception as error:  # a doctor who faints helps nobody
        said = f"the look itself failed by {type(error).__name__}."
        return fail(check, said, "Report it; the other checks stand.")
