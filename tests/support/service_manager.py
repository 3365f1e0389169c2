"""Plays systemd as far as a service can tell: reads a unit, gives the process what the unit says,
and listens on a notify socket. Shares no code with what writes units.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_CREDENTIALS = struct.Struct("iII")
_ESCAPES = {"\\": "\\", '"': '"', "'": "'", "s": " "}


def read_unit(path: Path) -> dict[str, dict[str, list[str]]]:
    """Section → setting → its values in order; an empty value clears what came before it."""
    sections: dict[str, dict[str, list[str]]] = {}
    for line in path.read_text().splitlines():
        if not line or line.startswith(("#", ";")):
            continue
        if line.startswith("["):
            current = sections.setdefault(line.strip("[]"), {})
            continue
        name, _, value = line.partition("=")
        current.setdefault(name, []).append(value)
    return sections


def words(value: str) -> list[str]:
    """Words of a setting by systemd.syntax(7) and systemd.service(5): quotes, backslashes, %% and
    $$; anything else that begins with % or $ would be expanded, and is refused here.
    """
    found, word, quote, at = [], "", "", 0
    began = False
    while at < len(value):
        letter = value[at]
        if letter == "\\":
            at += 1
            word, began = word + _ESCAPES[value[at]], True
        elif quote:
            if letter == quote:
                quote = ""
            else:
                word += letter
        elif letter in "\"'" and not began:
            quote, began = letter, True
        elif letter == " ":
            if began:
                found.append(word)
            word, began = "", False
        else:
            word, began = word + letter, True
        at += 1
    assert not quote, value
    if began:
        found.append(word)
    return [_expanded(each) for each in found]


def _expanded(word: str) -> str:
    assert not re.search(r"%(?!%)", word.replace("%%", "")), f"{word} has a specifier"
    assert not re.search(r"\$(?!\$)", word.replace("$$", "")), f"{word} has a variable"
    return word.replace("%%", "%").replace("$$", "$")


@dataclass(frozen=True)
class Told:
    """One datagram: from which process, when (monotonic), which lines."""

    pid: int
    at: float
    lines: dict[str, str]


class Service:
    """A process that was started as its unit says.

    Args:
        unit: the file.
        root: an empty folder with a short path, in the place of / for what systemd makes
            (`RuntimeDirectory`, `CacheDirectory`).
        watchdog_seconds: in the place of the unit's own, so that nobody waits for minutes.
        environment: added, for the sake of the test.
    """

    def __init__(
        self,
        unit: Path,
        root: Path,
        *,
        watchdog_seconds: float = 4.0,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        settings = read_unit(unit)["Service"]
        assert settings["Type"] == ["notify"]
        assert settings["NotifyAccess"] == ["main"]
        assert float(settings["WatchdogSec"][0]) > 0
        self.settings, self.name = settings, unit.stem
        self.prevented = {int(code) for code in settings["RestartPreventExitStatus"][0].split()}
        for setting, base in (("RuntimeDirectory", "run"), ("CacheDirectory", "var/cache")):
            for name in settings.get(setting, []):
                (root / base / name).mkdir(parents=True, exist_ok=True)
                (root / base / name).chmod(int(settings[f"{setting}Mode"][0], 8))

        def there(text: str) -> str:
            return re.sub(r"(?<![\w.-])(/run|/var/cache)/sumus", rf"{root}\1/sumus", text)

        own = dict(
            word.split("=", 1) for value in settings["Environment"] for word in words(there(value))
        )
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        address = root / f"notify-{self.name}"
        address.unlink(missing_ok=True)
        self._socket.bind(str(address))
        self._socket.settimeout(0.2)
        self.told: list[Told] = []
        self.log = root / f"{self.name}.log"
        (command,) = settings["ExecStart"]
        (folder,) = settings.get("WorkingDirectory", ["/"])
        watchdog = {"WATCHDOG_USEC": str(int(watchdog_seconds * 1e6))}
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                words(there(command)),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=folder.replace("%%", "%"),
                start_new_session=True,
                env={
                    "PATH": os.environ["PATH"],
                    "NOTIFY_SOCKET": str(address),
                    **watchdog,
                    **own,
                    **(environment or {}),
                },
            )

    def hear(self, seconds: float) -> list[Told]:
        """What comes in that time."""
        until, heard = time.monotonic() + seconds, []
        while time.monotonic() < until:
            with contextlib.suppress(TimeoutError):
                data, ancillary, _, _ = self._socket.recvmsg(4096, socket.CMSG_SPACE(12))
                pid, _, _ = _CREDENTIALS.unpack(ancillary[0][2])
                lines = dict(line.split("=", 1) for line in data.decode().split("\n"))
                heard.append(Told(pid, time.monotonic(), lines))
        self.told += heard
        return heard

    def wait_for(self, what: Callable[[Told], bool], seconds: float) -> Told:
        """The first datagram of a kind."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for told in self.hear(0.3):
                if what(told):
                    return told
            assert self.process.poll() is None, (self.process.poll(), self.log.read_text()[-3000:])
        raise AssertionError(f"{self.name} did not say it; it said {self.told[-3:]}")

    def wait_until_ready(self, seconds: float = 240.0) -> Told:
        return self.wait_for(lambda told: told.lines.get("READY") == "1", seconds)

    @property
    def status(self) -> str:
        """The latest line that it said."""
        return next(
            (told.lines["STATUS"] for told in reversed(self.told) if "STATUS" in told.lines), ""
        )

    def wait_for_status(self, text: str, seconds: float = 120.0) -> None:
        until = time.monotonic() + seconds
        while text not in self.status:
            assert time.monotonic() < until, (self.status, self.log.read_text()[-3000:])
            self.hear(0.3)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ended(self, seconds: float = 120.0) -> int:
        """The exit code of a service that ends by itself."""
        code = self.process.wait(timeout=seconds)
        self.hear(0.3)
        self._socket.close()
        return code

    def stop(self, seconds: float = 60.0) -> int:
        """As `systemctl stop` does with KillMode=mixed; returns the exit code."""
        self.process.terminate()
        until = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < until:
            self.hear(0.2)
        code = self.process.poll()
        self.hear(0.3)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._socket.close()
        return -signal.SIGKILL if code is None else code


@contextlib.contextmanager
def serviced(unit: Path, root: Path, **options: object) -> Iterator[Service]:
    """A service for as long as the block lasts."""
    service = Service(unit, root, **options)  # type: ignore[arg-type]
    try:
        yield service
    finally:
        if service.process.poll() is None:
            service.stop()
