"""A silo's vault in one file, under a passphrase, from which no round can be answered again.

    sumus backup 1                                                      a line
    salt | nonce | ChaCha20-Poly1305( manifest, a line | file | file | … )  see `secagg.sealing`

What is in it: who the silo is (its key too, unless that is left out), whom it trusts, what it
allows, the plans that it approved, how far it answered each of them, its evidence and audit trail,
and a copy of its ledger. What is not: pair roots, the keys and the answer of the round in flight,
records, logs. So a backup opens no sum, neither of before nor of later, whoever has its passphrase.

It is made while the vault runs: every file is read whole, as it was after one of its durable
writes, and `restore` takes none of them to say how far the silo has gone since.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import final

from sumus.errors import StorageError
from sumus.events import BackupMade, audit_files
from sumus.files import FORMATS, build_of, from_json, read_bytes, replace_atomically
from sumus.parties import (
    EPOCHS,
    RESTORED,
    ROSTER,
    Site,
    require_not_retired,
    silo_trail,
    spent_session,
    vault_folder,
)
from sumus.secagg import Roster, RosterHistory, seal, unseal

__all__ = [
    "KEY",
    "LAST_BACKUP",
    "LEDGER",
    "Backup",
    "BackupNote",
    "Manifest",
    "back_up",
    "last_backup",
    "read_backup",
    "require_backup",
]

_FORMAT = FORMATS["backup"]
LAST_BACKUP = "backup.json"
"""In the vault: when it was backed up last, and what it knew then."""
LEDGER = "ledger.jsonl"
KEY = "identity.key"
_PLAIN = (ROSTER, EPOCHS, "site.toml", "policy.toml", RESTORED)
_NAMES = re.compile(
    rf"{re.escape(KEY)}|{re.escape(LEDGER)}|{'|'.join(map(re.escape, _PLAIN))}"
    r"|plans/[A-Za-z0-9_-]{1,100}\.toml|audit(-[0-9]{6,9})?\.jsonl"
    r"|sessions/[0-9a-f]{64}/(keys|rounds\.log|certificates/[0-9a-f]{64})"
)
_MOST_BYTES = 1 << 30


@final
@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The first line of what is sealed.

    Args:
        made: when.
        sumus: the release and digest that made it.
        dataset: whose ledger is copied.
        files: name → SHA-256 and length, in the order in which they follow.
    """

    silo: str
    made: str
    sumus: str
    dataset: str
    files: Mapping[str, tuple[str, int]]

    @property
    def line(self) -> bytes:
        return json.dumps(asdict(self), separators=(",", ":")).encode() + b"\n"


@final
@dataclass(frozen=True)
class Backup:
    """What a backup holds: files by their names in the vault, and `LEDGER`, the ledger's copy."""

    manifest: Manifest
    files: Mapping[str, bytes] = field(repr=False)

    @property
    def name(self) -> str:
        """SHA-256 of all of it."""
        return _sha256(self.manifest.line)

    @property
    def has_key(self) -> bool:
        return KEY in self.files

    @property
    def plans(self) -> dict[str, str]:
        """The plans that were approved: name of the file → its text."""
        return {
            name: content.decode()
            for name, content in self.files.items()
            if name.startswith("plans/")
        }

    @property
    def roster(self) -> Roster:
        """Whom the vault trusted."""
        return Roster.parse(self.files[ROSTER].decode())

    def usual_vault(self, state: Path) -> Path:
        """Where `sumus join` looks for the vault."""
        epochs = self.files.get(EPOCHS)
        first = self.roster if epochs is None else RosterHistory.parse(epochs.decode()).first
        return vault_folder(first, self.manifest.silo, state=state)

    def encode(self) -> bytes:
        """As it is sealed."""
        return self.manifest.line + b"".join(self.files[name] for name in self.manifest.files)


@final
@dataclass(frozen=True, kw_only=True)
class BackupNote:
    """What `backup.json` says.

    Args:
        plans: SHA-256 of the plans' files that were approved then.
        settings: SHA-256 of roster, site and policy as they were then.
        entries: of the ledger.
    """

    name: str
    made: str
    plans: tuple[str, ...]
    settings: str
    entries: int

    @classmethod
    def of(cls, backup: Backup) -> BackupNote:
        """What is worth remembering of a backup."""
        return cls(
            name=backup.name,
            made=backup.manifest.made,
            plans=tuple(sorted(_sha256(text.encode()) for text in backup.plans.values())),
            settings=_settings(backup.files),
            entries=len(backup.files[LEDGER].splitlines()),
        )

    def is_behind(self, vault: Path) -> bool:
        """Whether a plan was approved, or roster, site or policy changed, since."""
        plans = {_sha256(read_bytes(path)) for path in (vault / "plans").glob("*.toml")}
        kept = {name: read_bytes(vault / name) for name in _PLAIN if (vault / name).is_file()}
        return not plans <= set(self.plans) or _settings(kept) != self.settings


