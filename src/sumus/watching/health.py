"""What a party's own machine says of itself: disk, certificates, backup, books, clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from sumus.errors import StorageError

__all__ = ["BOOKS", "Health"]

BOOKS = ("ledger", "trail", "journal")
"""What may be broken: a chain that does not hold, or lacks what was remembered of it elsewhere."""


@final
@dataclass(frozen=True, kw_only=True)
class Health:
    """How a party's machine is; what is None was not looked at.

    Args:
        disk_free: bytes, where least is free of what the party writes to; `disk_size`: of that disk.
        certificates_end: Unix time at which the first of the kit's certificates ends.
        backup_made: Unix time of a vault's last backup; 0: there is none.
        broken: books that do not hold, of `BOOKS`.
        clock_jumps: how often the clock was set since the process began.
        runs_received: runs on a silo's shelf.
    """

    disk_free: int | None = None
    disk_size: int | None = None
    certificates_end: float | None = None
    backup_made: float | None = None
    broken: tuple[str, ...] | None = None
    clock_jumps: int = 0
    runs_received: int | None = None

    def __post_init__(self) -> None:
        for book in self.broken or ():
            if book not in BOOKS:
                raise StorageError(f"broken must be of {', '.join(BOOKS)}, got {book!r:.40}.")
