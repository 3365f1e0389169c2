"""The text of a unit for systemd: what all services of ours have in common, and how words are
written there.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from sumus.errors import DataError
from sumus.files import make_directory, replace_atomically
from sumus.service import PATIENCE_SECONDS, beyond_restart

__all__ = ["CACHE", "ServiceUnit", "credential", "inaccessible", "put_units"]

CACHE = "/var/cache"
"""Where systemd makes a service's `CacheDirectory`."""
_KEPT = (
    # ready when the process says so, alive while its loop goes round
    "Type=notify",
    "NotifyAccess=main",
    f"WatchdogSec={PATIENCE_SECONDS:.0f}",
    "WatchdogSignal=SIGKILL",
    "TimeoutStopSec=120",
    "KillMode=mixed",
    # for ever, and not in a hurry; what nobody but a person can mend is not tried again
    "Restart=always",
    "RestartSec=15",
    f"RestartPreventExitStatus={' '.join(map(str, beyond_restart()))}",
)
_HARDENED = (
    "UMask=0077",
    "LimitCORE=0",
    "NoNewPrivileges=yes",
    "CapabilityBoundingSet=",
    "AmbientCapabilities=",
    "SystemCallFilter=@system-service",
    "SystemCallFilter=~@privileged @resources",
    "SystemCallErrorNumber=EPERM",
    "SystemCallArchitectures=native",
    "PrivateDevices=yes",
    "DevicePolicy=closed",
    "PrivateIPC=yes",
    "ProtectSystem=strict",
    "ProtectProc=invisible",
    "ProtectClock=yes",
    "ProtectControlGroups=yes",
    "ProtectHostname=yes",
    "ProtectKernelLogs=yes",
    "ProtectKernelModules=yes",
    "ProtectKernelTunables=yes",
    "LockPersonality=yes",
    "RestrictNamespaces=yes",
    "RestrictRealtime=yes",
    "RestrictSUIDSGID=yes",
)
_HOMES = (Path("/home"), Path("/root"), Path("/run/user"))
_TEMPORARY = (Path("/tmp"), Path("/var/tmp"))  # noqa: S108


@final
@dataclass(frozen=True, kw_only=True)
class ServiceUnit:
    """One service.

    Args:
        name: of the file, without `.service`.
        description: in words.
        user: who runs it.
        command: its command line.
        environment: variables of its own.
        folder: where it runs; None: in /.
        writes: files and folders that it writes; all else is closed to writing.
        needs: what else must be there before it starts.
        after: names of units that it starts after, and wants.
        addresses: kinds of sockets that it may open.
        here: whether it speaks to this machine only.
        start_seconds: how long it may take until it is ready.
        more: further lines of its service.
    """

    name: str
    description: str
    user: str
    command: Sequence[str]
    writes: Sequence[Path]
    addresses: str
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None
    needs: Sequence[Path] = ()
    after: Sequence[str] = ()
    here: bool = False
    start_seconds: int = 300
    more: Sequence[str] = ()

    @property
    def file(self) -> str:
        """Its name among units."""
        return f"{self.name}.service"

    @property
    def text(self) -> str:
        """As systemd reads it."""
        networked = "AF_INET" in self.addresses
        others = [*(["network-online.target"] if networked else []), *self.after]
        places = [*self.writes, *self.needs]
        cache = f"sumus/{self.name}"
        variables = {"NUMBA_CACHE_DIR": f"{CACHE}/{cache}"} | dict(self.environment)
        sections = {
            "Unit": [
                f"Description={self.description}",
                *([f"Wants={' '.join(others)}", f"After={' '.join(others)}"] if others else []),
                f"RequiresMountsFor={_line(map(str, places))}",
                "StartLimitIntervalSec=0",
            ],
            "Service": [
                f"User={self.user}",
                f"ExecStart={_line(self.command)}",
                *(f"Environment={_line([f'{name}={value}'])}" for name, value in variables.items()),
                *([] if self.folder is None else [f"WorkingDirectory={_path(self.folder)}"]),
                f"CacheDirectory={cache}",
                "CacheDirectoryMode=0700",
                f"ReadWritePaths={_line(map(str, self.writes))}",
                f"PrivateTmp={'no' if self._uses(_TEMPORARY) else 'yes'}",
                f"ProtectHome={'read-only' if self._uses(_HOMES) else 'yes'}",
                f"RestrictAddressFamilies={self.addresses}",
                *(["IPAddressDeny=any", "IPAddressAllow=localhost"] if self.here else []),
                *self.more,
                f"TimeoutStartSec={self.start_seconds}",
                *_KEPT,
                *_HARDENED,
            ],
            "Install": ["WantedBy=multi-user.target"],
        }
        return "\n".join(
            f"[{section}]\n" + "".join(f"{line}\n" for line in lines)
            for section, lines in sections.items()
        )

    def _uses(self, folders: Iterable[Path]) -> bool:
        """Whether something of the service is in one of these folders, which else are hidden."""
        own = [*self.writes, *self.needs, Path(sys.prefix), Path(sys.base_prefix), Path(__file__)]
        return any(place.is_relative_to(folder) for place in own for folder in folders)


def put_units(folder: Path, units: Sequence[ServiceUnit], before: Sequence[str]) -> list[str]:
    """Write units into a folder; returns what is left to do for root, in lines.

    Args:
        before: commands that come before the units are installed.
    """
    make_directory(folder)
    for unit in units:
        replace_atomically(folder / unit.file, unit.text.encode())
    written = [str(folder / unit.file) for unit in units]
    files = shlex.join(written)
    names = " ".join(unit.file for unit in units)
    checked = shutil.which("systemd-analyze") is not None
    return [
        f"wrote {', '.join(written)}; as root:",
        *(f"  {line}" for line in before),
        *([f"  systemd-analyze verify {files}"] if checked else []),
        f"  cp {files} /etc/systemd/system/",
        f"  systemctl daemon-reload && systemctl enable --now {names}",
    ]


def inaccessible(places: Iterable[Path]) -> str:
    """A line that hides files and folders, whether they are there or not."""
    return f"InaccessiblePaths={_line(f'-{place}' for place in places)}"


def credential(name: str, file: str) -> str:
    """A line that hands a secret file of root's to the service."""
    return f"LoadCredential={_line([f'{name}:{file}'])}"


def _line(words: Iterable[str]) -> str:
    """Words as systemd reads them."""
    return " ".join(_quoted(word) for word in words)


def _path(place: Path) -> str:
    """A setting that takes one path as it stands."""
    _require_one_line(str(place))
    return str(place).replace("%", "%%")


def _quoted(word: str) -> str:
    _require_one_line(word)
    escaped = word.replace("%", "%%")
    escaped = escaped.replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    return f'"{escaped}"' if set(word) & set(" '\"\\") else escaped


def _require_one_line(word: str) -> None:
    if any(ord(character) < 32 for character in word):
        raise DataError(f"a unit cannot name {word!r}: it has a line break. Rename it.")
