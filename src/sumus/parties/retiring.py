"""The end of a federation for a silo: everything that could open what it sent is destroyed, and
everything that counts or proves what it released is kept.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from sumus.errors import StorageError
from sumus.events import VaultRetired
from sumus.files import FolderLock, replace_atomically
from sumus.parties.trails import silo_trail

__all__ = ["require_not_retired", "retire"]

_MARK = "retired"
_KEPT = ("rounds.log", "evidence.jsonl", "certificates")
"""Of a session: which rounds were answered, and what proves them. All else is secret or of no use."""


def retire(vault: Path) -> list[str]:
    """Destroy the secrets of a vault for good; returns what was destroyed.

    Guarantee: of every session only what `_KEPT` names is left, and the silo's key is gone; ledger,
        policy, roster, approved plans, trail and refusals are not touched. The vault never opens again.
    """
    if not (vault / "roster.toml").is_file():
        raise StorageError(f"{vault} is no silo's vault. Give the folder that `sumus join` named.")
    with FolderLock(vault):
        doomed = [
            path
            for path in sorted((vault / "sessions").rglob("*"))
            if path.is_file() and not any(part in _KEPT for part in path.relative_to(vault).parts)
        ]
        doomed += [path for path in [vault / "identity.key"] if path.is_file()]
        silo_trail(vault).append(VaultRetired(destroyed=len(doomed)))
        replace_atomically(vault / _MARK, f"{datetime.now(UTC).isoformat()}\n".encode())
        for path in doomed:
            path.unlink()
    return [str(path.relative_to(vault)) for path in doomed]


def require_not_retired(vault: Path) -> None:
    """Refuse a vault that has been retired."""
    mark = vault / _MARK
    if mark.is_file():
        raise StorageError(
            f"{vault} was retired on {mark.read_text().strip()[:10]}: its secrets are gone. A silo "
            "comes back with a new key on a new roster."
        )