def back_up(vault: Path, file: Path, passphrase: bytes, *, with_key: bool = True) -> Backup:
    """Write a backup of a vault, also while its process runs.

    Guarantee: the file is there, whole and on the disk, when the call returns, or it is not there;
        a file that exists is not touched.

    Args:
        with_key: whether the silo's signing key is in it.
    """
    if file.exists():
        raise StorageError(f"{file} exists already. Give the backup another name.")
    backup = _collected(vault, with_key=with_key)
    line = _FORMAT.marked().encode()
    replace_atomically(file, line + seal(passphrase, backup.encode(), bound=line), secret=True)
    note = json.dumps(asdict(BackupNote.of(backup)), sort_keys=True) + "\n"
    replace_atomically(vault / LAST_BACKUP, note.encode(), secret=True)
    silo_trail(vault).append(BackupMade(digest=backup.name))
    return backup


def last_backup(vault: Path) -> BackupNote | None:
    """When a vault was backed up last, and what it knew then; None: never."""
    path = vault / LAST_BACKUP
    if not path.exists():
        return None
    try:
        return from_json(BackupNote, json.loads(read_bytes(path)), where=str(path))
    except (ValueError, RecursionError):
        raise StorageError(f"{path} is damaged: not a JSON object. Delete it.") from None


def read_backup(file: Path, passphrase: bytes) -> Backup:
    """Open a backup and check all of it.

    Guarantee: what it returns is what `back_up` sealed under this passphrase.
    """
    content = read_bytes(file)
    _require_readable(file, content)
    line = _FORMAT.marked().encode()
    opened = unseal(passphrase, content[len(line) :], bound=line)
    if opened is None:
        raise StorageError(
            f"{file} does not open: another passphrase, or the file was changed or cut. Try again, "
            "or take another copy."
        )
    return _decoded(opened, file)


def require_backup(file: Path) -> None:
    """Refuse a file that is no backup, or of a later version, before anybody is asked for a
    passphrase.
    """
    _require_readable(file, read_bytes(file))


def _require_readable(file: Path, content: bytes) -> None:
    begins = re.match(rb"sumus backup (\d{1,6})\n", content)
    if begins is None:
        raise StorageError(
            f"{file} is no backup of a vault. Give a file that `sumus silo backup` wrote."
        )
    if int(begins[1]) != _FORMAT.version:
        raise _FORMAT.refusal(file, int(begins[1]))


def _collected(vault: Path, *, with_key: bool) -> Backup:
    """Everything that goes into a backup, read while the vault may be writing."""
    if not (vault / ROSTER).is_file():
        raise StorageError(f"{vault} is no silo's vault. Give the folder that `sumus join` named.")
    require_not_retired(vault)
    site = Site.of_folder(vault)
    files = dict(_files(vault, with_key=with_key))
    files[LEDGER] = site.ledger.copied()
    if sum(map(len, files.values())) > _MOST_BYTES:
        raise StorageError(
            f"{vault} must fit into 1 GiB to be backed up. Move old certificates of "
            "sessions/*/certificates elsewhere."
        )
    manifest = Manifest(
        silo=_silo_of(vault),
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        sumus=build_of(),
        dataset=site.dataset,
        files={name: (_sha256(content), len(content)) for name, content in sorted(files.items())},
    )
    return Backup(manifest, files)


def _files(vault: Path, *, with_key: bool) -> Iterator[tuple[str, bytes]]:
    for name in (KEY, *_PLAIN) if with_key else _PLAIN:
        if (vault / name).is_file():
            yield name, read_bytes(vault / name)
    for path in audit_files(vault):
        yield path.name, _whole_lines(path)
    for path in sorted((vault / "plans").glob("*.toml")):
        yield f"plans/{path.name}", read_bytes(path)
    for folder in sorted((vault / "sessions").glob("*")):
        below = f"sessions/{folder.name}"
        if (folder / "keys").is_file():
            yield f"{below}/keys", spent_session(folder / "keys")
        if (folder / "rounds.log").is_file():
            yield f"{below}/rounds.log", _whole_lines(folder / "rounds.log")
        for path in sorted((folder / "certificates").glob("[0-9a-f]*")):
            yield f"{below}/certificates/{path.name}", read_bytes(path)


def _whole_lines(path: Path) -> bytes:
    """A file that lines are appended to, without one that is being written."""
    content = read_bytes(path)
    return content[: content.rfind(b"\n") + 1]


def _silo_of(vault: Path) -> str:
    """Whose key it is; needs no passphrase."""
    return read_bytes(vault / KEY).decode(errors="replace").partition(" ")[0]


def _decoded(content: bytes, file: Path) -> Backup:
    line, _, rest = content.partition(b"\n")
    try:
        manifest = from_json(Manifest, json.loads(line), where=f"{file}, manifest")
    except (ValueError, RecursionError):
        raise StorageError(f"{file} is damaged: its manifest is no JSON object.") from None
    files, begin = {}, 0
    for name, (digest, length) in manifest.files.items():
        files[name] = rest[begin : begin + length]
        begin += length
        if not _NAMES.fullmatch(name) or _sha256(files[name]) != digest:
            raise StorageError(f"{file} is damaged at {name!r}. Take another copy.")
    missing = {ROSTER, "site.toml", "policy.toml", LEDGER} - files.keys()
    if begin != len(rest) or missing:
        raise StorageError(f"{file} is not whole: it lacks {sorted(missing)}. Take another copy.")
    return Backup(manifest, files)


def _settings(files: Mapping[str, bytes]) -> str:
    """What of a vault its people decide on, hashed; a restore changes none of it."""
    parts = (files.get(name, b"") for name in _PLAIN if name != RESTORED)
    return _sha256(b"".join(hashlib.sha256(part).digest() for part in parts))


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
