"""What a vault has seen of its ledger, which lives elsewhere: a ledger that is gone, or older than
the vault remembers, must not pass for one that has spent less.

VAULT/ledger.json     data set, how many entries it had, the hash of the last of them
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import final

from sumus.books import Ledger, Releases
from sumus.errors import StorageError
from sumus.files import from_json, read_bytes, replace_atomically

__all__ = ["Noted", "SeenLedger"]


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
                f"{self.ledger.path} lacks entries: this vault has seen {seen.entries} releases "
                f"from {seen.dataset!r}. Restore it from a backup, adopt it with `sumus ledger "
                "move`, or begin at ε = 0 with --new-ledger if no record of it is left."
            )

    def note(self) -> None:
        """Remember how far the ledger is."""
        seen = _Seen(
            dataset=self.ledger.dataset,
            entries=len(self.ledger.entries()),
            hash=self.ledger.head,
        )
        replace_atomically(self._path, (json.dumps(asdict(seen)) + "\n").encode(), secret=True)

    def forget(self) -> None:
        """Begin a new ledger, because the silo's people say so."""
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
    """Releases whose ledger the vault remembers, each before it happens."""

    releases: Releases
    seen: SeenLedger

    def enter(self, number: int, round_id: bytes, purpose: str = "model") -> None:
        """See `Releases.enter`."""
        self.seen.require_whole()
        self.releases.enter(number, round_id, purpose)
        self.seen.note()

    def require_near(self, number: int, last: int) -> None:
        """See `Releases.require_near`."""
        self.releases.require_near(number, last)
