"""The version of everything that is stored: one table, which readers and writers take their marks
from.

A file says of which format it is before anything of it is believed, and one of another version is
refused in a line that names both, never taken for damaged: whoever goes back to an earlier Sumus
must not be told to throw a ledger away. A change that an earlier version would misread gets the
next number here. tests/stored/ has files of every release.

Plans, policies and rosters are read key by key: a key that this version does not know is refused by
its name, and a plan's hash covers every key.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, final

from sumus.errors import StorageError

__all__ = ["FORMATS", "Format"]

_MOST = 99


@final
@dataclass(frozen=True, kw_only=True)
class Format:
    """How something is stored.

    Args:
        name: what it is.
        files: where it lies.
        mark: by which a file says its version, with {} in its place.
        version: that is written and read.
        says: where the mark stands.
    """

    name: str
    files: str
    mark: str
    version: int
    says: str

    def marked(self, version: int | None = None) -> str:
        """The mark of a version; None: of the one that is written."""
        return self.mark.format(self.version if version is None else version)

    def other(self, fits: Callable[[str], bool]) -> int | None:
        """The version other than this one whose mark fits; None: there is no such."""
        versions = (each for each in range(1, _MOST + 1) if each != self.version)
        return next((each for each in versions if fits(self.marked(each))), None)

    def refusal(self, path: Path | str, version: int, *, by: object = None) -> StorageError:
        """The error for a file of a version that is not read.

        Args:
            by: what the file says of the Sumus that wrote it.
        """
        wrote = f" (sumus {by:.40})" if isinstance(by, str) and by.isprintable() else ""
        return StorageError(
            f"{path} has format {version} of a {self.name}, this version of Sumus reads "
            f"{self.version}. Use the version that wrote it{wrote}."
        )

    def require_beginning(self, path: Path | str, content: bytes) -> None:
        """Refuse a file that begins with the mark of another version."""
        other = self.other(lambda mark: content.startswith(mark.encode()))
        if other is not None:
            raise self.refusal(path, other)

    def require_field(self, path: Path, content: bytes, *, fix: str) -> dict[str, Any]:
        """The entries of a JSON file whose field `format` has this version."""
        try:
            entries = json.loads(content)
        except (ValueError, RecursionError):
            raise StorageError(f"{path} is damaged: not a JSON object. {fix}") from None
        if not isinstance(entries, dict):
            raise StorageError(f"{path} is damaged: not a JSON object. {fix}")
        version = entries.get("format")
        if not isinstance(version, int) or isinstance(version, bool):
            raise StorageError(f"{path} does not say its format. {fix}")
        if version != self.version:
            raise self.refusal(path, version, by=entries.get("sumus"))
        return entries


_ALL = (
    Format(
        name="journal",
        files="`journal.jsonl` of a run",
        mark="sumus-run-v{}",
        version=1,
        says="what the first line continues, hashed",
    ),
    Format(
        name="run's evidence",
        files="`evidence.jsonl` of a run",
        mark="sumus evidence {}",
        version=1,
        says="what the first line continues",
    ),
    Format(
        name="list of receipts",
        files="`receipts.jsonl` of a run",
        mark="sumus receipts {}",
        version=1,
        says="what the first line continues",
    ),
    Format(
        name="checkpoint",
        files="`checkpoint.npz` of a run",
        mark="sumus-checkpoint-v{} sha256 ",
        version=1,
        says="the comment at its end",
    ),
    Format(
        name="model's facts",
        files="`model.json` of a run",
        mark='"format": {},',
        version=1,
        says="the field `format`",
    ),
    Format(
        name="delivery note",
        files="`delivery.json` of a received run",
        mark='"format": {},',
        version=1,
        says="the field `format`",
    ),
    Format(
        name="ledger",
        files="`ledger-NAME.jsonl`",
        mark="sumus-ledger-v{}",
        version=1,
        says="what the first line continues, hashed with the data set",
    ),
    Format(
        name="audit trail",
        files="`audit.jsonl` of a vault or a server",
        mark="sumus audit {}",
        version=1,
        says="what the first line of the first segment continues",
    ),
    Format(
        name="session's file",
        files="`sessions/*/keys` of a vault",
        mark="sumus session {}\n",
        version=2,
        says="its first bytes",
    ),
    Format(
        name="key ring",
        files="the rest of that file",
        mark="sumus key ring {}\n",
        version=2,
        says="its first bytes",
    ),
    Format(
        name="round memory",
        files="`sessions/*/rounds.log` of a vault",
        mark="sumus round memory {}",
        version=1,
        says="what the first line continues",
    ),
    Format(
        name="queue",
        files="`queue.json` of an operator",
        mark='"format": {},',
        version=1,
        says="the field `format`",
    ),
    Format(
        name="backup",
        files="what `sumus silo backup` writes",
        mark="sumus backup {}\n",
        version=1,
        says="its first line",
    ),
    Format(
        name="parcel",
        files="a run on its way to a silo",
        mark="sumus parcel {}\n",
        version=1,
        says="its first line",
    ),
)
FORMATS: Mapping[str, Format] = MappingProxyType({each.name: each for each in _ALL})
"""By name."""
