"""How a party's machine is, for whoever watches it: disk, certificates, backup and books.

What costs little is looked at whenever it is asked for, the hash chains once an hour, and again a
moment later where one does not hold, because somebody may be writing to it.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import final

from cryptography import x509

from sumus.books import JOURNAL, RunFolder
from sumus.engines.kit import Kit, certificates_in
from sumus.errors import SumusError
from sumus.files import read_bytes
from sumus.parties import SeenLedger, Site, audit_server, audit_vault
from sumus.watching import Health

__all__ = ["MachineHealth", "operator_health", "server_health", "silo_health"]

_BOOKS_SECONDS = 3600.0
_AGAIN_SECONDS = 1.0
_LAST_BACKUP = "backup.json"


@final
class MachineHealth:
    """Looks when it is called; nothing is changed, and nothing raised.

    Args:
        places: what the party writes to.
        kit: whose certificates are looked at.
        books: by name what raises, or returns False, if it does not hold.
        vault: of a silo, for backup and shelf.
    """

    def __init__(
        self,
        *,
        places: Iterable[Path] = (),
        kit: Path | None = None,
        books: Mapping[str, Callable[[], bool]] | None = None,
        vault: Path | None = None,
        uptime: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._places, self._kit, self._books = tuple(places), kit, books
        self._vault, self._uptime, self._sleep = vault, uptime, sleep
        self._broken: tuple[str, ...] | None = None
        self._looked: float | None = None

    def __call__(self) -> Health:
        """How it is now."""
        free, size = self._disk()
        return Health(
            disk_free=free,
            disk_size=size,
            certificates_end=_first_end(self._kit),
            backup_made=None if self._vault is None else _backup_made(self._vault),
            broken=self._read_books(),
            runs_received=None if self._vault is None else _received(self._vault),
        )

    def _disk(self) -> tuple[int | None, int | None]:
        """Of the place with the least room."""
        found = []
        for place in self._places:
            there = next(each for each in (place, *place.absolute().parents) if each.exists())
            with contextlib.suppress(OSError):
                total, _, free = shutil.disk_usage(there)
                found.append((free, total))
        return min(found, default=(None, None))

    def _read_books(self) -> tuple[str, ...] | None:
        if self._books is None:
            return None
        now = self._uptime()
        if self._looked is None or now - self._looked >= _BOOKS_SECONDS or self._broken:
            self._looked = now
            self._broken = tuple(
                name for name, holds in self._books.items() if not self._holds(holds)
            )
        return self._broken

    def _holds(self, holds: Callable[[], bool]) -> bool:
        for again in range(2):
            if again:
                self._sleep(_AGAIN_SECONDS)
            with contextlib.suppress(SumusError, OSError):
                if holds():
                    return True
        return False


def silo_health(kit: Kit, vault: Path) -> MachineHealth:
    """Of a silo."""

    def ledger() -> bool:
        books = Site.of_folder(vault).ledger
        books.verify()
        SeenLedger(vault, books).require_whole()
        return True

    return MachineHealth(
        places=(vault, Site.of_folder(vault).ledger.path.parent),
        kit=kit.path,
        books={"ledger": ledger, "trail": lambda: not audit_vault(vault).findings},
        vault=vault,
    )


def server_health(kit: Kit) -> MachineHealth:
    """Of a server."""

    def journal() -> bool:
        for path in sorted((kit.state / "runs").glob(f"*/*/{JOURNAL}")):
            RunFolder.open(path.parent).verify()
        return True

    return MachineHealth(
        places=(kit.state,),
        kit=kit.path,
        books={"trail": lambda: not audit_server(kit.state).findings, "journal": journal},
    )


def operator_health(kit: Kit | None, out: Path) -> MachineHealth:
    """Of an operator.

    Args:
        out: where run folders go.
    """
    return MachineHealth(places=(out,), kit=None if kit is None else kit.path)


def _first_end(kit: Path | None) -> float | None:
    """When the first certificate of a kit ends, Unix time."""
    ends = []
    for path in certificates_in(kit) if kit is not None else ():
        with contextlib.suppress(SumusError, ValueError):  # a bare public key has no end
            certificate = x509.load_pem_x509_certificate(read_bytes(path))
            ends.append(certificate.not_valid_after_utc.timestamp())
    return min(ends, default=None)


def _backup_made(vault: Path) -> float:
    """When a vault was backed up last; 0: never, or nobody can tell."""
    with contextlib.suppress(SumusError, ValueError, KeyError, TypeError):
        return datetime.fromisoformat(
            str(json.loads(read_bytes(vault / _LAST_BACKUP))["made"])
        ).timestamp()
    return 0.0


def _received(vault: Path) -> int | None:
    with contextlib.suppress(SumusError, OSError):
        return sum(1 for _ in Site.of_folder(vault).shelf(vault).runs())
    return None
