"""A command of the party's own people that is run for every alert.

    --notify "/usr/local/bin/page-us --team fl"       or SUMUS_NOTIFY

Words are split as a shell splits them, and no shell is started. The alert is one JSON object on the
command's standard input; its output goes nowhere. Of the environment it gets a path, a home and a
language, so that nothing which this process knows by its variables passes on.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, final

from sumus.errors import PlanError
from sumus.events import Event, HookFailed, tell
from sumus.files import plain_json

__all__ = ["VARIABLE", "Hook", "command_of"]

VARIABLE = "SUMUS_NOTIFY"
_SECONDS = 20.0
_BURST = 20
_REFILL_SECONDS = 60.0
_WAITING = 100
_KEPT = ("HOME", "LANG", "LC_ALL", "TZ", "USER", "LOGNAME")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def command_of(text: str) -> list[str]:
    """The words of a command; refuses one that cannot be run."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise PlanError("--notify", text, f"must be words: {error}", "Close the quotes.") from None
    found = shutil.which(words[0], path=_PATH) if words else None
    if found is None:
        rule = "must begin with a program that can be run"
        raise PlanError("--notify", text, rule, "Give its whole path, and make it executable.")
    return [os.path.abspath(found), *words[1:]]


@final
class Hook:
    """Runs a command for every alert, one after the other, in a thread of its own.

    Guarantee: `notify` returns at once and never raises; the command has 20 seconds and is ended
        with all that it started; in t minutes it is run at most 20 + t times, and each alert says
        how many before it were not passed on.

    Args:
        command: its words.
        party: whose alerts these are; `process`: of which of its processes.
        seconds: that the command may take.
        burst: so many at once; one more every `refill` seconds.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        party: str,
        process: str,
        seconds: float = _SECONDS,
        burst: int = _BURST,
        refill: float = _REFILL_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._command, self._about = list(command), {"party": party, "process": process}
        self._seconds, self._burst, self._refill = seconds, burst, refill
        self._clock, self._when, self._left = clock, clock(), float(burst)
        self._unsent = 0
        self._waiting: queue.Queue[bytes | None] = queue.Queue(maxsize=_WAITING)
        self._thread = threading.Thread(target=self._run_all, name="notify", daemon=True)
        self._thread.start()

    def notify(self, happened: Event, *, says: str, name: str) -> None:
        """Have the command told of an alert.

        Args:
            says: what the alert means.
            name: of what is watched.
        """
        if not self._may():
            self._unsent += 1
            return
        entries: dict[str, Any] = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "event": happened.name,
            **self._about,
            "of": name,
            "says": says,
            **happened.values,
            "unsent": self._unsent,
        }
        line = json.dumps(plain_json(entries), separators=(",", ":")).encode() + b"\n"
        try:
            self._waiting.put_nowait(line)
            self._unsent = 0
        except queue.Full:
            self._unsent += 1

    def close(self) -> None:
        """Let the command hear what is left, for as long as one may take and no longer."""
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(None)
        self._thread.join(timeout=self._seconds + 1.0)

    def _may(self) -> bool:
        now = self._clock()
        self._left = min(float(self._burst), self._left + (now - self._when) / self._refill)
        self._when = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True

    def _run_all(self) -> None:
        while (line := self._waiting.get()) is not None:
            self._run(line)

    def _run(self, line: bytes) -> None:
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        try:
            child = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**environment, "PATH": _PATH},
                cwd="/",
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            tell(HookFailed(cause=type(error).__name__))
            return
        try:
            child.communicate(line, timeout=self._seconds)
            if child.returncode:
                tell(HookFailed(cause="status", status=abs(child.returncode)))
        except subprocess.TimeoutExpired:
            tell(HookFailed(cause="timeout"))
        except OSError as error:  # it did not want to hear it
            tell(HookFailed(cause=type(error).__name__))
        finally:
            with contextlib.suppress(OSError):  # whatever it has started ends with it
                os.killpg(child.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(timeout=1.0)
