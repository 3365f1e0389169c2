"""What a vault has seen of its ledger, which lives elsewhere: a ledger that is gone, or older than
the vault remembers, must not pass for one that has spent less.

VAULT/ledger.json     data set, how many lines it had, the hash of the last of them

What is entered is told to the vault's audit trail, which names the entry by its hash.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import final

from sumus.books import Ledger, LedgerReleases
from sumus.errors import StorageError
from sumus.events import LedgerBegun, Release, Trail
from sumus.files import from_json, read_bytes, replace_atomically

__all__ = ["Noted", "SeenLedger", "tell_releases"]


@final
@dataclass(frozen=True, kw_only=True)
class _Seen:
    dataset: str
    entries: int
    hash: str


@final
class SeenLedger:
    """A vault's memory of the ledger of its data set.

    Args:
        folder: of the vault.
        ledger: of the data set, in the organisation's state folder.
    """

    def __init__(self, folder: Path, ledger: Ledger) -> None:
        self._path, self.ledger = folder / "ledger.json", ledger

    def require_whole(self) -> None:
        """Refuse a ledger that lacks what this vault has entered."""
        seen = self._seen()
        if seen is None or seen.dataset != self.ledger.dataset or not seen.entries:
            return
        if not self.ledger.reaches(seen.entries, seen.hash):
            raise StorageError(
                f"{self.ledger.path} lacks entries: this vault has seen {seen.entries} lines "
                f"of {seen.dataset!r}. Restore it from a backup, adopt it with `sumus ledger "
                "move`, or begin at ε = 0 with --new-ledger if no record of it is left."
            )

    def note(self) -> None:
        """Remember how far the ledger is."""
        seen = _Seen(
            dataset=self.ledger.dataset,
            entries=self.ledger.lines,
            hash=self.ledger.head,
        )
        replace_atomically(self._path, (json.dumps(asdict(seen)) + "\n").encode(), secret=True)

    def forget(self, trail: Trail) -> None:
        """Begin a new ledger, because the silo's people say so."""
        seen = self._seen()
        trail.append(LedgerBegun(entries=0 if seen is None else seen.entries))
        self._path.unlink(missing_ok=True)

    def _seen(self) -> _Seen | None:
        if not self._path.exists():
            return None
        try:
            return from_json(_Seen, json.loads(read_bytes(self._path)), where=str(self._path))
        except (ValueError, RecursionError):
            raise StorageError(
                f"{self._path} is damaged: not a JSON object. Restore it from a backup, or delete "
                "it if the ledger is whole (`sumus ledger verify`)."
            ) from None


@final
@dataclass(frozen=True)
class Noted:
    """Releases whose ledger the vault remembers, and its trail names, each before it happens."""

    releases: LedgerReleases
    seen: SeenLedger
    trail: Trail
    silo: str

    def enter(self, number: int, round_id: bytes, purpose: str = "model") -> None:
        """See `Releases.enter`."""
        self.seen.require_whole()
        self.releases.enter(number, round_id, purpose)
        tell_releases(self.trail, self.seen.ledger, self.silo)
        self.seen.note()

    def require_near(self, number: int, last: int) -> None:
        """See `Releases.require_near`."""
        self.releases.require_near(number, last)

    def reserve(self) -> None:
        """See `Releases.reserve`."""
        self.seen.require_whole()
        self.releases.reserve()
        self.seen.note()

    def end(self, why: str) -> None:
        """See `Releases.end`."""
        self.seen.require_whole()
        self.releases.end(why)
        self.seen.note()


def tell_releases(trail: Trail, ledger: Ledger, silo: str) -> None:
    """Have a vault's trail name every entry of its silo that it does not name yet: the one that was
    just made, or the last one before the process died.
    """
    known = trail.known
    untold = [
        Release(
            plan=entry.plan_hash,
            round=entry.round,
            purpose=entry.purpose,
            round_id=entry.round_id.partition("/")[0],
            ledger=ledger.hash_of(number),
            entries=number,
            presumed=entry.is_presumed or None,
        )
        for number, entry in enumerate(ledger.entries(), start=1)
        if number > int(known.get("ledger", 0))
        and entry.run.endswith(f"-{silo}")
        and f"plan {entry.plan_hash}" in known
    ]
    if untold:
        trail.append(*untold)
